"""Runs whose losses come from a formula: what the formula says, and that all else is as it is for any run."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ablate.execution.execute import execute, execute_group
from ablate.execution.run import Run, prepare
from ablate.execution.simulated import Losses, losses_of
from ablate.store.store import Store
from tests.helpers import ROOT, call_cli, ignore, make_config, refusal, stopping

QUICK = ("train=simulated", "corpus=grammar", "corpus.characters=5000")


def run_of(*overrides: str) -> Run:
    return prepare(make_config(*QUICK, *overrides))


def over_seeds(run: Run) -> list[Losses]:
    """Its losses at 400 seeds."""
    return [losses_of(run.with_seeds(replace(run.config, seed=seed))) for seed in range(400)]


def last(*overrides: str) -> float:
    return losses_of(run_of(*overrides)).last


@pytest.mark.slow
def test_no_torch_is_loaded(tmp_path):
    """Neither by the command nor by its workers: with a torch that can't be imported, a matched grid runs."""
    (tmp_path / "none").mkdir()
    (tmp_path / "none/torch.py").write_text("raise RuntimeError('torch is imported')")
    path = os.pathsep.join([str(tmp_path / "none"), str(ROOT)])
    grid = (*QUICK, "fusion=concat,gated", "match=params", "seed=0,1,2", "name=g")
    command = [sys.executable, "-m", "ablate", "run", "-m", *grid, "hydra.launcher.workers=2"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    rows = pd.read_csv(tmp_path / "runs/studies/g/results.csv")
    assert len(rows) == 6 and {*rows["status"]} == {"done"} and {*rows["processor"]} == {"simulated"}
    assert rows["match_error"].abs().max() < 0.01 and rows["mlp_hidden"].nunique() == 2
    assert all(path.name.startswith("simulated-") for path in (tmp_path / "runs/store").glob("[!.]*"))


def test_the_curve_goes_from_guessing_to_its_last_loss():
    losses = Losses(first=4.0, last=2.0, pace=1.0, diverged=None)
    assert losses.at(0) == 4.0 and losses.at(1) == 2.0
    assert losses.at(0.5) == pytest.approx(2 + 2 * (math.exp(-3) - math.exp(-6)) / (1 - math.exp(-6)))
    late = Losses(first=4.0, last=2.0, pace=0.5, diverged=None)
    assert late.at(1) == pytest.approx(losses.at(0.5))


def test_what_is_assumed_is_what_the_loss_has():
    still = "train.simulated.sd=0"
    base = last(still, "train.lr=0.01")
    assert base == pytest.approx(math.log(run_of().spec.vocab) / 2)
    assert last(still, "train.lr=0.02") - base == pytest.approx(0.02)
    assert last(still, "train.lr=0.04", "train.simulated.octave=0.03") - base == pytest.approx(0.12)
    effects = "train.simulated.effects=['fusion=sum:0.05','heads>=4:-.01','layers=2 fusion=sum,mean:1e-3']"
    assert last(still, effects, "fusion=sum") - base == pytest.approx(0.041)
    assert last(still, effects, "fusion=mean") - base == pytest.approx(-0.009)
    assert last(effects, "heads=2", "seed=3") == last("heads=2", "seed=3")  # with the same scatter


def test_arms_scatter_and_are_paired_as_it_is_said():
    """Over 400 seeds, sd within 10 % and the correlation within 0.1: three standard errors of each."""
    runs = [run_of(f"fusion={name}", "train.simulated.correlation=0.6") for name in ("concat", "sum")]
    losses = [[one.last for one in over_seeds(run)] for run in runs]
    assert np.std(losses, axis=1) == pytest.approx([0.015, 0.015], rel=0.1)
    assert np.corrcoef(losses).min() == pytest.approx(0.6, abs=0.1)
    assert np.mean(losses[0]) - np.mean(losses[1]) == pytest.approx(0, abs=0.0025)


def test_shares_are_late_and_diverge():
    settings = ("train.simulated.late=0.25", "train.simulated.diverged=0.5", "train.steps=40")
    some = over_seeds(run_of(*settings))
    steps = [losses.diverged for losses in some if losses.diverged]
    assert len(steps) / 400 == pytest.approx(0.5, abs=0.08) and (min(steps), max(steps)) == (1, 40)
    assert np.mean([losses.pace < 1 for losses in some]) == pytest.approx(0.25, abs=0.07)


def test_a_run_goes_on_from_its_checkpoint_to_the_same_bytes(tmp_path):
    every = ("train.eval_every=20", "train.checkpoint_every=10", "train.simulated.step_ms=0.1")
    run = run_of("train.steps=60", *every)
    whole, cut = Store(tmp_path / "whole"), Store(tmp_path / "cut")
    execute(run, ignore, whole.root)
    with pytest.raises(KeyboardInterrupt):
        execute(run, stopping(40), cut.root)
    assert (latest := cut.run(run.name).latest()) and [*latest.glob("checkpoint-*")]
    execute(run, ignore, cut.root)
    assert "going on after step 30" in (cut.root / "store" / run.name / "log.txt").read_text()
    for name in ("result.json", "metrics.csv", "config.yaml"):
        first, second = ((store.root / "store" / run.name / name).read_bytes() for store in (whole, cut))
        assert first == second, name


def test_members_of_a_group_are_what_they_are_alone(tmp_path):
    runs = [run_of(f"seed={seed}", f"train.lr={0.01 * (1 + seed)}") for seed in range(3)]
    execute_group(runs, lambda _: ignore, tmp_path / "group")
    for run in runs:
        alone = execute(run, ignore, tmp_path / "alone")
        row = execute(run, ignore, tmp_path / "group")  # as it is there
        assert row["members"] == 3 and json.loads(json.dumps(alone)) == {**row, "members": 1}


def test_a_diverged_run_has_its_row(tmp_path):
    row = execute(run_of("train.simulated.diverged=1"), ignore, tmp_path)
    assert row["status"] == "diverged" and row["error"].startswith("the loss was not finite at step ")


def test_the_settings_are_part_of_the_identity():
    ids = [run_of(f"train.simulated.sd={sd}").run_id for sd in (0.01, 0.02)]
    trained = prepare(make_config(*QUICK[1:]))
    assert len({*ids, trained.run_id}) == 3 and not trained.name.startswith("simulated")


def test_a_dry_run_says_how_long_steps_take(tmp_path):
    words = ("train.simulated.step_ms=36", "train.steps=1000", "fusion=concat,sum", "--dry-run")
    done = call_cli("run", "-m", *QUICK, *words, "--format", "json", cwd=tmp_path)
    said = json.loads(done.stdout)
    assert 0 < said["seconds"] - 2 * 36 / said["workers"] < 5  # what comes before them


BAD = {
    "train.simulated.sd=-1": "must be at least 0",
    "train.simulated.late=1.5": "must be at most 1",
    "train.simulated.sd=1e300": "must be at most 100",
    "train.simulated.effects=[fusion=sum:1e999]": "write a list of KEY=VALUE:NATS",
    "train.simulated.effects=[fusio=sum:0.05]": "fusio is no key; did you mean fusion?",
    "train.simulated.effects=[fusion=concat layers=3:0.05]": "fusion=concat and layers=3: no run meets it",
    "train.simulated.effects=[fusion=sum]": "write a list of KEY=VALUE:NATS",
    "train.simulated.effects=[fusion:0.05]": "not a condition",
    "train.simulated.scatter=1": "did you mean train.simulated",
    "train.simulated=3": "a group of keys, as train.simulated.sd; ablate keys",
}


@pytest.mark.parametrize("override", BAD)
def test_what_can_not_be_assumed_is_refused(override, tmp_path):
    line = refusal("run", *QUICK, override, cwd=tmp_path)
    assert BAD[override] in line and "train.simulated" in line


@pytest.mark.parametrize("command", [("sample",), ("probe",), ("export", "--to", "hf", "--out", "gpt")])
def test_there_is_no_model(command, tmp_path: Path):
    assert call_cli("run", *QUICK, "name=s", cwd=tmp_path).returncode == 0
    (directory,) = (tmp_path / "runs/store").glob("simulated-*")
    name, *options = command
    done = call_cli(name, directory.name, *options, cwd=tmp_path)
    assert done.returncode == 2 and "no model was trained (train=simulated)" in done.stderr
    assert done.stderr.count("\n") == 1
