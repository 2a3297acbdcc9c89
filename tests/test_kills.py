"""A sweep that is killed again and again comes to the same bytes: benchmarks/kills.py in short."""

import re
import sys

import pytest

from benchmarks import kills
from tests.helpers import but

SWEEP = ("seed=0,1", "train.steps=60", "train.batch=4", "train.checkpoint_every=5", "train.eval_every=20")
ONE_TEXT = ("fusion=concat,weighted_sum", "corpus=grammar", "corpus.characters=20000")
TWO_TEXTS = ("model=pair", "corpus=reverse", "corpus.held_out=30", "at=cross", "fusion=sum", "train.steps=40")


@pytest.mark.slow
@pytest.mark.parametrize(("of", "count"), [(ONE_TEXT, 2), (TWO_TEXTS, 1)], ids=["one text", "two texts"])
def test_a_sweep_of_two_commands_of_which_one_is_killed_comes_to_the_same_bytes(
    of, count, start, monkeypatch, capsys
):
    monkeypatch.setattr(kills, "start", lambda root, sweep: start("run", "-m", *sweep, cwd=root))
    script = ("kills.py", f"--kills={count}", "--longest", "0.5", "--commands", "2")
    monkeypatch.setattr(sys, "argv", [*script, *but(SWEEP, *of)])
    with pytest.raises(SystemExit) as end:
        kills.main()
    out, _ = capsys.readouterr()
    assert end.value.code == 0, out
    assert re.search(rf"{count} kills?, [0-2] of them in training, .*; tables equal: True", out)
