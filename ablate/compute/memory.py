"""Upper bounds on the memory that a run can have, in bytes."""

import contextlib
import functools
import math
import os
from pathlib import Path

import torch

from ablate.compute import cgroups


@functools.cache
def available(device: torch.device) -> float:
    """The total memory of a CUDA device; else that of this machine with swap, within the limits of the
    process and of its cgroups. Infinite if unknown."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return min(min(_physical(), quota()) + _swap(), _limits())


def quota(membership: Path = cgroups.MEMBERSHIP, root: Path = cgroups.ROOT) -> float:
    """The memory granted by the cgroup and its parents; infinite without a limit."""
    return min(map(_limit, cgroups.directories("memory", membership, root)), default=math.inf)


def _limit(directory: Path) -> float:
    for name in ("memory.max", "memory.limit_in_bytes"):  # of cgroup version 2 and of version 1
        with contextlib.suppress(OSError, ValueError):
            return int((directory / name).read_text(encoding="utf-8"))  # `max` is no number
    return math.inf


def _physical() -> float:
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return math.inf


def _swap() -> float:
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("SwapTotal:"):
                return int(line.split()[1]) * 1024
    return 0


def _limits() -> float:
    """The limit of this process, as set by `ulimit`."""
    with contextlib.suppress(ImportError):
        import resource

        limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
        return min([limit for limit in limits if limit != resource.RLIM_INFINITY], default=math.inf)
    return math.inf
