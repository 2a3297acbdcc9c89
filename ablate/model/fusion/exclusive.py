from dataclasses import dataclass
from typing import Literal

from ablate.lazy import F, Tensor, nn, torch
from ablate.model.fusion import Options, register
from ablate.model.fusion.concat import Concat
from ablate.model.parts import HeadShape


@dataclass(frozen=True, kw_only=True)
class ExclusiveOptions(Options):
    drop: float | Literal["learned"]


@register("exclusive")
class Exclusive(Concat):
    """Heads concatenated, each without its part along the value of the token itself:
    z_i ← z_i − d (z_i·v̂_i) v̂_i.

    v̂_i is the value that head i has at this position, divided by its length, so a head writes what others say
    alone. d is 1 (published), another number, or learned for each head, starting at 1; at 0 it is concat.
    See: Zhai, "Exclusive self attention", arXiv 2603.09078.
    """

    Options = ExclusiveOptions
    homogeneous = reads_values = True

    def __init__(self, shape: HeadShape, options: ExclusiveOptions) -> None:
        super().__init__(shape, options)
        self.drop = nn.Parameter(torch.ones(shape.heads, 1)) if options.drop == "learned" else options.drop

    @classmethod
    def count_params(cls, shape: HeadShape, options: ExclusiveOptions) -> int:
        return shape.heads if options.drop == "learned" else 0

    @classmethod
    def form(cls, heads: int, options: ExclusiveOptions) -> str:
        return "concat" if options.drop == 0 else cls.spelled(options)

    @classmethod
    def folds(cls, heads: int, options: ExclusiveOptions) -> bool:
        return options.drop == 0

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor, v_BTHV: Tensor) -> Tensor:  # pyright: ignore
        unit_BTHV = F.normalize(v_BTHV, dim=-1)
        along_BTH1 = (z_BTHV * unit_BTHV).sum(-1, keepdim=True)
        return (z_BTHV - self.drop * along_BTH1 * unit_BTHV).flatten(-2)
