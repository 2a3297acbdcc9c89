from dataclasses import dataclass
from typing import Literal

from ablate.lazy import Tensor, nn, torch
from ablate.model.attend import Mask, masked_softmax
from ablate.model.parts import HeadShape, Options
from ablate.model.scores import Scores, register


@dataclass(frozen=True, kw_only=True)
class TalkingOptions(Options):
    mix: Literal["pre", "post", "both"]


@register("talking")
class Talking(Scores):
    """Heads mix their scores: A = P_post · softmax(P_pre · scale·QKᵀ), where P_pre and P_post are learned,
    (H, H), and mix says which of them there are.

    Both start as the identity, so it starts as softmax. After P_post a pattern may have negative entries and
    rows of any sum. All T × S scores of each head are stored, which takes memory.
    See: Shazeer et al., "Talking-heads attention", arXiv 2003.02436.
    """

    Options = TalkingOptions
    scale_folds = order_free = bilinear = True

    def __init__(self, shape: HeadShape, options: TalkingOptions) -> None:
        super().__init__(shape, options)
        identity = torch.eye(shape.heads)
        self.pre = nn.Parameter(identity.clone()) if options.mix in ("pre", "both") else None
        self.post = nn.Parameter(identity.clone()) if options.mix in ("post", "both") else None

    @classmethod
    def count_params(cls, shape: HeadShape, options: TalkingOptions) -> int:
        return (2 if options.mix == "both" else 1) * shape.heads**2

    @classmethod
    def count_flops_per_source(cls, shape: HeadShape, options: TalkingOptions) -> int:
        return (2 if options.mix == "both" else 1) * 2 * shape.heads**2

    def probabilities(self, q_BHTK: Tensor, k_BHSK: Tensor, mask: Mask) -> Tensor:
        scores_BHTS = _mixed(self.pre, self.shape.scale * q_BHTK @ k_BHSK.mT)
        return _mixed(self.post, masked_softmax(scores_BHTS, mask))


def _mixed(mix: Tensor | None, patterns_BHTS: Tensor) -> Tensor:
    """Each head's as a weighted sum of those of all; unchanged without weights."""
    if mix is None:
        return patterns_BHTS
    return (mix @ patterns_BHTS.flatten(2)).view_as(patterns_BHTS)
