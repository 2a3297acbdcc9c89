"""How many cores this process may use: not how many the machine has."""

import contextlib
import math
import os
from pathlib import Path

# Threads wait for each other many times a step: below this, a busy neighbour costs more than a thread gains.
FLOPS_A_THREAD = 2e9
CGROUPS = Path("/sys/fs/cgroup")


def available() -> int:
    """The least that the affinity and the cgroup's quota (containers, batch systems) allow; at least 1."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.floor(min(affinity, quota(Path("/proc/self/cgroup"), CGROUPS))))


def threads_each(runs: int, step_flops: float, cores: int | None = None) -> int:
    """Threads for each of `runs` runs side by side: their share of the cores, but none that a step of so many
    FLOPs is too small for. cores: by default those of this process. OMP_NUM_THREADS has the last word."""
    if (asked := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():
        return max(1, int(asked))
    return max(1, min((cores or available()) // max(1, runs), round(step_flops / FLOPS_A_THREAD)))


def side_by_side(threads: int) -> int:
    """How many runs of so many threads the cores serve at once; at least 1."""
    return max(1, available() // threads)


def quota(membership: Path, root: Path) -> float:
    """Cores that the cgroup and those above it grant; infinite without a limit.

    See: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst (version 1).
    """
    limits = [math.inf]
    with contextlib.suppress(OSError):
        for line in membership.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            base = root if not controllers else root / "cpu"
            here = base / path.lstrip("/")
            for directory in (here, *here.parents):
                if directory.is_relative_to(base):
                    limits.append(_limit(directory))
    return min(limits)


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
