"""The cores that this process may use of its machine. What containers and batch systems allow is read from
the cgroups. Loads no torch."""

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

# Threads wait for each other many times per step: below this much work per thread, another busy process costs
# more than a further thread gains.
FLOPS_A_THREAD = 2e9

MEMBERSHIP = Path("/proc/self/cgroup")
ROOT = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """The cores that the CPU affinity and the cgroup quota (containers, batch systems) allow; at least 1.
    Where neither confines this process, SLURM_CPUS_PER_TASK counts."""
    every = os.cpu_count() or 1
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else every
    allowed = max(1, math.floor(min(affinity, granted_cores())))
    given = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return max(1, min(allowed, int(given))) if allowed >= every and given.isdecimal() else allowed


def threads_each(runs: int, step_flops: float, cores: int | None = None) -> int:
    """Threads for each of `runs` runs at once: an equal share of the cores, but at most one thread for each
    FLOPS_A_THREAD of a step. cores: by default those of this process. OMP_NUM_THREADS overrides all."""
    if (override := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():
        return max(1, int(override))
    return max(1, min((cores or available_cores()) // max(1, runs), round(step_flops / FLOPS_A_THREAD)))


def side_by_side(threads: int) -> int:
    """How many runs with this many threads each fit on the cores at once; at least 1."""
    return max(1, available_cores() // threads)


# --- cgroups --------------------------------------------------------------------------------------


def granted_cores(membership: Path = MEMBERSHIP, root: Path = ROOT) -> float:
    """Cores granted by the cgroup of this process and its parents; infinite without a limit.

    See: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst (version 1).
    """
    return min(map(_cores, _directories(membership, root)), default=math.inf)


def _directories(membership: Path, root: Path) -> Iterator[Path]:
    """The directories that may hold the limits of the CPU, of cgroup version 1 or 2."""
    with contextlib.suppress(OSError):
        for line in membership.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            base = root if not controllers else root / "cpu"
            here = base / path.lstrip("/")
            yield from (directory for directory in (here, *here.parents) if directory.is_relative_to(base))


def _cores(directory: Path) -> float:
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):  # version 2, version 1
        with contextlib.suppress(OSError, ValueError):
            texts = [(directory / name).read_text(encoding="utf-8") for name in names]
            granted, period = map(int, " ".join(texts).split())  # `max` is no number
            return math.inf if granted < 0 else granted / period
    return math.inf
