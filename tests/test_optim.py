"""AdamW, schedule and clipping against torch.optim, and by hand."""

import dataclasses
import math
from typing import Any

import pytest
import torch

from ablate.config.schema import TrainConfig
from ablate.training import optim
from tests.helpers import make_config


def trained(**keys: float) -> TrainConfig:
    return dataclasses.replace(make_config().train, **keys)


def test_adamw_is_torchs_for_each_member():
    """Of 4 members with 20 parameters, of which 13 decay: rates, decay and divisors are a member's, and two
    have equal rates and decay."""
    weights_MP = torch.randn(4, 20, dtype=torch.float64)
    decay, divisor_M = [0.3, 0.0, 0.1, 0.3], torch.tensor([2.5, 1.0, 7.0, 3.0])
    alike = [([0, 3], 0.3), ([1], 0.0), ([2], 0.1)]
    theirs = [[torch.nn.Parameter(part.clone()) for part in row.split([13, 7])] for row in weights_MP]
    reference = [
        torch.optim.AdamW(
            [{"params": [decays], "weight_decay": most}, {"params": [kept], "weight_decay": 0.0}],
            **{"betas": (0.8, 0.95), "eps": 1e-3},
        )
        for (decays, kept), most in zip(theirs, decay, strict=True)
    ]
    moments = optim.Moments.zeros(weights_MP)
    for step in range(1, 8):
        grads_MP, lr_M = (
            torch.randn(4, 20, dtype=torch.float64),
            torch.tensor([0.1, 0.2, 0.3, 0.1]).double() / step,
        )
        for params, optimizer, grads, divisor, lr in zip(
            theirs, reference, grads_MP, divisor_M, lr_M.tolist(), strict=True
        ):
            for param, grad, group in zip(
                params, (grads / divisor).split([13, 7]), optimizer.param_groups, strict=True
            ):
                param.grad, group["lr"] = grad, lr
            optimizer.step()
        rates: Any = {"lr_M": lr_M, "alike": alike, "decayed": 13, "divisor_M": divisor_M}
        optim.update_(weights_MP, grads_MP, moments, trained(beta1=0.8, beta2=0.95, eps=1e-3), **rates)
    for mine, params in zip(weights_MP, theirs, strict=True):
        torch.testing.assert_close(mine, torch.cat([*params]).detach(), rtol=1e-12, atol=1e-14)


def test_clipping_by_hand():
    norm_M = torch.tensor([5.0, 5.0, 5.0])
    divisors = optim.clipping_divisor(norm_M, torch.tensor([2.5, 10.0, math.inf]))
    assert divisors.tolist() == pytest.approx([2, 1, 1])  # the second is short enough, the third not clipped


def test_schedule_by_hand():
    def rate(step):
        return optim.learning_rate(step, trained(steps=10, warmup=0.2, min_lr_ratio=0.1), 1.0)

    # two steps of warm-up reach 1/3 and 2/3; then cosine over 8 steps: 1 at its start, 0.55 half-way
    assert [rate(1), rate(2), rate(3), rate(7)] == pytest.approx([1 / 3, 2 / 3, 1.0, 0.55])
    rates = [rate(step) for step in range(3, 11)]
    assert rates == sorted(rates, reverse=True) and 0.1 < rates[-1] < 0.14


def test_one_step_has_its_full_rate():
    assert optim.learning_rate(1, trained(steps=1, warmup=0.05, min_lr_ratio=0.1), 0.3) == pytest.approx(0.3)
