"""What a method of one's own keeps beside its parameters, and what it draws: both are the run's own."""

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from ablate.config.schema import PartConfig
from ablate.execution.execute import execute
from ablate.execution.networks import build
from ablate.execution.run import Run, prepare
from ablate.execution.trained import load_model
from ablate.methods import Fusion, Linear
from ablate.model import fusion
from ablate.model.models import Model
from ablate.store.columns import Row
from ablate.training.group import Group
from tests.helpers import ignore, make_config, stopping

QUICK = ("corpus=grammar", "corpus.characters=9000", "model.layers=1", "heads=2")
QUICK += ("model.d_model=16", "train.batch=2", "train.steps=9", "train.checkpoint_every=4")
QUICK += ("train.eval_every=3", "model.context=16")


class Counting(Fusion):
    """A sum that grows with the number of times that it was called, at which it adds what it draws."""

    anew = True  # whether a buffer is a new tensor each time, in place of being written into
    table: Tensor
    calls: Tensor
    decayed: Tensor
    inner: Tensor

    @classmethod
    def slots(cls, heads, options):
        return 1

    def __init__(self, shape, options):
        super().__init__(shape, options)
        self.added = nn.Parameter(torch.rand(()) + 1)
        self.register_buffer("table", torch.rand(shape.value_width, shape.heads, dtype=torch.bfloat16))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("decayed", torch.zeros(4))
        self.register_buffer("inner", torch.rand(3), persistent=False)
        self.mix = Linear(shape.value_width, shape.value_width, bias=False)

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        self.calls += 1
        self.inner.add_(0.001)
        if self.anew:
            self.decayed = self.decayed * 0.5 + 1
        else:
            self.decayed.mul_(0.5).add_(1)
        drawn = torch.rand(()).item() + np.random.rand() + random.random()
        factor = self.added + self.decayed[0] + self.inner.sum() + drawn
        fused = self.mix((self.table.mT * z_BTHV).sum(-2) * factor) + self.decayed[:1]
        return nn.functional.dropout(fused * (1 + self.calls / 10), 0.1, self.training)


@pytest.fixture(autouse=True)
def counting() -> Iterator[None]:
    fusion.register("counting")(Counting)
    yield
    fusion.forget({"counting"})


def prepared(*overrides: str) -> Run:
    config = make_config(*QUICK, *overrides)
    return prepare(dataclasses.replace(config, fusion=PartConfig(name="counting", options={})))


def of_fusion(model: Model) -> Counting:
    fusion = model.sites()[0].attention.fusion
    assert isinstance(fusion, Counting)
    return fusion


def trained(root: Path, *overrides: str, cut_at: int = 0) -> tuple[Row, Path]:
    """The row and the directory of a run, which is interrupted once after step `cut_at`."""
    run = prepared(*overrides)
    if cut_at:
        with pytest.raises(KeyboardInterrupt):
            execute(run, stopping(cut_at), root)
        torch.manual_seed(cut_at)  # of whatever else the process does
        np.random.seed(cut_at)
        random.seed(cut_at)
    row = execute(run, ignore, root)
    assert row["status"] == "done", row
    return row, root / "store" / run.name


@pytest.mark.parametrize("anew", [True, False])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_killed_and_resumed_it_equals_uninterrupted(tmp_path, monkeypatch, precision, anew):
    monkeypatch.setattr(Counting, "anew", anew)
    (row, whole), (other, cut) = (
        trained(tmp_path / str(at), f"train.precision={precision}", cut_at=at) for at in (0, 6)
    )
    assert "going on after step 4" in (cut / "log.txt").read_text()
    for metric in ("val_loss", "test_loss", "train_loss"):
        assert row[metric] == other[metric]
    assert (whole / "model.safetensors").read_bytes() == (cut / "model.safetensors").read_bytes()
    kept = safetensors.torch.load_file(whole / "model.safetensors")
    calls, decayed = (kept[f"blocks.0.attention.fusion.{name}"] for name in ("calls", "decayed"))
    assert calls == 9 and calls.dtype == torch.int64  # steps: evaluations leave no trace
    assert decayed.dtype == torch.float32 and decayed.tolist() == [2 - 2.0**-8] * 4  # Σ 2⁻ⁱ, i < 9, exactly
    model = load_model(whole)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in kept.items())


def test_a_counter_does_not_stick_where_bfloat16_does():
    model = build(prepared())
    computing = Group([model], "bfloat16")
    mine = of_fusion(computing.model)
    mine.decayed += 256
    mine.decayed += 1
    assert of_fusion(model).decayed.tolist() == [257] * 4  # of which bfloat16 makes 256
    assert all(param.dtype == torch.bfloat16 for param in computing.model.parameters())


def test_neither_looking_nor_the_process_changes_what_is_learned(tmp_path):
    often, _ = trained(tmp_path / "often", "train.eval_every=1")
    torch.manual_seed(7)
    before = repr(np.random.get_state()), random.getstate(), torch.get_rng_state()
    rarely, _ = trained(tmp_path / "rarely", "train.eval_every=9")
    assert [often[name] for name in ("val_loss", "train_loss")] == [
        rarely[name] for name in ("val_loss", "train_loss")
    ]
    assert (repr(np.random.get_state()), random.getstate()) == before[:2]
    assert torch.equal(torch.get_rng_state(), before[2])


def test_where_it_is_made_it_draws_from_the_seed():
    one, again, other = (of_fusion(build(prepared(f"seed={seed}"))) for seed in (0, 0, 1))
    assert one.added == again.added != other.added
    assert torch.equal(one.inner, again.inner)
