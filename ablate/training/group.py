"""Models of equal shapes, computed as one: their weights are a matrix with a row for each, a member.

One model computes as it is. Several are mapped: torch.func.vmap computes the forward pass of all of them, and
autograd stays outside of it, so that the backward pass is the ordinary one of the mapped operations (within,
fused attention has no rule for its backward: pytorch issue 117016).

legend: M members, P numbers in all parameters of one, K positions with a target, N vocabulary.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ablate.data.splits import Batch
from ablate.model.mapped import MAPPED
from ablate.model.models import Model, decayed
from ablate.model.parts import Part

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class Layout:
    """Where each parameter of a model lies in one row of numbers. shapes: of the parameters, by name, in the
    order of the row: those that decay come first. decayed: how many numbers decay."""

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


class Group(ABC):
    """Computes losses and gradients of models whose weights are the rows of `weights`, (M, P), in the
    precision of train.precision. The parameters of `models` are views of it.

    Weights, gradients, moments, losses and statistics have the type of the weights, float32. In bfloat16 are
    only `computed`, a copy that `follow` updates once per step, and the activations from there to the logits
    (docs/precision.md). Buffers are those of each model, in the type that the method gave them.

    model: the one through which all are computed: the first, or a copy of it.
    """

    def __init__(self, models: Sequence[Model], precision: str) -> None:
        self.models = models
        self.layout = Layout.of(models[0])
        self.weights = torch.stack([self.layout.flat(dict(model.named_parameters())) for model in models])
        for model, params in zip(models, self.layout.rows(self.weights), strict=True):
            _bind(model, params)
        self.model, self.computed = models[0], self.weights
        if precision != "float32":
            self.model, self.computed = in_precision(models[0], precision), self.weights.to(torch.bfloat16)
            _bind(self.model, next(self.layout.rows(self.computed)))
        self._grads_MP = torch.empty_like(self.weights)

    def losses_and_gradients(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The mean loss of each member, (M,), and its gradients, (M, P), which the next call overwrites.
        batch: each part with a row for each member, (M, ...)."""
        loss_M, leaves = self._losses(batch)
        grads = torch.autograd.grad(loss_M.sum(), [leaves[name] for name in self.layout.shapes])
        torch.cat([grad.reshape(len(loss_M), -1) for grad in grads], 1, out=self._grads_MP)
        return loss_M.detach(), self._grads_MP

    @torch.no_grad()
    def follow(self) -> None:
        """Copy the current weights into those in bfloat16, if there are any."""
        if self.computed is not self.weights:
            self.computed.copy_(self.weights)

    @property
    @abstractmethod
    def buffers(self) -> Mapping[str, Tensor]:
        """What the methods keep from step to step, by name."""

    @abstractmethod
    def _losses(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The loss of each member, (M,), and the parameters of which it is a function."""

    @abstractmethod
    def logits(self, inputs: Tensor, positions: Tensor | None, source: Tensor | None) -> Tensor:
        """Of each member for the same batch: (M, ..., N), where ... is as in Model.forward."""


class Alone(Group):
    """One model, computed as it is."""

    def __init__(self, model: Model, precision: str = "float32") -> None:
        super().__init__([model], precision)
        self._params = dict(self.model.named_parameters())

    @property
    def buffers(self) -> Mapping[str, Tensor]:
        return dict(self.model.named_buffers())

    def follow(self) -> None:
        super().follow()
        if self.model is not self.models[0]:
            for module, computed in zip(self.models[0].modules(), self.model.modules(), strict=True):
                module._buffers.update(computed._buffers)  # of a method that makes a new tensor in each step

    def _losses(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
        return self.model.loss(*batch.each(lambda part: part[0]))[None], self._params

    def logits(self, inputs: Tensor, positions: Tensor | None, source: Tensor | None) -> Tensor:
        return self.model(inputs, positions, source)[None]


class Mapped(Group):
    """Several models, computed as one. The buffers of their methods are rows of a tensor each, too."""

    def __init__(self, models: Sequence[Model], precision: str = "float32") -> None:
        super().__init__(models, precision)
        self.model = copy.deepcopy(self.model)
        attends = self.model.sites()[0].attention.scores.attend
        self.model.use(attend=MAPPED.get(attends, attends))
        self._buffers = {
            name: torch.stack([model.get_buffer(name) for model in models]) for name in _kept(self.model)
        }
        for row, model in enumerate(models):
            for name, buffer in self._buffers.items():
                module, _, last = name.rpartition(".")
                model.get_submodule(module)._buffers[last] = buffer[row]
        self._leaves = {
            name: view.detach().requires_grad_() for name, view in self.layout.views(self.computed).items()
        }
        self._called = _Called(self.model)

    @property
    def buffers(self) -> Mapping[str, Tensor]:
        return self._buffers

    def _losses(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
        return self._map("loss", 0, *batch), self._leaves

    def logits(self, inputs: Tensor, positions: Tensor | None, source: Tensor | None) -> Tensor:
        return self._map("forward", None, inputs, positions, source)

    def _map(self, method: str, in_dim: int | None, *inputs: Tensor | None) -> Tensor:
        """The model's method for all members. in_dim: the dimension of the inputs that is a member's; None
        where all have the same."""

        def of_one(params: dict[str, Tensor], buffers: dict[str, Tensor], *inputs: Tensor | None) -> Any:
            state = {f"model.{name}": value for name, value in {**params, **buffers}.items()}
            return functional_call(self._called, state, (method, *inputs))

        in_dims = (0, 0, *(None if part is None else in_dim for part in inputs))
        return vmap(of_one, in_dims=in_dims)(self._leaves, self._buffers, *inputs)


def together(models: Sequence[Model], precision: str) -> Group:
    """The models, computed as one."""
    if len(models) == 1:
        return Alone(models[0], precision)
    return Mapped(models, precision)


class _Called(nn.Module):
    """Calls a method of a model by name: functional_call knows only `forward`."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, method: str, *inputs: Any) -> Tensor:
        return getattr(self.model, method)(*inputs)


def _kept(model: nn.Module) -> list[str]:
    """The names of the buffers of its methods; others of its buffers are the same in every model."""
    parts = {inner for part in model.modules() if isinstance(part, Part) for inner in part.modules()}
    return [
        f"{name}.{buffer}"
        for name, module in model.named_modules()
        for buffer, value in module._buffers.items()
        if module in parts and value is not None
    ]


def _bind(model: nn.Module, params: Mapping[str, Tensor]) -> None:
    """Let the model's parameters be these tensors."""
    for name, param in model.named_parameters():
        param.data = params[name]


def in_precision(model: Module, precision: str) -> Module:
    """The model itself for float32, otherwise a copy of it in bfloat16 that shares its buffers."""
    if precision == "float32":
        return model
    computed = copy.deepcopy(model, {id(buffer): buffer for buffer in model.buffers()})
    for param in computed.parameters():
        param.data = param.data.to(torch.bfloat16)
    return computed
