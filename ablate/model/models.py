"""The models, of Pre-LN blocks; how one is built and its weights drawn.

legend: B batch, T time, S time of a source, C model width, N vocabulary, K target positions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate import rng
from ablate.model.attend import CAUSAL, EVERYTHING, Attend, Mask
from ablate.model.attention import Attention
from ablate.model.layers import MLPS, Embedding, Linear, norm_of
from ablate.model.parts import Part
from ablate.model.scores import Scores
from ablate.model.spec import STD, AttentionSpec, ModelSpec


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)) unless spec.mlp_hidden is 0."""

    def __init__(self, spec: ModelSpec, attention: AttentionSpec, mask: Mask, layer: int) -> None:
        super().__init__()
        self.norm_1 = norm_of(spec)
        self.attention = Attention(attention, mask, layer)
        if spec.mlp_hidden:
            self.norm_2 = norm_of(spec)
            self.mlp = MLPS[spec.mlp](spec.mlp_hidden, attention)
        else:
            self.mlp = None
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, x_BTC: Tensor, padding_mask_BT: Tensor | None = None) -> Tensor:
        """padding_mask_BT: as in Attention."""
        return self._transformed(self._attended(x_BTC, padding_mask_BT))

    def _attended(self, x_BTC: Tensor, padding_mask_BT: Tensor | None = None) -> Tensor:
        normed_BTC = self.norm_1(x_BTC)
        return x_BTC + self.dropout(self.attention(normed_BTC, normed_BTC, padding_mask_BT))

    def _transformed(self, x_BTC: Tensor) -> Tensor:
        return x_BTC if self.mlp is None else x_BTC + self.dropout(self.mlp(self.norm_2(x_BTC)))


class DecoderBlock(Block):
    """A block with x + cross(norm(x), memory) before its MLP. memory: the output of an encoder."""

    def __init__(
        self, spec: ModelSpec, attention: AttentionSpec, mask: Mask, layer: int, cross: AttentionSpec
    ) -> None:
        super().__init__(spec, attention, mask, layer)
        self.norm_cross = norm_of(spec)
        self.cross = Attention(cross, EVERYTHING, layer)

    def forward(self, x_BTC: Tensor, memory_BSC: Tensor, padding_mask_BS: Tensor | None = None) -> Tensor:
        """padding_mask_BS: false where the memory is padding; None if it has none."""
        x_BTC = self._attended(x_BTC)
        x_BTC = x_BTC + self.dropout(self.cross(self.norm_cross(x_BTC), memory_BSC, padding_mask_BS))
        return self._transformed(x_BTC)


class Site(NamedTuple):
    """An attention of a model. kind: encoder, cross, or decoder, which is that of a model of one text, too.
    layer: counts from 1."""

    kind: str
    layer: int
    attention: Attention


class Model(nn.Module, ABC):
    """Predicts each token from those before it, and from a source if it takes one. blocks: of the decoder.

    position: a vector for each position is added to its token's; None with position=rope, and with none,
    where the causal mask alone tells the order (Haviv et al., arXiv 2203.16634).
    """

    blocks: Sequence[Block]
    norm: nn.Module
    product: Callable[[Tensor, Tensor, Tensor | None], Tensor] = staticmethod(F.linear)

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.token = Embedding(spec.vocab, spec.d_model)
        self.position = Embedding(spec.context, spec.d_model) if spec.position == "learned" else None
        self.dropout = nn.Dropout(spec.dropout)

    @abstractmethod
    def forward(
        self, tokens_BT: Tensor, target_positions_K: Tensor | None = None, source_BS: Tensor | None = None
    ) -> Tensor:
        """tokens_BT -> logits_BTN. target_positions_K: indices of flattened positions; if given,
        the result is logits_KN at these only."""

    @abstractmethod
    def sites(self) -> list[Site]:
        """Its attentions, ordered by kind, then by layer."""

    def embedded(self, tokens_BT: Tensor, position: Embedding | None) -> Tensor:
        """x_BTC, what the blocks begin with."""
        x_BTC = self.token(tokens_BT)
        if position is not None:
            x_BTC = x_BTC + position.weight.narrow(0, 0, tokens_BT.shape[1])
        return self.dropout(x_BTC)

    def logits(self, x_BTC: Tensor, target_positions_K: Tensor | None) -> Tensor:
        """From what the last block returns; target_positions_K as in `forward`."""
        if target_positions_K is not None:
            x_BTC = x_BTC.flatten(0, 1)[target_positions_K]
        return self.product(self.norm(x_BTC), self.token.weight, None)

    def loss(
        self,
        tokens_BT: Tensor,
        targets_BT: Tensor,
        target_positions_K: Tensor | None = None,
        source_BS: Tensor | None = None,
    ) -> Tensor:
        """Mean cross-entropy in nats over the target positions, at least in float32; 0 without any."""
        logits, targets = self(tokens_BT, target_positions_K, source_BS), targets_BT.flatten()
        if target_positions_K is not None:
            targets = targets[target_positions_K]
        if not len(targets):
            return logits.sum()
        dtype = torch.promote_types(logits.dtype, torch.float32)
        return F.cross_entropy(logits.flatten(0, -2).to(dtype), targets)

    def use(self, *, product: Callable[..., Tensor] | None = None, attend: Attend | None = None) -> None:
        """Replace the implementation of every matrix product, or of every softmax attention.

        attend: one of the formulations of ablate.model.attend.
        """
        for module in self.modules():
            if product is not None and isinstance(module, Linear | Model):
                module.product = product
            if attend is not None and isinstance(module, Scores):
                module.attend = attend


def inputs_of_attention(
    model: Model, tokens_BT: Tensor, source_BS: Tensor | None = None
) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    """The inputs of each attention, as in Attention.forward, in the order of `sites`."""
    attentions = [site.attention for site in model.sites()]
    inputs: dict[nn.Module, Any] = {}

    def record(attention: nn.Module, given: tuple[Any, ...]) -> None:
        inputs[attention] = given

    hooks = [attention.register_forward_pre_hook(record) for attention in attentions]
    try:
        model(tokens_BT, None, source_BS)
    finally:
        for hook in hooks:
            hook.remove()
    return [inputs[attention] for attention in attentions]


class LM(Model):
    """A causal language model with exchangeable fusion of heads: nanoGPT's version of GPT-2, or with
    position=rope, norm=rms and mlp=swiglu a Llama.

    tokens_BT -> logits_BTN, for T up to spec.context. It takes no source. The output layer is tied to the
    token embedding. See: Radford et al., "Language models are unsupervised multitask learners", 2019;
    github.com/karpathy/nanoGPT, model.py; Touvron et al., "LLaMA", arXiv 2302.13971.
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        blocks = nn.ModuleList(
            Block(spec, spec.attention, CAUSAL, layer) for layer in range(1, spec.layers + 1)
        )
        self.blocks: Sequence[Block] = blocks  # pyright: ignore[reportAttributeAccessIssue]
        self.norm = norm_of(spec)

    def forward(
        self, tokens_BT: Tensor, target_positions_K: Tensor | None = None, source_BS: Tensor | None = None
    ) -> Tensor:
        x_BTC = self.embedded(tokens_BT, self.position)
        for block in self.blocks:
            x_BTC = block(x_BTC)
        return self.logits(x_BTC, target_positions_K)

    def sites(self) -> list[Site]:
        return [Site("decoder", layer, block.attention) for layer, block in enumerate(self.blocks, 1)]


class EncoderDecoder(Model):
    """An encoder that sees the whole source, and a causal decoder that attends to the encoder's output.

    tokens_BT, source_BS -> logits_BTN, for T and S up to spec.context. source_BS is below 0 after the end of
    a row. One embedding serves source, target and output. With biases off it computes the same as
    torch.nn.TransformerEncoder and TransformerDecoder with norm_first, except that the fusion of heads is
    exchangeable. See: Vaswani et al., "Attention is all you need", arXiv 1706.03762.
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        assert spec.encoder is not None and spec.cross is not None, "sizing gives it all three attentions"
        self.source_position = Embedding(spec.context, spec.d_model) if spec.position == "learned" else None
        encoder = nn.ModuleList(
            Block(spec, spec.encoder, EVERYTHING, layer) for layer in range(1, spec.encoder_layers + 1)
        )
        self.encoder: Sequence[Block] = encoder  # pyright: ignore[reportAttributeAccessIssue]
        self.encoder_norm = norm_of(spec)
        blocks = nn.ModuleList(
            DecoderBlock(spec, spec.attention, CAUSAL, layer, spec.cross)
            for layer in range(1, spec.layers + 1)
        )
        self.blocks: Sequence[DecoderBlock] = blocks  # pyright: ignore[reportAttributeAccessIssue]
        self.norm = norm_of(spec)

    def forward(
        self, tokens_BT: Tensor, target_positions_K: Tensor | None = None, source_BS: Tensor | None = None
    ) -> Tensor:
        assert source_BS is not None, "it reads two texts"
        is_token_BS = source_BS >= 0
        padding_mask_BS = None if is_token_BS.all() else is_token_BS  # of the source; None if it has none
        x_BSC = self.embedded(source_BS.clamp(min=0), self.source_position)
        for block in self.encoder:
            x_BSC = block(x_BSC, padding_mask_BS)
        memory_BSC = self.encoder_norm(x_BSC)
        x_BTC = self.embedded(tokens_BT, self.position)
        for block in self.blocks:
            x_BTC = block(x_BTC, memory_BSC, padding_mask_BS)
        return self.logits(x_BTC, target_positions_K)

    def sites(self) -> list[Site]:
        encoder = [Site("encoder", layer, block.attention) for layer, block in enumerate(self.encoder, 1)]
        decoder = [Site("decoder", layer, block.attention) for layer, block in enumerate(self.blocks, 1)]
        cross = [Site("cross", layer, block.cross) for layer, block in enumerate(self.blocks, 1)]
        return encoder + decoder + cross


def empty_model(spec: ModelSpec) -> Model:
    """A model of these sizes whose weights still have to be drawn or loaded."""
    return LM(spec) if spec.encoder is None else EncoderDecoder(spec)


def build_model(spec: ModelSpec, seeds: Mapping[str, int]) -> Model:
    """A new model with drawn weights, on the CPU, in float32. seeds: as for `draw_weights`."""
    with rng.drawing(seeds["fusion"], "fusion", "made"):  # where a method of one's own may draw
        model = empty_model(spec)
    draw_weights(model, seeds)
    return model


def draw_weights(model: nn.Module, seeds: Mapping[str, int]) -> None:
    """Draw every weight, from the stream of the part that holds it, else from `backbone`.

    A draw is named after its weight, so variants start with equal values in tensors of equal name and shape.
    seeds: the seed of each stream, as from resolved_seeds.
    """
    own = {
        inner: part.stream for part in model.modules() if isinstance(part, Part) for inner in part.modules()
    }
    for name, module in model.named_modules():
        if isinstance(module, Linear | Embedding):
            stream = own.get(module, "backbone")
            shape = tuple(module.weight.shape)
            draw = rng.generator(seeds[stream], stream, f"{name}.weight").standard_normal(shape, np.float32)
            with torch.no_grad():
                module.weight.copy_(torch.from_numpy(draw) * (STD * module.scale))


def decayed(model: nn.Module) -> dict[str, bool]:
    """Which parameters weight decay applies to: the weights of linear layers and embeddings only."""
    matrices = {
        f"{name}.weight" for name, module in model.named_modules() if isinstance(module, Linear | Embedding)
    }
    return {name: name in matrices for name, _ in model.named_parameters()}
