"""Build a model of either kind, and draw its weights."""

from collections.abc import Mapping

import torch
from torch import nn

from ablate import rng
from ablate.model.blocks import Model
from ablate.model.encoder_decoder import EncoderDecoder
from ablate.model.layers import STD, Embedding, Linear
from ablate.model.lm import LM
from ablate.model.parts import Part
from ablate.model.spec import ModelSpec


def empty_model(spec: ModelSpec) -> Model:
    """A model of these sizes whose weights still have to be drawn or loaded."""
    return LM(spec) if spec.encoder is None else EncoderDecoder(spec)


def build_model(spec: ModelSpec, seeds: Mapping[str, int]) -> Model:
    """A new model with drawn weights, on the CPU, in float32. seeds: as for `draw_weights`."""
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
            draw = torch.from_numpy(rng.normal(seeds[stream], stream, f"{name}.weight", shape))
            with torch.no_grad():
                module.weight.copy_(draw * (STD * module.scale))


def decayed(model: nn.Module) -> dict[str, bool]:
    """Which parameters weight decay applies to: the weights of linear layers and embeddings only."""
    matrices = {
        f"{name}.weight" for name, module in model.named_modules() if isinstance(module, Linear | Embedding)
    }
    return {name: name in matrices for name, _ in model.named_parameters()}
