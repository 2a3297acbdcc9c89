"""Masks: which positions a query may see. Attention is always given its mask explicitly.

legend: T time of the queries, S time of the keys and values.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


class Mask(ABC):
    @abstractmethod
    def visible(self, queries: int, sources: int, device: torch.device | None = None) -> Tensor:
        """(T, S) booleans: whether the query at position t sees position s.

        Raises ValueError if the mask is undefined for these T and S.
        """


@dataclass(frozen=True)
class Causal(Mask):
    """s ≤ t: a position sees itself and all earlier ones."""

    def visible(self, queries: int, sources: int, device: torch.device | None = None) -> Tensor:
        if queries != sources:
            raise ValueError(
                f"a causal mask needs queries and keys at the same positions, not {queries} and {sources}"
                " of them; attention to another sequence takes EVERYTHING"
            )
        return torch.ones(queries, sources, dtype=torch.bool, device=device).tril()


@dataclass(frozen=True)
class Everything(Mask):
    """Every position sees every source."""

    def visible(self, queries: int, sources: int, device: torch.device | None = None) -> Tensor:
        return torch.ones(queries, sources, dtype=torch.bool, device=device)


CAUSAL, EVERYTHING = Causal(), Everything()
