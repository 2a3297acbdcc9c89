"""A causal language model: nanoGPT's version of GPT-2, with exchangeable fusion of heads.

Pre-LN blocks, learned positions, exact GELU, output layer tied to the token embedding.
See: Radford et al., "Language models are unsupervised multitask learners", 2019;
github.com/karpathy/nanoGPT, model.py.

legend: B batch, T time, C model width, N vocabulary, K positions that are asked about.
"""

from collections.abc import Sequence

import torch
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
        positions_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        x_BTC = self.dropout(self.token(tokens_BT) + self.position(positions_T))
        for block in self.blocks:
            x_BTC = block(x_BTC)
        if asked_K is not None:
            x_BTC = x_BTC.flatten(0, 1)[asked_K]
        return self.product(self.norm(x_BTC), self.token.weight, None)

    def sites(self) -> list[Site]:
        return [Site("decoder", layer, block.attention) for layer, block in enumerate(self.blocks, 1)]
