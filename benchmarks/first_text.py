"""The text of the first edition of docs/findings.md and docs/ledger.md, and how much of its test split lies
verbatim in training or validation.

    python benchmarks/first_text.py [FILE, to write the text to]

It is what `corpus=pydoc` was: the help topics of the Python that runs this, in a fixed shuffled order, cut at
80 and 90 %. The rows in docs/results are on those of Python 3.11.7.

legend: N characters.
"""

import hashlib
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ablate.analysis.notes import FIRST_TEXT

WIDTH = 100  # of the shortest stretch that counts, in characters


def first_text() -> str:
    from pydoc_data.topics import topics  # which some distributions leave out

    names = sorted(topics)
    random.Random(0).shuffle(names)
    return "\n\n".join(topics[name].strip("\n") for name in names) + "\n"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def verbatim(text: str, others: Sequence[str], width: int = WIDTH) -> float:
    """The share of a text's characters that lie in a stretch of this width which one of the others has."""
    known = {stretch for other in others for stretch in _stretches(other, width)}
    reached_N = np.zeros(len(text), bool)
    for start, stretch in enumerate(_stretches(text, width)):
        if stretch in known:
            reached_N[start : start + width] = True
    return float(reached_N.mean())


def of_test_split(text: str) -> float:
    """The share of the test split that lies verbatim in training or validation."""
    validation = len(text) * 8 // 10
    test = validation + len(text) // 10
    return verbatim(text[test:], [text[:validation], text[validation:test]])


def _stretches(text: str, width: int) -> Iterator[int]:
    """Hashes of the stretches of a text, in order; of 64 bits, so different stretches have different ones."""
    return (hash(text[start : start + width]) for start in range(len(text) - width + 1))


def main() -> None:
    text = first_text()
    same = "the" if sha256(text) == FIRST_TEXT else "not the"
    print(f"{len(text):,} characters, {same} text of docs/results")
    print(f"{of_test_split(text):.3f} of the test split in stretches of {WIDTH} characters that others have")
    for path in sys.argv[1:]:
        Path(path).write_text(text, encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
