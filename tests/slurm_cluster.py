"""A small SLURM of real daemons, for tests: one submitting host, and nodes that can be killed.

It needs root and Debian's packages slurmctld, slurmd, slurm-client and munge.
"""

import os
import shlex
import time
from pathlib import Path

import psutil

from tests import machines
from tests.machines import NODES, Cluster

ADDRESS = NODES["n1"]  # SLURM resolves no name to a loopback address
PACKAGES = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge"}

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
    return machines.missing(PACKAGES) if os.geteuid() == 0 else "SLURM's daemons need root"


class SlurmCluster(Cluster):
    """settings: lines of slurm.conf that differ from SETTINGS, such as MaxArraySize=5."""

    def __init__(self, directory: Path, cpus: int = 2, **settings: str | int) -> None:
        super().__init__(directory, {"SLURM_CONF": str(directory / "slurm.conf")})
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
            f"NodeName={node} NodeAddr={ADDRESS} Port={17000 + i} CPUs={cpus} RealMemory=4000"
            for i, node in enumerate(NODES)
        ]
        lines.append(f"PartitionName=main Nodes={','.join(NODES)} Default=YES State=UP")
        (directory / "slurm.conf").write_text("\n".join(lines) + "\n")

    def _start_daemons(self) -> None:
        (self.directory / "munge.key").write_bytes(os.urandom(128))
        (self.directory / "munge.key").chmod(0o600)
        files = {"socket": "munge.sock", "key-file": "munge.key", "pid-file": "pid", "seed-file": "seed"}
        options = [f"--{option}={self.directory / name}" for option, name in files.items()]
        self._start("munge", shlex.join(["munged", "--foreground", "--force", *options]))
        self._wait((self.directory / "munge.sock").exists, "munged does not listen")
        self._start("ctl", "slurmctld -D")
        for node in NODES:
            self.start_node(node)
        self.wait_until_idle()

    def start_node(self, node: str, hidden: Path | None = None) -> None:
        """hidden: a directory that it does not see. After a kill, let no job begin here for some seconds:
        SLURM still delivers the old job's end."""
        hide = f"mount -t tmpfs none {hidden} && " if hidden else ""
        self._start(node, f"{hide}exec slurmd -D -N {node}")
        self._start_python(node)

    def wait_until_idle(self) -> None:
        """Until no node is down and no job runs."""
        idle = {f"{node} idle" for node in NODES}
        self._wait(lambda: {*self._ask("sinfo", "-h", "-N", "-o", "%N %T").splitlines()} == idle, "not idle")

    def scontrol(self, *arguments: str) -> str:
        return self._ask("scontrol", *arguments, check=True)

    def squeue(self) -> list[list[str]]:
        """Of every job, also of those that ended: number_in_array, name, state, node, reason."""
        lines = self._ask("squeue", "-h", "-r", "-t", "all", "-o", "%i|%j|%T|%N|%r", check=True).splitlines()
        return [line.split("|") for line in lines]

    def has_step(self, job: str) -> bool:
        """Whether the batch step of this job is on a node, be it only to report its end."""
        nodes = [psutil.Process(self._machines[node].pid) for node in NODES]
        mine = {process.pid for node in nodes for process in node.children(recursive=True)}
        name = ["slurmstepd:", f"[{job}.batch]"]
        every = psutil.process_iter(["cmdline"])
        return any(process.pid in mine and process.info["cmdline"] == name for process in every)

    def free(self, job: str) -> None:
        """Let a job that was requeued begin soon: SLURM holds it for two minutes.

        In the second in which a node ends a job it takes no credential for that job, and such a start fails.
        """
        time.sleep(2)
        self.scontrol("update", f"jobid={job}", "starttime=now")
