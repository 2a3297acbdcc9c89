"""Tensors that are the same in every step. They are made once, since every layer needs them in every step,
and since one that is made from Python numbers on a device can't be part of a captured step."""

import functools

# A function that makes such a tensor, and is called once for equal arguments.
constant = functools.lru_cache(64)
