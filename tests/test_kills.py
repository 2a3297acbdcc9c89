"""A sweep that is killed again and again comes to the same bytes: benchmarks/kills.py in short."""

import re
import subprocess
import sys

import pytest

from tests.helpers import ROOT

SWEEP = ("seed=0,1", "train.steps=120", "train.batch=8", "train.checkpoint_every=10", "train.eval_every=30")
ONE_TEXT = ("fusion=concat,weighted_sum", "corpus=grammar", "corpus.characters=20000")
TWO_TEXTS = ("model=pair", "corpus=numbers", "corpus.held_out=30", "at=cross", "fusion=sum", "train.steps=60")


@pytest.mark.slow
@pytest.mark.parametrize(("of", "kills"), [(ONE_TEXT, 2), (TWO_TEXTS, 1)], ids=["one text", "two texts"])
def test_a_sweep_of_two_commands_of_which_one_is_killed_comes_to_the_same_bytes(of, kills):
    script = (ROOT / "benchmarks" / "kills.py", f"--kills={kills}", "--longest", "1", "--commands", "2")
    done = subprocess.run([sys.executable, *script, *SWEEP, *of], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"{kills} kills?, [0-2] of them in training, .*; tables equal: True", done.stdout)
