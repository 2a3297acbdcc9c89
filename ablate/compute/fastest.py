"""Choose the fastest of several ways to compute the same thing: timed once per machine, then remembered."""

import contextlib
import functools
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch

from ablate.compute.products import PRODUCTS, Product, works
from ablate.files import cache
from ablate.files.atomic import StoreError, write_atomically

ROUNDS = 7
# (rows, inputs, outputs) of the products that the presets compute most
SHAPES = ((2048, 64, 256), (768, 128, 512), (768, 512, 128))
HOPELESS = 4  # what takes so many times as long as another is not timed again
AHEAD = 0.95  # another way has to take less than this share of the first one's time


@functools.cache
def fastest_product() -> str:
    """The faster product of float32 matrices on one thread: `mkl` or `onednn`."""
    times = {name: partial(_seconds, product) for name, product in PRODUCTS.items()}
    return fastest("product", times, lambda name: works(PRODUCTS[name]))


@functools.cache
def halves_are_faster() -> bool:
    """Whether bfloat16 matrix products are faster here than float32 ones, as on processors that have them in
    hardware."""
    plain = PRODUCTS[fastest_product()]
    half = partial(_seconds, torch.nn.functional.linear, torch.bfloat16)
    return fastest("precision", {"float32": partial(_seconds, plain), "bfloat16": half}) == "bfloat16"


def fastest(
    question: str, contestants: Mapping[str, Callable[[], float]], works: Callable[[str], bool] | None = None
) -> str:
    """The contestant that takes the least time on one thread; the first, unless another is clearly faster.

    The answer is kept in the cache under `question`, for this processor and this PyTorch. contestants: each
    does its work once and returns the seconds that it took. works: which of them may be chosen, all by
    default. It is asked once, too: to check gradients PyTorch loads sympy, which takes most of a second.
    """
    path = cache.directory() / "fastest.json"
    key = f"{question}, {processor()} torch {torch.__version__}"
    known: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError, TypeError):
        known = dict(json.loads(path.read_text(encoding="utf-8")))
        if known.get(key) in contestants:
            return known[key]
    choice = _race({name: one for name, one in contestants.items() if works is None or works(name)})
    with contextlib.suppress(StoreError):  # without a cache the next process times it again
        write_atomically(path, json.dumps(known | {key: choice}) + "\n")
    return choice


def _race(contestants: Mapping[str, Callable[[], float]]) -> str:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for number in range(ROUNDS):
            for name, seconds in contestants.items():  # in turn, so that a busy moment slows all alike
                # Not after one round: the first call may have to load something.
                if number < 2 or min(times[name]) < HOPELESS * min(map(min, times.values())):
                    times[name].append(seconds())
    finally:
        torch.set_num_threads(threads)
    median = {name: statistics.median(values) for name, values in times.items()}
    first, *_ = contestants
    best = min(median, key=lambda name: median[name])
    return best if median[best] < AHEAD * median[first] else first


def _seconds(product: Product, dtype: torch.dtype = torch.float32) -> float:
    total = 0.0
    for rows, inputs, outputs in SHAPES:
        x, weight = (
            torch.ones(rows, inputs, dtype=dtype, requires_grad=True),
            torch.ones(outputs, inputs, dtype=dtype, requires_grad=True),
        )
        grad = torch.ones(rows, outputs, dtype=dtype)
        began = time.perf_counter()
        for _ in range(4):
            torch.autograd.grad(product(x, weight, None), (x, weight), grad)
        total += time.perf_counter() - began
    return total


def processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
