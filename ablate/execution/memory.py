"""A lower bound on the memory that training needs, so that a run that can't fit is refused before it begins.

It counts tensors that certainly exist at one moment, and nothing that PyTorch needs besides; measured peaks
were 1.02 to 3 times the bound (tests/test_memory.py). legend: as in ablate.model.costs.
"""

import torch

from ablate.compute import memory
from ablate.config.rules import ConfigError
from ablate.config.schema import TrainConfig
from ablate.model import scores
from ablate.model.costs import total_params
from ablate.model.sharing import sharing
from ablate.model.spec import AttentionSpec, ModelSpec

ACTIVATION = {"float32": 4, "bfloat16": 2}  # bytes per number
LAYER = 30_000  # bytes of the Python objects of a layer, without its tensors


def needed_for_weights(spec: ModelSpec) -> int:
    """Bytes at the end of a backward pass: weights, their gradients and Adam's two moments, all float32."""
    return 16 * total_params(spec) + LAYER * spec.layers


def needed_for_a_step(
    spec: ModelSpec, train: TrainConfig, attention: str = "fused", asked_share: float = 1.0
) -> int:
    """Bytes at the end of a forward pass: weights, moments, and the activations for the backward pass.

    Per layer and token: the residual stream before and after attention and the outputs of both norms, 4d;
    queries, keys, values and what the patterns read; the patterns themselves, pT, if attention is unfused;
    the MLP before and after GELU, 2m. At the end: the residual stream and its norm, 2d, and the logits and
    their softmax, 2N, at the positions asked about. The batch: two 64-bit numbers per token.
    """
    d = spec.d_model
    kinds = sum(layers * (2 * d + _numbers(a, spec.context, attention)) for a, layers in spec.kinds.values())
    mlps = (2 * d + 2 * spec.mlp_hidden) if spec.mlp_hidden else 0
    numbers = kinds + (spec.layers + spec.encoder_layers) * mlps + 2 * d + 2 * asked_share * spec.vocab
    tokens = train.batch * spec.context
    weights = 12 * total_params(spec) + LAYER * spec.layers
    return weights + round(tokens * (numbers * ACTIVATION[train.precision] + 16))


def _numbers(a: AttentionSpec, context: int, attention: str) -> int:
    """The numbers that one attention keeps per token."""
    shared, (rule, _) = sharing(a), scores.method_of(a.scores)
    projected = (a.query_heads + a.key_heads) * a.key_width + a.value_heads * a.value_width * a.value_proj
    patterns = len(shared.heads) * context if attention == "unfused" and rule.compares else 0
    return projected + len(shared.values) * a.value_width + patterns


def require_memory(
    spec: ModelSpec, train: TrainConfig, device: torch.device, attention: str, asked_share: float = 1.0
) -> None:
    """Raises ConfigError for a run that certainly does not fit into the memory of the device."""
    there = memory.available(device)
    if (needed := needed_for_weights(spec)) > there:
        asked = f"model.d_model={spec.d_model} model.layers={spec.layers} model.mlp_hidden={spec.mlp_hidden}"
        way_out = f"a model of {total_params(spec):,} parameters; take a smaller one"
    elif (needed := needed_for_a_step(spec, train, attention, asked_share)) > there:
        asked = f"train.batch={train.batch} model.context={spec.context}"
        way_out = "take fewer or shorter windows a step, or a smaller model"
    else:
        return
    raise ConfigError(
        f"{asked}: training takes {_gigabytes(needed)} of memory at least, and"
        f" {'this machine' if device.type != 'cuda' else device} has {_gigabytes(there)}; {way_out}"
    )


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB"
