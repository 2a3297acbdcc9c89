"""Two real Ray nodes on this machine, for tests: n1, the head, and n2.

Each has a host name and a PID namespace of its own, so that a node dies as a machine does: all of it at once.
Both are in one network namespace, which reaches nothing outside and which nothing outside reaches.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

NODES = {"n1": "192.0.2.1", "n2": "192.0.2.2"}  # addresses for documentation (RFC 5737), which nobody has
HEAD = "n1"
PORT = 6379
STORE_BYTES = 80_000_000  # about the least that Ray accepts
STARTED_WITHIN_S = 60

# Both shells end when their standard input does: nothing is left, even if the tests are killed. Ray asks the
# kernel for the way to a public address to learn its own, so there is a way. Nothing goes there.
NETWORK = "\n".join(
    [
        "set -e",
        "ip link set lo up",
        *(f"ip address add {address}/32 dev lo" for address in NODES.values()),
        f"ip route add default dev lo src {NODES[HEAD]}",
        "echo up",
        "read -r _ || true",
    ]
)
NODE = 'hostname "$1"; shift; exec 3<&0 </dev/null; { read -r _ <&3; kill -KILL -1; } & "$@"'
STARTED = "Ray runtime started."  # says `ray start` when the cluster has the node


def missing() -> str | None:
    """Why the nodes can't be started here; None if they can."""
    if find_spec("ray") is None:
        return "needs Ray"
    if not all(map(shutil.which, ("unshare", "nsenter", "ip", "hostname"))):
        return "needs util-linux, iproute2 and hostname"
    tried = subprocess.run(["unshare", "--net", "--uts", "--pid", "--fork", "--mount-proc", "true"])
    return "needs the right to make namespaces" if tried.returncode else None


class RayNodes:
    """The nodes, as a context manager. directory: gets a log a node. cpus: of each node."""

    address = f"{NODES[HEAD]}:{PORT}"

    def __init__(self, directory: Path, cpus: int = 2) -> None:
        self.directory = directory
        self.cpus = cpus
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONUNBUFFERED": "1",
        }
        self._shells: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        # The path of a Unix socket has at most 107 characters, of which Ray needs most.
        self._sockets = tempfile.mkdtemp(prefix="ray")
        self._network = _shell(["unshare", "--net", "sh", "-c", NETWORK], stdout=subprocess.PIPE)
        try:
            assert self._network.stdout and self._network.stdout.readline() == "up\n"
            for name in NODES:
                self._start(name)
            for name in NODES:
                self._wait(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in [*self._shells]:
            self.kill_node(name)
        _end(self._network)
        shutil.rmtree(self._sockets)

    def command(self, words: Sequence[str], /) -> list[str]:
        """The command that runs a command where it reaches the nodes. To Ray it runs on n1."""
        return ["nsenter", f"--net=/proc/{self._network.pid}/ns/net", *words]

    def kill_node(self, name: str, /) -> None:
        """SIGKILL all processes of a node at once, and wait until they are gone."""
        _end(self._shells.pop(name))

    def start_node(self, name: str) -> None:
        """Start a node that was killed, and wait until the cluster has it."""
        self._start(name)
        self._wait(name)

    def pids(self, name: str) -> list[int]:
        """The processes of a node, as numbered outside of it, without zombies."""
        shell = self._shells[name].pid
        [first] = Path(f"/proc/{shell}/task/{shell}/children").read_text(encoding="utf-8").split()
        numbers = filter(str.isdecimal, os.listdir("/proc"))
        return [int(number) for number in numbers if _namespace(number) == _namespace(first)]

    def _start(self, name: str) -> None:
        head = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        place = head if name == HEAD else [f"--address={self.address}"]
        options = [
            f"--node-ip-address={NODES[name]}",
            f"--num-cpus={self.cpus}",
            f"--object-store-memory={STORE_BYTES}",
            f"--temp-dir={self._sockets}/{name}",
            f"--plasma-directory={self._sockets}",
            "--include-log-monitor=false",
            "--disable-usage-stats",
            "--block",
        ]
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", *place, *options]
        inside = [
            "unshare",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            NODE,
            "sh",
        ]
        with self._log(name).open("w", encoding="utf-8") as log:
            self._shells[name] = _shell(
                self.command([*inside, name, *ray]), stdout=log, stderr=log, env=os.environ | self.environment
            )

    def _wait(self, name: str) -> None:
        give_up = time.monotonic() + STARTED_WITHIN_S
        while STARTED not in (said := self._log(name).read_text(encoding="utf-8")):
            if time.monotonic() > give_up or self._shells[name].poll() is not None:
                raise RuntimeError(f"Ray did not start on {name}: {said}")
            time.sleep(0.1)

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"


def _shell(words: Sequence[str], **files: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(words, stdin=subprocess.PIPE, text=True, start_new_session=True, **files)


def _end(shell: subprocess.Popen[str]) -> None:
    shell.communicate()  # closes its standard input, and waits


def _namespace(pid: str) -> str:
    with contextlib.suppress(OSError):  # it has ended
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""
