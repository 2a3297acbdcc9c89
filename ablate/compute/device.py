"""The device on which a run computes."""

import contextlib
import functools
import os
import platform
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from ablate.compute import limits
from ablate.config.rules import ConfigError
from ablate.lazy import torch

CPUINFO = Path("/proc/cpuinfo")


class Simulated:
    """In the place of a torch.device, for a run that computes nothing."""

    type = "simulated"


def pick(name: str) -> "torch.device":
    """The torch device for a value of `device`. Raises ConfigError for one that this machine lacks."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda" if count else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= count:
        has = "no CUDA device" if count == 0 else f"CUDA devices 0 to {count - 1}"
        raise ConfigError(f"device={name}: this machine has {has}; use device=auto or device=cpu")
    return device


def each(devices: Collection["torch.device"]) -> list[str]:
    """What CUDA_VISIBLE_DEVICES has to be for a process to have a GPU of its own, for each of several GPUs;
    empty unless there are several and nobody chose among them."""
    count = torch.cuda.device_count() if {*map(str, devices)} == {"cuda"} else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
    return visible.split(",")[:count] if count > 1 else []


def workers(devices: Collection["torch.device"], threads: int) -> int:
    """How many processes to train in at once on these devices, each with so many threads: one on each GPU,
    else as many as the cores have room for."""
    if any(device.type == "cuda" for device in devices):
        return max(1, len(each(devices)))
    return max(1, limits.available_cores() // threads)


@contextlib.contextmanager
def deterministic(device: "torch.device") -> Iterator[None]:
    """Have CUDA compute the same bytes each time, as a CPU does with as many threads. An operation that it
    can't compute so raises RuntimeError."""
    if device.type != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
    flags: Any = torch.utils.deterministic  # whose attribute is declared nowhere
    before = torch.are_deterministic_algorithms_enabled(), flags.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    flags.fill_uninitialized_memory = False  # which only costs time
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        flags.fill_uninitialized_memory = before[1]


def is_lost(device: "torch.device") -> bool:
    """Whether CUDA refuses all further work of this process, as after an index out of range on the device. If
    not, the memory that no tensor uses is given back to the device, for other processes."""
    if device.type == "cuda":
        try:
            torch.cuda.synchronize(device)
            torch.cuda.empty_cache()
        except RuntimeError:
            return True
    return False


def use_threads(device: "torch.device", count: int) -> None:
    """PyTorch computes with so many threads from now on."""
    if device is not Simulated:
        torch.set_num_threads(count)


def describe(device: "torch.device") -> str:
    return f"{device}: {processor(device)}" if device.type == "cuda" else device.type


def processor(device: "torch.device | None" = None) -> str:
    """The kind of processor that computes: its name and its instruction set; of a GPU, the card's name. Two
    kinds round differently, so one run has other losses on each. device: by default the CPU."""
    if device and device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device is Simulated:
        return Simulated.type
    name = _cpu().get("model name") or platform.processor() or platform.machine()
    return f"{name} ({instruction_set()})"


def instruction_set() -> str:
    """What PyTorch's kernels use of this processor: AVX2, AVX512 and the like; AVX512_BF16 where it
    multiplies bfloat16 numbers, too."""
    capability = torch.backends.cpu.get_cpu_capability()
    multiplies = capability == "AVX512" and "avx512_bf16" in _cpu().get("flags", "").split()
    return f"{capability}_BF16" if multiplies else capability


def maker() -> str:
    """The maker of this processor: AMD, Intel, or empty."""
    return {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}.get(_cpu().get("vendor_id", ""), "")


@functools.cache
def _cpu() -> dict[str, str]:
    """What Linux says of the first processor; empty elsewhere."""
    with contextlib.suppress(OSError):
        first = CPUINFO.read_text(encoding="utf-8").partition("\n\n")[0]
        pairs = (line.partition(":") for line in first.splitlines())
        return {name.strip(): value.strip() for name, _, value in pairs}
    return {}


def memory_of(device: "torch.device") -> float:
    """The most memory, in bytes, that a run on this device can have."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
