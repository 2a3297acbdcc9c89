"""The loop that drives every study: propose runs, check them, train them, read their rows, repeat."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from ablate.compose.launchers import Cluster, Pool
from ablate.compose.sweep import HydraLauncher, Lost, Sweep
from ablate.compute import device
from ablate.compute.ambient import environment
from ablate.compute.limits import available_cores, threads_each
from ablate.config.identity import digest
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.data.corpus import forget
from ablate.data.measured import measured
from ablate.execution import plugins
from ablate.execution.execute import settled
from ablate.execution.plugins import Plugin
from ablate.execution.reopen import require_as_begun
from ablate.execution.run import PlacedRun, Run, prepare, require_planned
from ablate.launch.pool import train_all, train_or_wait
from ablate.launch.processes import SAFE_PATH
from ablate.live.board import Board, Lines, one_by_one
from ablate.phrases import counted
from ablate.printing import console
from ablate.store.columns import RESULTS, Row, Status
from ablate.store.names import swept
from ablate.store.record import Machine, Prediction, StudyRecord, grown, with_looks
from ablate.store.run_files import Damaged, Stamp
from ablate.store.store import ABLATE_RUNS, Store
from ablate.study import machine
from ablate.study.config import Absent, Overrides
from ablate.study.run import Outcome
from ablate.study.study import Study, one_of_each


class Loop:
    """One command: from proposed runs to rows in the store. Raises ConfigError."""

    def __init__(self, sweep: Sweep) -> None:
        self.launcher = sweep.launcher
        self.is_single = sweep.is_single
        forget()
        self.study = Study(sweep, remote=isinstance(sweep.launcher, Cluster))
        self.store = Store()
        self.rows: dict[Overrides, Row] = {}  # RUNNING for runs without a result yet
        self.ids: dict[Overrides, str] = {}
        self.pending: dict[Overrides, Run] = {}  # runs without a result yet
        self.known: dict[str, Stamp] = {}  # stamps of the results before this command, by name of the run
        self.record: StudyRecord | None = None
        self.settings: Machine | None = None  # of the machine, once they are chosen
        self.refused: list[str] = []
        self.slower: list[str] = []  # the remark that bfloat16 is slower here, if it is
        self.finished_before = 0
        self.left_at_work = ""  # what was submitted, if the command does not wait for it
        self.over = False  # whether no further runs are to be proposed
        self.lines = Lines(console(), None)  # the board, while there is one
        self.typed: dict[str, str] = {}  # the overrides of each run, by its name
        self.passed = 0  # the last look whose line was printed

    def run(self, begun: Callable[[], None]) -> Outcome:
        while runs := self._next():
            record = self._join(runs)
            begun()
            try:
                self._train(runs, record)
            except BaseException:
                with contextlib.suppress(ConfigError):  # report the error that ended the runs, not this one
                    self.store.write_results(record.name)
                raise
            self.store.write_results(record.name)
            if self.over:
                break
            self._read(at_end=True)
        assert self.record is not None, "_next gives runs, or raises"
        if self.study.design.looks and not self.over:  # what the last rows decided
            planned = self.study.planned(self.rows)
            self.store.change_study(self.record.name, partial(with_looks, looks=planned))
        return Outcome(
            study=self.record.name,
            run_ids=[*dict.fromkeys(self.ids.values())],
            finished_before=self.finished_before,
            remarks=[*self.study.left_out, *self.slower, *self.study.design.closing(self.rows)],
            refused=self.refused,
            left_at_work=self.left_at_work,
        )

    def dry_run(self) -> Outcome:
        """Estimate the runs that would be trained first, without training any."""
        from ablate.study.estimate import Stage, estimate, stage_costs, stage_lines

        runs = self._next()
        record = self.study.record(runs, self.rows, self.ids)
        self.store.require_place(record.name)
        before = self.store.read_study(record.name)
        self.study.check_primary(runs, before)
        whole = self._grown(before, record, runs)  # refuses what a run would
        self.settings = self._machine(whole, runs)
        record = replace(record, machine=whole.machine)  # with the levels of this command alone
        unique = [*_unique(runs).values()]
        remarks, forecast = [*self.study.left_out, *self.slower], self.study.design.forecast()
        threads = self.settings.threads if self.settings else None
        expected = estimate(record, unique, self.launcher, threads, forecast)
        if looks := self.study.design.looks:
            runs_a_seed = {arm: self.study.design.runs_a_seed(arm) for arm in looks.arms}
            costs = looks.cost_lines(runs_a_seed, expected.seconds_a_run)
            expected = replace(expected, forecast=[*forecast, *costs])
        stages = [
            Stage(about, max(map(self.study.run_of, arms), key=lambda run: run.cost), n)
            for about, arms, n in self.study.design.stages()
        ]
        if stages and not expected.untimed:
            costs = stage_costs(stages, expected.threads)
            lines = [*forecast, *stage_lines(costs, expected.at_once)]
            expected = replace(expected, forecast=lines, costs=costs)
        return Outcome(record.name, remarks=remarks, estimate=expected)

    def _next(self, ahead: int = 0) -> dict[Overrides, Run]:
        """The next runs, ready to begin; none at the end. ahead: so many runs of the next look instead.
        Raises ConfigError if the study has no runs at all."""
        design = self.study.design
        while proposed := design.ahead(self.rows)[:ahead] if ahead else design.propose(self.rows):
            runs = self.study.ready(proposed)
            self.rows |= {one: {"status": Absent.LEFT_OUT} for one in proposed if one not in runs}
            self.ids |= {overrides: run.run_id for overrides, run in runs.items()}
            self.slower = self.slower or machine.slower_in_bfloat16(runs.values())
            if runs:
                return runs
            if not self.ids:
                raise ConfigError(f"nothing to run: {'; '.join(self.study.left_out)}")
        return {}

    def _join(self, runs: Mapping[Overrides, Run]) -> StudyRecord:
        """Add runs to the study; returns its record. Raises ConfigError if they may not be added."""
        record = self.study.record(runs, self.rows, self.ids)
        if self.record is None:
            self.store.require_place(record.name)
            self.study.check_primary(runs, self.store.read_study(record.name))
        for run in runs.values():
            require_as_begun(run, self.store)
        self.known |= {run.name: self.store.run(run.name).stamp() for run in runs.values()}
        self.pending |= runs
        self.rows |= {overrides: {"status": Status.RUNNING} for overrides in runs}
        self.typed |= {run.name: " ".join(overrides) for overrides, run in runs.items()}
        self.record = self.store.change_study(record.name, partial(self._grown, record=record, runs=runs))
        self.settings = self._machine(self.record, runs)
        return self.record

    def _read(self, *, at_end: bool = False) -> None:
        """Read the rows of the runs that have ended since. at_end: whether nothing trains the others."""
        results = self.store.results() if at_end else None
        for overrides, run in [*self.pending.items()]:
            if results is not None:
                self.rows[overrides] = results.get(run.run_id, {"status": Absent.MISSING})
            elif settled(run) or self.store.run(run.name).stamp() != self.known[run.name]:
                self.rows[overrides] = {"status": Absent.MISSING}
                with contextlib.suppress(Damaged):
                    self.rows[overrides] = self.store.run(run.name).read() or self.rows[overrides]
            else:
                continue
            del self.pending[overrides]
        if now := self.study.design.decisions(self.rows):
            for line in now.lines(self.passed):
                self.lines.say(line)
            self.passed = now.passed
            self.lines.place.may_follow = self.study.design.may_follow(self.rows)

    def _locate(self) -> None:
        """Let the lines say where the study is."""
        if phase := self.study.design.phase(self.rows):
            place = self.lines.place
            is_new = phase.name != place.phase
            place.phase, place.of = phase.name, phase.of
            if is_new:
                self.lines.say(self.lines.whereabouts)

    def _more(self, spare: int) -> dict[Overrides, Run]:
        """Runs for so many workers that have none: those that follow from what has ended or, while a look
        waits for its last runs, the first ones of the next. Raises ConfigError."""
        if not (spare or self.study.design.looks):
            return {}
        self._read()
        while runs := self._next() or (self._next(ahead=spare) if spare else {}):
            self._join(runs)
            if todo := self._todo(runs):
                return todo
            self._read()
        return {}

    def _more_here(self, spare: int) -> tuple[list[PlacedRun], Mapping[str, Stamp]]:
        runs = self._placed_here(self._more(spare))
        return runs, {run.name: self.known[run.name] for run in runs}

    def _grown(
        self, before: StudyRecord | None, record: StudyRecord, runs: Mapping[Overrides, Run]
    ) -> StudyRecord:
        """The record merged with the one before. Raises StoreError if the study may not grow like this."""
        settings = self._machine(before, runs)
        if not self.is_single:  # loose runs have each their own settings
            record = replace(record, machine=settings)
        if record.prediction and not (before and before.prediction):
            self._require_unseen(record.name, record.prediction, runs)
        return grown(
            before,
            record,
            has_results=lambda study: any(row["status"] in RESULTS for row in self.store.study_rows(study)),
        )

    def _require_unseen(self, name: str, prediction: Prediction, runs: Mapping[Overrides, Run]) -> None:
        """Raises ConfigError if a run that is predicted has begun already."""
        there = self.store.begun() | self.store.finished()
        begun = [run.name for run in runs.values() if run.name in there]
        now = self.store.read_study(name) if begun else None
        if begun and not (now and now.prediction):  # by another command, a moment ago
            raise ConfigError(
                f"{prediction.rung}: {counted(len(begun), 'run')} of it began before it was predicted, as"
                f" {begun[0]}; take seeds that no run has, as 'seed=range(1000,1012)', and another name=NAME"
            )

    def _machine(self, before: StudyRecord | None, runs: Mapping[Overrides, Run]) -> Machine | None:
        """The machine settings that the study began with, or will begin with; None where a cluster's machine
        will choose them. Raises StoreError if the command asks for different ones."""
        kept, launcher = before.machine if before else None, self.launcher
        decided = machine.decided(kept, runs.values(), launcher.threads)
        if isinstance(launcher, Cluster):
            return kept
        # Runs share the cores, unless their launcher gives each its own.
        count, step_flops = len(_unique(runs)), max(run.step_flops for run, _ in one_of_each(runs.values()))
        at_once = 1 if launcher.cores_each else min(launcher.workers or count, count)
        return machine.chosen(
            decided, _placed(runs.values()), threads_each(at_once, step_flops, launcher.cores_each)
        )

    def _todo(self, runs: Mapping[Overrides, Run]) -> dict[Overrides, Run]:
        """Those of these runs that have to be trained."""
        unique = _unique(runs)
        todo = {overrides: run for overrides, run in unique.items() if settled(run) is None}
        self.finished_before += len(unique) - len(todo)
        self.lines.place.before += len(unique) - len(todo)
        if self.lines.total is not None:
            self.lines.total += len(todo)
        if self.record and self.record.looks:
            self.lines.place.may_follow = self.record.looks.may_follow
        if todo:
            self._locate()
        return todo

    def _train(self, runs: Mapping[Overrides, Run], record: StudyRecord) -> None:
        if not (todo := self._todo(runs)):
            return
        if isinstance(self.launcher, Cluster):
            from ablate.study.cluster import sharing
            from ablate.study.cluster.helper import GROWING

            looks = self.study.design.looks
            phase = GROWING if looks else digest(sorted({run.name for run in runs.values()}))[:8]
            with Board(record.name, len(todo)) as board, self._saying_on(board):
                trained = sharing.train(
                    self.launcher, record, phase, [*todo.values()], self.known, board, self._more
                )
            refused = trained.refused
            self.refused += [trained.lost] if trained.lost else []
            self.left_at_work, self.over = trained.left_at_work, bool(trained.left_at_work or trained.lost)
        else:
            refused = self._train_here(self.launcher, todo, record.name)
        self.refused += [f"{self.typed[name]}: {why}" for name, why in refused.items()]

    def _train_here(
        self, launcher: Pool | HydraLauncher, runs: Mapping[Overrides, Run], name: str
    ) -> Mapping[str, str]:
        """Returns, by name, why runs could not begin. name: of the study."""
        assert self.settings is not None, "_grown has chosen"
        threads = self.settings.threads
        if isinstance(launcher, HydraLauncher):
            return self._hand_over(launcher, self._filled_up(runs, launcher), self.settings)
        here = self._placed_here(runs)
        is_one = self.study.config is None and len({*self.ids.values()}) == 1  # also with -m
        only = {run.run_id for run in here} if self.is_single else None
        with Board(name, None if is_one else len(here), only) as board, self._saying_on(board):
            if is_one and launcher.timeout is None:  # which only a worker can be held to
                _train_in_this_process(here[0], self.known[here[0].name], threads, board)
                return {}
            devices = {run.device for run in here}
            return train_all(
                here,
                self.known,
                workers=launcher.workers or device.workers(devices, threads),
                threads=threads,
                timeout_s=launcher.timeout,
                listen=board.listener,
                gpus=device.each(devices),
                more=self._more_here,
            )

    def _placed_here(self, runs: Mapping[Overrides, Run]) -> list[PlacedRun]:
        """The runs with the study's settings, and their texts measured before workers would all do it."""
        assert self.settings is not None, "_grown has chosen"
        here = machine.bound(_placed(runs.values()), self.settings)
        for run, _ in one_of_each(here):
            measured(run.corpus, run.spec.context)
        return here

    @contextlib.contextmanager
    def _saying_on(self, board: Board) -> Iterator[None]:
        before, self.lines = self.lines, board
        board.place = before.place
        try:
            yield
        finally:
            board.place.before += board.count
            self.lines = before

    def _filled_up(self, runs: Mapping[Overrides, Run], launcher: HydraLauncher) -> Mapping[Overrides, Run]:
        """The runs and, where processes of the launcher would wait for the last one, the first ones of the
        next look. A launcher of Hydra's takes no more runs before all of these have ended."""
        spare = -len(runs) % (launcher.workers or available_cores())
        if launcher.cores_each or not spare or not self.study.design.looks:
            return runs
        if not (more := self._next(ahead=spare)):
            return runs
        self._join(more)
        return {**runs, **self._todo(more)}

    def _hand_over(
        self, launcher: HydraLauncher, runs: Mapping[Overrides, Run], settings: Machine
    ) -> dict[str, str]:
        """Let a launcher of Hydra's train the runs, each of which it composes again from its overrides."""
        total = len({*self.ids.values()}) if launcher.workers == 1 else None
        assert self.record is not None, "_join has written it"
        own = {"own": plugins.used(), "root": self.store.root, "named_by": swept(self.record)}
        planned = {run.name: run.corpus.sha256 for run in runs.values()}
        task = partial(_job, threads=settings.threads, total=total, planned=planned, **own)
        overrides = [(*of, *machine.as_overrides(run.config, settings)) for of, run in runs.items()]
        try:
            with environment(**SAFE_PATH):
                refused = launcher.launch(task, overrides)
        except Lost as error:
            self.refused.append(str(error))
            return {}
        names = [run.name for run in runs.values()]
        return {names[index]: why for index, why in refused.items()}


def _job(
    config: RunConfig,
    *,
    threads: int,
    total: int | None,
    planned: Mapping[str, str],
    own: Sequence[Plugin],
    root: Path,
    named_by: Collection[str],
) -> None:
    """Train a run in this process, which a launcher of Hydra's started. Raises ConfigError. total: of runs in
    the sweep, if this process trains all of them one after the other. planned: as for `require_planned`. own,
    root: the plugins and the store of the command. named_by: as Lines.swept."""
    plugins.install(own)
    if Store().root != root:  # the process began before the command set it
        os.environ[ABLATE_RUNS] = str(root)
    run = prepare(config)
    require_planned(run, planned)
    lines = one_by_one(total)
    lines.swept = named_by
    _train_in_this_process(run, Store().run(run.name).stamp(), threads, lines)


def _train_in_this_process(run: PlacedRun, known: Stamp, threads: int, lines: Lines) -> None:
    """Raises ConfigError if the run can't begin."""
    torch.set_num_threads(threads)
    train_or_wait(run, lines.listener(run.name), known=known)


def _placed(runs: Iterable[Run]) -> list[PlacedRun]:
    return [run for run in runs if isinstance(run, PlacedRun)]


def _unique(runs: Mapping[Overrides, Run]) -> dict[Overrides, Run]:
    """The runs without duplicates, as different overrides may mean the same run."""
    first = {run.run_id: overrides for overrides, run in reversed(list(runs.items()))}
    return {overrides: run for overrides, run in runs.items() if first[run.run_id] == overrides}
