"""Tensors that are the same in every step. They are made once, since every layer needs them in every step,
and since one that is made from Python numbers on a device can't be part of a captured step."""

import functools
from collections.abc import Callable
from typing import ParamSpec

import torch
from torch import Tensor

Arguments = ParamSpec("Arguments")
KEPT = 64  # of each kind


def constant(make: Callable[Arguments, Tensor]) -> Callable[Arguments, Tensor]:
    """`make`, which is called once for equal arguments; when compiled, where that is free, each time."""
    kept = functools.lru_cache(KEPT)(make)

    @functools.wraps(make)
    def made(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Tensor:
        return (make if torch.compiler.is_compiling() else kept)(*args, **kwargs)  # pyright: ignore

    return made
