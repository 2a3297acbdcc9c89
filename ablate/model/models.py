"""The models, of Pre-LN blocks; how one is built and its weights drawn.

legend: B batch, T time, S time of a source, C model width, N vocabulary, K target positions.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate import rng
from ablate.model.attend import CAUSAL, EVERYTHING, Attend, Mask
from ablate.model.attention import Attention
from ablate.model.layers import MLP, Embedding, Linear, norm_of
from ablate.model.parts import Part
from ablate.model.scores import Scores
from ablate.model.spec import STD, AttentionSpec, ModelSpec


class Block(nn.Module):
    """x + attention(norm(x)), then, with a memory, x + cross(norm(x), memory), then x + mlp(norm(x)) unless
    spec.mlp_hidden is 0. memory: the output of an encoder."""

    def __init__(
        self, spec: ModelSpec, attention: AttentionSpec, mask: Mask, layer: int, cross: AttentionSpec | None
    ) -> None:
        super().__init__()
        self.norm_1 = norm_of(spec)
        self.attention = Attention(attention, mask, layer)
        if spec.mlp_hidden:
            self.norm_2 = norm_of(spec)
            self.mlp = MLP(spec.mlp, spec.mlp_hidden, attention)
        else:
            self.mlp = None
        self.dropout = nn.Dropout(spec.dropout)
        if cross is not None:
            self.norm_cross = norm_of(spec)
            self.cross = Attention(cross, EVERYTHING, layer)

    def forward(
        self, x_BTC: Tensor, padding_mask_BS: Tensor | None = None, memory_BSC: Tensor | None = None
    ) -> Tensor:
        """padding_mask_BS: false where the memory or, without one, x is padding; None if there is none."""
        padding_mask_BT = padding_mask_BS if memory_BSC is None else None
        normed_BTC = self.norm_1(x_BTC)
        x_BTC = x_BTC + self.dropout(self.attention(normed_BTC, normed_BTC, padding_mask_BT))
        if memory_BSC is not None:
            x_BTC = x_BTC + self.dropout(self.cross(self.norm_cross(x_BTC), memory_BSC, padding_mask_BS))
        return x_BTC if self.mlp is None else x_BTC + self.dropout(self.mlp(self.norm_2(x_BTC)))


def _stack(
    spec: ModelSpec, attention: AttentionSpec, mask: Mask, layers: int, cross: AttentionSpec | None = None
) -> Any:
    """The blocks of an encoder or of a decoder."""
    return nn.ModuleList(Block(spec, attention, mask, layer, cross) for layer in range(1, layers + 1))


class Site(NamedTuple):
    """An attention of a model. kind: encoder, cross, or decoder, which is that of a model of one text, too.
    layer: counts from 1."""

    kind: str
    layer: int
    attention: Attention


class Model(nn.Module):
    """Predicts each token from those before it, with exchangeable fusion of heads: tokens_BT -> logits_BTN,
    for T up to spec.context. blocks: of the decoder. The output layer is tied to the token embedding.

    It is nanoGPT's version of GPT-2, or with position=rope, norm=rms and mlp=swiglu a Llama. See: Radford et
    al., "Language models are unsupervised multitask learners", 2019; github.com/karpathy/nanoGPT, model.py;
    Touvron et al., "LLaMA", arXiv 2302.13971.

    With spec.encoder an encoder sees the whole of a source, and the decoder attends to the encoder's output.
    source_BS is below 0 after the end of a row. One embedding serves source, target and output. With biases
    off it computes the same as torch.nn.TransformerEncoder and TransformerDecoder with norm_first. See:
    Vaswani et al., "Attention is all you need", arXiv 1706.03762.

    position: a vector for each position is added to its token's; None with position=rope, and with none,
    where the causal mask alone tells the order (Haviv et al., arXiv 2203.16634).
    """

    product: Callable[[Tensor, Tensor, Tensor | None], Tensor] = staticmethod(F.linear)

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        positions = spec.context if spec.position == "learned" else 0
        self.token = Embedding(spec.vocab, spec.d_model)
        self.position = Embedding(positions, spec.d_model) if positions else None
        self.dropout = nn.Dropout(spec.dropout)
        self.encoder: Sequence[Block] = ()
        if spec.encoder is not None:
            self.source_position = Embedding(positions, spec.d_model) if positions else None
            self.encoder = _stack(spec, spec.encoder, EVERYTHING, spec.encoder_layers)
            self.encoder_norm = norm_of(spec)
        self.blocks: Sequence[Block] = _stack(spec, spec.attention, CAUSAL, spec.layers, spec.cross)
        self.norm = norm_of(spec)

    def forward(
        self, tokens_BT: Tensor, target_positions_K: Tensor | None = None, source_BS: Tensor | None = None
    ) -> Tensor:
        """target_positions_K: indices of flattened positions; if given, the result is logits_KN at these
        only."""
        padding_mask_BS = memory_BSC = None
        if self.encoder:
            assert source_BS is not None, "it reads two texts"
            is_token_BS = source_BS >= 0
            padding_mask_BS = None if is_token_BS.all() else is_token_BS  # of the source; None if it has none
            x_BSC = self.embedded(source_BS.clamp(min=0), self.source_position)
            for block in self.encoder:
                x_BSC = block(x_BSC, padding_mask_BS)
            memory_BSC = self.encoder_norm(x_BSC)
        x_BTC = self.embedded(tokens_BT, self.position)
        for block in self.blocks:
            x_BTC = block(x_BTC, padding_mask_BS, memory_BSC)
        return self.logits(x_BTC, target_positions_K)

    def sites(self) -> list[Site]:
        """Its attentions, ordered by kind, then by layer."""
        encoder = [Site("encoder", layer, block.attention) for layer, block in enumerate(self.encoder, 1)]
        decoder = [Site("decoder", layer, block.attention) for layer, block in enumerate(self.blocks, 1)]
        crossed = enumerate(self.blocks if self.encoder else (), 1)
        return encoder + decoder + [Site("cross", layer, block.cross) for layer, block in crossed]

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
        return mean_nats(self(tokens_BT, target_positions_K, source_BS), targets_BT, target_positions_K)

    def use(self, *, product: Callable[..., Tensor] | None = None, attend: Attend | None = None) -> None:
        """Replace the implementation of every matrix product, or of every softmax attention.

        attend: one of the formulations of ablate.model.attend.
        """
        for module in self.modules():
            if product is not None and isinstance(module, Linear | Model):
                module.product = product
            if attend is not None and isinstance(module, Scores):
                module.attend = attend


def mean_nats(logits: Tensor, targets_BT: Tensor, target_positions_K: Tensor | None) -> Tensor:
    """Model.loss, of these logits."""
    targets = targets_BT.flatten()
    if target_positions_K is not None:
        targets = targets[target_positions_K]
    if not len(targets):
        return logits.sum()
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return F.cross_entropy(logits.flatten(0, -2).to(dtype), targets)


def inputs_of_attention(
    model: Model, tokens_BT: Tensor, source_BS: Tensor | None = None
) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    """The inputs of each attention, as in Attention.forward, in the order of `sites`."""
    attentions = [site.attention for site in model.sites()]
    inputs: dict[nn.Module, Any] = {}
    with contextlib.ExitStack() as hooks:
        for attention in attentions:
            hooks.enter_context(attention.register_forward_pre_hook(inputs.__setitem__))
        model(tokens_BT, None, source_BS)
    return [inputs[attention] for attention in attentions]


def build_model(spec: ModelSpec, seeds: Mapping[str, int]) -> Model:
    """A new model with drawn weights, on the CPU, in float32. seeds: as for `draw_weights`."""
    with rng.drawing(seeds["fusion"], "fusion", "made"):  # where a method of one's own may draw
        model = Model(spec)
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
