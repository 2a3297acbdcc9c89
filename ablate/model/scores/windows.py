from dataclasses import dataclass
from typing import Annotated, Literal

from ablate.config.rules import ConfigError, Rule, as_override
from ablate.config.schema import Size
from ablate.lazy import Tensor, torch
from ablate.model.attend import Mask, masked_softmax
from ablate.model.parts import HeadShape, Options
from ablate.model.scores import Scores, register


@dataclass(frozen=True, kw_only=True)
class WindowsOptions(Options):
    windows: Annotated[
        list[Size] | Literal["auto"],
        Rule(text="give each head a width of 1 or more, as [8,16,64,64], or auto"),
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
        doubling = (2 ** (head + 2) for head in range(shape.heads))
        self.widths = tuple(doubling if options.windows == "auto" else options.windows)

    @classmethod
    def check(cls, shape: HeadShape, options: WindowsOptions) -> None:
        if options.windows != "auto" and len(options.windows) != shape.heads:
            raise ConfigError(
                f"scores.windows={as_override(options.windows)}: {len(options.windows)} of them for"
                f" heads={shape.heads}; give one for each head, or auto"
            )

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, mask: Mask, dropout: float) -> Tensor:
        return self.attend(q_BHTK, k_BHSK, v_BHSV, Near(mask, self.widths), dropout, self.shape.scale)

    def probabilities(self, q_BHTK: Tensor, k_BHSK: Tensor, mask: Mask) -> Tensor:
        return masked_softmax(self.shape.scale * q_BHTK @ k_BHSK.mT, Near(mask, self.widths))


@dataclass(frozen=True)
class Near(Mask):
    """Shows what `mask` shows, limited to a window width for each head."""

    mask: Mask
    widths: tuple[int, ...]

    @property
    def constant(self) -> bool:
        return self.mask.constant

    def visible(self, queries: int, sources: int, device: "torch.device | None" = None) -> Tensor:
        """(H, T, S)."""
        away_TS = torch.arange(queries, device=device)[:, None] - torch.arange(sources, device=device)
        widths_H11 = torch.tensor(self.widths, device=device)[:, None, None]
        return (away_TS.abs() < widths_H11) & self.mask.visible(queries, sources, device)
