from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from ablate.config.rules import ConfigError, ErrorText, as_override
from ablate.config.schema import Size
from ablate.model.attend import Mask, masked_softmax
from ablate.model.parts import Options
from ablate.model.scores.base import Scores, register
from ablate.model.spec import HeadShape


@dataclass(frozen=True, kw_only=True)
class WindowsOptions(Options):
    windows: Annotated[
        list[Size] | Literal["auto"],
        ErrorText("give each head a width of 1 or more, as [8,16,64,64], or auto"),
    ]


@register("windows")
class Windows(Scores):
    """Softmax over a window that differs by head: A = softmax(scale·QKᵀ) over the s with |t − s| < w.

    w is the head's width. A window as wide as the context has no effect.
    See: Beltagy et al., "Longformer", arXiv 2004.05150, whose windows differ by layer.
    """

    Options = WindowsOptions
    scale_folds = sums_to_one = bilinear = True

    def __init__(self, shape: HeadShape, options: WindowsOptions) -> None:
        super().__init__(shape, options)
        widths = self.rules(shape.heads, options)
        self.widths = tuple(widths[head] for head in shape.patterns)

    @classmethod
    def rules(cls, heads: int, options: WindowsOptions) -> Sequence[int]:
        if options.windows == "auto":
            return [2 ** (head + 2) for head in range(heads)]
        if len(options.windows) != heads:
            raise ConfigError(
                f"scores.windows={as_override(options.windows)}: {len(options.windows)} of them for"
                f" heads={heads};"
                " give one for each head, or auto"
            )
        return options.windows

    def forward(self, q_BPTK: Tensor, k_BPSK: Tensor, v_BPSW: Tensor, mask: Mask, dropout: float) -> Tensor:
        return self.attend(q_BPTK, k_BPSK, v_BPSW, Near(mask, self.widths), dropout, self.shape.scale)

    def probabilities(self, q_BPTK: Tensor, k_BPSK: Tensor, mask: Mask) -> Tensor:
        return masked_softmax(self.shape.scale * q_BPTK @ k_BPSK.mT, Near(mask, self.widths))


@dataclass(frozen=True)
class Near(Mask):
    """Shows what `mask` shows, limited to a window width for each pattern."""

    mask: Mask
    widths: tuple[int, ...]

    @property
    def constant(self) -> bool:
        return self.mask.constant

    def visible(self, queries: int, sources: int, device: torch.device | None = None) -> Tensor:
        """(P, T, S)."""
        away_TS = torch.arange(queries, device=device)[:, None] - torch.arange(sources, device=device)
        widths_P11 = torch.tensor(self.widths, device=device)[:, None, None]
        return (away_TS.abs() < widths_P11) & self.mask.visible(queries, sources, device)
