"""The contract of a fusion method.

legend: B batch, T time, H heads, V value width of a head, C model width, F fused width.

Attention hands its heads over at one seam: z_BTHV, what each head read, and x_BTC, the normalized
input that also feeds queries, keys and values. A fusion method answers with fused_BTF. Whether an
output projection follows is not its business.

To add a method: one file here with a registered subclass of Fusion, one YAML of the same name in
configs/fusion. The tests over the registry then cover it. What a method can say of itself beside the
contract (parameters, FLOPs) is in ablate/model/parts.py.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ablate.model.parts import Part, Registry


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every method takes: nothing."""


@dataclass(frozen=True, kw_only=True)
class Normalized(Options):
    """normalize=variance starts the fused vector at the variance of one head's output, by a constant that is
    part of the method."""

    normalize: Literal["none", "variance"] = "none"


class Fusion(Part):
    """Brings the outputs of the heads together: z_BTHV -> fused_BTF.

    A method whose Options are Normalized keeps the variance of a head at normalize=variance.
    """

    Options: ClassVar[type[Any]] = Options
    one_head_passes: ClassVar[bool] = True  # with one head, at the start: fused = z
    homogeneous: ClassVar[bool] = True  # c·z gives c·fused, for c > 0 and the same x
    adds_up: ClassVar[bool] = True  # fused is a sum over heads, of something that is 0 for a head that is 0

    def __init_subclass__(cls, **keywords: Any) -> None:
        """A method built on another is another function until it says otherwise."""
        super().__init_subclass__(**keywords)
        for declared in {"form", "folds"} - {*vars(cls)}:
            setattr(cls, declared, Fusion.__dict__[declared])

    @classmethod
    @abstractmethod
    def slots(cls, heads: int, options: Any) -> int:
        """How many vectors of value width stand side by side in the fused vector: F = slots·V.

        Raises ConfigError where the options do not fit the number of heads.
        """

    @classmethod
    def form(cls, heads: int, options: Any) -> str:
        """The function that the method is from the same start, as NAME key=value …, where NAME is the method
        whose form it is: a normalized mean is "sum normalize=variance". Two variants of equal form, and equal
        in everything else, are one by construction, and are not compared.

        By default a form of its own: its name and all its options. It is never inherited from another method.
        """
        return cls.spelled(options)

    @classmethod
    def folds(cls, heads: int, options: Any) -> bool:
        """Whether it only maps each head's values and adds heads up: each slot holds Σ_i z_i T_i over its own
        heads, with constant or learned (V, V) matrices T_i that have an inverse. T_i then folds into W_V^i,
        and it can be the same functions as a sum within slots (ablate.model.function_class).

        False, as by default, if it does more, or you don't know. It is never inherited from another method.
        """
        return False

    @abstractmethod
    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor: ...

    def contributions(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        """What each head brings into the fused vector: (B, T, H, F).

        Where the heads add up, fused of that head alone: their sum is fused. Elsewhere how fused differs from
        what it were with that head at its mean over B and T.
        """
        each_HH1 = torch.eye(z_BTHV.shape[-2], dtype=torch.bool, device=z_BTHV.device).unsqueeze(-1)
        if self.adds_up:
            return torch.stack([self.forward(z_BTHV * this, x_BTC) for this in each_HH1], -2)
        fused_BTF, mean_HV = self.forward(z_BTHV, x_BTC), z_BTHV.mean((0, 1))
        without = (torch.where(this, mean_HV, z_BTHV) for this in each_HH1)
        return torch.stack([fused_BTF - self.forward(z, x_BTC) for z in without], -2)

    def head_weights(self) -> Tensor | None:
        """The learned weight of each head, (H,) or (H, V); None where there is none."""
        return None


_registry: Registry[Fusion] = Registry("fusion", Fusion, package="ablate.model.fusion")
register, methods, method_of = _registry.register, _registry.methods, _registry.method_of
forget = _registry.forget
