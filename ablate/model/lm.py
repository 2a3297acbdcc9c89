"""A causal language model: nanoGPT's version of GPT-2, with exchangeable fusion of heads.

Pre-LN blocks, learned positions, exact GELU, output layer tied to the token embedding.
See: Radford et al., "Language models are unsupervised multitask learners", 2019;
github.com/karpathy/nanoGPT, model.py.

legend: B batch, T time, C model width, N vocabulary, K positions that are asked about.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from ablate.model.blocks import Block, Model, Site
from ablate.model.layers import Embedding
from ablate.model.masks import CAUSAL
from ablate.model.spec import ModelSpec


class LM(Model):
    """tokens_BT -> logits_BTN, for T up to spec.context. It takes no source."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.token = Embedding(spec.vocab, spec.d_model)
        self.position = Embedding(spec.context, spec.d_model)
        self.dropout = nn.Dropout(spec.dropout)
        blocks = nn.ModuleList(Block(spec.attention, CAUSAL, spec.mlp_hidden) for _ in range(spec.layers))
        self.blocks: Sequence[Block] = blocks  # pyright: ignore[reportAttributeAccessIssue]
        self.norm = nn.LayerNorm(spec.d_model, bias=spec.bias)

    def forward(
        self, tokens_BT: Tensor, asked_K: Tensor | None = None, source_BS: Tensor | None = None
    ) -> Tensor:
        x_BTC = self.embedded(tokens_BT, self.position)
        for block in self.blocks:
            x_BTC = block(x_BTC)
        return self.logits(x_BTC, asked_K)

    def sites(self) -> list[Site]:
        return [Site("decoder", layer, block.attention) for layer, block in enumerate(self.blocks, 1)]
