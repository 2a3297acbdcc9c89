"""The loop that drives every sweep: propose runs, check them, train them, read their rows, repeat."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ablate.compose.asked import Sweep
from ablate.compose.clusters import Cluster
from ablate.compose.launchers import HydraLauncher, Lost, Pool
from ablate.compute import device
from ablate.compute.cores import side_by_side, threads_each
from ablate.config.identity import digest
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.execution import plugins
from ablate.execution.execute import require_its_plugins, settled
from ablate.execution.run import Resolved, Run, step_flops
from ablate.launch.pool import Job, run_jobs
from ablate.live.progress import board
from ablate.store.columns import Row
from ablate.store.record import Machine, StudyRecord
from ablate.store.status import RESULTS
from ablate.store.store import Store
from ablate.study import machine, precision
from ablate.study.checks import Checks
from ablate.study.cluster import of_cluster, share
from ablate.study.declared import Declared
from ablate.study.design import Absent, Design, Overrides
from ablate.study.designed import designed
from ablate.study.estimate import estimate
from ablate.study.growth import grown, record_of_sweep
from ablate.study.job import job
from ablate.study.outcome import Outcome, keeping_results
from ablate.study.replicates import one_of_each


def run_sweep(asked: Sweep, *, dry_run: bool, begun: Callable[[], None]) -> Outcome:
    """Train the runs of a sweep (-m) or a study. Raises ConfigError.

    A sweep is refused as a whole if one of its runs is impossible. A study leaves such runs out, and
    Outcome.remarks says why.
    """
    declared, given, design = designed(asked)
    factors = declared.levels if declared else ()  # also those with one level, since they may grow
    swept = [key for key, of in given.items() if of.swept or key in factors]

    def record(configs: Sequence[RunConfig], runs: Sequence[str]) -> StudyRecord:
        return record_of_sweep(
            {key: design.levels[key] for key in swept},
            [key for key in given if key not in swept],
            configs,
            runs,
            declared,
            study=asked.chosen,
            demonstration=asked.is_demonstration,
            config_dir=asked.config_dir,
            claim=asked.claim,
            command=asked.command,
            typed=[] if asked.command else [*plugins.words(), *asked.typed],
        )

    drive = _Drive(asked, declared, design, record)
    return drive.dry_run() if dry_run else drive.run(begun)


class _Drive:
    """One command: from proposed runs to rows in the store."""

    def __init__(
        self,
        asked: Sweep,
        declared: Declared | None,
        design: Design,
        record: Callable[[Sequence[RunConfig], Sequence[str]], StudyRecord],
    ) -> None:
        self.asked = asked
        self.design = design
        self.record = record
        self.store = Store()
        self.checks = Checks(
            asked.configs,
            declared,
            needs_test_split=design.needs_test_split,
            elsewhere=isinstance(asked.launcher, Cluster),
        )
        self.rows: dict[Overrides, Row] = {}
        self.ids: dict[Overrides, str] = {}
        self.refused: list[str] = []
        self.slower: list[str] = []  # the remark that bfloat16 is slower here, if it is
        self.finished_before = 0
        self.left_at_work = ""  # what was submitted, if the command does not wait for it
        self.over = False  # whether no further runs are to be proposed

    def run(self, begun: Callable[[], None]) -> Outcome:
        name = ""
        while runs := self.next():
            if not name:
                self.check_primary(runs)
            record = self.note(runs)
            name = record.name
            begun()
            with keeping_results(self.store, name):
                self.make(runs, record)
            if self.over:
                break
            results = self.store.results()
            for overrides, run in runs.items():
                self.rows[overrides] = results.get(run.run_id, {"status": Absent.MISSING})
        return Outcome(
            study=name,
            run_ids=sorted({*self.ids.values()}),
            finished_before=self.finished_before,
            remarks=[*self.checks.left_out, *self.slower, *self.design.closing(self.rows)],
            refused=self.refused,
            left_at_work=self.left_at_work,
        )

    def dry_run(self) -> Outcome:
        """Estimate the runs that would be trained first, without training any."""
        runs, launcher = self.next(), self.asked.launcher
        self.check_primary(runs)
        record = self.said(runs)
        record = self.joined(self.store.read_study(record.name), record, runs)  # refuses what a run would
        unique = [*_unique(runs).values()]
        remarks, forecast = [*self.checks.left_out, *self.slower], self.design.forecast()
        if isinstance(launcher, Cluster):
            return Outcome(
                record.name, remarks=remarks, estimate=of_cluster(launcher, record, unique, forecast)
            )
        assert record.machine is not None
        here = [run for run in unique if isinstance(run, Run)]
        expected = estimate(record, here, launcher.at_once, record.machine.threads, forecast)
        return Outcome(record.name, remarks=remarks, estimate=expected)

    def next(self) -> dict[Overrides, Resolved]:
        """The next runs, ready to begin; none at the end. Raises ConfigError if the sweep has no runs at
        all."""
        while proposed := self.design.propose(self.rows):
            runs = self.checks.ready(proposed)
            self.rows |= {
                overrides: {"status": Absent.LEFT_OUT} for overrides in proposed if overrides not in runs
            }
            self.ids |= {overrides: run.run_id for overrides, run in runs.items()}
            self.slower = self.slower or precision.remarks(runs.values())
            if runs:
                return runs
            if not self.ids:
                raise ConfigError(f"nothing to run: {'; '.join(self.checks.left_out)}")
        return {}

    def said(self, runs: Mapping[Overrides, Resolved]) -> StudyRecord:
        """The record of the study with these runs."""
        record = self.record([self.checks.configs[o] for o in runs], [run.run_id for run in runs.values()])
        roles, chosen = self.design.roles(self.rows, self.ids)
        return replace(record, roles=roles, chosen=chosen, left_out=self.checks.reasons)

    def check_primary(self, runs: Mapping[Overrides, Resolved]) -> None:
        """Raises ConfigError for a primary contrast that no runs of the study can show."""
        before = self.store.read_study(self.said(runs).name)
        self.checks.primary(runs, self.design.levels, before.factors if before else {})

    def note(self, runs: Mapping[Overrides, Resolved]) -> StudyRecord:
        """Write study.json before anything is trained; returns the record."""
        record = self.said(runs)
        return self.store.change_study(record.name, lambda before: self.joined(before, record, runs))

    def joined(
        self, before: StudyRecord | None, record: StudyRecord, runs: Mapping[Overrides, Resolved]
    ) -> StudyRecord:
        """The record merged with the one before, with its machine settings. Raises StoreError if the study
        may not grow like this."""
        record = replace(record, machine=self.machine(before, runs))
        return grown(before, record, has_results=self.has_results)

    def has_results(self, study: str) -> bool:
        return any(row["status"] in RESULTS for row in self.store.study_rows(study))

    def machine(self, before: StudyRecord | None, runs: Mapping[Overrides, Resolved]) -> Machine | None:
        """The machine settings that the study began with, or will begin with; None where a cluster's machine
        will choose them. Raises StoreError if the command asks for different ones."""
        kept, launcher = before.machine if before else None, self.asked.launcher
        decided = machine.decided(kept, runs.values(), launcher.asked_threads)
        if isinstance(launcher, Cluster):
            return kept
        here = [run for run in runs.values() if isinstance(run, Run)]
        return machine.chosen(decided, here, self.threads(runs))

    def threads(self, runs: Mapping[Overrides, Resolved]) -> int:
        """The threads of each run, which shares the cores with others unless its launcher gives it its
        own."""
        launcher, count = self.asked.launcher, len(_unique(runs))
        assert not isinstance(launcher, Cluster), "its first helper chooses"
        step = max(step_flops(run) for run, _ in one_of_each(runs.values()))
        if launcher.cores_each:
            return threads_each(1, step, launcher.cores_each)
        return threads_each(min(launcher.at_once or count, count), step)

    def make(self, runs: Mapping[Overrides, Resolved], record: StudyRecord) -> None:
        """Train the runs that have no result yet."""
        unique = _unique(runs)
        for run in unique.values():
            require_its_plugins(run, self.store)
        known = {overrides: self.store.run(run.name).stamp() for overrides, run in unique.items()}
        todo = {
            overrides: (run, known[overrides]) for overrides, run in unique.items() if settled(run) is None
        }
        self.finished_before += len(unique) - len(todo)
        if not todo:
            return
        jobs = {
            overrides: Job(
                run.name, step_flops(run) * run.config.train.steps, stamp, self.checks.configs[overrides]
            )
            for overrides, (run, stamp) in todo.items()
        }
        launcher = self.asked.launcher
        if isinstance(launcher, Cluster):
            phase = digest(sorted(run.name for run in unique.values()))[:8]
            by_name = {job.name: " ".join(overrides) for overrides, job in jobs.items()}
            ended = share(launcher, record, phase, [*jobs.values()])
            self.refused += [f"{by_name[name]}: {why}" for name, why in ended.refused.items()]
            self.refused += [ended.lost] if ended.lost else []
            self.left_at_work, self.over = ended.left_at_work, bool(ended.left_at_work or ended.lost)
            return
        assert record.machine is not None, "note has chosen"
        refused = self.make_here(launcher, jobs, record.machine)
        self.refused += [f"{' '.join([*jobs][index])}: {why}" for index, why in refused.items()]

    def make_here(
        self, launcher: Pool | HydraLauncher, jobs: Mapping[Overrides, Job], settings: Machine
    ) -> dict[int, str]:
        """Train runs from this machine; returns, by index, why runs could not begin."""
        threads = settings.threads
        if isinstance(launcher, Pool):
            bound = [replace(job, config=machine.bound(job.config, settings)) for job in jobs.values()]
            gpus = device.each({device.pick(job.config.device) for job in bound})
            workers = launcher.at_once or len(gpus) or side_by_side(threads)
            with board(bound, workers) as watcher:
                return run_jobs(
                    bound,
                    workers=workers,
                    threads=threads,
                    timeout_s=launcher.timeout_s,
                    watcher=watcher,
                    gpus=gpus,
                )
        total = len({*self.ids.values()}) if launcher.at_once == 1 else None
        task = partial(job, threads=threads, total=total, own=plugins.used())
        runs = [(*overrides, *machine.as_overrides(job.config, settings)) for overrides, job in jobs.items()]
        try:
            return launcher.launch(task, runs)
        except Lost as error:
            self.refused.append(str(error))
            return {}


def _unique(runs: Mapping[Overrides, Resolved]) -> dict[Overrides, Resolved]:
    """The runs without duplicates, as different overrides may mean the same run."""
    first = {run.run_id: overrides for overrides, run in reversed(list(runs.items()))}
    return {overrides: run for overrides, run in runs.items() if first[run.run_id] == overrides}
