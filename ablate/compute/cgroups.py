"""The directories of this process's cgroups and their parents, where Linux keeps resource limits."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")
ROOT = Path("/sys/fs/cgroup")


def directories(controller: str, membership: Path = MEMBERSHIP, root: Path = ROOT) -> Iterator[Path]:
    """The directories that may hold the limits of a controller (cpu, memory), of cgroup version 1 or 2.

    See: Linux, Documentation/admin-guide/cgroup-v2.rst, and cgroup-v1/.
    """
    with contextlib.suppress(OSError):
        for line in membership.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            base = root if not controllers else root / controller
            here = base / path.lstrip("/")
            yield from (directory for directory in (here, *here.parents) if directory.is_relative_to(base))
