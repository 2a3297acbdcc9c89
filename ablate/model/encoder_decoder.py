"""An encoder that sees the whole source, and a causal decoder that attends to the encoder's output.

Pre-LN, learned positions of source and target, one embedding for source, target and output. With biases off
it computes the same as torch.nn.TransformerEncoder and TransformerDecoder with norm_first, except that the
fusion of heads is exchangeable.
See: Vaswani et al., "Attention is all you need", arXiv 1706.03762.

legend: B batch, T time of the target, S time of the source, C model width, N vocabulary, K positions that are
asked about.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from ablate.model.blocks import Block, DecoderBlock, Model, Site
from ablate.model.layers import Embedding
from ablate.model.masks import CAUSAL, EVERYTHING
from ablate.model.spec import ModelSpec


class EncoderDecoder(Model):
    """tokens_BT, source_BS -> logits_BTN, for T and S up to spec.context. source_BS is below 0 after
    the end of a row."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        assert spec.encoder is not None and spec.cross is not None, "sizing gives it all three attentions"
        self.token = Embedding(spec.vocab, spec.d_model)
        self.position = Embedding(spec.context, spec.d_model)
        self.source_position = Embedding(spec.context, spec.d_model)
        self.dropout = nn.Dropout(spec.dropout)
        encoder = nn.ModuleList(
            Block(spec.encoder, EVERYTHING, spec.mlp_hidden) for _ in range(spec.encoder_layers)
        )
        self.encoder: Sequence[Block] = encoder  # pyright: ignore[reportAttributeAccessIssue]
        self.encoder_norm = nn.LayerNorm(spec.d_model, bias=spec.bias)
        blocks = nn.ModuleList(
            DecoderBlock(spec.attention, CAUSAL, spec.mlp_hidden, spec.cross) for _ in range(spec.layers)
        )
        self.blocks: Sequence[DecoderBlock] = blocks  # pyright: ignore[reportAttributeAccessIssue]
        self.norm = nn.LayerNorm(spec.d_model, bias=spec.bias)

    def forward(
        self, tokens_BT: Tensor, asked_K: Tensor | None = None, source_BS: Tensor | None = None
    ) -> Tensor:
        assert source_BS is not None, "it reads two texts"
        return self.decode(tokens_BT, *self.encode(source_BS), asked_K)

    def sites(self) -> list[Site]:
        of = {
            "encoder": [block.attention for block in self.encoder],
            "decoder": [block.attention for block in self.blocks],
            "cross": [block.cross for block in self.blocks],
        }
        return [
            Site(kind, layer, attention)
            for kind, attentions in of.items()
            for layer, attention in enumerate(attentions, 1)
        ]

    def encode(self, source_BS: Tensor) -> tuple[Tensor, Tensor | None]:
        """memory_BSC, and filled_BS, true where the memory is no padding; None if it has none."""
        filled_BS = source_BS >= 0
        filled = None if filled_BS.all() else filled_BS
        x_BSC = self.embedded(source_BS.clamp(min=0), self.source_position)
        for block in self.encoder:
            x_BSC = block(x_BSC, filled)
        return self.encoder_norm(x_BSC), filled

    def decode(
        self, tokens_BT: Tensor, memory_BSC: Tensor, filled_BS: Tensor | None, asked_K: Tensor | None = None
    ) -> Tensor:
        """The logits, from the output of `encode`. asked_K: as in `forward`."""
        x_BTC = self.embedded(tokens_BT, self.position)
        for block in self.blocks:
            x_BTC = block(x_BTC, memory_BSC, filled_BS)
        return self.logits(x_BTC, asked_K)
