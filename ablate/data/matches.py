"""Verbatim matches: stretches of WIDTH characters that two texts share.

Stretches are compared by a 64-bit hash: equal ones have equal hashes, and two different ones in a text of 10⁸
characters and another of 10⁷ share theirs with a probability of 10⁻⁴.

legend: N characters, U stretches.
"""

from collections.abc import Iterable, Iterator

import numpy as np

WIDTH = 50
BLOCK = 1 << 20  # characters hashed at a time
_MIX, _BASE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1342543DE82EF95)


def codes(text: str) -> np.ndarray:
    """(N,) the code points."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def hashes(codes_N: np.ndarray) -> np.ndarray:
    """(N − WIDTH + 1,) uint64: the hash of each stretch, Σ_j c_j·b^(WIDTH−1−j) mod 2⁶⁴, where c are the code
    points, mixed; none if the text is shorter."""
    if len(codes_N) < WIDTH:
        return np.empty(0, np.uint64)
    with np.errstate(over="ignore"):
        mixed_N = codes_N.astype(np.uint64) * _MIX
        mixed_N ^= mixed_N >> np.uint64(29)
        result = np.zeros(len(codes_N) - WIDTH + 1, np.uint64)
        for at in range(WIDTH):
            result = result * _BASE + mixed_N[at : at + len(result)]
    return result


def stretches(chunks: Iterable[str]) -> Iterator[np.ndarray]:
    """The hashes of all stretches of a text, in order, block by block."""
    held, size = [np.empty(0, np.uint32)], 0
    for chunk in chunks:
        held.append(codes(chunk))
        size += len(chunk)
        if size >= BLOCK:
            block = np.concatenate(held)
            yield hashes(block)
            held, size = [block[-WIDTH + 1 :]], 0
    yield hashes(np.concatenate(held))


class Index:
    """The stretches of one text. sorted_U: their hashes, of which only the first of equal ones is found."""

    def __init__(self, of: Iterable[np.ndarray]) -> None:
        self.sorted_U = np.sort(np.concatenate([np.empty(0, np.uint64), *of]))

    def look_up(self, hashes_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of these hashes the index has: their places in hashes_N, and those in sorted_U."""
        place = np.searchsorted(self.sorted_U, hashes_N)
        at = np.flatnonzero(np.append(self.sorted_U, np.uint64(0))[place] == hashes_N)
        at = at[place[at] < len(self.sorted_U)]
        return at, place[at]


def overlap(text: Iterable[str], other: Iterable[str]) -> float:
    """The share of the characters of a text that lie in a stretch of the other; 0 for one that is shorter
    than a stretch."""
    hashes_N = np.concatenate([*stretches(text)])
    if not len(hashes_N):
        return 0.0
    index = Index([hashes_N])
    shared_U = np.zeros(len(index.sorted_U), bool)
    for block in stretches(other):
        shared_U[index.look_up(block)[1]] = True
    begins_N = shared_U[np.searchsorted(index.sorted_U, hashes_N)]
    return float(reached(begins_N).mean())


def reached(begins_N: np.ndarray) -> np.ndarray:
    """(N + WIDTH − 1,) booleans: whether a character lies in a stretch that is true in begins_N."""
    steps = np.zeros(len(begins_N) + WIDTH, np.int64)
    steps[:-WIDTH] += begins_N
    steps[WIDTH:] -= begins_N
    return np.cumsum(steps)[:-1] > 0
