"""The loop that drives every study: propose runs, check them, train them, read their rows, repeat."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from ablate.compose.sweep import HydraLauncher, LauncherFailed, Sweep
from ablate.config.rules import ConfigError
from ablate.data.corpus import forget
from ablate.data.matches import repeats
from ablate.execution.execute import settled
from ablate.execution.run import Run
from ablate.execution.simulated import require_met
from ablate.execution.stored import require_as_begun
from ablate.export import TRACK
from ablate.live import Board, Lines
from ablate.phrases import Note, counted, first_few, lines_if, texts
from ablate.printing import say
from ablate.store.columns import RESULTS, Row, Status
from ablate.store.record import StudyRecord
from ablate.store.store import Store
from ablate.study.config import Absent, Overrides
from ablate.study.growth import grown, with_looks
from ablate.study.launchers import ByHydra, Launcher, Work
from ablate.study.run import Outcome
from ablate.study.study import Study, one_of_each, settings


class Loop:
    """One command: from proposed runs to rows in the store. Raises ConfigError."""

    def __init__(self, sweep: Sweep) -> None:
        by_hydra = isinstance(sweep.launcher, HydraLauncher)
        self.launcher = (ByHydra if by_hydra else Launcher)(sweep.launcher)
        self.is_single = sweep.is_single
        forget()
        self.study = Study(sweep)
        self.store = Store()
        self.rows: dict[Overrides, Row] = {}  # RUNNING for runs without a result yet
        self.ids: dict[Overrides, str] = {}
        self.pending: dict[Overrides, Run] = {}  # runs without a result yet
        self.record: StudyRecord | None = None
        self.refused: list[str] = []
        self.is_training = False
        self.finished_before = 0
        self.lines = Lines()  # the board, while there is one
        self.typed: dict[str, str] = {}  # the overrides that tell a run from others, by its name
        self.passed = 0  # the last look that was told of, for which no contrast waits

    def run(self, begun: Callable[[], object]) -> Outcome:
        goes_on = True
        while goes_on and (runs := self._next()):
            record = self._join(runs)
            begun()
            try:
                goes_on = self._train(runs, record)
            except BaseException:
                with contextlib.suppress(ConfigError):  # report the error that ended the runs, not this one
                    self.store.write_results(record.name)
                raise
            self.store.write_results(record.name)
            if goes_on:
                self._read(at_end=True)
        assert self.record is not None, "_next gives runs, or raises"
        if not self.is_training:
            self._say_what_is_there({})
        if self.study.design.looks and goes_on:  # what the last rows decided
            planned = self.study.design.planned(self.rows)
            self.store.change_existing(self.record.name, partial(with_looks, looks=planned))
        return Outcome(
            study=self.record.name,
            run_ids=[*dict.fromkeys(self.ids.values())],
            remarks=[*self.study.left_out, *self.study.design.closing(self.rows)],
            refused=self.refused,
        )

    def dry_run(self, began: float) -> Outcome:
        """Estimate the runs that would be trained first, without training any. began: when the command did,
        by time.monotonic."""
        from ablate.study.estimate import estimate

        runs = self._next()
        record = self.study.record(runs, self.rows, self.ids)
        self.store.require_place(record.name)
        before = self.store.read_study(record.name)
        self.study.check_primary()
        whole = self._grown(before, record, runs)  # refuses what a run would
        threads = self._threads(whole, runs)
        record = replace(record, threads=whole.threads)  # with the levels of this command alone
        todo = [*_unique(runs).values()]
        for run in todo:
            require_as_begun(run, self.store)
        remarks, before_s = self._beforehand(runs, record), time.monotonic() - began
        expected = estimate(self.study, record, todo, self.rows, self.launcher, threads)
        expected = replace(expected, seconds=before_s + expected.seconds)  # from Enter on
        return Outcome(record.name, remarks=[*self.study.left_out, *remarks], estimate=expected)

    def _next(self) -> dict[Overrides, Run]:
        """The next runs, ready to begin; none at the end. Raises ConfigError if there are none at all."""
        is_first = not self.ids
        while proposed := self.study.design.propose(self.rows):
            # A run may replace the result that it has now; any other is made by another command.
            ready = self.study.ready(proposed).items()
            runs = {one: replace(run, replaces=self.store.run(run.name).stamp()) for one, run in ready}
            self.rows |= {one: {"status": Absent.EXCLUDED} for one in proposed if one not in runs}
            self.ids |= {overrides: run.run_id for overrides, run in runs.items()}
            if runs:
                if is_first:
                    require_met(runs.values())
                return runs
            if not self.ids:
                raise ConfigError(f"nothing to run: {'; '.join(self.study.left_out)}")
        return {}

    def _join(self, runs: Mapping[Overrides, Run]) -> StudyRecord:
        """Add runs to the study; returns its record. Raises ConfigError if they may not be added."""
        record = self.study.record(runs, self.rows, self.ids)
        if self.record is None:
            self.store.require_place(record.name)
            self.store.read_study(record.name)  # refuses what ablate did not write
            self.study.check_primary()
        for run in runs.values():
            require_as_begun(run, self.store)
        self.pending |= runs
        self.rows |= {overrides: {"status": Status.RUNNING} for overrides in runs}
        same = set[str].intersection(*map(set, self.ids))
        for overrides, run in runs.items():
            self.typed[run.name] = " ".join(one for one in overrides if one not in same) or run.name
        self.record = self.store.change_study(record.name, partial(self._grown, record=record, runs=runs))
        return self.record

    def _read(self, *, at_end: bool = False) -> None:
        """Read the rows of the runs that have ended since. at_end: whether nothing trains the others."""
        results = self.store.results() if at_end else None
        for overrides, run in [*self.pending.items()]:
            if results is not None:
                self.rows[overrides] = results.get(run.run_id, {"status": Absent.MISSING})
            elif row := settled(run, thorough=False):  # as it has just been made
                self.rows[overrides] = row
            else:
                continue
            del self.pending[overrides]
        if now := self.study.design.standing(self.rows):
            passed = int(now.seeds.max(initial=0) if now.decided.all() else now.seeds[~now.decided].min())
            if passed > self.passed:
                say(f"{passed} seeds: {now.decided.sum()} of {counted(len(now.decided), 'contrast')} decided")
            self.passed = passed

    def request_runs(self, spare: int) -> dict[Overrides, Run]:
        """The runs that follow from what has ended, for so many idle workers. Raises ConfigError."""
        if not (spare or self.study.design.looks):
            return {}
        self._read()
        while runs := self._next():
            self._join(runs)
            if todo := self._todo(runs):
                return todo
            self._read()
        return {}

    def _grown(
        self, before: StudyRecord | None, record: StudyRecord, runs: Mapping[Overrides, Run]
    ) -> StudyRecord:
        """The record merged with the one before. Raises StoreError if the study may not grow like this."""
        threads = self._threads(before, runs)
        if not self.is_single:  # single runs have each their own
            record = replace(record, threads=threads)
        return grown(
            before,
            record,
            has_results=lambda study: any(row["status"] in RESULTS for row in self.store.rows(study)),
            ended=self.store.results,
        )

    def _beforehand(self, runs: Mapping[Overrides, Run], record: StudyRecord) -> list[str]:
        """Lines on what will keep an answer away, while other settings can still be chosen; usually none."""
        each, notes = [run for run, _ in one_of_each(runs.values())], list[Note]()
        if len(each) > 1:
            from ablate.analysis.notes import foreseen

            variants, seeds = settings(each), len(self.study.design.levels.get("seed", record.seeds))
            notes += foreseen(variants, range(len(variants.table)), seeds, [record])
        texts_of = (run.corpus.text for run in each if not run.is_simulated)
        return texts([*notes, *repeats(max((text.most_shared for text in texts_of if text), default=0.0))])

    def _threads(self, before: StudyRecord | None, runs: Mapping[Overrides, Run]) -> int:
        return self.launcher.threads(before.threads if before else None, runs.values())

    def _todo(self, runs: Mapping[Overrides, Run]) -> dict[Overrides, Run]:
        """The runs, among these, that have to be trained."""
        unique = _unique(runs)
        # Seed by seed, so that a command that is cut off leaves pairs.
        in_order = sorted(unique.items(), key=lambda item: item[1].config.seed)
        todo = {one: run for one, run in in_order if settled(run) is None}
        self.finished_before += len(unique) - len(todo)
        self.lines.place.before += len(unique) - len(todo)
        if self.lines.total is not None:
            self.lines.total += len(todo)
        phase, how, in_all = self.study.design.phase(self.rows)
        if todo and (phase or how):  # let the lines say where the study is
            place = self.lines.place
            is_new = phase != place.phase
            place.phase, place.of = phase, f"{how}{counted(in_all, 'run')}"
            if phase:
                place.in_all = in_all
            if is_new:
                say(self.lines.whereabouts)
        return todo

    def _say_what_is_there(self, todo: Mapping[Overrides, Run]) -> None:
        """Say how many runs had finished and, of a sweep, from which step others go on, if there are such."""
        left = set() if self.is_single else self.store.finished() | self.store.interrupted()
        kept = (self.store.run(run.name).last_step() for run in todo.values() if run.name in left)
        steps, of = sorted(filter(None, kept)), counted(len({*self.ids.values()}), "run")
        done = f"{self.finished_before} of {of} had finished before (force=true makes new attempts)"
        if self.record and (tracker := os.environ.get(TRACK)):
            done += f"; `ablate export {self.record.name} --to {tracker}` logs those that were not yet"
        go_on = f"{len(steps)} to go on from step {first_few([*dict.fromkeys(steps)])}"
        if lines := [*lines_if(self.finished_before, done), *lines_if(steps, go_on)]:
            say(", ".join(lines))

    def _train(self, runs: Mapping[Overrides, Run], record: StudyRecord) -> bool:
        """Have the launcher train what has to be; returns whether it goes on."""
        if not (todo := self._todo(runs)):
            return True
        if not self.is_training:
            self._say_what_is_there(todo)
            for line in [*self.study.left_out, *self._beforehand(todo, record)]:
                say(line)
            self.study.left_out.clear()
            if TRACK in os.environ:
                from ablate.export.trackers import begin

                begin(record.name, say)
        self.is_training = True
        work = Work(
            record=record,
            threads=self._threads(record, runs),
            runs=todo,
            is_one=self.study.config is None and len({*self.ids.values()}) == 1,  # also with -m
            board=partial(self._board, record.name, todo),
            request_runs=self.request_runs,
        )
        try:
            refused = self.launcher.train(work)
        except LauncherFailed as error:
            self.refused.append(str(error))
            return False
        for run in self.pending.values():
            if (why := refused.get(run.name)) and not settled(run):  # by another command, since
                self.refused.append(f"{self.typed[run.name]}: {why}")
        return True

    @contextlib.contextmanager
    def _board(self, study: str, runs: Mapping[Overrides, Run], total: int | None) -> Iterator[Board]:
        """The board of these runs, which has all lines of the command meanwhile."""
        before, only = self.lines, {run.run_id for run in runs.values()} if self.is_single else None
        with Board(study, total, only) as board:
            self.lines, board.place, board.typed = board, before.place, self.typed
            try:
                yield board
            finally:
                board.place.before += board.count
                self.lines = before


def _unique(runs: Mapping[Overrides, Run]) -> dict[Overrides, Run]:
    """The runs without duplicates, as different overrides may mean the same run."""
    first = {run.run_id: overrides for overrides, run in reversed(list(runs.items()))}
    return {overrides: run for overrides, run in runs.items() if first[run.run_id] == overrides}
