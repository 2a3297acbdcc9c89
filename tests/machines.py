"""Clusters of little machines, for tests: what SLURM and Ray run on.

A machine has a host name and processes of its own (a UTS and a PID namespace): when its first process is
killed, the kernel kills the rest. The machines of a cluster share a network namespace, which reaches nothing
outside and which nothing outside reaches.

A job that starts Python anew takes seconds to load PyTorch. On these machines `python -P -m MODULE …` asks a
server of the machine, which is forked from a process that has loaded it, to fork once more.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Self

from tests.helpers import WARM, become, enter

NODES = {"n1": "192.0.2.1", "n2": "192.0.2.2"}  # addresses for documentation (RFC 5737), which nobody has
# A machine ends when the process that started it does, however that ends.
UNSHARE = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
MACHINE = ["setpriv", "--pdeathsig=KILL", *UNSHARE]
ADDRESSES = " && ".join(f"ip address add {address}/32 dev lo" for address in NODES.values())
START_S = 60


def missing(packages: Mapping[str, str]) -> str | None:
    """Why no cluster can run here; None if one can. packages: by program that it needs."""
    packages = {**packages, "ip": "iproute2", "nsenter": "util-linux", "hostname": "hostname"}
    if absent := sorted({package for program, package in packages.items() if not shutil.which(program)}):
        return f"no {', '.join(absent)} here"
    tried = subprocess.run(
        [*MACHINE, "--net", "ip", "link", "set", "lo", "up"], capture_output=True, text=True
    )
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else None


class Cluster:
    """A running cluster, as a context manager. All its files are in `directory`. environment: the variables
    by which a command uses it."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.environment = environment
        self.python = write_python(directory)
        self._machines: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._start("net", f"ip link set lo up && {ADDRESSES} && sleep infinity")
            own = os.stat("/proc/self/ns/net").st_ino  # which may have the same addresses
            self._wait(lambda: os.stat(self.net).st_ino != own, "no network namespace")
            self._wait(lambda: NODES["n2"] in self._ask("ip", "address"), "no network")
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

    def command(self, words: Sequence[str], /) -> list[str]:
        """The same command, to be run where it reaches the cluster, with `environment`."""
        return ["nsenter", f"--net={self.net}", *words]

    @property
    def net(self) -> str:
        """The network namespace of the cluster."""
        return f"/proc/{self._machines['net'].pid}/ns/net"

    def kill_node(self, name: str, /) -> None:
        """Kill all processes of a machine at once. When `wait` returns, the kernel has ended them."""
        unshare = self._machines.pop(name)
        first = _first_process(unshare.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(first[0]) if first else unshare.pid, signal.SIGKILL)
        unshare.wait()

    def _start(self, machine: str, script: str) -> None:
        # sh is the machine's first process, which has to collect those whose parent ended.
        host = self.command(MACHINE) if self._machines else [*MACHINE, "--net"]
        argv = [*host, "sh", "-c", f"hostname {machine}; {script} & wait"]
        with self._log(machine).open("wb") as log:
            self._machines[machine] = subprocess.Popen(
                argv, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _start_python(self, machine: str) -> None:
        """Start the server of Python processes on a machine. It ends with the machine."""
        path = self.directory / f"{machine}.sock"
        path.unlink(missing_ok=True)
        while not (first := _first_process(self._machines[machine].pid)):
            time.sleep(0.01)
        server = WARM.Process(target=_serve, args=(int(first[0]), path))
        server.start()
        while not path.exists():
            assert server.exitcode is None, f"the server of {machine} has ended"
            time.sleep(0.01)

    def _ask(self, *argv: str, check: bool = False) -> str:
        env = {**os.environ, **self.environment}
        done = subprocess.run(self.command(argv), env=env, capture_output=True, text=True, timeout=START_S)
        if check and done.returncode:
            raise RuntimeError(f"{shlex.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def _wait(self, condition: Callable[[], bool], problem: str) -> None:
        end = time.monotonic() + START_S
        while not condition():
            if time.monotonic() > end:
                texts = {log: log.read_text(errors="replace") for log in sorted(self.directory.glob("*.log"))}
                logs = ["\n".join([log.name, *text.splitlines()[-10:]]) for log, text in texts.items()]
                raise RuntimeError("\n".join([f"{problem} after {START_S} s", *logs]))
            time.sleep(0.1)

    def _log(self, machine: str) -> Path:
        return self.directory / f"{machine}.log"


def _first_process(unshare: int) -> list[str]:
    """The number of the first process of the machine that this process has begun, if it has by now."""
    return Path(f"/proc/{unshare}/task/{unshare}/children").read_text(encoding="utf-8").split()


# It takes signals to the process that does its work, whose exit code becomes its own; with it that one ends.
PYTHON = """#!{python} -IS
import json, os, signal, socket, sys

if sys.argv[1:3] != ["-P", "-m"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({directory!r} + "/" + socket.gethostname() + ".sock")
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: server.send(bytes([number])))
request = [*sys.argv[3:4], sys.argv[4:], os.getcwd(), dict(os.environ)]
socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
sys.exit(server.recv(1)[0])
"""


def write_python(directory: Path) -> str:
    """The Python of the machines whose servers are in this directory."""
    path = directory / "python"
    path.write_text(PYTHON.format(python=sys.executable, directory=str(directory)))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def _serve(first: int, path: Path) -> None:
    enter(*(f"/proc/{first}/ns/{name}" for name in ("uts", "net", "pid", "mnt")))
    if server := os.fork():  # whose children alone are in the PID namespace
        os.waitpid(server, 0)
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen()
        while True:
            connection, _ = listening.accept()
            if not os.fork():
                _attend(connection)
            connection.close()


def _attend(connection: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, streams, *_ = socket.recv_fds(connection, 1_000_000, 3)
    process = get_context("fork").Process(target=_work, args=(json.loads(request), streams))
    process.start()
    assert process.pid is not None
    while os.getpgid(process.pid) != process.pid:  # it has not begun yet
        time.sleep(0.001)
    threading.Thread(target=_relay, args=(connection, process.pid), daemon=True).start()
    process.join()
    connection.send(bytes([(process.exitcode or 0) % 256]))
    os._exit(0)


def _relay(connection: socket.socket, worker: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        while number := connection.recv(1):
            os.killpg(worker, number[0])
        os.killpg(worker, signal.SIGKILL)  # what asked for it is gone


def _work(request: list, streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    module, arguments, cwd, env = request
    become(module, arguments, cwd, env, sys.executable)
