"""What a process has at large: its environment, PyTorch's modes, the states of its random generators. They
are ablate's own inside a block, and the caller's again after it."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any


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
    """The caller's default dtype, precision of products, autocast and disabled gradients have no effect
    inside the block. These, the threads and the states of torch's random generators are as they were after
    it; those of other generators are put back wherever they are set (rng.drawing)."""
    import torch
    from torch.backends import cuda, mkldnn

    with contextlib.ExitStack() as after:
        for kind in ("cpu", "cuda"):
            after.enter_context(torch.autocast(kind, enabled=False))
        after.enter_context(torch.enable_grad())
        cards = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
        after.enter_context(torch.random.fork_rng(cards))
        after.callback(torch.set_num_threads, torch.get_num_threads())
        after.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
        of_cpu: Any = mkldnn  # whose attribute is declared nowhere
        for products in (cuda.matmul, of_cpu.matmul):
            after.callback(setattr, products, "fp32_precision", products.fp32_precision)
            products.fp32_precision = "ieee"
        yield
