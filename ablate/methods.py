"""What a method of one's own imports: the base classes, the layers and checks that it builds on.

    from ablate.methods import Fusion, register

    @register("half")
    class Half(Fusion):
        @classmethod
        def slots(cls, heads, options):
            return 1

        def forward(self, z_BTHV, x_BTC):
            return 0.5 * z_BTHV.sum(-2)

`ablate new fusion NAME` and `ablate new scores NAME` write a commented start; `ablate check FILE` tests it.
The letters after a name are the sizes of its dimensions: B batch, T time of the queries, S time of the keys
and values, H heads, P patterns, K key width, V value width of a head, W width of the values that a pattern
reads, C model width. Importing this module loads torch.
"""

from collections.abc import Callable
from typing import TypeVar

from ablate.arguments import checked
from ablate.config.rules import Above, AtLeast, AtMost, Below, ConfigError
from ablate.model import fusion, scores
from ablate.model.attend import Mask, masked_softmax
from ablate.model.fusion import Fusion, Normalized
from ablate.model.layers import Linear
from ablate.model.parts import Options, Part
from ablate.model.scores import Scores
from ablate.model.spec import HeadShape

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


@checked
def register(name: str) -> Callable[[type[Method]], type[Method]]:
    """Class decorator: configs choose the method by fusion=NAME or scores=NAME, depending on its base class.

    Raises ConfigError if the name is taken, or if the class is built on neither Fusion nor Scores.
    """

    def add(method: type[Method]) -> type[Method]:
        kind = scores if isinstance(method, type) and issubclass(method, Scores) else fusion
        return kind.register(name)(method)

    return add
