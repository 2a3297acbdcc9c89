"""A helper: the pool on another machine, over a list of runs that it shares with others.

`python -m ablate.study.cluster.helper FILE ARRAY NUMBER` works on the runs of FILE that nobody else is at,
and leaves when there are none. It answers in a file whether it can. FILE has plain values, so a helper needs
no Hydra for it; it trains nothing if its program is not the one that wrote the list.
"""

import base64
import dataclasses
import json
import platform
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ablate.compute.limits import available_cores
from ablate.config.read import read
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig, SeedsConfig
from ablate.execution import plugins
from ablate.execution.plugins import Plugin
from ablate.execution.run import PlacedRun, prepare, require_planned
from ablate.files.atomic import read_json, write_atomically
from ablate.launch.pool import train_all
from ablate.launch.processes import start_server
from ablate.launch.queue import processes
from ablate.live.board import Lines
from ablate.printing import console
from ablate.store.provenance import code, torch_version
from ablate.store.record import Machine, StudyRecord
from ablate.store.run_files import Stamp
from ablate.store.store import Store
from ablate.study import machine

GROWING = "looks"  # the name of a phase to which runs are added
STAYS_S, EVERY_S = 5.0, 0.5  # how long a helper without runs waits for more, and how often it looks
NO_SEEDS = SeedsConfig(backbone=None, fusion=None, data=None)


@dataclass(frozen=True)
class Job:
    """A run of the list, which the machine that trains it resolves. known: the stamp of the result that
    existed when the command began. text: the fingerprint of its text there."""

    name: str
    config: RunConfig
    known: Stamp
    text: str


@dataclass(frozen=True)
class Phase:
    """Runs to train. name: the same for the same runs, also when some of them are finished and left out.
    helpers: how many there are to be; cores, workers, threads and members: of each helper, None where
    it decides. plugins: with their source."""

    study: str
    name: str
    helpers: int
    cores: int | None
    workers: int | None
    threads: int | None
    members: int | None
    plugins: Sequence[Plugin]
    jobs: Sequence[Job]

    def left(self, store: Store) -> list[Job]:
        """The runs that have no result since the command began."""
        finished = store.finished()
        return [
            job
            for job in self.jobs
            if job.name not in finished or (job.known and store.run(job.name).stamp() == job.known)
        ]

    def write(self, path: Path) -> None:
        """Raises StoreError."""
        content = {**dataclasses.asdict(self), "program": program()}
        write_atomically(path, json.dumps(content, default=lambda source: base64.b64encode(source).decode()))


def open_phase(path: Path) -> Phase:
    """The phase in a file, with its plugins installed. Raises ConfigError, also if this program is not the
    one that wrote the file."""
    content = read_json(path, {"program"})
    _require_the_same(content.pop("program"))
    own = [
        Plugin(**{**plugin, "source": base64.b64decode(plugin["source"])}) for plugin in content["plugins"]
    ]
    for plugin in own:
        _require_installed(plugin)
    plugins.install(own)  # before the configs are read, whose options they check
    return Phase(**{**content, "plugins": own, "jobs": _jobs(content)})


def _jobs(content: Mapping[str, Any]) -> list[Job]:
    return [Job(**{**job, "config": read(RunConfig, job["config"])}) for job in content["jobs"]]


def program() -> dict[str, str]:
    """What has to be the same wherever the runs of a study are trained."""
    return {
        "code": code(),
        "torch": torch_version(),
        "Python": platform.python_version(),
    }


def _require_the_same(command: Mapping[str, str]) -> None:
    for what, here in program().items():
        if here != command.get(what) and what == "code":
            raise ConfigError(
                "its ablate is not that of the command (edited, or another copy); give the command again"
            )
        if here != command.get(what):
            raise ConfigError(f"it has {what} {here}, and the command {command.get(what)}; install the same")


def _require_installed(plugin: Plugin) -> None:
    """An installed plugin is imported, not executed from its source: raises ConfigError if it differs."""
    if plugin.module and (plugin.module, plugin.source) not in [
        (one.module, one.source) for one in plugins.installed()
    ]:
        raise ConfigError(f"its {plugin.module} is not that of the command; install the same")


# --- the process ----------------------------------------------------------------------------------


def main() -> None:
    file, array, number = sys.argv[1:]
    # At the end of the time limit, or when it is cancelled.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    answer: dict[str, Any] = {"host": socket.gethostname(), "refused": {}}
    path = Path(file).parent / array / f"{number}.json"
    try:
        start_server()
        phase = open_phase(Path(file))
        write_atomically(path, json.dumps(answer))
        answer["refused"] = help_with(phase, int(number), Path(file))
    except ConfigError as error:
        answer["unfit"] = str(error)
    write_atomically(path, json.dumps(answer))


def help_with(phase: Phase, number: int, file: Path) -> dict[str, str]:
    """Train the runs of a phase that nobody else is at, until none is free. Returns why those that it could
    not begin were refused, by name. file: of the phase, to which the command may add runs. Raises
    ConfigError."""
    store, left = Store(), phase.left(Store())
    known = {job.name: job.known for job in left}
    runs, refused = _prepared(left)
    if not runs:
        return refused
    settings = _settings(phase, runs, store)
    if settings.threads > (cores := _cores(phase)):
        raise ConfigError(
            f"it has {cores} cores, and each run takes {settings.threads} threads; ask for more"
        )
    runs = machine.bound(runs, settings)
    workers = phase.workers or processes(runs, phase.members, settings.threads, cores)

    def request_runs(spare: int) -> list[PlacedRun]:
        if phase.name != GROWING:
            return []
        until = time.monotonic() + (STAYS_S if spare == workers else 0)
        while not (new := [job for job in _left_in(file, phase, store) if job.name not in known]):
            if time.monotonic() >= until:
                break
            time.sleep(EVERY_S)
        added, impossible = _prepared(new)
        refused.update(impossible)
        known.update({job.name: job.known for job in new})
        return machine.bound(added, settings)

    return refused | train_all(
        runs,
        known,
        workers=workers,
        threads=settings.threads,
        timeout_s=None,
        listen=Lines(console(stderr=False, width=200), len(runs)).listener,
        members=phase.members,
        leave_from=number / phase.helpers,
        request_runs=request_runs,
    )


def _left_in(file: Path, phase: Phase, store: Store) -> list[Job]:
    return replace(phase, jobs=_jobs(read_json(file, {"jobs"}))).left(store)


def _prepared(jobs: Sequence[Job]) -> tuple[list[PlacedRun], dict[str, str]]:
    """The runs that can begin here; and why the others can't, by name."""
    variants: dict[str, list[Job]] = {}
    for job in jobs:
        variants.setdefault(repr(replace(job.config, seed=0, seeds=NO_SEEDS)), []).append(job)
    runs, refused = [], {}
    for alike in variants.values():
        try:
            run = prepare(alike[0].config)
            require_planned(run, {alike[0].name: alike[0].text})
            runs += [run.with_seeds(job.config) for job in alike]
        except ConfigError as error:
            refused |= {job.name: str(error) for job in alike}
    return runs, refused


def _settings(phase: Phase, runs: Sequence[PlacedRun], store: Store) -> Machine:
    """The settings of the study: as they are in study.json, or else chosen here and now, for all helpers."""

    def settled(record: StudyRecord) -> StudyRecord:
        decided = machine.decided(record.machine, runs, phase.threads)
        threads = machine.threads_of_helpers(len(phase.jobs), runs, phase.helpers, _cores(phase))
        return replace(record, machine=machine.chosen(decided, runs, threads))

    record = store.change_existing(phase.study, settled)
    assert record.machine is not None
    return record.machine


def _cores(phase: Phase) -> int:
    return min(available_cores(), phase.cores or available_cores())


if __name__ == "__main__":
    main()
