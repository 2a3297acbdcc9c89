"""The cores that this process may use of its machine. Loads no torch."""

import contextlib
import os
from pathlib import Path

# Threads wait for each other many times per step: below this much work per thread, another busy process costs
# more than a further thread gains.
FLOPS_A_THREAD = 2e9

QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container. See: Linux, Documentation/admin-guide/cgroup-v2.rst


def available_cores() -> int:
    """The cores that the CPU affinity, the quota of a container and SLURM_CPUS_PER_TASK allow; at least 1."""
    allowed = [float(os.cpu_count() or 1)]
    if hasattr(os, "sched_getaffinity"):
        allowed.append(len(os.sched_getaffinity(0)))
    with contextlib.suppress(OSError, ValueError):  # `max` is no number
        granted, period = map(int, QUOTA.read_text(encoding="utf-8").split())
        allowed.append(granted / period)
    if (given := os.environ.get("SLURM_CPUS_PER_TASK", "")).isdecimal():
        allowed.append(int(given))
    return max(1, int(min(allowed)))


def threads_each(runs: int, step_flops: float, cores: int | None = None) -> int:
    """Threads for each of `runs` runs at once: an equal share of the cores, but at most one thread for each
    FLOPS_A_THREAD of a step. cores: by default those of this process. OMP_NUM_THREADS overrides all."""
    if (override := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():
        return max(1, int(override))
    return max(1, min((cores or available_cores()) // max(1, runs), round(step_flops / FLOPS_A_THREAD)))
