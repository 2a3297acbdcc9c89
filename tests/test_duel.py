"""A duel: what is refused, what it can show, and one fought to the end."""

import re
from pathlib import Path

import pytest

from ablate.cli.shared import INTERRUPTED, TERMINATED
from ablate.config.rules import ConfigError
from ablate.duel import Duel, Side, side
from ablate.execution.plugins import Method
from ablate.reporting.html import write_report
from ablate.store.store import Store
from ablate.study.run import run
from ablate.study.study import Study
from ablate.verify.contract import require_sound
from tests.helpers import CONCAT, call_cli

SMALL = ("corpus=grammar", "corpus.characters=5000", "model.context=16", "model.layers=1", "train.batch=2")
SMALL += ("train.steps=6", "train.eval_every=3")


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def duel(one: str, other: str, *settings: str, command: str = "") -> Duel:
    return Duel(side(one), side(other), settings, command)


@pytest.mark.slow
def test_a_dry_run_says_what_it_takes_and_an_interruption_is_said_too(tmp_path, monkeypatch):
    command = ("duel", "sum", "concat", *SMALL)
    done = call_cli(*command, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        "arms: concat, sum" in done.stdout and "What difference these seeds show is not known" in done.stdout
    )
    assert not (tmp_path / "runs" / "studies").exists()

    def interrupted(*_: object, **__: object) -> None:
        raise SystemExit(TERMINATED)

    monkeypatch.setattr("ablate.study.run.run", interrupted)
    ended = call_cli(*command, cwd=tmp_path)
    assert ended.returncode == TERMINATED and ended.stderr.endswith(f"{INTERRUPTED}\n")


def test_sides_are_methods_of_either_kind_by_name():
    assert side("sum") == Side(Method("fusion", "sum")) and side("talking") == Side(
        Method("scores", "talking")
    )
    assert side("talking").arm == {"fusion": "concat", "scores": "talking", "match": "params"}
    with pytest.raises(ConfigError, match=r"smu: no such method; did you mean sum\?"):
        side("smu")


@pytest.mark.slow
def test_other_settings_and_numbers_of_seeds_are_other_duels_with_other_seeds():
    settings = [((), "8"), (("heads=8",), "8"), (("heads=2",), "8"), ((), "16")]
    duels = [duel("sum", "concat", *keys, command=seeds) for keys, seeds in settings]
    assert len({one.study for one in duels}) == len({one.first_seed for one in duels}) == 4
    assert duel("sum", "concat", command="8").study == duels[0].study


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("heads=2,4", "heads=2,4: a duel has one value on both sides"),
        ("name=x", "name=x: a duel sets name itself"),
        ("seed=7", "seed=7: a duel sets seed itself"),
        ("fusion=mean", "a duel sets fusion itself"),
    ],
)
def test_what_a_duel_sets_itself_is_refused_before_it_begins(setting, message):
    with pytest.raises(ConfigError, match=message):
        duel("sum", "concat", setting)
    duel("sum", "concat", "corpus=file", 'corpus.path="War, and Peace.txt"')


def test_a_side_has_options_of_its_own():
    one = Duel(side("gated", ["fusion.per=channel"]), side("sum"), SMALL, "")
    arms = one.sweep(8).study["arms"]  # pyright: ignore[reportOptionalSubscript]
    assert {*arms} == {"gated per=channel", "sum"} and "fusion.per" not in arms["sum"]
    assert one.study != duel("gated", "sum", *SMALL).study
    same = Duel(side("gated", ["fusion.per=channel"]), side("gated"), SMALL, "")
    assert (same.one.name, same.other.name) == ("gated per=channel", "gated per=head")
    both = Duel(side("gated"), side("weighted_sum"), [*SMALL, "fusion.per=channel"], "")
    assert {a.arm["fusion.per"] for a in (both.one, both.other)} == {"channel"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["fusion.pre=head"], r"fusion.pre=head: no option of gated; did you mean fusion.per\?"),
        (["fusion.per=head"], "gated per=head: a method can't be in a duel with itself; .* --a or --b"),
    ],
)
def test_an_option_that_makes_no_side_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Duel(side("gated", options), side("gated", ["fusion.per=head"]), SMALL, "")
    with pytest.raises(ConfigError, match=r"fusion\.per=head: no option of softmax; it has none"):
        side("softmax", ["fusion.per=head"])


def test_its_seeds_are_fixed():
    between = duel("sum", "concat", *SMALL)
    study = Study(between.sweep(24))
    assert study.design.looks is None and study.contrasts == 1
    assert study.design.levels["seed"] == [str(between.first_seed + at) for at in range(24)]


@pytest.mark.slow
@pytest.mark.parametrize("names", [("sum", "concat"), ("uniform", "concat")])
def test_the_first_is_compared_with_the_second(names):
    study = Study(duel(*names, *SMALL).sweep(8))
    arms = {study.design.name(arm): study.run_of(arm) for arm in study.design.compared}
    assert study.design.plan and arms.keys() == {*names}
    (contrast,) = study.design.plan.contrasts
    assert [study.design.name(arm) for _, arm in contrast.sides] == [*names]


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        (("sum", "concat"), ["heads=1"], "sum and concat are the same function here"),
        (
            *(("concat", "gated"), ["fusion.per=channel"]),
            "fusion.per=channel: no option of concat; for gated alone, write --b fusion.per=channel",
        ),
        (("sum", "concat"), ["out_proj=false", "heads=16"], "match"),
    ],
)
def test_what_can_not_be_compared_is_refused_with_its_reason(names, settings, message):
    with pytest.raises(ConfigError, match=message):
        duel(*names, *SMALL, *settings).sweep(8)
    assert not Store().study_names()


@pytest.mark.slow
def test_a_method_that_fails_its_check_has_no_duel(command):
    Path("peeking.py").write_text(CONCAT.format(name="peeking", line="z = z.roll(-1, dims=1)"))
    code, _, said = command("duel", "peeking.py", "concat", *SMALL)
    assert code == 2 and re.search("fusion=peeking .*fails its check, so its losses mean nothing", said)
    require_sound([side("concat").method])


@pytest.mark.slow
def test_a_duel_is_fought_and_goes_on_where_it_was(command):
    Path("book.txt").write_text("a rose is a rose is a rose\n" * 400)
    settings = ["heads=2", "model.d_model=16", *SMALL[2:], "corpus=file", "corpus.path=book.txt"]
    typed = "ablate duel sum concat heads=2 --text book.txt --seeds 6"
    between = duel("sum", "concat", *settings, command=typed)
    outcome = run(between.sweep(6))
    comparison, (sentence, *following) = between.result()
    code, answer, _ = command("compare", between.study, "--why")
    words, _, step = sentence.partition(" A training step of sum takes ")
    assert code == 0 and words.partition(" 6 paired seeds")[0].partition(": ")[2] in answer
    assert "sum" in words and "concat" in words and " nats" in words
    assert all("rate" not in line for line in following) and len(comparison.variants) == 2
    assert re.fullmatch(r"\d\.\d\d \[\d\.\d\d, \d\.\d\d\] times as long\.", step)
    assert typed in write_report(between.study).read_text(encoding="utf-8")
    again = run(between.sweep(6))
    assert again.finished_before == len(again.run_ids) == len(outcome.run_ids)
    assert between.result()[1][0].startswith(words)
