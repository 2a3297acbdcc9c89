"""A causal language model: nanoGPT's version of GPT-2, with exchangeable fusion of heads.

Pre-LN blocks, learned positions, exact GELU, output layer tied to the token embedding.
See: Radford et al., "Language models are unsupervised multitask learners", 2019;
github.com/karpathy/nanoGPT, model.py.

legend: B batch, T time, C model width, N vocabulary, K positions that are asked about.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate import rng
from ablate.model.attend import Attend
from ablate.model.attention import Attention
from ablate.model.layers import STD, Embedding, Linear
from ablate.model.masks import CAUSAL
from ablate.model.parts import Part
from ablate.model.scores import Scores
from ablate.model.spec import ModelSpec


class MLP(nn.Module):
    """x -> GELU(x W_up) W_down."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.up = Linear(spec.d_model, spec.mlp_hidden, bias=spec.bias)
        self.down = Linear(spec.mlp_hidden, spec.d_model, bias=spec.bias, scale=spec.residual_scale)

    def forward(self, x_BTC: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x_BTC)))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)) unless spec.mlp_hidden is 0."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(spec.d_model, bias=spec.bias)
        self.attention = Attention(spec.attention, CAUSAL)
        if spec.mlp_hidden:
            self.norm_2 = nn.LayerNorm(spec.d_model, bias=spec.bias)
            self.mlp = MLP(spec)
        else:
            self.mlp = None
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, x_BTC: Tensor) -> Tensor:
        normed_BTC = self.norm_1(x_BTC)
        x_BTC = x_BTC + self.dropout(self.attention(normed_BTC, normed_BTC))
        return x_BTC if self.mlp is None else x_BTC + self.dropout(self.mlp(self.norm_2(x_BTC)))


class LM(nn.Module):
    """tokens_BT -> logits_BTN, for T up to spec.context.

    asked_K: indices of flattened positions; if given, the result is logits_KN at these positions only.
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.token = Embedding(spec.vocab, spec.d_model)
        self.position = Embedding(spec.context, spec.d_model)
        self.dropout = nn.Dropout(spec.dropout)
        blocks = nn.ModuleList(Block(spec) for _ in range(spec.layers))
        self.blocks: Sequence[Block] = blocks  # pyright: ignore[reportAttributeAccessIssue]
        self.norm = nn.LayerNorm(spec.d_model, bias=spec.bias)
        self.product: Callable[[Tensor, Tensor, Tensor | None], Tensor] = F.linear

    def forward(self, tokens_BT: Tensor, asked_K: Tensor | None = None) -> Tensor:
        positions_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        x_BTC = self.dropout(self.token(tokens_BT) + self.position(positions_T))
        for block in self.blocks:
            x_BTC = block(x_BTC)
        if asked_K is not None:
            x_BTC = x_BTC.flatten(0, 1)[asked_K]
        return self.product(self.norm(x_BTC), self.token.weight, None)

    def loss(self, tokens_BT: Tensor, targets_BT: Tensor, asked_K: Tensor | None = None) -> Tensor:
        """Mean cross-entropy in nats over the positions asked about, at least in float32; 0 without any."""
        logits, targets = self(tokens_BT, asked_K), targets_BT.flatten()
        if asked_K is not None:
            targets = targets[asked_K]
        if not len(targets):
            return logits.sum()
        dtype = torch.promote_types(logits.dtype, torch.float32)
        return F.cross_entropy(logits.flatten(0, -2).to(dtype), targets)

    def use(self, *, product: Callable[..., Tensor] | None = None, attend: Attend | None = None) -> None:
        """Replace the implementation of every matrix product, or of every softmax attention.

        attend: one of the formulations of ablate.model.attend.
        """
        for module in self.modules():
            if product is not None and isinstance(module, Linear | LM):
                module.product = product
            if attend is not None and isinstance(module, Scores):
                module.attend = attend


def build_model(spec: ModelSpec, seeds: Mapping[str, int]) -> LM:
    """A new model with drawn weights, on the CPU, in float32. seeds: as for `draw_weights`."""
    model = LM(spec)
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
            draw = torch.from_numpy(rng.normal(seeds[stream], stream, f"{name}.weight", shape))
            with torch.no_grad():
                module.weight.copy_(draw * (STD * module.scale))


def decayed(model: LM) -> dict[str, bool]:
    """Which parameters weight decay applies to: the weights of linear layers and embeddings only."""
    matrices = {
        f"{name}.weight" for name, module in model.named_modules() if isinstance(module, Linear | Embedding)
    }
    return {name: name in matrices for name, _ in model.named_parameters()}
