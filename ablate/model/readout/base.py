"""The contract of a readout, which out_proj=NAME chooses in place of the projection.

legend: B batch, T time, F fused width, C model width.

A readout maps fused_BTF to what attention adds to the residual stream, (B, T, C), each token by itself. It is
linear and adds no constant, so that the share of each head is what it makes of that head alone. It keeps
sizes at the start: values start smaller for it, so that attention adds as much as with out_proj=true.

To add one: one file here with a registered subclass of Readout, which has no options. The tests over the
registry then cover it.
"""

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from ablate.config.registry import Registry
from ablate.model.parts import Part


class Readout(Part):
    """Maps the fused heads into the residual stream: fused_BTF -> (B, T, C). shape.fused is F."""

    CLAIMS = ("invertible",)
    invertible: ClassVar[bool] = False  # where F = C the map has an inverse, for all but special weights

    @abstractmethod
    def forward(self, fused_BTF: Tensor) -> Tensor: ...


_registry: Registry[Readout] = Registry(
    "out_proj", Readout, package="ablate.model.readout", noun="readout", besides=("true", "false")
)
register, methods, method_of = _registry.register, _registry.methods, _registry.method_of
forget = _registry.forget
