"""A program of somebody else's that calls ablate amid all that it has set: a Hydra app with a running event
loop, two threads, odd modes of PyTorch, handlers of its own. It prints what is not afterwards as it was."""

import argparse
import asyncio
import contextlib
import decimal
import faulthandler
import json
import locale
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from typing import Any

import hydra
import hydra.version
import numpy as np
import torch
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from omegaconf import OmegaConf
from omegaconf.basecontainer import BaseContainer

import ablate

SMALL = {
    **{"corpus": "grammar", "corpus.characters": 9000, "train.steps": 4, "train.eval_every": 2},
    **{"model.d_model": 16, "model.layers": 1, "model.dropout": 0.1, "device": "cpu"},
}
IN_PROCESS = {"hydra/launcher": "basic"}


def state() -> dict[str, Any]:
    """All that a process has for all of its code, by name."""
    named = logging.root.manager.loggerDict.values()
    loggers = [logging.root, *(one for one in named if isinstance(one, logging.Logger))]
    of_hydra = [hydra.version.getbase(), id(GlobalHydra.instance().hydra), id(HydraConfig.instance().cfg)]
    handlers = vars(logging)["_handlerList"]
    server: Any = forkserver._forkserver
    backends, configs = torch.backends, ConfigStore.instance().repo
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "modes": [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()],
        "autocast": [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")],
        "deterministic": torch.get_deterministic_debug_mode(),
        "precision": [torch.get_float32_matmul_precision(), backends.mkldnn.matmul.fp32_precision],
        "backends": [backends.mkldnn.enabled, backends.cudnn.benchmark, backends.cudnn.deterministic],
        "attention": [backends.cuda.flash_sdp_enabled(), backends.cuda.math_sdp_enabled()],
        "flush": not torch.tensor(1e-40, dtype=torch.float32, device="cpu").item(),
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "torch's state": torch.get_rng_state().tolist(),
        "NumPy's state": str(np.random.get_state()),
        "Python's state": random.getstate(),
        "errors": [np.geterr(), str(decimal.getcontext())],
        "environment": {**os.environ},
        "directory": os.getcwd(),
        "mask": _mask(),
        "arguments": [*sys.argv],
        "path": [*sys.path],
        "main": id(sys.modules["__main__"]),
        "streams": [id(sys.stdout), id(sys.stderr), id(sys.stdin)],
        "locale": locale.setlocale(locale.LC_ALL),
        "signals": {str(number): str(signal.getsignal(number)) for number in signal.valid_signals()},
        "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
        "warnings": [*map(str, warnings.filters)],
        "logging": {
            one.name: (one.level, [*map(id, one.handlers)], one.propagate, one.disabled, [*one.filters])
            for one in loggers
            if one.handlers or one.level or one.disabled or one.filters
        },
        "handlers": [*map(id, handlers)],
        "argparse": sorted(vars(argparse.ArgumentParser)),
        "Hydra": {str(kind): id(one) for kind, one in Singleton._instances.items()},
        "Hydra's app": of_hydra,
        "Hydra's configs": {
            group: sorted(of) for group, of in configs.items() if of and isinstance(of, dict)
        },
        "resolvers": {name: id(one) for name, one in BaseContainer._resolvers.items()},
        "start": [multiprocessing.get_start_method(allow_none=True), server._preload_modules],
        "server": [str(forkserver.connect_to_new_process), server._forkserver_pid],
        "hooks": [sys.excepthook, threading.excepthook, sys.displayhook, sys.gettrace(), sys.getprofile()],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval()],
    }


def _mask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def odd():
    """Whatever may be set, set to something else."""
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_float32_matmul_precision("medium")
    torch.set_flush_denormal(True)
    torch.backends.mkldnn.enabled = False
    torch.backends.cuda.enable_flash_sdp(False)
    torch.set_num_threads(2)
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    np.seterr(all="raise")
    decimal.getcontext().prec = 3
    logging.basicConfig(stream=sys.stdout, level=logging.DEBUG, force=True)
    logging.getLogger("ablate").setLevel(logging.ERROR)
    logging.getLogger("hydra").setLevel(logging.ERROR)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGUSR2])
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.argv.append("--one-of-mine")
    with torch.inference_mode(), torch.autocast("cpu"), torch.autograd.set_detect_anomaly(True):
        yield


def in_a_daemon(queue: Any) -> None:
    faulthandler.dump_traceback_later(120, exit=True)
    logging.disable()
    rows = ablate.run(fusion=["sum", "concat"], seed=3, name="daemon", **SMALL, **IN_PROCESS)
    try:
        ablate.run(fusion=["sum", "concat"], seed=4, **SMALL)
    except ablate.ConfigError as error:
        queue.put([rows["status"].tolist(), str(error)])


async def calls() -> None:
    """Everything that the interface has, from where there is an event loop, and from threads."""
    settings: Any = OmegaConf.create({"fusion": ["sum", "mean"], "seed": [0]})
    rows = ablate.run(**settings, name="here", **SMALL, **IN_PROCESS)
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(ablate.run, heads=heads, name="threads", **SMALL) for heads in (2, 8)]
        assert [one.result()["status"].item() for one in both] == ["done", "done"]
    ablate.run(plugins="mine.py", fusion=["own", "concat"], seed=2, name="pool", **SMALL)
    model = ablate.load_model(rows["run_id"][0])
    assert model.encode("the").dtype == torch.int64
    weights = [*model.parameters()]
    assert {(one.dtype, one.device.type, one.is_inference()) for one in weights} == {
        (torch.float32, "cpu", False)
    }
    print("sample", repr(model.generate("the ", tokens=5, seed=1)))
    print("table", ablate.compare(ablate.load("here"), margin=0.1).table["diff"].tolist())
    ablate.report("here")


@hydra.main(version_base="1.3", config_path=None, config_name="mine")
def app(config: Any) -> None:
    queue = multiprocessing.get_context("fork").SimpleQueue()
    # Forked before this program has threads: what one of them holds at that moment, a fork waits for.
    process = multiprocessing.get_context("fork").Process(target=in_a_daemon, args=[queue], daemon=True)
    process.start()
    process.join()
    print("daemon", json.dumps(None if queue.empty() else queue.get()))
    faulthandler.dump_traceback_later(240, exit=True)  # where it waits, if it does
    with odd():
        before = state()
        asyncio.run(calls())
        after = state()
        names = [name for name in before if before[name] != after[name]]
    print("changed", json.dumps({name: [str(before[name]), str(after[name])] for name in names}))


def main() -> None:
    multiprocessing.set_start_method(None, force=True)  # as a program begins that is no fork of another
    own = {"fusion": "nothing", "hydra": {"run": {"dir": "."}, "output_subdir": None}}
    ConfigStore.instance().store("mine", own)
    app()
