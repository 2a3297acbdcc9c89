"""A duel: what is refused, what it can show, and one fought to the end."""

import re
from pathlib import Path

import pytest

from ablate.cli.shared import INTERRUPTED, TERMINATED
from ablate.compose.sweep import Sweep
from ablate.config.rules import ConfigError
from ablate.duel import duel, side
from ablate.execution.plugins import Method
from ablate.store import provenance
from ablate.store.store import Store
from ablate.verify.contract import require_sound
from tests.helpers import CONCAT, call_cli

SMALL = ("corpus=grammar", "corpus.characters=5000", "model.context=16", "model.layers=1", "train.batch=2")
SMALL += ("train.steps=6", "train.eval_every=3")


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def between(one: str, other: str, *settings: str, seeds: int = 8) -> Sweep:
    return duel(side(one), side(other), [*SMALL, *settings], f"--seeds {seeds}", seeds)


@pytest.mark.slow
def test_a_dry_run_says_what_it_takes_and_an_interruption_is_said_too(tmp_path, monkeypatch):
    command = ("duel", "sum", "concat", *SMALL)
    done = call_cli(*command, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0 and " if it comes to all, " in done.stdout, done.stderr
    assert "arms: concat, sum" in done.stdout and "What these seeds can show is not known" in done.stdout
    assert not (tmp_path / "runs" / "studies").exists()

    def interrupted(*_: object, **__: object) -> None:
        raise SystemExit(TERMINATED)

    monkeypatch.setattr("ablate.study.run.run", interrupted)
    ended = call_cli(*command, cwd=tmp_path)
    assert ended.returncode == TERMINATED and ended.stderr.endswith(f"{INTERRUPTED}\n")


def test_a_side_is_a_method_of_either_kind_by_name():
    assert side("sum") == Method("fusion", "sum") and side("talking") == Method("scores", "talking")
    for given, why in (
        ("smu", r"no such method; did you mean sum\?"),
        ("scale=both", r".* `ablate .*fusion=concat scale=inside,both 'study\.primary.*'` compares"),
        ("layers=3", r".* model\.layers=2,3 'study\.primary=.*vary:model\.layers,baseline:2.*'` "),
        ("heads", ".* method; ablate run .* heads=4,ANOTHER '"),
        ("device=cpu", "no such method; choices"),
    ):
        with pytest.raises(ConfigError, match=f"{given}: {why}"):
            side(given)


def test_an_arm_has_the_standard_part_of_the_other_kind_and_equal_parameters():
    study = between("talking", "sum").study or {}
    assert study["arms"] == {
        "sum": {"fusion": "sum", "scores": "softmax", "match": "params"},
        "talking": {"fusion": "concat", "scores": "talking", "match": "params"},
    }
    assert study["primary"] == ["talking - sum"]


@pytest.mark.slow
def test_other_settings_and_numbers_of_seeds_are_other_duels_with_other_seeds():
    given = [((), 8), (("heads=8",), 8), (("heads=2",), 8), ((), 16)]
    sweeps = [between("sum", "concat", *keys, seeds=seeds) for keys, seeds in given]
    firsts = {(one.study or {})["seeds"][0] for one in sweeps}
    assert len({one.name for one in sweeps}) == len(firsts) == 4
    assert between("sum", "concat").name == sweeps[0].name
    provenance.plugins["mine.py"] = provenance.Plugin("mine.py", b"as it was changed")
    assert between("sum", "concat").name != sweeps[0].name


@pytest.mark.parametrize("setting", ["name=x", "seed=7", "fusion=mean", "scores=talking", "match=none"])
def test_what_a_duel_sets_itself_is_refused_before_it_begins(setting):
    with pytest.raises(ConfigError, match=f"{setting}: a duel sets {setting.partition('=')[0]} itself"):
        between("sum", "concat", setting)


def test_a_text_may_have_any_name():
    Path("War, and Peace.txt").write_text("a rose is a rose\n" * 400)
    text = ["corpus=file", 'corpus.path="War, and Peace.txt"']
    assert duel(side("sum"), side("concat"), [*text, *SMALL[2:]], "", 8).study


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        (("sum", "concat"), ["heads=1"], "sum and concat are the same function here"),
        (("sum", "sum"), [], "sum and sum are the same function here"),
        (("concat", "gated"), ["fusion.per=channel"], "fusion.per"),
        (("sum", "concat"), ["out_proj=false", "heads=16"], "match"),
        (("sum", "concat"), ["heads=2,4"], "heads=2,4: both sides of a duel have one value"),
    ],
)
def test_what_can_not_be_compared_is_refused_with_its_reason(names, settings, message):
    with pytest.raises(ConfigError, match=message):
        between(*names, *settings)
    assert not Store().study_names()


@pytest.mark.slow
def test_a_method_that_fails_its_check_has_no_duel(command):
    Path("peeking.py").write_text(CONCAT.format(name="peeking", line="z = z.roll(-1, dims=1)"))
    code, _, said = command("duel", "peeking.py", "concat", *SMALL)
    assert code == 2 and re.search("fusion=peeking .*fails its check, so its losses mean nothing", said)
    require_sound([side("concat")])


@pytest.mark.slow
def test_a_duel_is_fought_and_goes_on_where_it_was(command):
    Path("book.txt").write_text("a rose is a rose is a rose\n" * 400)
    typed = ("duel", "sum", "concat", "heads=2", "model.d_model=16", *SMALL[2:], "--text", "book.txt")
    code, said, _ = command(*typed, "--seeds", "6")
    (study,) = Store().study_names()
    _, answer, _ = command("compare", study, "--why")
    doubts, first, units, *_, page = said.splitlines()
    assert code == 0 and f"`ablate compare {study} --why` explains" in doubts
    assert first in answer and "sum" in first and "concat" in first and " nats" in first
    assert units in answer and "6 paired seeds" in units
    assert "ablate duel sum concat heads=2" in Path(page).read_text(encoding="utf-8")
    again, same, told = command(*typed, "--seeds", "6")
    assert again == 0 and same == said and "had finished before" not in same and "[1/" not in told
