"""The loop that drives every sweep: propose runs, check them, train them, read their rows, repeat."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ablate.compose.asked import Sweep
from ablate.compose.launchers import Lost, Pool
from ablate.compose.variants import Setting
from ablate.compute.cores import side_by_side, threads_each
from ablate.compute.products import PRODUCTS
from ablate.config.overrides import as_value
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.execution import plugins
from ablate.execution.execute import require_its_plugins, settled
from ablate.execution.run import Run, step_flops
from ablate.launch.pool import Job, run_jobs
from ablate.live.progress import board
from ablate.store.columns import Row
from ablate.store.record import Machine, StudyRecord
from ablate.store.run_files import Stamp
from ablate.store.status import RESULTS
from ablate.store.store import Store, StoreError
from ablate.study import precision
from ablate.study.checks import Checks
from ablate.study.declared import Declared
from ablate.study.design import Absent, Design, Overrides
from ablate.study.estimate import estimate
from ablate.study.growth import grown, record_of_sweep
from ablate.study.job import job
from ablate.study.kinds import read_declared
from ablate.study.kinds.grid import EveryCombination
from ablate.study.outcome import Outcome, keeping_results
from ablate.study.replicates import one_of_each


def run_sweep(asked: Sweep, *, dry_run: bool, begun: Callable[[], None]) -> Outcome:
    """Train the runs of a sweep (-m) or a study. Raises ConfigError.

    A sweep is refused as a whole if one of its runs is impossible. A study leaves such runs out, and
    Outcome.remarks says why.
    """
    declared = read_declared(asked.study) if asked.study else None
    given = _settings(asked, declared)
    levels = {key: of.values for key, of in given.items()}
    design = declared.design(levels) if declared else EveryCombination(levels)
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
            typed=[*plugins.words(), *asked.typed],
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
        self.checks = Checks(asked.configs, declared, needs_test_split=design.needs_test_split)
        self.rows: dict[Overrides, Row] = {}
        self.ids: dict[Overrides, str] = {}
        self.refused: list[str] = []
        self.slower: list[str] = []  # the remark that bfloat16 is slower here, if it is
        self.finished_before = 0

    def run(self, begun: Callable[[], None]) -> Outcome:
        name = ""
        while runs := self.next():
            if not name:
                self.check_primary(runs)
            record = self.note(runs)
            name = record.name
            begun()
            with keeping_results(self.store, name):
                self.make(runs, record.machine)
            results = self.store.results()
            for overrides, run in runs.items():
                self.rows[overrides] = results.get(run.run_id, {"status": Absent.MISSING})
        return Outcome(
            study=name,
            run_ids=sorted({*self.ids.values()}),
            finished_before=self.finished_before,
            remarks=[*self.checks.left_out, *self.slower, *self.design.closing(self.rows)],
            refused=self.refused,
        )

    def dry_run(self) -> Outcome:
        """Estimate the runs that would be trained first, without training any."""
        runs, launcher = self.next(), self.asked.launcher
        self.check_primary(runs)
        record = self.said(runs)
        record = self.joined(self.store.read_study(record.name), record, runs)  # refuses what a run would
        assert record.machine is not None
        unique = [*_unique(runs).values()]
        expected = estimate(record, unique, launcher.at_once, record.machine.threads, self.design.forecast())
        remarks = [*self.checks.left_out, *self.slower]
        return Outcome(record.name, remarks=remarks, estimate=expected)

    def next(self) -> dict[Overrides, Run]:
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

    def said(self, runs: Mapping[Overrides, Run]) -> StudyRecord:
        """The record of the study with these runs."""
        record = self.record([self.checks.configs[o] for o in runs], [run.run_id for run in runs.values()])
        roles, chosen = self.design.roles(self.rows, self.ids)
        return replace(record, roles=roles, chosen=chosen, left_out=self.checks.reasons)

    def check_primary(self, runs: Mapping[Overrides, Run]) -> None:
        """Raises ConfigError for a primary contrast that no runs of the study can show."""
        before = self.store.read_study(self.said(runs).name)
        self.checks.primary(runs, self.design.levels, before.factors if before else {})

    def note(self, runs: Mapping[Overrides, Run]) -> StudyRecord:
        """Write study.json before anything is trained; returns the record."""
        record = self.said(runs)
        return self.store.change_study(record.name, lambda before: self.joined(before, record, runs))

    def joined(
        self, before: StudyRecord | None, record: StudyRecord, runs: Mapping[Overrides, Run]
    ) -> StudyRecord:
        """The record merged with the one before, with its machine settings. Raises StoreError if the study
        may not grow like this."""
        record = replace(record, machine=self.machine(before, runs))
        return grown(before, record, has_results=self.has_results)

    def has_results(self, study: str) -> bool:
        return any(row["status"] in RESULTS for row in self.store.study_rows(study))

    def machine(self, before: StudyRecord | None, runs: Mapping[Overrides, Run]) -> Machine:
        """The machine settings that the study began with, or will begin with. Raises StoreError if the
        command asks for different ones."""
        kept, launcher = before.machine if before else None, self.asked.launcher
        asked = [run.config.train for run in runs.values()]
        halves = [run for run in runs.values() if run.config.train.precision == "bfloat16"]
        threads = _keep("hydra.launcher.threads", kept and kept.threads, launcher.threads)
        linear = _keep("train.linear", kept and kept.linear, _asked(t.linear for t in asked))
        attention = _keep(
            "train.attention", kept and kept.attention, _asked(run.config.train.attention for run in halves)
        )
        compiled = _keep("train.compile", kept and kept.compile, any(t.compile for t in asked) or None)
        return Machine(
            threads=threads or self.threads(runs),
            linear=linear or min({run.linear for run in runs.values()} & {*PRODUCTS}, default="auto"),
            attention=attention or min({run.attention for run in halves}, default="auto"),
            compile=bool(compiled),
        )

    def threads(self, runs: Mapping[Overrides, Run]) -> int:
        """The threads of each run, which shares the cores with others unless its launcher gives it its
        own."""
        launcher, count = self.asked.launcher, len(_unique(runs))
        step = max(step_flops(run) for run, _ in one_of_each(runs.values()))
        if launcher.cores_each:
            return threads_each(1, step, launcher.cores_each)
        return threads_each(min(launcher.at_once or count, count), step)

    def make(self, runs: Mapping[Overrides, Run], machine: Machine | None) -> None:
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
        assert machine is not None, "note has chosen"
        threads, launcher = machine.threads, self.asked.launcher
        if isinstance(launcher, Pool):
            jobs = [_job(self.checks.configs[overrides], *due, machine) for overrides, due in todo.items()]
            workers = launcher.at_once or side_by_side(threads)
            with board(jobs, workers) as watcher:
                refused = run_jobs(
                    jobs, workers=workers, threads=threads, timeout_s=launcher.timeout_s, watcher=watcher
                )
        else:
            total = len({*self.ids.values()}) if launcher.at_once == 1 else None
            task = partial(job, threads=threads, total=total, own=plugins.used())
            try:
                # Settings are passed as overrides, which reach the processes of any launcher.
                refused = launcher.launch(
                    task, [(*overrides, *_as_overrides(run, machine)) for overrides, (run, _) in todo.items()]
                )
            except Lost as error:
                self.refused.append(str(error))
                return
        self.refused += [f"{' '.join([*todo][index])}: {why}" for index, why in refused.items()]


def _job(config: RunConfig, run: Run, known: Stamp, machine: Machine) -> Job:
    config = replace(config, train=replace(config.train, **_kept(run, machine)))
    return Job(run.name, step_flops(run) * config.train.steps, known, config)


def _as_overrides(run: Run, machine: Machine) -> list[str]:
    return [f"train.{key}={as_value(value)}" for key, value in _kept(run, machine).items()]


def _kept(run: Run, machine: Machine) -> dict[str, Any]:
    """The machine settings of a run, as keys of train."""
    keys = {"linear": machine.linear, "compile": machine.compile}
    return keys | ({"attention": machine.attention} if run.config.train.precision == "bfloat16" else {})


def _settings(asked: Sweep, declared: Declared | None) -> dict[str, Setting]:
    """The settings by key: those of the study, overridden by its demonstration, then by the command line."""
    texts: list[str] = []
    if declared:
        texts += [f"{key}={','.join(levels)}" for key, levels in declared.levels.items()]
        name = asked.name or Path(asked.chosen or "").name  # by default the name of its file
        if asked.is_demonstration:
            assert asked.study is not None
            if "demo" not in asked.study:
                raise ConfigError(
                    "size=demo: this study declares no demo, as demo: {train.steps: 60}; leave size out"
                )
            texts += [f"{key}={','.join(levels)}" for key, levels in declared.demo.items()]
            name = f"{name}-demo" if name else ""
        texts += [f"name={as_value(name)}"] if name and name != asked.name else []
    elif asked.is_demonstration:
        raise ConfigError("size=demo: only a study has a demonstration; add study=NAME, as study=fusion")
    return asked.configs.settings([*texts, *asked.arguments])


def _unique(runs: Mapping[Overrides, Run]) -> dict[Overrides, Run]:
    """The runs without duplicates, as different overrides may mean the same run."""
    first = {run.run_id: overrides for overrides, run in reversed(list(runs.items()))}
    return {overrides: run for overrides, run in runs.items() if first[run.run_id] == overrides}


def _asked(values: Iterable[str]) -> str | None:
    return min({*values} - {"auto"}, default=None)


def _keep(key: str, kept: Any, asked: Any) -> Any:
    """The kept setting, or else the one asked for. A study keeps its settings, since its exact results depend
    on them: raises StoreError if another is asked for."""
    if kept in (None, "auto"):
        return asked
    if asked is not None and kept != asked:
        raise StoreError(
            f"{key}={as_value(asked)}: this study was begun with {as_value(kept)}; leave it out, or give"
            " another name=NAME"
        )
    return kept
