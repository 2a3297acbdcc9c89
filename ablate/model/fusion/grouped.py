from dataclasses import dataclass
from typing import Annotated

from ablate.config.rules import AtLeast, ConfigError
from ablate.lazy import Tensor
from ablate.model.fusion import Fusion, Normalized, always, register
from ablate.model.parts import divisors


@dataclass(frozen=True, kw_only=True)
class GroupedOptions(Normalized):
    groups: Annotated[int, AtLeast(1)]


@register("grouped")
class Grouped(Fusion):
    """Neighbouring heads added up in g groups, the groups concatenated.

    fused = [Σ_{i in group 1} z_i; …; Σ_{i in group g} z_i]. g = 1 is the sum, g = H is concat; in
    between, g sets the rank with which the heads write. A group of n heads has n times the variance
    of one head: normalize=variance multiplies by 1/√n. See: no paper; it lies between sum and concat.
    """

    Options = GroupedOptions
    one_head_passes = homogeneous = True
    folds = always

    @classmethod
    def slots(cls, heads: int, options: GroupedOptions) -> int:
        if heads % options.groups:
            fitting = " or ".join(map(str, divisors(heads)))
            raise ConfigError(f"fusion.groups={options.groups}: does not divide heads={heads}; use {fitting}")
        return options.groups

    @classmethod
    def form(cls, heads: int, options: GroupedOptions) -> str:
        if options.groups == heads:
            return "concat"
        if options.groups == 1:
            return f"sum normalize={options.normalize}"
        return super().form(heads, options)

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        in_group = self.shape.heads // self.options.groups
        scale = in_group**-0.5 if self.options.normalize == "variance" else 1.0
        return (z_BTHV.unflatten(-2, (self.options.groups, in_group)).sum(-2) * scale).flatten(-2)
