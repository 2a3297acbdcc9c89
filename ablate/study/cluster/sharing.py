"""The command's side: keep helpers on other machines at the runs of a phase, until each has a result.

The store says which runs are made; the cluster is asked only whether helpers live. So any number of commands
can do this for the same runs, and any of them can end: the others, or the same command typed again, find the
helpers in jobs.json.
"""

import contextlib
import dataclasses
import os
import secrets
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ablate.clusters import Cluster
from ablate.compose.composer import Overrides
from ablate.compose.sweep import LauncherFailed
from ablate.config.identity import digest
from ablate.config.rules import ConfigError
from ablate.execution import plugins
from ablate.execution.run import PlacedRun, Run
from ablate.files.atomic import StoreError, read_json
from ablate.launch.queue import processes
from ablate.live.board import Board
from ablate.phrases import counted
from ablate.store import lease
from ablate.store.jobs import Array, State, arrays_of, new_array, with_statuses
from ablate.store.record import Machine
from ablate.store.run_files import Stamp, last_metrics
from ablate.store.store import Store
from ablate.study import machine
from ablate.study.cluster.helper import GROWING, Job, Phase
from ablate.study.launchers import Launcher, Trained, Work

# How often a cluster is asked for its helpers; many commands share its scheduler.
LOOK_EVERY_S = lease.seconds("ABLATE_LOOK_EVERY_S", 15)
EVERY_S = 1  # how often the store is
STARTS = 3  # of helpers without progress, before the command gives up
ON_ITS_WAY_S = 60  # an array that its cluster does not know may not have reached it yet
LAST_LINES = 5  # of a log


class ByHelpers(Launcher):
    """Trains by helpers on the machines of a cluster, which choose the settings there."""

    settings: Cluster

    def machine(self, kept: Machine | None, runs: Collection[Run]) -> Machine | None:
        machine.decided(kept, runs, self.settings.threads)  # refuses what the study was not begun with
        return kept

    def threads(self, chosen: Machine | None, runs: Collection[Run]) -> int:
        if chosen is not None:
            return chosen.threads
        of_helpers = (len(runs), runs, self.settings.jobs, self.settings.cpus_per_task)
        return self.settings.threads or (machine.threads_of_helpers(*of_helpers) if runs else 1)

    def at_once(self, runs: Collection[PlacedRun], threads: int) -> int:
        settings = self.settings
        of_a_job = processes(runs, settings.members, threads, settings.cpus_per_task)
        return settings.jobs * (settings.workers or of_a_job)

    def train(self, work: Work) -> Trained:
        """Keep helpers at the runs until each has a result. Raises ConfigError, before anything is submitted,
        for what can't be trained there."""
        cluster, record = self.settings, work.record
        if record.machine and cluster.cpus_per_task and record.machine.threads > cluster.cpus_per_task:
            raise ConfigError(
                f"hydra.launcher.cpus_per_task={cluster.cpus_per_task}: this study was begun with"
                f" {record.machine.threads} threads; ask for as many cores at least"
            )
        cluster.require()
        phase = Phase(
            study=record.name,
            name=GROWING if record.looks else digest(sorted(work.names))[:8],
            helpers=cluster.jobs,
            cores=cluster.cpus_per_task,
            workers=cluster.workers,
            threads=cluster.threads,
            members=cluster.members,
            plugins=plugins.used(),
            jobs=_jobs(work.runs, work.known),
        )
        with work.board(len(work.runs)) as board:
            sharing = Sharing(phase, cluster, Store(), board)
            try:
                started = sharing.begin()
                if cluster.wait:
                    sharing.wait(lambda spare: _jobs(work.request_runs(spare), work.known))
                    return Trained(sharing.refused)
            except LauncherFailed as error:
                return Trained(sharing.refused, str(error))
            except KeyboardInterrupt:
                sharing.interrupt()
                raise
        at_work = sum(array.at_work for array in sharing.arrays)
        new = counted(started, "job") if started else "no new job"
        left = f"{new} submitted, {at_work} at work or waiting; the same command waits for them"
        return Trained(left_at_work=left)


def _jobs(runs: Mapping[Overrides, Run], known: Mapping[str, Stamp]) -> list[Job]:
    return [Job(run.name, run.config, known[run.name], run.corpus.sha256) for run in runs.values()]


class Sharing:
    """One command's part in it."""

    def __init__(self, phase: Phase, cluster: Cluster, store: Store, board: Board) -> None:
        self.phase = phase
        self.cluster = cluster
        self.store = store
        self.board = board
        self.study = store.study_directory(phase.study)
        self.file = self.study / "jobs" / f"{phase.name}.json"
        self.own: list[str] = []  # the arrays that this command started
        self.arrays: list[Array] = []  # of this phase and cluster
        self.refused: dict[str, str] = {}  # runs that a helper could not begin, and why
        self.trouble = ""
        self._heard = set[Path]()  # answers of helpers
        self._first_seen: dict[str, float] = {}
        self._looked = -float("inf")
        self._starts, self._progress = 0, (-1, -1)

    def begin(self) -> int:
        """Write the list of runs and start the helpers that are missing; returns how many. Raises
        ConfigError."""
        self.phase.write(self.file)
        self.look()
        return self.start(self.phase.left(self.store))

    def wait(self, request_jobs: Callable[[int], list[Job]]) -> None:
        """Wait until each run has a result or was refused. request_jobs: further runs for so many workers
        that have none. Raises LauncherFailed, ConfigError."""
        left = {job.name: job for job in self.phase.jobs}
        while left:
            now, ended = {job.name for job in self.phase.left(self.store)}, 0
            for name in [*left]:
                if name not in now and (row := self.store.run(name).read()):
                    left.pop(name)
                    self.board.ended(name, row)
                    ended += 1
            spare = max(0, self.phase.helpers * (self.phase.workers or 1) - len(left))
            if ended and (jobs := request_jobs(spare)):
                left |= {job.name: job for job in jobs}
                self.phase = dataclasses.replace(self.phase, jobs=[*left.values()])
                self.phase.write(self.file)
            if due := time.monotonic() - self._looked >= LOOK_EVERY_S:
                self.look()
            self.hear()
            if not any(array.at_work for array in self.arrays):  # else another machine may train them
                left = {name: job for name, job in left.items() if name not in self.refused}
            if left and due:
                self.start([*left.values()])
            self.board.show(self.arrays, self.trouble)
            time.sleep(EVERY_S if left else 0)
        self.look()
        if waiting := [a.name for a in self.arrays if any(h.state == State.QUEUED for h in a.seen)]:
            self.cluster.cancel(waiting)  # there is nothing left for them to do

    def look(self) -> None:
        """Ask the cluster for the helpers, and note in jobs.json what it says."""
        self._looked = time.monotonic()
        known = [array for array in self._ours(arrays_of(self.study).read()) if not array.has_ended]
        for array in known:
            self._first_seen.setdefault(array.name, self._looked)
        try:
            statuses = self.cluster.look([array.name for array in known]) if known else {}
            self.trouble = ""
        except ConfigError as error:
            self.trouble = str(error)
            return
        looked = {
            array.name
            for array in known
            if statuses.get(array.name) or self._looked - self._first_seen[array.name] > ON_ITS_WAY_S
        }
        arrays = arrays_of(self.study).change(
            lambda arrays: [with_statuses(a, statuses) if a.name in looked else a for a in arrays]
        )
        self.arrays = self._ours(arrays)

    def start(self, left: Sequence[Job]) -> int:
        """Start as many helpers as are missing for the runs that nobody is at; returns how many. Raises
        LauncherFailed if that has not helped so far, ConfigError if the cluster refuses."""
        if self.trouble:
            return 0
        under_way = self.store.begun() - self.store.interrupted()
        free = sum(job.name not in under_way for job in left)
        own = f"ablate-{self.phase.name}-{secrets.token_hex(3)}"

        def with_new(arrays: list[Array]) -> list[Array]:
            at_work = sum(array.at_work for array in self._ours(arrays))
            missing = min(self.phase.helpers, free) - at_work
            if missing <= 0 or any(array.name == own for array in arrays):
                return arrays
            return [*arrays, new_array(own, self.cluster.name, self.phase.name, missing)]

        # Listed before they are started, so that no other command starts them.
        listed = arrays_of(self.study).change(with_new) if free else []
        new = [array for array in listed if array.name == own]
        if new:  # another command may have written other runs
            self.phase.write(self.file)
        for array in new:
            self._submit(array, left)
        return sum(len(array.seen) for array in new)

    def interrupt(self) -> None:
        """End the helpers that this command started."""
        live = [array for array in self.arrays if not array.has_ended]
        if own := [array.name for array in live if array.name in self.own]:
            self.cluster.cancel(own)
            self.board.say(f"cancelled {', '.join(self._named(own))}")
        if others := [array.name for array in live if array.name not in self.own]:
            self.board.say(f"{', '.join(self._named(others))}: started by another command, and left at work")

    def hear(self) -> None:
        """Read what helpers answered."""
        for array in self.arrays:
            folder = self.study / "jobs" / array.name
            for path in sorted(folder.glob("*.json")) if folder.exists() else []:
                answer = _answer(path)
                for run, why in answer.get("refused", {}).items():
                    self.refused.setdefault(run, f"{answer['host']}: {why}")
                if path not in self._heard and answer.get("unfit"):
                    self.board.say(f"{answer['host']}: {answer['unfit']}; it trains nothing")
                    self._heard.add(path)

    def _submit(self, array: Array, left: Sequence[Job]) -> None:
        folder = self.study / "jobs" / array.name
        command = [*_environment(), sys.executable, "-P", "-m", "ablate.study.cluster.helper"]
        command += [str(self.file), array.name]
        try:
            self._require_progress(left)
            folder.mkdir(parents=True, exist_ok=True)
            log = str(folder.absolute() / "{number}.log")
            job = self.cluster.start(array.name, len(array.seen), command, Path.cwd(), log)
        except BaseException:
            with contextlib.suppress(ConfigError):  # a cluster that answers too late may have started it
                self.cluster.cancel([array.name])
            arrays_of(self.study).change(lambda arrays: [a for a in arrays if a.name != array.name])
            raise
        self.own.append(array.name)
        self._starts += 1
        arrays = arrays_of(self.study).change(
            lambda arrays: [dataclasses.replace(a, job=job) if a.name == array.name else a for a in arrays],
        )
        self.arrays = self._ours(arrays)
        self.board.say(f"{job}: {counted(len(array.seen), 'job')} submitted")

    def _require_progress(self, left: Sequence[Job]) -> None:
        """Raises LauncherFailed after STARTS starts in which no run got any further."""
        attempts = self.store.attempts()
        lasts = [last_metrics(attempts[job.name]) for job in left if job.name in attempts]
        progress = -len(left), sum(last.get("step", 0) for last in lasts)
        if progress > self._progress:
            self._starts, self._progress = 0, progress
        if self._starts >= STARTS:
            raise LauncherFailed(
                f"{counted(STARTS, 'start')} without progress; the last job: {self._last_words()}"
            )

    def _last_words(self) -> str:
        """Why the helpers of the last array ended, as far as anything says so."""
        array = self.arrays[-1]
        folder = self.study / "jobs" / array.name
        answers = [_answer(path) for path in sorted(folder.glob("*.json"))]
        for answer in answers:
            if answer.get("unfit"):
                return f"{answer['host']}: {answer['unfit']}"
        last = array.seen[-1]
        reasons = [f"{last.node or array.job} {last.reason or 'ended'}"]
        if not answers:
            reasons.append(f"no answer from it in {folder.absolute()}, which it has to see")
        for log in sorted(folder.glob("*.log")):
            with contextlib.suppress(OSError):
                if lines := log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]:
                    reasons.append(f"{log}: {' | '.join(line.strip() for line in lines)}")
                    break
        return "; ".join(reasons)

    def _ours(self, arrays: Sequence[Array]) -> list[Array]:
        """The arrays of this cluster and this phase."""
        return [a for a in arrays if (a.engine, a.phase) == (self.cluster.name, self.phase.name)]

    def _named(self, names: Sequence[str]) -> list[str]:
        return [array.job or array.name for array in self.arrays if array.name in names]


def _environment() -> list[str]:
    """`env` with what a cluster may not hand on to other machines."""
    own = [name for name in os.environ if name == "PYTHONPATH" or name.startswith("ABLATE_")]
    return ["env", *(f"{name}={os.environ[name]}" for name in sorted(own))] if own else []


def _answer(path: Path) -> dict[str, Any]:
    with contextlib.suppress(FileNotFoundError, StoreError):
        return read_json(path, set())
    return {}
