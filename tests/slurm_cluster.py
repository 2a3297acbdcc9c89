"""A small SLURM of real daemons, for tests: one submitting host, and nodes that can be killed.

It needs root and the Debian packages that .ci/clusters installs.
"""

import os
import shlex
from pathlib import Path

from tests.machines import NODES, Cluster

ADDRESS = NODES["n1"]  # SLURM resolves no name to a loopback address

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


class SlurmCluster(Cluster):
    """Two nodes, and the host on which jobs are submitted. A killed node is never started again."""

    programs = ("slurmctld", "slurmd", "sbatch", "munged")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {"SLURM_CONF": str(directory / "slurm.conf")})
        every = {
            **SETTINGS,
            "AuthInfo": f"socket={directory / 'munge.sock'}",
            "StateSaveLocation": directory / "state",
            "SlurmdSpoolDir": directory / "spool.%n",
            "SlurmctldPidFile": directory / "slurmctld.pid",
            "SlurmdPidFile": directory / "slurmd.%n.pid",
        }
        lines = [f"{key}={value}" for key, value in every.items()]
        lines += [
            f"NodeName={node} NodeAddr={ADDRESS} Port={17000 + i} CPUs=4 RealMemory=4000"
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
        self.until((self.directory / "munge.sock").exists, "munged does not listen")
        self._start("ctl", "slurmctld -D")
        for node in NODES:
            self._start(node, f"exec slurmd -D -N {node}")
        idle = {f"{node} idle" for node in NODES}
        nodes = ("sinfo", "-h", "-N", "-o", "%N %T")
        self.until(lambda: {*self.ask(*nodes, check=False).splitlines()} == idle, "not idle")
