"""Where each parameter of a model lies in one row of numbers.

legend: M members, which are models of equal shapes; P numbers in all parameters of one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from ablate.model.models import decayed


@dataclass(frozen=True)
class Layout:
    """shapes: of the parameters, by name, in the order of the row: those that decay come first. decayed: how
    many numbers decay."""

    shapes: Mapping[str, torch.Size]
    decayed: int

    @classmethod
    def of(cls, model: nn.Module) -> Self:
        decays, params = decayed(model), dict(model.named_parameters())
        names = sorted(params, key=lambda name: not decays[name])
        return cls(
            {name: params[name].shape for name in names},
            sum(params[name].numel() for name in names if decays[name]),
        )

    def views(self, matrix_MP: Tensor) -> dict[str, Tensor]:
        """The parameters in the rows of a matrix: by name, (M, *shape), sharing its memory."""
        pieces = matrix_MP.split([shape.numel() for shape in self.shapes.values()], dim=1)
        return {
            name: piece.view(len(matrix_MP), *shape)
            for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }

    def rows(self, matrix_MP: Tensor) -> Iterator[dict[str, Tensor]]:
        """The parameters of each member, by name, sharing the matrix's memory."""
        views = self.views(matrix_MP)
        return ({name: view[row] for name, view in views.items()} for row in range(len(matrix_MP)))

    def flat(self, params: Mapping[str, Tensor]) -> Tensor:
        """The parameters of one model in a row, (P,), in the type of the first."""
        rows = [params[name].detach().flatten() for name in self.shapes]
        return torch.cat([row.to(rows[0].dtype) for row in rows])
