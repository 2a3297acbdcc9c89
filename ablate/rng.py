"""Named random streams: every draw is a pure function of (seed, stream, name).

Streams share no state, so a method with more parameters to draw, or one evaluation more or less, changes
no other draw. NumPy's Philox is keyed with 128 bits of the SHA-256 (torch's CPU generator would keep only
32 bits of its seed). See: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

import hashlib

import numpy as np


def generator(seed: int, stream: str, name: object) -> np.random.Generator:
    """The generator of one named draw; stream: backbone, fusion or data."""
    key = hashlib.sha256(f"{seed}/{stream}/{name}".encode()).digest()[:16]
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
