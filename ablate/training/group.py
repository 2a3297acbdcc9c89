"""Models of equal shapes, computed as one: their weights are a matrix with a row for each, a member.

One model computes as it is. Several are mapped: torch.func.vmap computes the forward pass of all of them, and
autograd stays outside of it, so that the backward pass is the ordinary one of the mapped operations (within,
fused attention has no rule for its backward: pytorch issue 117016).

legend: M members, P numbers in all parameters of one, K positions with a target, N vocabulary.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ablate.data.splits import Batch
from ablate.model.mapped import MAPPED
from ablate.model.models import Model, decayed, mean_nats
from ablate.model.parts import Part

Module = TypeVar("Module", bound=nn.Module)


class Group:
    """One model, computed as it is; the base class of several, Mapped. `weights`, (M, P), has a row for each
    member, of which the parameters of `models` are views: in the order of `shapes`, those that decay first,
    which are `decayed` numbers.

    Weights, gradients, moments, losses and statistics have the type of the weights, float32. In bfloat16 are
    only `computed`, a copy that `follow` updates once per step, and the activations from there to the logits
    (docs/precision.md). Buffers are those of each model, in the type that the method gave them.

    model: the one through which all are computed: the first, or a copy of it.
    """

    def __init__(self, models: Sequence[Model], precision: str = "float32") -> None:
        decays, params = decayed(models[0]), dict(models[0].named_parameters())
        self.models = models
        self.shapes = {name: params[name].shape for name in sorted(params, key=lambda name: not decays[name])}
        self.decayed = sum(params[name].numel() for name in params if decays[name])
        self.weights = torch.stack([self._flat(model) for model in models])
        for row, model in enumerate(models):
            self._bind(model, self.weights[row])
        self.model, self.computed = models[0], self.weights
        if precision != "float32":
            self.model, self.computed = in_bfloat16(models[0]), self.weights.to(torch.bfloat16)
            self._bind(self.model, self.computed[0])
        self._grads_MP = torch.empty_like(self.weights)
        self._leaves = dict(self.model.named_parameters())  # of which losses are a function

    def _flat(self, model: Model) -> Tensor:
        """The parameters of one model in a row, (P,), in the type of the first."""
        rows = [model.get_parameter(name).detach().flatten() for name in self.shapes]
        return torch.cat([row.to(rows[0].dtype) for row in rows])

    def _views(self, matrix_MP: Tensor) -> dict[str, Tensor]:
        """The parameters in the rows of a matrix: by name, (M, *shape), sharing its memory."""
        pieces = matrix_MP.split([shape.numel() for shape in self.shapes.values()], dim=1)
        return {
            name: piece.view(len(matrix_MP), *shape)
            for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }

    def _bind(self, model: Model, row_P: Tensor) -> None:
        """Let the model's parameters be those of this row."""
        for name, view in self._views(row_P[None]).items():
            model.get_parameter(name).data = view[0]

    def losses_and_gradients(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The mean loss of each member, (M,), and its gradients, (M, P), which the next call overwrites.
        batch: each part with a row for each member, (M, ...)."""
        loss_M = self._losses(batch)
        grads = torch.autograd.grad(loss_M.sum(), [self._leaves[name] for name in self.shapes])
        torch.cat([grad.reshape(len(loss_M), -1) for grad in grads], 1, out=self._grads_MP)
        return loss_M.detach(), self._grads_MP

    @torch.no_grad()
    def follow(self) -> None:
        """Copy the current weights into those in bfloat16, if there are any."""
        if self.computed is not self.weights:
            self.computed.copy_(self.weights)
        if len(self.models) == 1 and self.model is not self.models[0]:
            for module, computed in zip(self.models[0].modules(), self.model.modules(), strict=True):
                module._buffers.update(computed._buffers)  # of a method that makes a new tensor in each step

    @property
    def buffers(self) -> Mapping[str, Tensor]:
        """What the methods keep from step to step, by name."""
        return dict(self.model.named_buffers())

    def _losses(self, batch: Batch) -> Tensor:
        """The loss of each member, (M,)."""
        return self.model.loss(*batch.each(lambda part: part[0]))[None]

    def logits(self, inputs: Tensor, positions: Tensor | None, source: Tensor | None) -> Tensor:
        """Of each member for the same batch: (M, ..., N), where ... is as in Model.forward."""
        return self.model(inputs, positions, source)[None]


class Mapped(Group):
    """Several models, computed as one. The buffers of their methods are rows of a tensor each, too."""

    def __init__(self, models: Sequence[Model], precision: str = "float32") -> None:
        super().__init__(models, precision)
        self.model = copy.deepcopy(self.model)
        product, attend = self.model.product, self.model.sites()[0].attention.scores.attend
        self.model.use(product=MAPPED.get(product, product), attend=MAPPED.get(attend, attend))
        self._buffers = {
            name: torch.stack([model.get_buffer(name) for model in models]) for name in _kept(self.model)
        }
        for row, model in enumerate(models):
            for name, buffer in self._buffers.items():
                module, _, last = name.rpartition(".")
                model.get_submodule(module)._buffers[last] = buffer[row]
        self._leaves = {
            name: view.detach().requires_grad_() for name, view in self._views(self.computed).items()
        }

    @property
    def buffers(self) -> Mapping[str, Tensor]:
        return self._buffers

    def _losses(self, batch: Batch) -> Tensor:
        def of_one(params: dict[str, Tensor], buffers: dict[str, Tensor], *batch: Tensor | None) -> Tensor:
            inputs, targets, positions, source = Batch._make(batch)
            return mean_nats(self._logits(params, buffers, inputs, positions, source), targets, positions)

        in_dims = (0, 0, *(None if part is None else 0 for part in batch))
        return vmap(of_one, in_dims=in_dims)(self._leaves, self._buffers, *batch)

    def logits(self, inputs: Tensor, positions: Tensor | None, source: Tensor | None) -> Tensor:
        of_all = vmap(self._logits, in_dims=(0, 0, None, None, None))
        return of_all(self._leaves, self._buffers, inputs, positions, source)

    def _logits(self, params: dict[str, Tensor], buffers: dict[str, Tensor], *inputs: Tensor | None) -> Any:
        return functional_call(self.model, {**params, **buffers}, inputs)


def _kept(model: nn.Module) -> list[str]:
    """The names of the buffers of its methods; others of its buffers are the same in every model."""
    parts = {inner for part in model.modules() if isinstance(part, Part) for inner in part.modules()}
    return [
        f"{name}.{buffer}"
        for name, module in model.named_modules()
        for buffer, value in module._buffers.items()
        if module in parts and value is not None
    ]


def in_bfloat16(model: Module) -> Module:
    """A copy of the model in bfloat16 that shares its buffers."""
    computed = copy.deepcopy(model, {id(buffer): buffer for buffer in model.buffers()})
    for param in computed.parameters():
        param.data = param.data.to(torch.bfloat16)
    return computed
