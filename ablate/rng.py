"""Named random streams: every draw is a pure function of (seed, stream, name).

Streams share no state, so a method with more parameters to draw, or one evaluation more or less, changes
no other draw. NumPy's Philox is keyed with 128 bits of the SHA-256 (torch's CPU generator would keep only
32 bits of its seed). See: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

import contextlib
import hashlib
import random
from collections.abc import Iterator

import numpy as np


def generator(seed: int, stream: str, name: object) -> np.random.Generator:
    """The generator of one named draw; stream: backbone, fusion or data."""
    key = hashlib.sha256(f"{seed}/{stream}/{name}".encode()).digest()[:16]
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))


def reseed(seed: int, stream: str, name: object) -> None:
    """Let the generators that a process shares, those of torch, NumPy and Python, go on from one draw of this
    name: for methods that draw without asking for a stream."""
    import torch

    number = int(generator(seed, stream, name).integers(2**63))
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():  # torch.manual_seed would queue a call for it each time
        torch.cuda.manual_seed_all(number)
    np.random.seed(number % 2**32)
    random.seed(number)


@contextlib.contextmanager
def drawing(seed: int, stream: str, name: object) -> Iterator[None]:
    """`reseed` for a block, after which these generators go on as if nothing had been drawn."""
    import torch

    of_python, of_numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()):
        try:
            reseed(seed, stream, name)
            yield
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)
