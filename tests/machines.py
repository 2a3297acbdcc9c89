"""Clusters of little machines, for tests: what SLURM and Ray run on.

A machine has a host name and processes of its own (a UTS and a PID namespace): when its first process is
killed, the kernel kills the rest. The machines of a cluster share a network namespace, which reaches nothing
outside and which nothing outside reaches, and see the same directories.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from benchmarks.kills import state
from tests.helpers import ROOT, but, present

NODES = {"n1": "192.0.2.1", "n2": "192.0.2.2"}  # addresses for documentation (RFC 5737), which nobody has
# A machine ends when the process that started it does, however that ends.
UNSHARE = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
MACHINE = ["setpriv", "--pdeathsig=KILL", *UNSHARE]
ADDRESSES = " && ".join(f"ip address add {address}/32 dev lo" for address in NODES.values())
START_S = 60
EXPIRES_S = 5  # a lease, instead of two minutes
ABLATE = [sys.executable, "-m", "ablate"]
QUICK = ("corpus=grammar", "corpus.characters=20000", "model.context=32", "train.batch=4", "train.steps=40")
QUICK += ("train.eval_every=20",)
LONG = but(QUICK, "train.steps=300", "train.checkpoint_every=20")


class Cluster:
    """A running cluster, as a context manager. All its files are in `directory`. environment: the variables
    by which a command uses it. programs: what it needs."""

    programs: Iterable[str] = ()

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        absent = [name for name in ("ip", "nsenter", "hostname", *self.programs) if not shutil.which(name)]
        assert not absent, f"no {' '.join(absent)} here: .ci/clusters installs them, as root"
        self.directory = directory
        directory.mkdir(exist_ok=True)
        own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "ABLATE_LEASE_EXPIRES_S": str(EXPIRES_S)}
        self.environment = {**own, **environment}
        self._machines: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._start("net", f"ip link set lo up && {ADDRESSES} && sleep infinity")
            own = os.stat("/proc/self/ns/net").st_ino  # which may have the same addresses
            self.until(lambda: os.stat(self.net).st_ino != own, "no network namespace")
            self.until(lambda: NODES["n2"] in self.ask("ip", "address", check=False), "no network")
            self._start_daemons()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End everything, jobs too."""
        for machine in reversed([*self._machines]):
            self.kill_node(machine)

    def _start_daemons(self) -> None:
        raise NotImplementedError

    @property
    def net(self) -> str:
        """The network namespace of the cluster."""
        return f"/proc/{self._machines['net'].pid}/ns/net"

    def command(self, words: Sequence[str], /) -> list[str]:
        """The same command, to be run where it reaches the cluster, with `environment`."""
        return ["nsenter", f"--net={self.net}", *words]

    def ask(self, *words: str, check: bool = True) -> str:
        """What a command on the cluster prints."""
        env = {**os.environ, **self.environment}
        done = subprocess.run(self.command(words), env=env, capture_output=True, text=True, timeout=START_S)
        assert not check or done.returncode == 0, f"{shlex.join(words)}: {done.stderr}"
        return done.stdout

    def kill_node(self, name: str, /) -> None:
        """Kill all processes of a machine at once. When `wait` returns, the kernel has ended them."""
        unshare = self._machines.pop(name)
        children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text(encoding="utf-8")
        first = int(children.split()[0]) if children.split() else unshare.pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)
        unshare.wait()

    def _start(self, machine: str, script: str) -> None:
        # sh is the machine's first process, which has to collect those whose parent ended.
        host = self.command(MACHINE) if self._machines else [*MACHINE, "--net"]
        argv = [*host, "sh", "-c", f"hostname {machine}; {script} & wait"]
        with self._log(machine).open("wb") as log:
            self._machines[machine] = subprocess.Popen(
                argv, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def until(self, condition: Callable[[], object], problem: str, within_s: float = START_S) -> None:
        """Wait for a condition. Raises AssertionError with the last lines of all logs."""
        end = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > end:
                lines = [f"{problem} after {within_s} s"]
                for log in sorted(self.directory.rglob("*.log")):
                    lines += [log.name, *log.read_text(errors="replace").splitlines()[-10:]]
                raise AssertionError("\n".join(lines))
            time.sleep(0.1)

    def _log(self, machine: str) -> Path:
        return self.directory / f"{machine}.log"


class Site:
    """A directory that all machines see, and the commands that are given there."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`ablate …`, until it ends."""
        env = {**os.environ, **self.cluster.environment}
        return subprocess.run(
            self.cluster.command([*ABLATE, *words]),
            cwd=self.directory,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def under_way(self) -> dict[str, str]:
        """The node of each run under way, by name."""
        paths = present(self.directory, "runs/store/.*.part/*@*")
        return {path.parent.name: path.name.rpartition("@")[2] for path in paths}

    def finished(self) -> dict[str, int]:
        """When each finished run was, by its name."""
        paths = present(self.directory, "runs/store/[!.]*/result.json")
        return {path.parent.name: path.stat().st_mtime_ns for path in paths}

    def logs(self) -> list[str]:
        """The logs of the finished runs."""
        paths = present(self.directory, "runs/store/[!.]*/log.txt")
        return [path.read_text(encoding="utf-8") for path in paths]

    def has_the_bytes_of_a_pool(self, directory: Path, *words: str) -> bool:
        """Whether its tables are those of the same command by worker processes of one machine, but for what
        is measured."""
        pool = Site(self.cluster, directory)
        done = pool.run(*words)
        assert done.returncode == 0, done.stderr
        return state(self.directory)[0] == state(directory)[0]
