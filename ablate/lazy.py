"""torch, which is loaded when something of it is first used: sizes, costs and simulated runs need none of it.

Methods and splits of texts import it from here. An annotation that says more than Tensor is quoted.
"""

import functools
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
    import torch.nn.functional as F
    from torch import Tensor as Tensor
    from torch import nn as nn
    from torch.nn import Module as Module
else:
    Tensor = type("Tensor", (), {"__module__": "torch"})  # for annotations
    Module = object  # what is built on it becomes a module when one is made (ablate.model.parts)

    class _Lazy:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            module = sys.modules.get(self._name) or import_module(self._name)
            return getattr(module, attribute)

    torch, nn, F = (_Lazy(name) for name in ("torch", "torch.nn", "torch.nn.functional"))

# A function that makes a tensor which is the same in every step: called once for equal arguments, since every
# layer needs it in every step, and one made from Python numbers on a device can't be part of a captured step.
constant = functools.lru_cache(64)
