"""Verbatim matches: stretches of WIDTH characters that two texts share.

Stretches are compared by a 64-bit hash: equal ones have equal hashes, and two different ones in a text of 10⁸
characters and another of 10⁷ share theirs with a probability of 10⁻⁴.

legend: N stretches of a text, which begin at its characters but the last WIDTH − 1.
"""

from collections.abc import Iterator

import numpy as np

from ablate.phrases import Note, doubt, lines_if

WIDTH = 50
MOST = 0.05  # of a held-out split, of which more is a doubt
BLOCK = 1 << 20  # stretches hashed at a time
ABSENT = -1
_MIX, _BASE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1342543DE82EF95)


def hashes(text: str) -> np.ndarray:
    """(N,) uint64: the hash of each stretch, Σ_j c_j·b^(WIDTH−1−j) mod 2⁶⁴, where c are the code points,
    mixed."""
    return np.concatenate([np.empty(0, np.uint64), *blocks(text)])


def blocks(text: str) -> Iterator[np.ndarray]:
    """The same hashes in blocks."""
    for start in range(0, len(text) - WIDTH + 1, BLOCK):
        block = text[start : start + BLOCK + WIDTH - 1]
        mixed = np.frombuffer(block.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint64)
        result = np.zeros(len(block) - WIDTH + 1, np.uint64)
        with np.errstate(over="ignore"):
            mixed *= _MIX
            mixed ^= mixed >> np.uint64(29)
            for at in range(WIDTH):
                result = result * _BASE + mixed[at : at + len(result)]
        yield result


def places(wanted: np.ndarray, sorted_N: np.ndarray) -> np.ndarray:
    """Where among sorted hashes each wanted one stands first, or ABSENT."""
    order, place = np.argsort(wanted), np.empty(len(wanted), np.int64)
    place[order] = np.searchsorted(sorted_N, wanted[order])  # in order, as memory is slow at random places
    return np.where(np.append(sorted_N, np.uint64(0))[place] == wanted, place, ABSENT)


def overlap(text: str, other: str) -> float:
    """The share of the characters of a text that lie in a stretch of the other; 0 for one that is shorter
    than a stretch."""
    hashes_N = hashes(text)
    sorted_N = np.sort(hashes_N)
    shared_N = np.zeros(len(sorted_N) + 1, bool)
    for block in blocks(other):
        shared_N[places(block, sorted_N)] = True
    shared_N[ABSENT] = False
    begins = np.flatnonzero(shared_N[places(hashes_N, sorted_N)])
    covered = np.minimum(np.diff(begins, append=len(text) + WIDTH), WIDTH).sum()
    return float(covered / max(len(text), 1))


def repeats(overlap: float) -> list[Note]:
    """A doubt about a text of which another split has so much of a held-out one."""
    short = "a text that repeats itself"
    line = (
        f"{short}: {100 * overlap:.1f} % of a held-out split lies in stretches of {WIDTH} characters or more"
        " that another split has, too: what remembers best wins there; corpus.unique=paragraph takes repeats"
        " away"
    )
    return lines_if(overlap > MOST, doubt(line, short))
