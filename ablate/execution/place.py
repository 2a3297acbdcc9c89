"""What this machine offers a run: the faster products and attention, and enough memory or an error."""

import functools
from functools import partial

import torch

from ablate.compute.device import memory_of
from ablate.compute.fastest import (
    PRODUCTS,
    Function,
    agrees,
    bfloat16_is_faster,
    fastest,
    fastest_product,
    seconds,
    works,
)
from ablate.config.rules import ConfigError
from ablate.config.schema import TrainConfig
from ablate.model import scores
from ablate.model.attend import CAUSAL, FORMULATIONS, Attend, fused
from ablate.model.attention import sharing
from ablate.model.costs import total_params
from ablate.model.mlp import MLPS
from ablate.model.spec import AttentionSpec, ModelSpec

SHAPES = ((12, 4, 64, 32), (32, 4, 64, 16), (8, 6, 256, 64))  # (B, P, T, K) of the presets, to time attention
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.03}  # of formulations, relative to the largest entry
ACTIVATION = {"float32": 4, "bfloat16": 2}  # bytes per number, to bound the memory
LAYER = 30_000  # bytes of the Python objects of a layer, without its tensors


def linear_of(train: TrainConfig, place: torch.device) -> str:
    """The implementation of matrix products for a run (Run.linear). There is a choice for float32 on a
    CPU, and for bfloat16 on one without bfloat16 products, which are then computed in float32. Raises
    ConfigError."""
    if place.type != "cpu" or (train.precision == "bfloat16" and bfloat16_is_faster()):
        return "torch"
    if train.linear == "onednn" and not works(PRODUCTS["onednn"]):
        raise ConfigError(
            "train.linear=onednn: this PyTorch lacks it, or it is not exact; use train.linear=mkl"
        )
    if train.linear != "auto":
        return train.linear
    return "mkl" if train.compile else fastest_product()


def attention_of(train: TrainConfig, place: torch.device) -> str:
    """The formulation of attention for a run (Run.attention); `auto` has a choice only for bfloat16 on the
    CPU."""
    if train.attention != "auto":
        return train.attention
    has_choice = place.type == "cpu" and train.precision == "bfloat16"
    return fastest_attention() if has_choice else "fused"


# --- the formulation of attention: the fastest one here, timed once, then remembered ---------------
# legend: as of ablate.model.attend


@functools.cache
def fastest_attention() -> str:
    """The fastest one for bfloat16 on one thread. In float32 `fused` never loses."""
    each = [4 * [shape] for shape in SHAPES]
    times = {name: partial(seconds, _causal(f), each, torch.bfloat16) for name, f in FORMULATIONS.items()}
    return fastest("attention", times, lambda name: is_exact(FORMULATIONS[name]))


def is_exact(attend: Attend, dtype: torch.dtype = torch.bfloat16) -> bool:
    """Whether `attend` in `dtype` agrees with the fused formulation in float64, within TOLERANCE."""
    shapes = ((2, 3, 17, 8), (2, 3, 17, 8), (2, 3, 17, 5), (2, 3, 17, 5))
    return agrees(_causal(attend), _causal(fused), shapes, dtype, TOLERANCE[dtype])


def _causal(attend: Attend) -> Function:
    return lambda q, k, v: attend(q, k, v, CAUSAL, 0.0, 0.3)


# --- memory ---------------------------------------------------------------------------------------
# A lower bound on what training needs, so that a run that can't fit is refused before it begins. It counts
# tensors that certainly exist at one moment, and nothing that PyTorch needs besides; measured peaks were 1.02
# to 3 times the bound (tests/test_memory.py). legend: as in ablate.model.costs


def needed_for_weights(spec: ModelSpec) -> int:
    """Bytes at the end of a backward pass: weights, their gradients and Adam's two moments, all float32."""
    return 16 * total_params(spec) + LAYER * spec.layers


def needed_for_a_step(
    spec: ModelSpec, train: TrainConfig, attention: str = "fused", target_share: float = 1.0
) -> int:
    """Bytes at the end of a forward pass: weights, moments, and the activations for the backward pass.

    Per layer and token: the residual stream before and after attention and the outputs of both norms, 4d;
    queries, keys, values and what the patterns read; the patterns themselves, pT, if attention is unfused;
    all but these again, if it is in float32, twice as large; what the MLP keeps, 2m or more. At the end: the
    residual stream and its norm, 2d, and the logits and their softmax, 2N, at the target positions. The
    batch: two 64-bit numbers per token.
    """
    d = spec.d_model
    kinds = sum(layers * (2 * d + _numbers(a, spec.context, attention)) for a, layers in spec.kinds.values())
    mlps = (2 * d + MLPS[spec.mlp].kept * spec.mlp_hidden) if spec.mlp_hidden else 0
    numbers = kinds + (spec.layers + spec.encoder_layers) * mlps + 2 * d + 2 * target_share * spec.vocab
    tokens = train.batch * spec.context
    weights = 12 * total_params(spec) + LAYER * spec.layers
    return weights + round(tokens * (numbers * ACTIVATION[train.precision] + 16))


def _numbers(a: AttentionSpec, context: int, attention: str) -> int:
    """The numbers that one attention keeps per token."""
    shared, (rule, _) = sharing(a), scores.method_of(a.scores)
    projected = (a.query_heads * a.query_proj + a.key_heads) * a.key_width
    projected += a.value_heads * a.value_width * a.value_proj + (a.kv_rank or 0) + a.rope_width
    patterns = len(shared.heads) * context if attention == "unfused" and rule.compares else 0
    copies = 1 + 2 * (attention == "float32")
    return copies * (projected + len(shared.values) * a.value_width) + patterns


def require_memory(
    spec: ModelSpec, train: TrainConfig, device: torch.device, attention: str, target_share: float = 1.0
) -> None:
    """Raises ConfigError for a run that certainly does not fit into the memory of the device."""
    memory = memory_of(device)
    if (needed := needed_for_weights(spec)) > memory:
        keys = f"model.d_model={spec.d_model} model.layers={spec.layers} model.mlp_hidden={spec.mlp_hidden}"
        way_out = f"a model of {total_params(spec):,} parameters; take a smaller one"
    elif (needed := needed_for_a_step(spec, train, attention, target_share)) > memory:
        keys = f"train.batch={train.batch} model.context={spec.context}"
        way_out = "take fewer or shorter windows a step, or a smaller model"
    else:
        return
    raise ConfigError(
        f"{keys}: training takes {_gigabytes(needed)} of memory at least, and"
        f" {'this machine' if device.type != 'cuda' else device} has {_gigabytes(memory)}; {way_out}"
    )


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB"
