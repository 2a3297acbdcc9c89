"""Random attentions of given sizes, and the plain formulas that they are compared with, in float64.

legend: B batch, T time, H heads, K key width, V value width, C model width, F fused width.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ablate.compose.configs import defaults_of
from ablate.config.rules import ConfigError, did_you_mean
from ablate.config.schema import PartConfig
from ablate.model import fusion, scores
from ablate.model.attention import Attention
from ablate.model.layers import Linear
from ablate.model.masks import CAUSAL, Mask
from ablate.model.spec import AttentionSpec
from ablate.verify.variants import attention_spec

LARGEST = 2**24  # the most numbers in a tensor


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """T: positions. value_width: 0 means the key width."""

    batch: int = 3
    T: int = 17
    heads: int = 8
    key_width: int = 8
    value_width: int = 0
    d_model: int = 64


def read_sizes(text: str) -> Sizes:
    """The sizes given as KEY=NUMBER[,KEY=NUMBER]. Raises ConfigError."""
    known, given = [*Sizes.__dataclass_fields__], {}
    for part in filter(None, text.split(",")):
        key, equals, number = (word.strip() for word in part.partition("="))
        if key not in known:
            raise ConfigError(f"--sizes {part}: no such size{did_you_mean(key, known)}")
        if not (equals and number.isdecimal() and 1 <= int(number) <= 4096):
            raise ConfigError(f"--sizes {part}: write {key}=NUMBER, from 1 to 4096")
        given[key] = int(number)
    sizes = Sizes(**given)
    largest = sizes.heads * max(sizes.batch * sizes.T**2, sizes.d_model**2, sizes.T * 8 * 32)
    if largest > LARGEST:
        raise ConfigError(
            f"--sizes {text}: {largest:,} numbers in one tensor, more than {LARGEST:,}; take smaller ones"
        )
    return sizes


class Bench:
    """Builds attentions with the same input and the same weights: those of equal name and shape are equal.

    Weights have variance 2/(number of inputs): large enough for patterns that are far from uniform.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.H, self.K, self.C = sizes.heads, sizes.key_width, sizes.d_model
        self.V = sizes.value_width or sizes.key_width
        self.x = self.random("x", sizes.batch, sizes.T, sizes.d_model)
        self.source = self.random("source", sizes.batch, sizes.T + 2, sizes.d_model)  # an encoder's output

    def random(self, name: str, *shape: int) -> Tensor:
        seed = int.from_bytes(name.encode()) % 2**31 + sum(shape)
        return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))

    def spec(self, **given: Any) -> AttentionSpec:
        """A spec of these sizes. given: fields of AttentionSpec; parts by name, with their options as
        fusion_KEY or scores_KEY."""
        sizes: dict[str, Any] = {
            "d_model": self.C,
            "heads": self.H,
            "key_width": self.K,
            "value_width": self.V,
        }
        for kind, folder in (("fusion", fusion), ("scores", scores)):
            options = {key: given.pop(f"{kind}_{key}") for key in _options(given, kind)}
            if name := given.pop(kind, None):
                there = defaults_of(kind, name, folder.methods()[name].Options)
                given[kind] = PartConfig(name=name, options={**there, **options})
        return attention_spec(**{**sizes, **given})

    def attention(self, mask: Mask = CAUSAL, **given: Any) -> Attention:
        built = Attention(self.spec(**given), mask).double()
        with torch.no_grad():
            for name, module in built.named_modules():
                if isinstance(module, Linear):
                    shape = module.weight.shape
                    module.weight.copy_(self.random(name, *shape) * (2 / shape[1]) ** 0.5)
        return built.eval()

    def out(self, attention: Attention) -> Tensor:
        with torch.no_grad():
            return attention(self.x, self.x)

    # --- the plain formulas ------------------------------------------------------------------

    def projected(self, attention: Attention, name: str, width: int) -> Tensor:
        """x W^i of each head: (B, H, T, width)."""
        weight = attention.get_parameter(f"{name}.weight").detach()
        return torch.stack([self.x @ part.mT for part in weight.split(width)], 1)

    def patterns(
        self, q: Tensor, k: Tensor, *, scale: float, masked: bool = True, softmax: bool = True
    ) -> Tensor:
        """softmax(scale·QKᵀ) with a causal mask, optionally without the mask or the softmax."""
        found = scale * q @ k.mT
        future = torch.ones(self.sizes.T, self.sizes.T, dtype=torch.bool).triu(1)
        if softmax:
            return torch.softmax(found.masked_fill(future, float("-inf")) if masked else found, -1)
        return found.masked_fill(future, 0.0) if masked else found

    def heads(self, attention: Attention, patterns: Tensor | None = None) -> Tensor:
        """The output z of each head, by the formula: (B, H, T, V)."""
        if patterns is None:
            q, k = (self.projected(attention, name, self.K) for name in ("query", "key"))
            patterns = self.patterns(q, k, scale=self.K**-0.5)
        return patterns @ self.projected(attention, "value", self.V)

    def rows(self, attention: Attention, width: int) -> list[Tensor]:
        """The W_O^i: `width` rows of out_proj for each head."""
        return [*attention.get_parameter("out_proj.weight").detach().mT.split(width)]

    @functools.cached_property
    def concat(self) -> Attention:
        return self.attention()

    @functools.cached_property
    def z(self) -> Tensor:
        """The heads of the standard attention, by the formula: (B, H, T, V)."""
        return self.heads(self.concat)


def _options(given: dict[str, Any], kind: str) -> list[str]:
    return [key.removeprefix(f"{kind}_") for key in given if key.startswith(f"{kind}_")]


Pair = Callable[[Bench], tuple[Tensor, Tensor]]
