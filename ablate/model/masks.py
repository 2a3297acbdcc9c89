"""Masks: which positions a query may see. Attention is always given its mask explicitly.

legend: B batch, T time of the queries, S time of the keys and values.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


class Mask(ABC):
    @property
    def constant(self) -> bool:
        """Whether the mask is the same for all batches with these T and S."""
        return True

    @abstractmethod
    def visible(self, queries: int, sources: int, device: torch.device | None = None) -> Tensor:
        """Booleans that broadcast to (B, P, T, S): whether the query at position t sees position s; (T, S) if
        they are the same for all rows and patterns.

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


@dataclass(frozen=True, eq=False)
class Filled(Mask):
    """`mask`, with padding hidden. filled_BS: true where the source is no padding, at least once per row."""

    mask: Mask
    filled_BS: Tensor

    @property
    def constant(self) -> bool:
        return False

    def visible(self, queries: int, sources: int, device: torch.device | None = None) -> Tensor:
        """(B, 1, T, S), or (B, 1, 1, S) if every query sees the same."""
        filled_B11S = self.filled_BS[:, None, None]
        if self.mask == EVERYTHING:
            return filled_B11S
        return filled_B11S & self.mask.visible(queries, sources, device)


CAUSAL, EVERYTHING = Causal(), Everything()
