"""Set the weights of one attention so that it computes the same function as another one of its class.

It folds what ablate.model.function_class says folds: constants, a static map of each head's values, the rank
of out_proj. Each head of the source is taken as its operator OV_i, which the target's weights then factorize.

legend: H heads, K key width, V value width, C model width, F fused width, G slots.
"""

import torch
from torch import Tensor

from ablate.model.attention import Attention
from ablate.model.function_class import any_scores, rank_of_out_proj, slots_of
from ablate.model.layers import Linear, LowRank
from ablate.model.spec import AttentionSpec
from ablate.verify.attentions import relative_error, with_random_weights


@torch.no_grad()
def fold(source: Attention, target: Attention) -> None:
    """Set the weights of `target` to compute the function of `source`, in float64: exactly if both are of
    one class; if both only add heads up and the target has a lower rank, its operators are the closest."""
    _fold_patterns(source, target)
    if slots_of(source.spec) is not None and slots_of(target.spec) is not None:
        _factor(operators(source), _constant(source), target)
    else:
        _fold_constants(source, target)


@torch.no_grad()
def fold_error(source: AttentionSpec, target: AttentionSpec) -> float:
    """The largest difference after folding random weights, relative to the largest entry."""
    one, other = with_random_weights(source), with_random_weights(target)
    fold(one, other)
    x_BTC = torch.randn(2, 16, source.d_model, dtype=torch.float64)
    return relative_error(other(x_BTC, x_BTC), one(x_BTC, x_BTC))


@torch.no_grad()
def operators(attention: Attention) -> Tensor:
    """The operator OV_i of each head of a static fusion, with the values' bias as last row: (H, C + 1, C)."""
    H, V, value = attention.spec.heads, attention.spec.value_width, attention.value
    weight_HVC = value.weight.unflatten(0, (H, V))
    bias = value.bias
    bias_HV = weight_HVC.new_zeros(H, V) if bias is None else bias.unflatten(0, (H, V))
    values = torch.cat([weight_HVC.mT, bias_HV[:, None]], 1)  # (H, C + 1, V)
    return attention.spec.gain * values @ mixing(attention) @ out_matrix(attention)


@torch.no_grad()
def mixing(attention: Attention) -> Tensor:
    """The matrices M_i of a static fusion, fused = Σ_i z_i M_i: (H, V, F)."""
    H, V, C = attention.spec.heads, attention.spec.value_width, attention.spec.d_model
    unit = torch.eye(H * V, dtype=torch.float64).view(1, H * V, H, V)
    zeros = unit.new_zeros(1, H * V, C)
    return attention.fusion(unit, *attention.look(zeros, zeros).inputs)[0].unflatten(0, (H, V))


@torch.no_grad()
def out_matrix(attention: Attention) -> Tensor:
    """The matrix of out_proj, (F, C), to be multiplied from the right; the identity without out_proj."""
    unit = torch.eye(attention.spec.fused_width, dtype=torch.float64)
    return attention.out_proj(unit[None])[0] - _constant(attention)


def _constant(attention: Attention) -> Tensor:
    """The bias of out_proj, (C,); 0 if there is none."""
    return attention.out_proj(torch.zeros(1, 1, attention.spec.fused_width, dtype=torch.float64))[0, 0]


def _fold_patterns(source: Attention, target: Attention) -> None:
    target.scores.load_state_dict(source.scores.state_dict())
    factor = source.scores.shape.scale / target.scores.shape.scale
    if any_scores(source.spec) and any_scores(target.spec):
        forms_HCC = factor * _weights(source, "query").mT @ _weights(source, "key")
        C, K = target.spec.d_model, target.spec.key_width
        wide_KC = torch.eye(K, C, dtype=torch.float64)
        target.query.get_parameter("weight").copy_(wide_KC.repeat(target.spec.heads, 1))
        target.key.get_parameter("weight").copy_((wide_KC @ forms_HCC).flatten(0, 1))
        return
    share = 0.5 if source.spec.tie_qk else 1.0  # the exponent of the factor that goes into W_Q
    target.query.load_state_dict(source.query.state_dict())
    if not source.spec.tie_qk:
        target.key.load_state_dict(source.key.state_dict())
    for param in target.query.parameters():
        param *= factor**share


def _weights(attention: Attention, name: str) -> Tensor:
    """The matrices of each head that give its queries or keys: (H, K, C)."""
    return attention.get_parameter(f"{name}.weight").unflatten(0, (-1, attention.spec.key_width))


def _fold_constants(source: Attention, target: Attention) -> None:
    """Fold a constant factor on the heads' outputs into W_V."""
    target.fusion.load_state_dict(source.fusion.state_dict())
    factor = source.spec.gain / target.spec.gain
    target.value.load_state_dict(source.value.state_dict())
    for param in target.value.parameters():
        param *= factor
    if isinstance(target.out_proj, Linear | LowRank):
        _set_out_proj(target, out_matrix(source), _constant(source))


def _factor(wanted: Tensor, constant: Tensor, target: Attention) -> None:
    """Set the weights of `target` so that its operators are `wanted`, (H, C + 1, C)."""
    H, V, slots, value = target.spec.heads, target.spec.value_width, slots_of(target.spec), target.value
    assert slots is not None
    slot_of = [head * slots // H for head in range(H)]
    mixes = mixing(target).unflatten(2, (slots, V))  # (H, V, G, V)
    own = torch.stack([mixes[head, :, slot] for head, slot in enumerate(slot_of)])  # T_i, (H, V, V)
    if target.spec.out_proj:
        out = _basis_of_slots(wanted, target, slots)
        _set_out_proj(target, out.flatten(0, 1), constant)
    else:
        out = out_matrix(target).unflatten(0, (slots, V))
        if constant.any():  # rows of patterns sum to 1, so the value bias of one head can carry it
            wanted[0, -1] += constant
    for head, slot in enumerate(slot_of):
        values = wanted[head] @ torch.linalg.pinv(out[slot]) @ torch.linalg.inv(own[head]) / target.spec.gain
        value.weight[head * V : (head + 1) * V] = values[:-1].mT
        if value.bias is not None:
            value.bias[head * V : (head + 1) * V] = values[-1]


def _basis_of_slots(wanted: Tensor, target: Attention, slots: int) -> Tensor:
    """For each slot, V directions that its heads write into: (G, V, C), limited to the rank of out_proj."""
    V, rank = target.spec.value_width, rank_of_out_proj(target.spec)
    joint = _directions(wanted.flatten(0, 1), rank or target.spec.d_model)
    within = (wanted @ joint.mT).unflatten(0, (slots, -1)).flatten(1, 2)  # (G, H/G · (C + 1), rank)
    return torch.stack([_directions(of_slot, V) @ joint for of_slot in within])


def _directions(rows: Tensor, count: int) -> Tensor:
    """The `count` leading orthonormal directions of these rows, padded with zeros if there are fewer."""
    _, _, basis = torch.linalg.svd(rows, full_matrices=False)
    held = basis[:count]
    return torch.cat([held, held.new_zeros(count - len(held), rows.shape[1])])


def _set_out_proj(target: Attention, matrix_FC: Tensor, constant: Tensor) -> None:
    """Set out_proj to this matrix and constant. Raises AssertionError if the rank is too high for it."""
    out = target.out_proj
    if isinstance(out, LowRank):
        left, sizes, right = torch.linalg.svd(matrix_FC, full_matrices=False)
        rank = out.down.weight.shape[0]
        assert not len(sizes[rank:]) or sizes[rank:].max() < 1e-10 * sizes[0]
        out.down.weight.zero_()
        out.up.weight.zero_()
        out.down.weight[: len(sizes)] = (left * sizes).mT[:rank]
        out.up.weight[:, : len(sizes)] = right.mT[:, :rank]
        out = out.up
    else:
        assert isinstance(out, Linear)
        out.weight.copy_(matrix_FC.mT)
    if out.bias is not None:
        out.bias.copy_(constant)
