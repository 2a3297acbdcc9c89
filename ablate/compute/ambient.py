"""What a process has at large: its environment, PyTorch's modes, the states of random generators. They are
ablate's own inside a block, and the caller's again after it."""

import contextlib
import os
import random
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

_one_at_a_time = threading.RLock()


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """The environment has these values inside the block, and is as it was after it."""
    before = {**os.environ}
    os.environ.update(values)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update({name: at for name, at in before.items() if os.environ.get(name) != at})


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """What the caller has set has no effect on numbers inside the block, and what is set there is undone
    after it. Of several threads, one at a time is inside."""
    import torch
    from torch.backends import cuda, mkldnn
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with _one_at_a_time, contextlib.ExitStack() as after:
        after.enter_context(environment())
        if torch.cuda.is_available() and not torch.cuda.is_initialized():  # asking for its states loads CUDA
            after.callback(lambda: torch.cuda.manual_seed_all(torch.initial_seed()))
        settings: list[Any] = [  # how to write it, how to read it, and perhaps our value
            (random.setstate, random.getstate),
            (np.random.set_state, np.random.get_state),
            (torch.set_rng_state, torch.get_rng_state),
            (torch.set_num_threads, torch.get_num_threads),
            (torch.set_default_dtype, torch.get_default_dtype, torch.float32),
            (torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode, 0),
            (torch.set_flush_denormal, lambda: bool(np.float32(1e-40) == 0), False),
            _attribute(mkldnn, "enabled", True),
            _attribute(cuda.matmul, "allow_bf16_reduced_precision_reduction", True),
        ]
        if torch.cuda.is_initialized():
            settings.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all))
        try:
            if (products := torch.get_float32_matmul_precision()) != "highest":
                settings.append((torch.set_float32_matmul_precision, lambda: products, "highest"))
        except RuntimeError:  # the caller has set it by the names that PyTorch 2.9 introduced
            settings += [_attribute(of.matmul, "fp32_precision", "ieee") for of in (cuda, mkldnn)]
        for write, read, *ours in settings:
            after.callback(write, read())
            for value in ours:
                write(value)
        for context in (
            *(torch.inference_mode(False), torch.enable_grad(), torch.autograd.set_detect_anomaly(False)),
            *(torch.autocast(kind, enabled=False) for kind in ("cpu", "cuda")),
            sdpa_kernel([kernel for kernel in SDPBackend.__members__.values() if kernel.value >= 0]),
        ):
            after.enter_context(context)
        if torch.get_default_device().type != "cpu":  # only then, as it slows every call down
            after.enter_context(torch.device("cpu"))
        yield


def _attribute(of: Any, name: str, ours: Any) -> tuple[Any, Any, Any]:
    return partial(setattr, of, name), partial(getattr, of, name), ours
