"""Where the runs of a study are trained: by worker processes of this machine, or by a launcher of Hydra's."""

import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ablate.compose.composer import Overrides
from ablate.compute import device
from ablate.compute.ambient import environment
from ablate.compute.limits import threads_each
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.data.counting import text_statistics
from ablate.execution import plugins
from ablate.execution.run import Run, prepare
from ablate.export import tracked
from ablate.launch.pool import WorkerPool, train_or_wait
from ablate.launch.processes import SAFE_PATH
from ablate.live import Board, Lines
from ablate.store.provenance import Plugin
from ablate.store.record import StudyRecord
from ablate.store.store import ABLATE_RUNS, Store, StoreError
from ablate.study.study import one_of_each


@dataclass(frozen=True)
class Work:
    """Runs to train, and what their launcher asks of the command.

    record: of the study, as it is stored. threads: of each run. runs: those to train. is_one: whether it is
    for one run, of no study. board: opens the lines, and the table, on what happens; total: of runs, None for
    one. request_runs: further runs for so many workers that have none, to be called whenever runs have ended.
    """

    record: StudyRecord
    threads: int
    runs: Mapping[Overrides, Run]
    is_one: bool
    board: Callable[[int | None], AbstractContextManager[Board]]
    request_runs: Callable[[int], Mapping[Overrides, Run]]


@dataclass(frozen=True)
class Launcher:
    """Trains in worker processes of this machine; a single run in this process. settings: as `hydra.launcher`
    gives them, with `workers` and `threads`, None where that is left open."""

    settings: Any

    def train(self, work: Work) -> Mapping[str, str]:
        """Train the runs, and those that follow; returns why runs could not begin, by name. Raises
        LauncherFailed if it trains nothing more, and ConfigError before any begins."""
        runs, threads = _measured(work.runs.values()), work.threads
        with work.board(None if work.is_one else len(runs)) as board:
            if work.is_one:
                _train_in_this_process(runs[0], threads, board)
                return {}
            pool = WorkerPool(
                runs,
                workers=self.at_once(runs, threads),
                threads=threads,
                members=self.settings.members,
                listen=board.listener,
                request_runs=lambda spare: _measured(work.request_runs(spare).values()),
            )
            return pool.train()

    def threads(self, kept: int | None, runs: Collection[Run]) -> int:
        """The threads of each run, on which its exact results depend: as many as the study began with (kept),
        as the command asks for, or as suit these runs. Raises StoreError if it asks for another number than
        the study began with."""
        asked = self.settings.threads
        if kept and asked and kept != asked:
            raise StoreError(
                f"hydra.launcher.threads={asked}: this study was begun with {kept}; leave it out, or give"
                " another name=NAME"
            )
        if kept or asked:
            return kept or asked
        step_flops = max(run.step_flops for run, _ in one_of_each(runs))
        count = len({run.run_id for run in runs})
        cores = self.settings.cores_each
        at_once = 1 if cores else min(self.settings.workers or count, count)
        return threads_each(at_once, step_flops, cores)

    def at_once(self, runs: Collection[Run], threads: int) -> int:
        """How many processes train these runs at a time, at most."""
        return self.settings.workers or device.workers({run.device for run in runs}, threads)


def _measured(runs: Collection[Run]) -> list[Run]:
    """The runs, their texts measured before workers would all do it."""
    for run, _ in one_of_each(runs):
        if not run.is_simulated:
            text_statistics(run.corpus, run.spec.context)
    return [*runs]


def _train_in_this_process(run: Run, threads: int, lines: Lines) -> None:
    """Raises ConfigError if the run can't begin."""
    device.use_threads(run.device, threads)
    train_or_wait(run, tracked(run.name, lines.listener(run.name)))


class ByHydra(Launcher):
    """Trains by a launcher of Hydra's, each of whose processes composes a run again from its overrides."""

    def train(self, work: Work) -> Mapping[str, str]:
        where = {"place": Path.cwd(), "root": Store().root}
        task = partial(_job, threads=work.threads, own=plugins.used(), **where)
        with environment(**SAFE_PATH):
            refused = self.settings.launch(task, [*work.runs])
        return {[*work.runs.values()][index].name: why for index, why in refused.items()}


def _job(config: RunConfig, *, threads: int, own: Sequence[Plugin], place: Path, root: Path) -> None:
    """Train a run in this process, which a launcher of Hydra's started. Raises ConfigError. own,
    place, root: the plugins, the directory and the store of the command."""
    plugins.install(own)
    try:
        os.chdir(place)  # where the process began elsewhere, as Ray's do
    except OSError as error:
        reason = f"does not see it ({error.strerror}); take a disk that all machines share"
        raise ConfigError(f"{place}: {socket.gethostname()} {reason}") from error
    if Store().root != root:  # nor does it have the command's variables
        os.environ[ABLATE_RUNS] = str(root)
    run = prepare(config)
    _train_in_this_process(run, threads, Lines(0))
