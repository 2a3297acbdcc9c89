"""The device on which a run computes."""

import os
import platform
from collections.abc import Collection

import torch

from ablate.config.rules import ConfigError


def pick(asked: str) -> torch.device:
    """The torch device for a value of `device`. Raises ConfigError for one that this machine lacks."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked == "auto":
        return torch.device("cuda" if count else "mps" if torch.backends.mps.is_available() else "cpu")
    device = torch.device(asked)
    if device.type == "cuda" and (device.index or 0) >= count:
        has = "no CUDA device" if count == 0 else f"CUDA devices 0 to {count - 1}"
        raise ConfigError(f"device={asked}: this machine has {has}; use device=auto or device=cpu")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"device={asked}: not available on this machine; use device=auto or device=cpu")
    return device


def each(devices: Collection[torch.device]) -> list[str]:
    """What CUDA_VISIBLE_DEVICES has to be for a process to have a GPU of its own, for each of several GPUs;
    empty unless there are several and nobody chose among them."""
    count = torch.cuda.device_count() if {*devices} == {torch.device("cuda")} else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
    return visible.split(",")[:count] if count > 1 else []


def describe(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{device}: {torch.cuda.get_device_name(device)}"
    return device.type


def peak_memory_mb(device: torch.device) -> float | None:
    """Peak memory in MB of 10⁶ bytes: of the device for CUDA, else of the process; None if unknown."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
    if os.name != "posix":
        return None
    import resource

    unit = 1 if platform.system() == "Darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)
