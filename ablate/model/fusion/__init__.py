"""The contract of a fusion method.

legend: B batch, T time, H heads, V value width of a head, C model width, F fused width.

A fusion method maps z_BTHV, the outputs of the heads, and x_BTC, the normalized input that also feeds
queries, keys and values, to fused_BTF. It does not know whether an output projection follows.

To add a method: one file here with a registered subclass of Fusion, and a YAML of the same name in
configs/fusion. The tests over the registry then cover it.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ablate.config.registry import Registry
from ablate.lazy import Tensor
from ablate.model.parts import Options, Part


@dataclass(frozen=True, kw_only=True)
class Normalized(Options):
    """normalize=variance gives the fused vector the variance of one head's output at the start, by a constant
    factor that the method chooses."""

    normalize: Literal["none", "variance"] = "none"


# `folds` of a method that folds whatever its options.
always: Any = classmethod(lambda cls, heads, options: True)


class Fusion(Part):
    """Combines the outputs of the heads: z_BTHV -> fused_BTF.

    With Normalized options, the method keeps the variance of one head at normalize=variance.
    """

    CLAIMS = ("one_head_passes", "homogeneous", "form", "folds")
    one_head_passes: ClassVar[bool] = False  # with one head, at the start: fused = z
    homogeneous: ClassVar[bool] = False  # c·z gives c·fused, for c > 0 and the same x
    reads_values: ClassVar[bool] = False  # forward also gets v_BTHV: at each position, the head's value there

    @classmethod
    def slots(cls, heads: int, options: Any) -> int:
        """How many vectors of value width the fused vector concatenates: F = slots·V. By default 1.

        Raises ConfigError if the options do not fit the number of heads.
        """
        return 1

    @classmethod
    def form(cls, heads: int, options: Any) -> str:
        """The function that the method computes, given the same starting weights, as NAME key=value …, where
        NAME may be another method: the form of a normalized mean is "sum normalize=variance". Two variants
        with equal forms that are otherwise equal are the same by construction, and are not compared.

        By default its own name with all options, which claims nothing.
        """
        return cls.spelled(options)

    @classmethod
    def folds(cls, heads: int, options: Any) -> bool:
        """Whether the method only maps each head's values linearly and adds heads up: each slot holds Σ_i z_i
        T_i over its own heads, with constant or learned invertible (V, V) matrices T_i. T_i then folds into
        W_V^i, and the method can represent the same functions as a sum within slots
        (ablate.model.function_class).

        Leave it at False if the method does more, or if you don't know.
        """
        return False

    @abstractmethod
    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor: ...

    def head_weights(self) -> Tensor | None:
        """The learned weight of each head, (H,) or (H, V); None if the method has none."""
        return None


_registry: Registry[Fusion] = Registry("fusion", Fusion, package="ablate.model.fusion")
register, methods, method_of = _registry.register, _registry.methods, _registry.method_of
forget = _registry.forget
