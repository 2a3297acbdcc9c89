"""What a method of one's own imports: the base classes, the layers and checks that it builds on.

    from ablate.methods import Fusion, register

    @register("half")
    class Half(Fusion):
        def forward(self, z_BTHV, x_BTC):
            return 0.5 * z_BTHV.sum(-2)

`ablate new fusion|scores NAME` writes a commented start; `ablate check FILE` tests it.
The letters after a name are the sizes of its dimensions: B batch, T time of the queries, S time of the keys
and values, H heads, K key width, V value width of a head, F fused width, C model width. Importing this module
loads torch.
"""

from collections.abc import Callable
from typing import TypeVar

from ablate.config.rules import Above, AtLeast, AtMost, Below, ConfigError
from ablate.model import fusion, scores
from ablate.model.attend import Mask, masked_softmax
from ablate.model.fusion import Fusion, Normalized
from ablate.model.layers import Linear
from ablate.model.parts import HeadShape, Options, Part
from ablate.model.scores import Scores

__all__ = [
    "Above",
    "AtLeast",
    "AtMost",
    "Below",
    "ConfigError",
    "Fusion",
    "HeadShape",
    "Linear",
    "Mask",
    "Normalized",
    "Options",
    "Scores",
    "masked_softmax",
    "register",
]

Method = TypeVar("Method", bound=Part)


def register(name: str) -> Callable[[type[Method]], type[Method]]:
    """Class decorator: configs choose the method by fusion=NAME or scores=NAME, by its base class.

    Raises ConfigError if the name is taken, or if the class is built on none of Fusion and Scores.
    """

    def add(method: type[Method]) -> type[Method]:
        bases = method.__mro__ if isinstance(method, type) else ()
        kind = scores if Scores in bases else fusion
        return kind.register(name)(method)

    return add
