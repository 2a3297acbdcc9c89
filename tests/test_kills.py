"""A sweep that is killed again and again comes to the same bytes: benchmarks/kills.py in short."""

import sys

import pytest

from tests.helpers import ROOT, run_cli

sys.path.append(str(ROOT / "benchmarks"))

from kills import kill_again_and_again, state


@pytest.mark.slow
def test_a_sweep_that_is_killed_comes_to_the_same_bytes(tmp_path):
    overrides = ["fusion=concat,weighted_sum", "seed=0,1", "corpus=grammar", "corpus.characters=20000"]
    overrides += ["train.steps=120", "train.batch=8", "train.checkpoint_every=10", "train.eval_every=30"]
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    calm.mkdir()
    killed.mkdir()
    assert run_cli("run", "-m", *overrides, cwd=calm).returncode == 0
    _, hits = kill_again_and_again(killed, overrides, kills=4, longest_s=1.0, seed=1)
    assert hits > 0
    tables, runs = state(killed)
    assert len(runs) == 4 and len(tables) == 6  # a metrics.csv a run, and two results.csv
    assert tables == state(calm)[0]
