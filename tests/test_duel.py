"""A duel: what is refused, what a budget can see, its line, and one fought to the end."""

import re
from pathlib import Path

import pytest

from ablate.analysis import stats
from ablate.analysis.contrasts import primary_pairs
from ablate.config.rules import ConfigError
from ablate.duel import DEVELOP, FEWEST, PLAN, UNIFORM, Duel, Plan, Side, failed_check, side
from ablate.execution.prepare import Prepared
from ablate.reporting.html import write_report
from ablate.store.store import Store
from ablate.study.primary import as_variants

SMALL = ("corpus=grammar", "corpus.characters=20000", "model.context=16", "train.batch=2")
SMALL += ("train.steps=6", "train.eval_every=3")


def test_sides_are_methods_of_either_kind_by_name():
    assert side("sum") == Side("fusion", "sum") and side("talking") == Side("scores", "talking")
    assert side("talking").arm == {"fusion": "concat", "scores": "talking"}
    with pytest.raises(ConfigError, match=r"smu: no such method; did you mean sum\?"):
        side("smu")


def test_a_method_has_no_duel_with_itself():
    for one, other in (("sum", "sum"), ("concat", "softmax")):
        with pytest.raises(ConfigError, match=f"{one}: a method can't be in a duel with itself"):
            Duel(side(one), side(other), [], "")


def test_other_settings_and_budgets_are_other_duels_with_other_seeds():
    asked = [([], "30m"), (["heads=8"], "30m"), (["heads=2"], "30m"), ([], "1h")]
    duels = [Duel(side("sum"), side("concat"), settings, budget) for settings, budget in asked]
    assert len({duel.study for duel in duels}) == len({duel.first_seed for duel in duels}) == 4
    assert Duel(side("sum"), side("concat"), [], "30m").study == duels[0].study


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
        Duel(side("sum"), side("concat"), [setting], "")
    Duel(side("sum"), side("concat"), ["corpus.splits=[0.8,0.1,0.1]", 'corpus.path="War, and Peace.txt"'], "")


def test_the_yardstick_has_the_mlp_of_the_baseline(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    fight = Duel(side("concat"), side("sum"), [*SMALL, "model.d_model=128"], "")
    study = fight._asked(4, DEVELOP).study
    assert study is not None
    assert study["arms"].keys() == {"sum", "concat", UNIFORM}
    assert study["arms"][UNIFORM]["model.mlp_hidden"] > 512  # that of a sum matched to concat
    assert study["arms"][UNIFORM]["fusion"] == "sum" and "match" not in study["arms"][UNIFORM]


@pytest.mark.parametrize("names", [("sum", "concat"), ("uniform", "concat"), ("concat", "uniform")])
def test_the_yardstick_is_no_side(names, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    asked = Duel(side(names[0]), side(names[1]), [*SMALL], "")._asked(FEWEST, DEVELOP)
    assert asked.study is not None
    arms = [tuple(f"{key}={value}" for key, value in arm.items()) for arm in asked.study["arms"].values()]
    runs = [Prepared(asked.configs((*asked.arguments, *arm)), elsewhere=True).run for arm in arms]
    pairs, lines = primary_pairs(as_variants(runs), asked.study["primary"])
    assert len(pairs) == 1 and not lines


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        (("sum", "concat"), ["heads=1"], "sum and concat are the same function here"),
        (("mean", "sum"), ["fusion.normalize=variance"], "mean and sum are the same function here"),
        (("concat", "gated"), ["fusion.per=channel"], "fusion.per"),  # concat has no such option
        (("sum", "concat"), ["out_proj=false", "heads=16"], "match"),
    ],
)
def test_what_can_not_be_compared_is_refused_with_its_reason(names, settings, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        Duel(side(names[0]), side(names[1]), [*SMALL, *settings], "").plan(3600)
    assert not Store().study_names()


@pytest.mark.parametrize("budget", ["soon", "30", "-3m", "1d", ""])
def test_a_budget_is_a_time(budget, command):
    code, _, said = command("duel", "sum", "concat", "--budget", budget)
    assert code == 2 and "write a time, as 45m or 2h" in said


@pytest.mark.slow
def test_a_budget_that_can_not_see_anything_says_what_it_would_take(command, monkeypatch):
    monkeypatch.setattr("ablate.duel.failed_check", lambda side: iter(()))  # it has tests of its own
    code, _, said = command("duel", "sum", "concat", *SMALL, "--budget", "0s")
    assert code == 2, said
    assert re.search(r"--budget 0 s: too short to see anything; \d+ s sees 0\.\d+ nats; ", said)
    assert not Store().study_names()


CHEAT = """
from ablate.model.fusion import register
from ablate.model.fusion.concat import Concat

@register("peeking")
class Peeking(Concat):
    def forward(self, z, x):
        return super().forward(z, x).roll(-1, dims=1)
"""


def test_a_method_that_fails_its_check_has_no_duel(command):
    Path("peeking.py").write_text(CHEAT)
    code, _, said = command("duel", "peeking.py", "concat", *SMALL)
    assert code == 2 and "peeking fails its check, so its losses mean nothing" in said
    assert next(failed_check(side("concat")), "") == ""


@pytest.mark.slow
def test_a_duel_is_fought_and_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text("a rose is a rose is a rose\n" * 2000)
    settings = ["heads=2", *SMALL[2:], "corpus=file", "corpus.path=book.txt"]
    command = "ablate duel sum concat heads=2 --text book.txt --budget 30m"
    fight = Duel(side("sum"), side("concat"), settings, command)
    plan = Plan(FEWEST, 0, 0)
    outcome = fight.train(plan)
    result = fight.result()
    assert re.match(r"sum (is (better|worse) than|and|against) concat ", result.line)
    assert re.search(r"\[-?\d\.\d{3}, -?\d\.\d{3}\] nats.*, n = 4$", result.line)
    assert any(note.startswith("attention is worth ") for note in result.comparison.notes)
    assert re.fullmatch(r"\d\.\d\d \[\d\.\d\d, \d\.\d\d\]", fight.time_ratio(result))
    assert command in write_report(fight.study).read_text(encoding="utf-8")
    again = fight.train(plan)
    assert again.finished_before == len(again.run_ids) == len(outcome.run_ids)
    assert fight.result().line == result.line
    other = Duel(side("sum"), side("concat"), settings, f"{command} again")  # its development runs are there
    settled = other.plan(60)
    assert settled.seeds > FEWEST and 0 < settled.seconds <= 60
    assert other.plan(0) == settled  # at the first call, and kept
    (Store().study_directory(other.study) / PLAN).write_text("[]")
    with pytest.raises(ConfigError, match=r"plan\.json: can't be read .*; remove it"):
        other.plan(60)


def test_a_line_says_why_nothing_is_decided():
    row = {"diff": 0.5, "low": 0.4, "high": 0.6, "p": 0.001, "share": float("nan"), "pairs": 7}
    row |= {"verdict": stats.UNDECIDED, "why": "1 more of its seeds diverged than of its baseline's"}
    duel = Duel(side("mean"), side("sum"), [], "")
    assert duel._line(row) == (
        "mean against sum is undecided: 1 more of its seeds diverged than of its baseline's: +0.500"
        " [0.400, 0.600] nats, n = 7"
    )
