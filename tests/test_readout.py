"""Readouts in place of out_proj: sizes at the start, what probes and columns make of them, refusals."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.analysis.frames import as_texts, frame
from ablate.config.conditions import holds
from ablate.config.identity import id_of_row
from ablate.config.rules import ConfigError
from ablate.execution.formulas import before_training
from ablate.execution.run import resolve
from ablate.model.models import build_model
from ablate.model.readout import Readout
from ablate.model.readout.base import _registry
from ablate.model.readout.hadamard import Hadamard
from ablate.model.spec import HeadShape
from ablate.probes.patterns import look
from ablate.store.columns import COLUMNS, csv_value
from ablate.verify.contract import check_results
from tests.helpers import SEEDS, make_config, make_spec, refusal_of
from tests.test_probes import batch, inputs, with_random_weights


@pytest.mark.parametrize("name", ["hadamard", "hadamard_scaled"])
@pytest.mark.parametrize("given", [(), ("fusion=sum",), ("heads=1",)])
def test_attention_starts_as_large_as_with_out_proj(name, given):
    def added(*overrides: str) -> float:
        torch.manual_seed(1)
        attention = (
            build_model(make_spec("model.d_model=128", *given, *overrides), SEEDS).sites()[0].attention
        )
        x_BTC = torch.randn(4, 32, 128)
        return attention(x_BTC, x_BTC).std().item()

    standard = added("value_width=wide") if given == ("fusion=sum",) else added()
    assert added(f"out_proj={name}") == pytest.approx(standard, rel=0.15)


@pytest.mark.parametrize("fusion", ["concat", "gated", "max"])
@pytest.mark.parametrize("name", ["hadamard", "hadamard_scaled"])
def test_what_heads_write_is_what_attention_adds(name, fusion):
    sizes = (
        "model.d_model=16",
        "heads=4",
        f"fusion={fusion}",
        "value_width=4" if fusion != "max" else "value_width=16",
    )
    model = with_random_weights(f"out_proj={name}", *sizes)
    some = batch(model)
    for block, seen, x in zip(model.blocks, look(model, some), inputs(model, some), strict=True):
        torch.testing.assert_close(seen.fused, block.attention(x, x))
        if seen.exact:
            torch.testing.assert_close(seen.written.sum(2), seen.fused)


def test_columns_and_directories_name_the_readout():
    config = make_config("out_proj=hadamard", "corpus=grammar", "corpus.characters=20000")
    run = resolve(config)
    row = before_training(run)
    assert row["out_proj"] == "hadamard" and row["function_class"].endswith("slices=4 of 16 readout=hadamard")
    assert run.name.startswith("concat-h4-hadamard-d64x2-s0-")
    written = frame([{**row, "status": "done"}, {**row, "out_proj": True, "status": "done"}])
    assert as_texts(written["out_proj"]).tolist() == ["hadamard", "true"]
    row["splits"] = [*row["splits"]]  # as a store keeps them
    assert id_of_row({name: csv_value(row.get(name)) for name in COLUMNS}) == run.run_id


@pytest.mark.parametrize("condition, of", [("out_proj=false", [False]), ("out_proj == true", [True])])
def test_a_condition_takes_a_readout_for_one(condition, of):
    """Also where a table has the levels as words."""
    for level in (True, False, "hadamard"):
        for values in ({"out_proj": level}, {"out_proj": csv_value(level)}):
            assert holds(condition, values) == (level in of)


REFUSED = [
    (
        "out_proj=hadamar",
        "no such readout; did you mean hadamard? choices: false, hadamard, hadamard_scaled, true",
    ),
    (
        "out_proj=hadamard model.d_model=96",
        "has a power of two of rows, and model.d_model=96; use model.d_model=64 or",
    ),
    ("out_proj=hadamard value_width=8", "model.d_model=64, and the fused heads are 32; use value_width=16"),
    ("out_proj=hadamard_scaled value_width=wide", "the fused heads are 256; use value_width=16"),
    ("out_proj=hadamard out_rank=4", "with out_proj=hadamard there is nothing to factor; use out_rank=null"),
    ("out_proj=hadamard value_scale=matched", "with out_proj=hadamard values start matched already"),
    (
        "out_proj=hadamard match=params match_by=value_width",
        "with out_proj=hadamard the residual stream fixes",
    ),
]


@pytest.mark.parametrize("overrides, words", REFUSED)
def test_what_does_not_fit_is_refused_with_a_way_out(overrides, words):
    assert words in refusal_of(*overrides.split())


# --- what `ablate check` finds ----------------------------------------------------------------------------


class Shifted(Readout):
    """Reads the token before, too."""

    def forward(self, fused_BTF: Tensor) -> Tensor:
        return fused_BTF + F.pad(fused_BTF, (0, 0, 1, 0))[:, :-1]


class Curved(Readout):
    def forward(self, fused_BTF: Tensor) -> Tensor:
        return fused_BTF.relu()


class Loud(Readout):
    def forward(self, fused_BTF: Tensor) -> Tensor:
        return 3 * fused_BTF


class Lossy(Readout):
    invertible = True

    def forward(self, fused_BTF: Tensor) -> Tensor:
        return 2**0.5 * torch.cat([torch.zeros_like(fused_BTF[..., :16]), fused_BTF[..., 16:]], -1)


class Picky(Readout):
    @classmethod
    def check(cls, shape: HeadShape, options: Any) -> None:
        raise ConfigError("none fits")

    def forward(self, fused_BTF: Tensor) -> Tensor:
        return fused_BTF


WRONG = [
    (Shifted, "what it makes of a token depends on others, by"),
    (Curved, "of a sum it does not make the sum of what it makes of both: it is off by"),
    (Loud, "what it makes of its input starts 3 times as large; divide by that"),
    (Lossy, "invertible is true, and its map has no inverse"),
    (Picky, "it refuses all sizes that were tried, so nothing was checked"),
]


@pytest.mark.slow
@pytest.mark.parametrize("method, words", WRONG)
def test_what_is_wrong_with_a_readout_is_said(monkeypatch, method, words):
    monkeypatch.setitem(_registry._methods, "wrong", method)
    monkeypatch.setattr(method, "name", "wrong", raising=False)
    if method is not Picky:  # of square sizes
        monkeypatch.setattr(method, "check", classmethod(vars(Hadamard)["check"].__func__))
    broken = [result.broken for result in check_results("out_proj", "wrong")]
    assert any(one.startswith(words) for one in broken), broken
