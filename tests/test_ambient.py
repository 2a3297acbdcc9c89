"""What the calling process has at large: ablate leaves it as it is, and computes the same whatever it is."""

import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra

import ablate
from ablate.compose.configs import configs_dir
from ablate.store.columns import RESOURCE_COLUMNS
from tests.helpers import call_cli, hydra_at

SMALL = {
    **{"corpus": "grammar", "corpus.characters": 9000, "train.steps": 4, "train.eval_every": 2},
    **{"model.d_model": 16, "model.layers": 1, "model.dropout": 0.1, "device": "cpu"},
}


def state() -> dict[str, Any]:
    """What ablate sets for a time, by name."""
    return {
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "precision": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),
        "torch's state": torch.get_rng_state().tolist(),
        "NumPy's state": str(np.random.get_state()),
        "Python's state": random.getstate(),
        "Hydra of the caller": str(GlobalHydra.instance().config_loader().get_search_path()),
    }


@contextlib.contextmanager
def odd() -> Iterator[None]:
    """What may be set, set to something else."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    torch.set_num_threads(2)
    try:
        with torch.no_grad(), torch.autocast("cpu"), hydra_at(configs_dir()):
            yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads)


@pytest.mark.slow
def test_what_a_program_has_set_is_not_changed_and_does_not_matter(tmp_path, monkeypatch):
    there, here = tmp_path / "there", tmp_path / "here"
    for directory in (there, here):
        directory.mkdir()
    monkeypatch.chdir(there)
    with odd():
        before = state()
        rows = ablate.run(fusion="sum", seed=0, **SMALL)
        model = ablate.load_model(rows["run_id"][0])
        sample = model.generate("the ", tokens=5, seed=1)
        assert state() == before
    small = [f"{key}={str(value).lower()}" for key, value in SMALL.items()]
    assert call_cli("run", "fusion=sum", "seed=0", *small, cwd=here).returncode == 0
    (one,), (other,) = ([*directory.glob("runs/store/[!.]*")] for directory in (here, there))
    for name in ("model.safetensors", "config.yaml", "tokenizer.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    assert _exact(one) == _exact(other)
    words = ("--prompt", "the ", "--tokens", "5", "--seed", "1")
    assert call_cli("sample", one.name, *words, cwd=here).stdout == f"{sample}\n"


def _exact(run: Path) -> tuple[dict[str, Any], list[str]]:
    """The run's row and its curve, without what was measured, and the number of threads."""
    row = json.loads((run / "result.json").read_text())
    curve = (run / "metrics.csv").read_text().splitlines()
    left_out = (*RESOURCE_COLUMNS, "threads", "files", "seal")
    return {k: v for k, v in row.items() if k not in left_out}, [line.rpartition(",")[0] for line in curve]
