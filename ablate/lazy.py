"""torch, imported at its first use: sizes, costs and simulated runs need nothing of it.

What Python evaluates as it reads a file can't wait: Tensor is a mere name, other annotations of torch are
quoted, and a class built on Module gets its base nn.Module when the first one is made (ablate.model.parts).
"""

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

    class _Lazy:  # asks sys.modules first, in a seventh of the time that import_module takes
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(sys.modules.get(self._name) or import_module(self._name), attribute)

    torch, nn, F = map(_Lazy, ("torch", "torch.nn", "torch.nn.functional"))
    Tensor, Module = type("Tensor", (), {"__module__": "torch"}), object
