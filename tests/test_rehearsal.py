"""Studies rehearsed: with simulated runs, in a store of their own, once or many times."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ablate.analysis import stats
from ablate.compose.sweep import Sweep, compose
from ablate.study.rehearsal import judged, rehearse
from tests.helpers import call_cli, refusal

TEXT = ("corpus=grammar", "corpus.characters=5000", "corpus.splits=[0.8,0.1,0.1]")
STUDY = ("study=fusion", "fusion=concat,sum", *TEXT)


def sweep_of(*words: str) -> Sweep:
    return compose([*words, "train/simulated=losses"])


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory) -> tuple[str, Path]:
    """What a rehearsal with an effect prints, and the only store that it made."""
    cwd = tmp_path_factory.mktemp("rehearsed")
    effect = "train.simulated.effects=[fusion=sum:0.1]"
    done = call_cli("run", *STUDY, effect, "--rehearse", "20", cwd=cwd)
    assert "8 seeds: 1 of 1 contrast decided" in done.stderr and ": done" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
    (store,) = (cwd / "runs/rehearsals").iterdir()
    assert [path.name for path in (cwd / "runs").iterdir()] == ["rehearsals"]
    return done.stdout, store


@pytest.mark.slow
def test_it_says_what_is_decided_and_how_often(rehearsed):
    printed, store = rehearsed
    assert "\nRehearsal: no model was trained. On grammar" in printed and "decided at 8 of at most" in printed
    assert str(store / "studies/fusion/report.html").endswith(re.findall(r"runs/\S+report.html", printed)[0])
    assert re.search(r"fusion=sum - fusion=concat +\+0.100  100.0%  0.0%   8.0", printed)
    assert "20 rehearsals: 16.0 runs each; 0.0% of them with a wrong verdict" in printed


@pytest.mark.slow
def test_its_runs_are_as_many_and_as_right_as_those_in_memory(rehearsed):
    """The first of those in memory is the one in the store, by its study.json and its comparison."""
    store = rehearsed[1]
    looks = json.loads((store / "studies/fusion/study.json").read_text())["looks"]
    (decided,) = looks["decided"].values()
    first = rehearse(sweep_of(*STUDY, "train.simulated.effects=[fusion=sum:0.1]"), 1)
    assert decided["verdict"] == "worse" and decided["seeds"] == first.contrasts["seeds"][0]
    assert first.runs == len(pd.read_csv(store / "studies/fusion/results.csv"))


@pytest.mark.slow
def test_the_next_command_names_the_store_of_what_is_compared(rehearsed):
    store = rehearsed[1]
    shown = call_cli("compare", "runs/rehearsals/" + store.name + "/studies/fusion", cwd=store.parents[2])
    (command,) = re.findall(r"none: `(ablate run study=tuned .*)`", shown.stdout)
    assert command.endswith(f" --runs runs/rehearsals/{store.name} name=fusion-tuned")


@pytest.mark.slow
def test_a_copied_table_tells(rehearsed, tmp_path):
    rows = pd.read_csv(rehearsed[1] / "studies/fusion/results.csv")
    assert {*rows["processor"]} == {"simulated"}
    rows.to_csv(tmp_path / "copy.csv", index=False)
    compared = call_cli("compare", "copy.csv", "--format", "csv", cwd=tmp_path)
    assert compared.stderr.startswith("rehearsal: no model was trained\n")
    assert all(line.startswith("simulated fusion=") for line in compared.stdout.splitlines()[1:])
    for command in (("compare", "copy.csv"), ("compare", "copy.csv", "--format", "latex")):
        assert "Rehearsal: no model was trained. On grammar" in call_cli(*command, cwd=tmp_path).stdout
    planned = call_cli("plan", "copy.csv", cwd=tmp_path)
    assert planned.stderr.startswith("rehearsal: no model was trained\n")
    to = ("--to", "tensorboard", "--out", "board", "--runs", str(rehearsed[1]))
    exported = call_cli("export", "fusion", *to, cwd=tmp_path)
    assert exported.stdout.startswith("rehearsal: no model was trained; tensorboard: fusion in ")


@pytest.mark.slow
def test_rows_of_both_kinds_stand_in_no_comparison(rehearsed, tmp_path):
    rows = pd.read_csv(rehearsed[1] / "studies/fusion/results.csv")
    rows.loc[rows["seed"] > 3, "processor"] = "Some CPU (AVX2)"
    rows.to_csv(tmp_path / "both.csv", index=False)
    line = refusal("compare", "both.csv", cwd=tmp_path)
    assert "no model was trained for 8 of 16 rows" in line and "--where processor=simulated" in line
    assert call_cli("compare", "both.csv", "--where", "processor=simulated", cwd=tmp_path).returncode == 0


def test_a_verdict_is_right_or_wrong_by_what_is_assumed():
    verdicts = [stats.BETTER, stats.WORSE, stats.EQUIVALENT, stats.EQUIVALENT, stats.UNDECIDED]
    verdicts += [stats.BETTER, stats.EQUIVALENT]
    effects = np.array([-0.03, 0.01, 0.01, 0.03, 0.03, 0.0, 0.0])
    right, wrong = judged(np.array(verdicts, object), effects, 0.02, "test_loss")
    assert right.tolist() == [True, True, True, False, False, False, True]
    assert wrong.tolist() == [False, False, False, True, False, True, False]


@pytest.mark.slow
def test_without_an_effect_few_are_wrong_and_looks_save_runs():
    """The bound is 5 % and three standard errors of 80 studies; without looks all seeds are taken."""
    looks = rehearse(sweep_of(*STUDY), 80)
    fixed = rehearse(sweep_of(*STUDY, "study.looks=[]", "seed=range(12)"), 20)
    assert looks.wrong <= 0.05 + 3 * (0.05 * 0.95 / 80) ** 0.5 and looks.runs < 2 * 32
    assert fixed.runs == 24 and {*fixed.contrasts["seeds"]} == {12}


@pytest.mark.slow
def test_a_tuned_study_chooses_rates_and_reports():
    words = ("study=tuned", "fusion=concat,sum", *TEXT, "study.develop=[0,1]", "seed=range(100,106)")
    made = rehearse(sweep_of(*words, "study.looks=[]", "train.simulated.effects=[fusion=sum:0.2]"), 3)
    assert made.contrasts["right"][0] == 1 and made.contrasts["effect"][0] == pytest.approx(0.2)
    assert made.runs >= 2 * (3 * 2 + 6)


BAD = {
    ("study=fusion", "--rehearse", "0"): "--rehearse 0: give one number of rehearsals, of 1 or more",
    ("--rehearse", "-3", "study=fusion"): "--rehearse -3: give one number of rehearsals",
    (
        "-m",
        *TEXT,
        "fusion=concat,sum",
        "--rehearse",
        "9",
    ): "--rehearse 9: only a study with primary contrasts",
    ("--rehearse",): "a single run decides nothing",
    ("study=fusion", "--rehearse", "--dry-run"): "give one",
    ("study=fusion", "--rehearse", "--plugin", "nowhere.py"): "nowhere.py: No such file or directory",
    ("study=fusion", "--rehearse", "train.simulated.effects=[fusion=gated:1]", *TEXT): "no run meets it",
}


@pytest.mark.parametrize("words", BAD)
def test_what_can_not_be_rehearsed_is_refused(words, tmp_path):
    assert BAD[words] in refusal("run", *words, cwd=tmp_path) and not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_grid_is_rehearsed_once(tmp_path):
    grid = ("run", "-m", *TEXT, "fusion=concat,sum", "seed=range(6)", "--rehearse")
    assert "no model was trained" in call_cli(*grid, cwd=tmp_path).stdout
