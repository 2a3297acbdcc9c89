"""SLURM: helpers as the tasks of an array job, by its commands sbatch, squeue, sacct and scancel."""

import contextlib
import math
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from ablate.clusters import Cluster, Cores, JobStatus, State
from ablate.config.rules import Above, AtLeast, AtMost, ConfigError, ErrorText

ANSWERS_WITHIN_S = 60  # SLURM's commands try for some seconds themselves; a busy controller takes long
SEPARATOR = "\x1f"  # occurs in no name and in no reason
WIDTH = 256  # of squeue's fields, which it would cut at 20 characters
FIELDS = ("Name", "ArrayTaskID", "State", "NodeList", "exit_code", "Reason")
QUEUED = re.compile("PENDING|CONFIGURING|SUSPENDED|SPECIAL_EXIT|RESV_DEL_HOLD|REQUEUE.*")
RUNNING = re.compile("RUNNING|COMPLETING|RESIZING|SIGNALING|STAGE_OUT|STOPPED")

# What a refusal by sbatch says, and the key that it means.
REFUSALS = {
    "account": "account",
    "partition": "partition",
    "qos": "qos",
    "feature": "constraint",
    "generic resource": "gpus_per_node",
    "memory": "mem_gb",
    "cpu count": "cpus_per_task",
    "time limit": "timeout_min",
}


Minutes = Annotated[int, AtLeast(1), AtMost(10**6), ErrorText("whole minutes, at least 1")]


@dataclass(frozen=True, kw_only=True)
class Slurm(Cluster):
    """Jobs of one sbatch, with the names that submitit gives to its options. setup: lines of shell before the
    job; additional_parameters: other options of sbatch."""

    name: ClassVar[str] = "slurm"
    timeout_min: Minutes
    partition: str | None
    account: str | None
    qos: str | None
    constraint: str | None
    mem_gb: Annotated[float, Above(0)] | None
    gpus_per_node: Cores | None
    setup: list[str]
    additional_parameters: Mapping[str, Any]

    def require(self) -> None:
        """Some SLURMs queue a job for good that no node can serve, so it compares with the largest node."""
        if not shutil.which("sbatch"):
            way_out = "run it where jobs are submitted, or leave hydra/launcher out"
            raise ConfigError(f"hydra/launcher=slurm: no sbatch here; {way_out}")
        partition = self.partition
        where = f"partition {partition}" if partition else "SLURM"
        nodes = _run("sinfo", "-h", "-e", "-o", "%c %m", *([f"--partition={partition}"] if partition else []))
        sizes = [[int(number.rstrip("+")) for number in node.split()] for node in nodes.splitlines()]
        if not sizes:
            return  # sbatch says better what is wrong with the partition
        cores, megabytes = (max(each) for each in zip(*sizes, strict=True))
        if (self.cpus_per_task or 0) > cores:
            key = f"hydra.launcher.cpus_per_task={self.cpus_per_task}"
            raise ConfigError(f"{key}: the largest node of {where} has {cores} cores")
        if (self.mem_gb or 0) * 1024 > megabytes:
            key = f"hydra.launcher.mem_gb={self.mem_gb:g}"
            raise ConfigError(f"{key}: the largest node of {where} has {megabytes / 1024:.4g} GB")

    def start(self, array: str, count: int, command: Sequence[str], directory: Path, log: str) -> str:
        # SLURM signals the process that it started: exec makes that the helper itself. Not sh, for in bash a
        # setup line can call `module`, which clusters export as a function.
        script = "\n".join(
            ["#!/bin/bash", *self.setup, f'exec {shlex.join(command)} "$SLURM_ARRAY_TASK_ID"', ""]
        )
        own = {
            "job-name": array,
            "array": f"0-{count - 1}",
            "chdir": directory,
            "output": log.replace("%", "%%").replace("{number}", "%a"),
            "open-mode": "append",  # a helper that SLURM starts again keeps its log
        }
        options = [f"--{name}={value}" for name, value in own.items()]
        try:
            # Of an option given twice the last counts, so these come after the user's.
            return _run("sbatch", "--parsable", "--requeue", *self._options(), *options, stdin=script).strip()
        except ConfigError as error:
            raise ConfigError(self._refusal(str(error), count)) from None

    def look(self, arrays: Sequence[str]) -> dict[str, list[JobStatus]]:
        if not arrays:
            return {}
        mine = [f"--user={os.getuid()}", f"--name={','.join(arrays)}"]
        columns = ",".join(f"{field}:{WIDTH}{SEPARATOR}" for field in FIELDS)
        known: dict[str, dict[int, JobStatus]] = {}
        for name, number, *rest in _rows(_run("squeue", "-h", "-r", "-t", "all", "-O", columns, *mine)):
            if number.isdigit():  # those cancelled before they began are one row, without their numbers
                known.setdefault(name, {})[int(number)] = _status(int(number), *rest)
        # squeue forgets ended jobs after some minutes. Where SLURM keeps accounts, sacct still knows them.
        with contextlib.suppress(ConfigError):
            columns = "--format=JobName,JobID,State,NodeList,ExitCode"
            options = ["-X", "-n", "-P", f"--delimiter={SEPARATOR}", "--starttime=now-30days", columns]
            for name, job, state, node, exit_code in _rows(_run("sacct", *options, *mine)):
                _, _, number = job.partition("_")
                status = _status(int(number), state.split()[0], node, exit_code) if number.isdigit() else None
                if status and status.state is State.ENDED:
                    known.setdefault(name, {}).setdefault(status.number, status)
        return {name: [of[number] for number in sorted(of)] for name, of in known.items()}

    def cancel(self, arrays: Sequence[str]) -> None:
        """A running helper gets SIGCONT and SIGTERM at once, and SIGKILL after SLURM's KillWait."""
        for array in arrays:
            _run("scancel", f"--user={os.getuid()}", f"--name={array}")

    def _options(self) -> Iterator[str]:
        """The options of sbatch that the settings stand for."""
        options = {
            "nodes": 1,
            "ntasks": 1,
            "cpus-per-task": self.cpus_per_task,
            "exclusive": self.cpus_per_task is None or None,  # all cores of a node
            "time": self.timeout_min,
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            "mem": self.mem_gb and f"{math.ceil(self.mem_gb * 1024)}M",
            "gpus-per-node": self.gpus_per_node,
            **{name.replace("_", "-"): value for name, value in self.additional_parameters.items()},
        }
        for name, value in options.items():
            if value is not None and value is not False:
                yield f"--{name}" if value is True else f"--{name}={value}"

    def _refusal(self, words: str, count: int) -> str:
        """The words of sbatch after the key that they are about, where that is plain."""
        if "job array specification" in words:
            with contextlib.suppress(ConfigError):
                most = re.search(r"MaxArraySize\s*=\s*(\d+)", _run("scontrol", "show", "config"))
                if most and count > int(most[1]):
                    return f"hydra.launcher.jobs={count}: at most {most[1]} here, SLURM's MaxArraySize"
        for sign, key in REFUSALS.items():
            if sign in words.lower() and getattr(self, key) is not None:
                return f"hydra.launcher.{key}={getattr(self, key)}: {words}"
        return words


def _run(program: str, *arguments: str, stdin: str = "") -> str:
    """What a command of SLURM's prints. Raises ConfigError with its own words, in one line, if it fails."""
    # A user's own formats and filters for squeue would change what it prints. Defaults for sbatch are kept.
    prefixes = ("SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    try:
        done = subprocess.run(
            [program, *arguments],
            input=stdin,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=ANSWERS_WITHIN_S,
            start_new_session=True,  # Ctrl-C is for the command that asked
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{program}: no answer for {ANSWERS_WITHIN_S} s") from None
    except OSError as error:
        raise ConfigError(f"{program}: {error.strerror}") from None
    if done.returncode:
        lines = [line.removeprefix(f"{program}: ") for line in done.stderr.splitlines() if line.strip()]
        raise ConfigError(f"{program}: {'; '.join(lines) or f'exit code {done.returncode}'}")
    return done.stdout


def _rows(text: str) -> Iterator[list[str]]:
    """The fields of each line; squeue pads them, and ends the last one with a separator too."""
    for line in text.splitlines():
        yield [field.strip() for field in line.removesuffix(SEPARATOR).split(SEPARATOR)]


def _status(number: int, state: str, node: str, exit_code: str, reason: str = "None") -> JobStatus:
    if QUEUED.fullmatch(state):
        return JobStatus(number, State.QUEUED, node, "" if reason == "None" else reason)
    if RUNNING.fullmatch(state):
        return JobStatus(number, State.RUNNING, node, "" if state == "RUNNING" else state)
    return JobStatus(
        number, State.ENDED, node, f"{state}, {_exit(exit_code)}" if state == "FAILED" else state
    )


def _exit(code: str) -> str:
    """How a job ended, in words, from code:signal, as sacct writes it, or from the status of wait(2), as
    squeue does."""
    if code.isdigit():
        code = f"{int(code) >> 8}:{int(code) & 127}"
    status, _, signal = code.partition(":")
    return f"signal {signal}" if signal not in ("", "0") else f"exit code {status}"
