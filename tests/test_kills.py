"""A sweep that is killed again and again comes to the same bytes: benchmarks/kills.py in short."""

import re
import sys

import pytest

from benchmarks import kills

SWEEP = ("model=pair", "corpus=reverse", "corpus.held_out=30", "at=cross", "fusion=sum", "seed=0,1")
SWEEP += ("model.d_model=16", "model.layers=1", "hydra.launcher.workers=1", "train.batch=4")
SWEEP += ("train.steps=20", "train.checkpoint_every=5", "train.eval_every=10")


@pytest.mark.slow
def test_a_sweep_of_two_commands_of_which_one_is_killed_comes_to_the_same_bytes(start, monkeypatch, capsys):
    monkeypatch.setattr(kills, "start", lambda root, sweep: start("run", "-m", *sweep, cwd=root))
    script = ("kills.py", "--kills=1", "--longest", "0.5", "--commands", "2")
    monkeypatch.setattr(sys, "argv", [*script, *SWEEP])
    with pytest.raises(SystemExit) as end:
        kills.main()
    out, _ = capsys.readouterr()
    assert end.value.code == 0, out
    assert re.search("1 kills, [01] of them in training, .*; tables equal: True", out)
