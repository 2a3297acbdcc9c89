"""A duel: what is refused, what a budget can see, its line, and one fought to the end."""

import re
from pathlib import Path

import pytest

from ablate.analysis.contrasts import primary_pairs
from ablate.cli.shared import INTERRUPTED, TERMINATED
from ablate.config.rules import ConfigError
from ablate.duel import FEWEST, PLAN, UNIFORM, Duel, Plan, Side, budget_text, side
from ablate.execution.plugins import Method
from ablate.phrases import texts
from ablate.reporting.html import write_report
from ablate.store.store import Store
from ablate.study import estimate, machine
from ablate.study.study import Study, settings
from ablate.verify.contract import require_sound
from tests.helpers import CONCAT, call_cli

SMALL = ("corpus=grammar", "corpus.characters=20000", "model.context=16", "train.batch=2")
SMALL += ("train.steps=6", "train.eval_every=3")


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def duel(one: str, other: str, *settings: str, command: str = "") -> Duel:
    return Duel(side(one), side(other), settings, command)


@pytest.mark.slow
def test_what_a_budget_buys_is_said_without_training_and_an_interruption_too(tmp_path, monkeypatch):
    command = ("duel", "sum", "concat", *SMALL, "--budget", "30m")
    done = call_cli(*command, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0 and "seeds" in done.stderr, done.stderr
    assert not (tmp_path / "runs" / "studies").exists()

    def interrupted(*_: object) -> None:
        raise SystemExit(TERMINATED)

    monkeypatch.setattr(Duel, "train", interrupted)
    ended = call_cli(*command, cwd=tmp_path)
    assert ended.returncode == TERMINATED and ended.stderr.endswith(f"{INTERRUPTED}\n")


def test_sides_are_methods_of_either_kind_by_name():
    assert side("sum") == Side(Method("fusion", "sum")) and side("talking") == Side(
        Method("scores", "talking")
    )
    assert side("talking").arm == {"fusion": "concat", "scores": "talking", "match": "params"}
    with pytest.raises(ConfigError, match=r"smu: no such method; did you mean sum\?"):
        side("smu")


def test_a_method_has_no_duel_with_itself():
    for one, other in (("sum", "sum"), ("concat", "softmax")):
        with pytest.raises(ConfigError, match=f"{one}: a method can't be in a duel with itself"):
            duel(one, other)


@pytest.mark.slow
def test_other_settings_and_budgets_are_other_duels_with_other_seeds():
    settings = [((), "30m"), (("heads=8",), "30m"), (("heads=2",), "30m"), ((), "1h")]
    duels = [duel("sum", "concat", *keys, command=budget) for keys, budget in settings]
    assert len({one.study for one in duels}) == len({one.first_seed for one in duels}) == 4
    assert duel("sum", "concat", command="30m").study == duels[0].study


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("heads=2,4", "heads=2,4: both sides of a duel have one value"),
        ("heads=range(1,3)", "heads=1,2: both sides"),
        ("name=x", "name=x: a duel sets name itself"),
        ("seed=7", "seed=7: a duel sets seed itself"),
        ("+study.margin=1", "a duel sets study.margin itself"),
        ("fusion=mean", "a duel sets fusion itself"),
        ("train.lr=0.1", "a duel sets train.lr itself"),
    ],
)
def test_what_a_duel_sets_itself_is_refused_before_it_begins(setting, message):
    with pytest.raises(ConfigError, match=message):
        duel("sum", "concat", setting)
    duel("sum", "concat", "corpus=file", 'corpus.path="War, and Peace.txt"')


def test_a_side_has_options_of_its_own():
    one = Duel(side("gated", ["fusion.per=channel"]), side("sum"), SMALL, "")
    arms = one.sweep(FEWEST).study["arms"]  # pyright: ignore[reportOptionalSubscript]
    assert {*arms} == {"gated per=channel", "sum", UNIFORM} and "fusion.per" not in arms["sum"]
    assert one.study != duel("gated", "sum", *SMALL).study
    same = Duel(side("gated", ["fusion.per=channel"]), side("gated"), SMALL, "")
    assert (same.one.name, same.other.name) == ("gated per=channel", "gated per=head")
    both = Duel(side("gated"), side("weighted_sum"), [*SMALL, "fusion.per=channel"], "")
    assert {a.arm["fusion.per"] for a in (both.one, both.other)} == {"channel"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["fusion.pre=head"], r"fusion.pre=head: no option of gated; did you mean fusion.per\?"),
        (["heads=2"], "heads=2: no option of gated; choices: fusion.activation"),
        (["fusion.per=head,channel"], "fusion.per=head,channel: both sides of a duel have one value"),
        (["fusion.per=head"], "gated per=head: a method can't be in a duel with itself; .* --a or --b"),
    ],
)
def test_an_option_that_makes_no_side_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Duel(side("gated", options), side("gated", ["fusion.per=head"]), SMALL, "")
    with pytest.raises(ConfigError, match=r"fusion\.per=head: no option of softmax; it has none"):
        side("softmax", ["fusion.per=head"])


def test_of_two_commands_that_plan_a_duel_at_once_the_first_counts(monkeypatch):
    one, other = (duel("sum", "concat", *SMALL) for _ in range(2))

    def slower(budget_s: float) -> Plan:
        monkeypatch.setattr(Duel, "_settled", lambda *_: Plan(17, 1.0))
        assert one.plan(60).seeds == 17
        return Plan(21, 2.0)

    monkeypatch.setattr(other, "_settled", slower)
    assert other.plan(60).seeds == 17 == duel("sum", "concat", *SMALL).plan(60).seeds


def test_a_duel_of_many_seeds_looks_at_its_results():
    between = duel("sum", "concat", *SMALL)
    for seeds, at in ((8, None), (24, [8, 12, 16, 24])):
        looks = Study(between.sweep(seeds)).design.looks
        assert (looks and looks.at) == at
        if looks:
            assert looks.contrasts == 1 and looks.seeds[0] == str(between.first_seed)


def test_the_yardstick_has_the_mlp_of_the_baseline():
    study = duel("concat", "sum", *SMALL, "model.d_model=128").sweep(FEWEST).study
    assert study is not None
    assert study["arms"].keys() == {"sum", "concat", UNIFORM}
    assert study["arms"][UNIFORM]["model.mlp_hidden"] > 512  # that of a sum matched to concat
    assert study["arms"][UNIFORM]["fusion"] == "sum" and "match" not in study["arms"][UNIFORM]


@pytest.mark.slow
@pytest.mark.parametrize("names", [("sum", "concat"), ("uniform", "concat"), ("concat", "uniform")])
def test_the_yardstick_is_no_side(names):
    study = Study(duel(*names, *SMALL).sweep(FEWEST))
    arms = {study.design.name(arm): study.run_of(arm) for arm in study.design.compared}
    variants = settings(arms.values())
    assert study.config and arms.keys() == {*names, UNIFORM}
    ((one, base),), lines = primary_pairs(variants, study.config.primary)
    ids = variants.table["run_id"]
    assert [ids[one], ids[base]] == [arms[name].run_id for name in names] and not lines


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        (("sum", "concat"), ["heads=1"], "sum and concat are the same function here"),
        (("mean", "sum"), ["fusion.normalize=variance"], "mean and sum are the same function here"),
        (
            *(("concat", "gated"), ["fusion.per=channel"]),
            "fusion.per=channel: no option of concat; for gated alone, write --b fusion.per=channel",
        ),
        (("concat", "talking"), ["fusion.per=head"], "no option of concat and talking; leave it out"),
        (("sum", "concat"), ["out_proj=false", "heads=16"], "match"),
    ],
)
def test_what_can_not_be_compared_is_refused_with_its_reason(names, settings, message):
    with pytest.raises(ConfigError, match=message):
        duel(*names, *SMALL, *settings).plan(3600)
    assert not Store().study_names()


@pytest.mark.parametrize("budget", ["soon", "30", "-3m", "1d", ""])
def test_a_budget_is_a_time(budget, command):
    code, _, said = command("duel", "sum", "concat", "--budget", budget)
    assert code == 2 and "write a time, as 45m or 2h" in said


@pytest.mark.slow
def test_a_budget_that_can_not_see_anything_says_what_it_would_take(command, monkeypatch):
    monkeypatch.setattr("ablate.verify.contract.require_sound", lambda sides: [])  # it has tests of its own
    code, _, said = command("duel", "sum", "concat", *SMALL, "--budget", "0s")
    assert code == 2, said
    assert "--budget 0s: too short to detect anything; " in said
    assert re.search(r"; --budget \d+[sm] detects 0\.\d+ nats; ", said) and not Store().study_names()


def test_a_budget_is_told_in_the_unit_of_its_size():
    assert [*map(budget_text, (89, 90, 5400, 5401))] == ["89s", "2m", "90m", "1.6h"]


@pytest.mark.slow
def test_a_plan_counts_the_workers_that_were_asked_for(monkeypatch):
    monkeypatch.setattr(estimate, "total", lambda *_: estimate.Times(steps=45.0))  # of 45 runs
    monkeypatch.setattr(machine, "bfloat16_is_faster", lambda: False)
    monkeypatch.setattr("ablate.compute.device.side_by_side", lambda *_: 16)
    duels = [duel("sum", "concat", *SMALL, *more) for more in ((), ("hydra.launcher.workers=1",))]
    assert [one.plan(72).seeds for one in duels] == [(72 - 60 / 16) // (3 / 16), (72 - 60) // 3]


@pytest.mark.slow
def test_a_method_that_fails_its_check_has_no_duel(command):
    Path("peeking.py").write_text(CONCAT.format(name="peeking", line="z = z.roll(-1, dims=1)"))
    code, _, said = command("duel", "peeking.py", "concat", *SMALL)
    assert code == 2 and re.search("fusion=peeking .*fails its check, so its losses mean nothing", said)
    require_sound([side("concat").method])


@pytest.mark.slow
def test_a_duel_is_fought_and_goes_on_where_it_was(command):
    Path("book.txt").write_text("a rose is a rose is a rose\n" * 2000)
    settings = ["heads=2", *SMALL[2:], "corpus=file", "corpus.path=book.txt"]
    typed = "ablate duel sum concat heads=2 --text book.txt --budget 30m"
    between = duel("sum", "concat", *settings, command=typed)
    plan = Plan(FEWEST, 0)
    outcome = between.train(plan)
    comparison, sentence = between.result()
    code, answer, _ = command("compare", between.study, "--why")
    words, _, step = sentence.partition(" A training step of sum takes ")
    assert code == 0 and answer.startswith(words.partition(" 4 paired seeds")[0])
    assert "sum" in words and "concat" in words and " nats" in words
    assert any(note.startswith("attention is worth ") for note in texts(comparison.notes))
    assert re.fullmatch(r"\d\.\d\d \[\d\.\d\d, \d\.\d\d\] times as long\.", step)
    assert typed in write_report(between.study).read_text(encoding="utf-8")
    again = between.train(plan)
    assert again.finished_before == len(again.run_ids) == len(outcome.run_ids)
    assert between.result()[1].startswith(words)
    other = duel("sum", "concat", *settings, command=f"{typed} again")  # its development runs are there
    settled = other.plan(60)
    assert settled.seeds > FEWEST and 0 < settled.seconds <= 60
    assert other.plan(0) == settled  # at the first call, and kept
    (Store().study_directory(other.study) / PLAN).write_text("[]")
    with pytest.raises(ConfigError, match=r"plan\.json: can't be read .*move it away"):
        other.plan(60)
