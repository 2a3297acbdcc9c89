"""Which matrix product is the faster one here: timed once per machine, and remembered."""

import contextlib
import functools
import json
import platform
import statistics
import time
from pathlib import Path

import torch

from ablate.compute.products import PRODUCTS, Product, works
from ablate.files import cache
from ablate.files.atomic import StoreError, write_atomically

ROUNDS = 7
# (rows, inputs, outputs): what the presets multiply most
SHAPES = ((2048, 64, 256), (768, 128, 512), (768, 512, 128))
AHEAD = 0.95  # of MKL's time: less of a gain is not worth another product


@functools.cache
def fastest_product() -> str:
    """`mkl` or `onednn`, on one thread. Remembered in the cache, for this processor and this PyTorch."""
    path = cache.directory() / "fastest.json"
    key = f"{_processor()} torch {torch.__version__}"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        known = json.loads(path.read_text(encoding="utf-8")).get(key)
        if known in PRODUCTS:
            return known
    choice = _time()
    with contextlib.suppress(StoreError):  # without a cache it is timed again
        write_atomically(path, json.dumps({key: choice}) + "\n")
    return choice


def _time() -> str:
    if not works(PRODUCTS["onednn"]):
        return "mkl"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times: dict[str, list[float]] = {name: [] for name in PRODUCTS}
        for _ in range(ROUNDS):
            for name, product in PRODUCTS.items():  # in turn, so that a busy moment hits both
                times[name].append(_seconds(product))
    finally:
        torch.set_num_threads(threads)
    median = {name: statistics.median(values) for name, values in times.items()}
    return "onednn" if median["onednn"] < AHEAD * median["mkl"] else "mkl"


def _seconds(product: Product) -> float:
    total = 0.0
    for rows, inputs, outputs in SHAPES:
        x, weight = (
            torch.ones(rows, inputs, requires_grad=True),
            torch.ones(outputs, inputs, requires_grad=True),
        )
        grad = torch.ones(rows, outputs)
        began = time.perf_counter()
        for _ in range(4):
            torch.autograd.grad(product(x, weight, None), (x, weight), grad)
        total += time.perf_counter() - began
    return total


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
