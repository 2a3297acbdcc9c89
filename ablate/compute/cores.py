"""How many cores this process may use, which may be fewer than the machine has."""

import contextlib
import math
import os
from pathlib import Path

from ablate.compute import cgroups

# Threads wait for each other many times per step: below this much work per thread, another busy process costs
# more than a further thread gains.
FLOPS_A_THREAD = 2e9


def available() -> int:
    """The cores that the CPU affinity and the cgroup quota (containers, batch systems) allow; at least 1.
    Where neither confines this process, SLURM_CPUS_PER_TASK counts."""
    every = os.cpu_count() or 1
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else every
    allowed = max(1, math.floor(min(affinity, quota())))
    given = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return max(1, min(allowed, int(given))) if allowed >= every and given.isdecimal() else allowed


def threads_each(runs: int, step_flops: float, cores: int | None = None) -> int:
    """Threads for each of `runs` runs at once: an equal share of the cores, but at most one thread for each
    FLOPS_A_THREAD of a step. cores: by default those of this process. OMP_NUM_THREADS overrides all."""
    if (asked := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():
        return max(1, int(asked))
    return max(1, min((cores or available()) // max(1, runs), round(step_flops / FLOPS_A_THREAD)))


def side_by_side(threads: int) -> int:
    """How many runs with this many threads each fit on the cores at once; at least 1."""
    return max(1, available() // threads)


def quota(membership: Path = cgroups.MEMBERSHIP, root: Path = cgroups.ROOT) -> float:
    """Cores granted by the cgroup and its parents; infinite without a limit.

    See: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst (version 1).
    """
    return min(map(_limit, cgroups.directories("cpu", membership, root)), default=math.inf)


def _limit(directory: Path) -> float:
    with contextlib.suppress(OSError, ValueError):
        granted, period = (directory / "cpu.max").read_text(encoding="utf-8").split()
        return math.inf if granted == "max" else int(granted) / int(period)
    with contextlib.suppress(OSError, ValueError):
        granted, period = (
            int((directory / f"cpu.cfs_{what}_us").read_text(encoding="utf-8"))
            for what in ("quota", "period")
        )
        return math.inf if granted < 0 else granted / period
    return math.inf
