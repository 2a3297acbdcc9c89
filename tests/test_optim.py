"""AdamW, schedule and clipping against torch.optim, and by hand."""

from typing import Any

import pytest
import torch

from ablate.training import optim


@pytest.mark.parametrize("divisor", [None, 2.5])
def test_adamw_is_torchs(divisor):
    shapes = {"decayed": (5, 3), "kept": (7,)}
    ours = {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}
    theirs = {name: torch.nn.Parameter(value.clone()) for name, value in ours.items()}
    groups = [{"params": [theirs[name]], "weight_decay": d} for name, d in (("decayed", 0.3), ("kept", 0.0))]
    reference = torch.optim.AdamW(groups, lr=0.1, betas=(0.8, 0.95), eps=1e-3)
    moments = optim.Moments.zeros(ours)
    for step in range(1, 8):
        grads = {name: torch.randn_like(value) for name, value in ours.items()}
        for name, param in theirs.items():
            param.grad = grads[name] / (divisor or 1.0)
        for group in reference.param_groups:
            group["lr"] = 0.1 / step
        reference.step()
        more: Any = {"divisor": torch.tensor(divisor)} if divisor else {}
        more |= {"lr": 0.1 / step, "weight_decay": 0.3, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3}
        optim.adamw_(ours, grads, moments, step, decayed={"decayed": True, "kept": False}, **more)
    for name, param in theirs.items():
        torch.testing.assert_close(ours[name], param.detach(), rtol=1e-12, atol=1e-14)


def test_clipping_by_hand():
    norm = optim.global_norm({"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([[4.0]])})
    assert norm.item() == 5
    assert optim.clipping_divisor(norm, 2.5).item() == pytest.approx(2)
    assert optim.clipping_divisor(norm, 10).item() == 1  # already short enough


def test_schedule_by_hand():
    def rate(step):
        return optim.learning_rate(step, steps=10, peak=1.0, warmup=0.2, min_ratio=0.1)

    # two steps of warm-up reach 1/3 and 2/3; then cosine over 8 steps: 1 at its start, 0.55 half-way
    assert [rate(1), rate(2), rate(3), rate(7)] == pytest.approx([1 / 3, 2 / 3, 1.0, 0.55])
    rates = [rate(step) for step in range(3, 11)]
    assert rates == sorted(rates, reverse=True) and 0.1 < rates[-1] < 0.14


def test_one_step_has_its_full_rate():
    assert optim.learning_rate(1, steps=1, peak=0.3, warmup=0.05, min_ratio=0.1) == pytest.approx(0.3)
