"""One odd use of the program."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.odd.tables import RESULTS

Maker = Callable[[Path], object]  # puts something at a path


@dataclass(frozen=True)
class Case:
    """argv: without the program's name. piped: what stands on standard input. files: of the user, by their
    paths from the working directory. finished: a sweep called PILOT stands in runs/."""

    argv: tuple[str, ...]
    piped: bytes = b""
    files: Mapping[str, Maker] = field(default_factory=dict)
    finished: bool = False


PILOT = "pilot"
# A run of milliseconds.
TEXT = ("corpus=grammar", "corpus.characters=5000")
SMALL = (
    *("model.d_model=8", "model.layers=1", "model.context=8"),
    *("train.steps=2", "train.batch=2", "train.eval_every=2"),
)


def holding(content: str | bytes) -> Maker:
    """A file with this content."""
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    return partial(Path.write_bytes, data=data)


# What lies in the directory where commands are typed.
STUDY: str = """# @package _global_
name: deep
study:
  kind: grid
  question: Does the fusion matter?
  factors: {fusion: [concat, sum], heads: [2, 4]}
  seeds: [0, 1]
  where: ["heads <= 4 or fusion == 'sum'"]
  primary:
    - {vary: fusion, baseline: concat, where: {heads: 4}}
  metric: val_loss
"""
FILES = {
    "book.txt": holding("The cat sat on the mat; the dog did not.\n" * 60),
    "notes (old)/a.md": holding("# Notes\nnothing much, but a few words all the same\n" * 40),
    "table.csv": holding(RESULTS),
    "own/study/deep.yaml": holding(STUDY),
    "own/mine.yaml": holding("defaults: [config, _self_]\nheads: 2\n"),
}
