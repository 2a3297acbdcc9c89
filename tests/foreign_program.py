"""A program of somebody else's that calls ablate: a Hydra app that has set modes of PyTorch. It prints what
is not afterwards as it was."""

import contextlib
import json
import multiprocessing
import random
from collections.abc import Iterator
from typing import Any

import hydra
import numpy as np
import torch
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

import ablate

SMALL = {
    **{"corpus": "grammar", "corpus.characters": 9000, "train.steps": 4, "train.eval_every": 2},
    **{"model.d_model": 16, "model.layers": 1, "model.dropout": 0.1, "device": "cpu"},
}


def state() -> dict[str, Any]:
    """What ablate sets for a time, by name."""
    return {
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "autocast": [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")],
        "precision": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),
        "torch's state": torch.get_rng_state().tolist(),
        "NumPy's state": str(np.random.get_state()),
        "Python's state": random.getstate(),
        "Hydra's app": [id(GlobalHydra.instance().hydra), id(HydraConfig.instance().cfg)],
        "start": multiprocessing.get_start_method(allow_none=True),
    }


@contextlib.contextmanager
def odd() -> Iterator[None]:
    """What may be set, set to something else."""
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    torch.set_num_threads(2)
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    with torch.no_grad(), torch.autocast("cpu"):
        yield


@hydra.main(version_base="1.3", config_path=None, config_name="mine")
def app(_: Any) -> None:
    settings: Any = OmegaConf.create({"fusion": ["sum", "mean"], "seed": [0]})
    with odd():
        before = state()
        rows = ablate.run(**settings, name="here", **SMALL, **{"hydra/launcher": "basic"})
        ablate.run(plugins="mine.py", fusion=["own", "concat"], seed=2, name="pool", **SMALL)
        model = ablate.load_model(rows["run_id"][0])
        assert {one.dtype for one in model.parameters()} == {torch.float32}
        print("sample", repr(model.generate("the ", tokens=5, seed=1)))
        ablate.report("here")
        after = state()
    names = [name for name in before if before[name] != after[name]]
    print("changed", json.dumps({name: [str(before[name]), str(after[name])] for name in names}))


def main() -> None:
    multiprocessing.set_start_method(None, force=True)  # as a program begins that is no fork of another
    own = {"fusion": "nothing", "hydra": {"run": {"dir": "."}, "output_subdir": None}}
    ConfigStore.instance().store("mine", own)
    app()
