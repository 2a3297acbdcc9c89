"""A helper: the pool on another machine, over a list of runs that it shares with others.

`python -m ablate.study.helper FILE ARRAY NUMBER` works on the runs of FILE that nobody else is at, and
leaves when there are none. It answers in a file whether it can.
"""

import json
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ablate.compute import device
from ablate.compute.cores import available
from ablate.config.rules import ConfigError
from ablate.config.schema import SeedsConfig
from ablate.execution.prepare import prepare
from ablate.execution.run import Run
from ablate.files.atomic import write_atomically
from ablate.launch import server
from ablate.launch.phase import Phase, open_phase
from ablate.launch.pool import Job, run_jobs
from ablate.live.progress import Log
from ablate.store.record import Machine, StudyRecord
from ablate.store.store import Store
from ablate.study import machine

NO_SEEDS = SeedsConfig(backbone=None, fusion=None, data=None)


def main() -> None:
    file, array, number = sys.argv[1:]
    signal.signal(signal.SIGTERM, _terminated)  # at the end of the time limit, or when it is cancelled
    answer: dict[str, Any] = {"host": socket.gethostname(), "refused": {}}
    path = Path(file).parent / array / f"{number}.json"
    try:
        server.start()
        phase = open_phase(Path(file))
        write_atomically(path, json.dumps(answer))
        answer["refused"] = help_with(phase, int(number))
    except ConfigError as error:
        answer["unfit"] = str(error)
    write_atomically(path, json.dumps(answer))


def help_with(phase: Phase, number: int) -> dict[str, str]:
    """Train the runs of a phase that nobody else is at, until none is free. Returns why those that it could
    not begin were refused, by name. Raises ConfigError."""
    store, left = Store(), phase.left(Store())
    runs, refused = _prepared(left)
    if not runs:
        return refused
    settings = _settings(phase, runs, store)
    if settings.threads > (cores := _cores(phase)):
        raise ConfigError(
            f"it has {cores} cores, and each run takes {settings.threads} threads; ask for more"
        )
    jobs = [
        replace(job, config=machine.bound(job.config, settings)) for job in left if job.name not in refused
    ]
    gpus = device.each({run.device for run in runs})
    found = run_jobs(
        jobs,
        workers=phase.asked.workers or len(gpus) or cores // settings.threads,
        threads=settings.threads,
        timeout_s=None,
        watcher=Log(Console(width=200, highlight=False), len(jobs)).at,
        gpus=gpus,
        leave_from=number / phase.asked.helpers,
    )
    return refused | {jobs[index].name: why for index, why in found.items()}


def _prepared(jobs: Sequence[Job]) -> tuple[list[Run], dict[str, str]]:
    """One run of each variant, ready to begin here; and why the runs of other variants can't, by name."""
    variants: dict[str, list[Job]] = {}
    for job in jobs:
        variants.setdefault(repr(replace(job.config, seed=0, seeds=NO_SEEDS)), []).append(job)
    runs, refused = [], {}
    for alike in variants.values():
        try:
            runs.append(prepare(alike[0].config))
        except ConfigError as error:
            refused |= {job.name: str(error) for job in alike}
    return runs, refused


def _settings(phase: Phase, runs: Sequence[Run], store: Store) -> Machine:
    """The settings of the study: as they are in study.json, or else chosen here and now, for all helpers."""

    def settled(record: StudyRecord | None) -> StudyRecord:
        assert record is not None, "the command wrote it"
        decided = machine.decided(record.machine, runs, phase.asked.threads)
        threads = machine.threads_of_helpers(len(phase.jobs), runs, phase.asked.helpers, _cores(phase))
        return replace(record, machine=machine.chosen(decided, runs, threads))

    record = store.change_study(phase.study, settled)
    assert record.machine is not None
    return record.machine


def _cores(phase: Phase) -> int:
    return min(available(), phase.asked.cores or available())


def _terminated(*_: Any) -> None:
    raise SystemExit(143)


if __name__ == "__main__":
    main()
