"""A small SLURM of real daemons, for tests: one submitting host, and nodes that can be killed.

It needs root and Debian's packages slurmctld, slurmd, slurm-client and munge. It has a network namespace of
its own, so nothing of it can be reached from outside. Each daemon is a little machine with a host name and
processes of its own (a UTS and a PID namespace): when its first process is killed, the kernel kills the rest.
"""

import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Self
from unittest import mock

# A machine ends when the process that started it does, however that ends.
MACHINE = [
    *("setpriv", "--pdeathsig=KILL"),
    *("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"),
]
ADDRESS = "192.0.2.1"  # SLURM resolves no name to a loopback address
PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "ip": "iproute2",
}
CLONE_NEWNET = 0x40000000
START_S = 30

SETTINGS = {
    "ClusterName": "test",
    "SlurmctldHost": f"ctl({ADDRESS})",
    "SlurmUser": "root",
    "SlurmdUser": "root",
    "MailProg": "/bin/true",
    "MpiDefault": "none",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "JobAcctGatherType": "jobacct_gather/none",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core,CR_LLN",  # jobs spread over the nodes
    "SlurmdParameters": "config_overrides",  # a node has the cores that are said here, not this machine's
    "ReturnToService": "2",
    "JobRequeue": "1",
    # Everything happens soon, for tests that wait for it.
    "SchedulerParameters": "sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1",
    "SlurmdTimeout": "5",  # a killed node is down, and its jobs are in the queue again, after about 10 s
    "MessageTimeout": "3",
    "KillWait": "5",
}


def missing() -> str | None:
    """Why no cluster can run here; None if one can."""
    if packages := sorted({package for program, package in PROGRAMS.items() if not shutil.which(program)}):
        return f"no {', '.join(packages)} here"
    if os.geteuid() != 0:
        return "SLURM's daemons need root"
    tried = subprocess.run(
        [*MACHINE, "--net", "ip", "link", "set", "lo", "up"], capture_output=True, text=True
    )
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else None


class SlurmCluster:
    """A running cluster, as a context manager. All its files are in `directory`.

    partitions: the rest of the configuration line of each; the first is the default one. settings: lines of
    slurm.conf that differ from SETTINGS, such as MaxArraySize=5.
    """

    def __init__(
        self,
        directory: Path,
        nodes: Sequence[str] = ("n1", "n2"),
        cpus: int = 2,
        memory_mb: int = 4000,
        partitions: Mapping[str, str] | None = None,
        **settings: str | int,
    ) -> None:
        self.directory, self.nodes = directory, tuple(nodes)
        self._machines: dict[str, subprocess.Popen[bytes]] = {}
        directory.mkdir(parents=True, exist_ok=True)
        every = {
            **SETTINGS,
            "AuthInfo": f"socket={directory / 'munge.sock'}",
            "StateSaveLocation": directory / "state",
            "SlurmdSpoolDir": directory / "spool.%n",
            "SlurmctldPidFile": directory / "slurmctld.pid",
            "SlurmdPidFile": directory / "slurmd.%n.pid",
            **settings,
        }
        lines = [f"{key}={value}" for key, value in every.items()]
        lines += [
            f"NodeName={node} NodeAddr={ADDRESS} Port={17000 + i} CPUs={cpus} RealMemory={memory_mb}"
            for i, node in enumerate(nodes)
        ]
        for i, (name, rest) in enumerate((partitions or {"main": ""}).items()):
            default = "NO" if i else "YES"
            lines.append(f"PartitionName={name} Nodes={','.join(nodes)} Default={default} State=UP {rest}")
        (directory / "slurm.conf").write_text("\n".join(lines) + "\n")

    def __enter__(self) -> Self:
        try:
            self._start("net", f"ip link set lo up && ip address add {ADDRESS}/32 dev lo && sleep infinity")
            self._wait(lambda: ADDRESS in self._ask("ip", "address"), "no network")
            (self.directory / "munge.key").write_bytes(os.urandom(128))
            (self.directory / "munge.key").chmod(0o600)
            files = {"socket": "munge.sock", "key-file": "munge.key", "pid-file": "pid", "seed-file": "seed"}
            options = [f"--{option}={self.directory / name}" for option, name in files.items()]
            self._start("munge", shlex.join(["munged", "--foreground", "--force", *options]))
            self._wait((self.directory / "munge.sock").exists, "munged does not listen")
            self.start_controller()
            for node in self.nodes:
                self.start_node(node)
            self.wait_until_idle()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything, jobs too."""
        for machine in reversed(list(self._machines)):
            self._kill(machine)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which SLURM's commands find this cluster."""
        return {"SLURM_CONF": str(self.directory / "slurm.conf")}

    def command(self, words: Sequence[str], /) -> list[str]:
        """The same command, to be run on the submitting host, with `environment`."""
        return ["nsenter", f"--net=/proc/{self._machines['net'].pid}/ns/net", *words]

    @contextlib.contextmanager
    def inside(self) -> Generator[None]:
        """Meanwhile this thread, and every process that it starts, is on the submitting host."""
        with (
            open("/proc/thread-self/ns/net") as here,
            open(f"/proc/{self._machines['net'].pid}/ns/net") as there,
            mock.patch.dict(os.environ, self.environment),
        ):
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(here.fileno())

    def start_controller(self) -> None:
        self._start("ctl", "slurmctld -D")

    def stop_controller(self) -> None:
        """slurmctld saves what it knows and ends; jobs go on."""
        self.scontrol("shutdown", "slurmctld")
        self._machines.pop("ctl").wait()

    def start_node(self, node: str, hidden: Path | None = None) -> None:
        """hidden: a directory that it does not see. After a kill, let no job begin here for some seconds:
        SLURM still delivers the old job's end."""
        hide = f"mount -t tmpfs none {hidden} && " if hidden else ""
        self._start(node, f"{hide}exec slurmd -D -N {node}")

    def kill_node(self, node: str, /) -> None:
        """slurmd and the processes of all jobs on this node die at once; SLURM finds out later."""
        self._kill(node)

    def wait_until_idle(self) -> None:
        """Until no node is down and no job runs."""
        idle = sorted(f"{node} idle" for node in self.nodes)
        self._wait(
            lambda: sorted(set(self._ask("sinfo", "-h", "-N", "-o", "%N %T").splitlines())) == idle,
            "not idle",
        )

    def scontrol(self, *arguments: str) -> str:
        return self._ask("scontrol", *arguments, check=True)

    def squeue(self) -> list[list[str]]:
        """Of every job, also of those that ended: number_in_array, name, state, node, reason."""
        lines = self._ask("squeue", "-h", "-r", "-t", "all", "-o", "%i|%j|%T|%N|%r", check=True).splitlines()
        return [line.split("|") for line in lines]

    def free(self, job: str) -> None:
        """Let a job that was requeued begin now: SLURM holds it for two minutes."""
        self.scontrol("update", f"jobid={job}", "starttime=now")

    def _start(self, machine: str, script: str) -> None:
        # sh is the machine's first process, which has to collect those whose parent ended.
        host = self.command(MACHINE) if self._machines else [*MACHINE, "--net"]
        argv = [*host, "sh", "-c", f"hostname {machine}; {script} & wait"]
        with open(self.directory / f"{machine}.log", "ab") as log:
            self._machines[machine] = subprocess.Popen(
                argv, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _kill(self, machine: str) -> None:
        """When `wait` returns, the kernel has ended all processes of the machine."""
        unshare = self._machines.pop(machine)
        first = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(first[0]) if first else unshare.pid, signal.SIGKILL)
        unshare.wait()

    def _ask(self, *argv: str, check: bool = False) -> str:
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            self.command(argv), env=environment, capture_output=True, text=True, timeout=START_S
        )
        if check and done.returncode:
            raise RuntimeError(f"{shlex.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def _wait(self, condition: Callable[[], bool], problem: str) -> None:
        end = time.monotonic() + START_S
        while not condition():
            if time.monotonic() > end:
                logs = [f"{log.name}: {_last_lines(log)}" for log in sorted(self.directory.glob("*.log"))]
                raise RuntimeError("\n".join([f"{problem} after {START_S} s", *logs]))
            time.sleep(0.1)


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-10:])


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
