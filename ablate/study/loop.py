"""The loop that drives every study: propose cells, check them, launch them, look at their rows, again."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobStatus
from hydra.errors import ConfigCompositionException, MissingConfigException
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf

from ablate.compose.hydra_app import Request, current
from ablate.compose.variants import Cells, is_demonstration
from ablate.compute.cores import threads_each
from ablate.compute.fastest import fastest_product
from ablate.compute.products import PRODUCTS
from ablate.config.overrides import as_value
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.execution.execute import Run, prepare, settled, step_flops
from ablate.store.columns import Row
from ablate.store.record import Machine, StudyRecord
from ablate.store.store import Store, StoreError
from ablate.study.conditions import check, holds
from ablate.study.declared import Declared
from ablate.study.design import Design, Overrides
from ablate.study.estimate import estimate
from ablate.study.growth import grown, record_of_sweep, values_of
from ablate.study.job import THREADS
from ablate.study.kinds import read_declared
from ablate.study.kinds.grid import EveryCombination

LEFT_OUT: Row = {"status": "left out"}  # the row of a cell that can't or shall not be run
MISSING: Row = {"status": "missing"}  # of one that could not begin
# Whose errors are of a launcher as a whole: a process of it died, or it could not begin.
LAUNCHERS_LIBRARIES = ("joblib", "submitit", "ray")
NO_TEST = "corpus.splits: this study reports on the test split, which is empty; use [0.8,0.1,0.1]"


def sweep(config: DictConfig, loader: ConfigLoader, launcher: Launcher, arguments: Iterable[str]) -> None:
    """Run what `arguments`, Hydra overrides, and the `study` block of the config span.

    A sweep with -m is refused as a whole if one of its cells can't be run. A study leaves such cells out,
    and Request.left_out says why. Raises ConfigError.
    """
    study = OmegaConf.to_container(config.study) if config.get("study") else None
    chosen = config.hydra.runtime.choices.get("study")
    if chosen and not (isinstance(study, Mapping) and "kind" in study):
        raise ConfigError(
            f"study={chosen}: its file declares no study; it begins with '# @package _global_', and a block"
            " study: has a kind"
        )
    declared = read_declared(study) if study else None
    overrides = _overrides(loader, config, declared, arguments)
    levels = {key: _levels(override) for key, override in overrides.items()}
    design = declared.design(levels) if declared else EveryCombination(levels)
    factors = declared.levels if declared else ()  # also where they have one level: they may grow
    swept = [key for key, override in overrides.items() if override.is_sweep_override() or key in factors]

    def record(configs: Sequence[RunConfig], runs: Sequence[str]) -> StudyRecord:
        return record_of_sweep(
            {key: design.levels[key] for key in swept},
            [key for key in overrides if key not in swept],
            configs,
            runs,
            declared,
            study=chosen,
            demonstration=is_demonstration(config),
            config_dir=current.get().config_dir,
        )

    _Drive(current.get(), Cells(config, loader), launcher, declared, record)(design)


class _Drive:
    """One command: from proposed cells to rows in the store."""

    def __init__(
        self,
        request: Request,
        compose: Cells,
        launcher: Launcher,
        declared: Declared | None,
        record: Callable[[Sequence[RunConfig], Sequence[str]], StudyRecord],
    ) -> None:
        self.request = request
        self.compose = compose
        self.launcher = launcher
        self.declared = declared
        self.record = record
        self.store = Store()
        self.asked: dict[Overrides, RunConfig] = {}
        self.ids: dict[Overrides, str] = {}
        self.left_out: dict[str, str] = {}

    def __call__(self, design: Design) -> None:
        rows: dict[Overrides, Row] = {}
        while proposed := design.propose(rows):
            runs = self.check(proposed, design.needs_test_split)
            rows |= {cell: LEFT_OUT for cell in proposed if cell not in runs}
            if not runs and self.ids:
                continue
            if not runs:
                raise ConfigError(f"nothing to run: {'; '.join(self.request.left_out)}")
            self.ids |= {cell: run.run_id for cell, run in runs.items()}
            asked, ids = [self.asked[cell] for cell in runs], [run.run_id for run in runs.values()]
            roles, chosen = design.roles(rows, self.ids)
            record = replace(self.record(asked, ids), roles=roles, chosen=chosen, left_out=self.left_out)
            if self.request.dry_run:
                grown(self.store.read_study(record.name), record)  # refuses what a run would
                workers, threads = _side_by_side(self.launcher), _threads(self.launcher)
                unique = list(_unique(runs).values())
                self.request.estimate = estimate(record, unique, workers, threads, design.forecast())
                return
            machine = self.note(record, runs)
            self.launch(runs, machine)
            rows |= {cell: self.store.read(run.name) or MISSING for cell, run in runs.items()}
        self.request.left_out += design.closing(rows)

    def check(self, cells: list[Overrides], needs_test_split: bool) -> dict[Overrides, Run]:
        """The cells that can be run, ready to begin."""
        runs: dict[Overrides, Run] = {}
        reasons: defaultdict[str, list[str]] = defaultdict(list)
        conditions, seen = self.declared.where if self.declared else [], []
        for cell in cells:
            try:
                config = self.compose(cell)
                seen.append(values_of(config))
                if broken := [c for c in conditions if not holds(c, seen[-1])]:
                    reasons[f"not ({broken[0]})"].append("")
                    continue
                run = prepare(config)
                if needs_test_split and not len(run.corpus.splits["test"].tokens):
                    raise ConfigError(NO_TEST)
                runs[cell], self.asked[cell] = run, config
            except (ConfigError, ConfigCompositionException) as error:
                if self.declared is None or isinstance(error, MissingConfigException):
                    raise  # a choice that nowhere is, is no cell but a mistake
                own = isinstance(error, ConfigError)
                why, name = str(error) if own else self.compose.explain(error, cell), _variant(cell, cells)
                reasons[why].append(name)
                self.left_out[name] = why
        for condition in conditions if seen else []:
            check(condition, seen)  # a mistake in it leaves nothing out: it is one
        whole = len(cells)
        for why, names in reasons.items():
            variants = [name for name in dict.fromkeys(names) if name]
            some = f" ({', '.join(variants[:3])}{', …' if len(variants) > 3 else ''})" if variants else ""
            self.request.left_out.append(f"{len(names)} of {whole} cells left out: {why}{some}")
        return runs

    def note(self, record: StudyRecord, runs: Mapping[Overrides, Run]) -> Machine:
        """Write the study down before anything runs; returns what it keeps to on this machine."""
        with self.store.locked():
            before = self.store.read_study(record.name)
            kept = before.machine if before else None
            asked = {run.config.train.linear for run in runs.values()} - {"auto"}
            threads = _keep("hydra.launcher.threads", kept and kept.threads, _threads(self.launcher))
            linear = _keep("train.linear", kept and kept.linear, min(asked, default=None))
            machine = Machine(
                threads=threads or threads_each(len(_unique(runs)), max(map(step_flops, runs.values()))),
                linear=linear or _linear(runs),
            )
            self.store.write_study(grown(before, replace(record, machine=machine)))
        self.request.study = record.name
        self.request.run_ids = sorted({*self.request.run_ids, *(run.run_id for run in runs.values())})
        return machine

    def launch(self, runs: Mapping[Overrides, Run], machine: Machine) -> None:
        """Make what is not there yet."""
        todo = {cell: run for cell, run in _unique(runs).items() if settled(run) is None}
        self.request.finished_before += len(_unique(runs)) - len(todo)
        if not todo:
            return
        threads, linear = machine.threads, machine.linear
        self.request.threads = threads
        # As overrides, they reach the processes of any launcher.
        kept = (f"++hydra.job.env_set.{THREADS}={threads}", f"train.linear={linear}")
        composed = {
            (*cell, *kept): replace(config, train=replace(config.train, linear=linear))
            for cell, config in self.asked.items()
            if cell in todo
        }
        self.request.composed = composed
        try:
            returns = self.launcher.launch([list(overrides) for overrides in composed], initial_job_idx=0)
        except Exception as error:
            library = type(error).__module__.partition(".")[0]
            if library not in LAUNCHERS_LIBRARIES:
                raise
            self.request.refused.append(f"{library}: {str(error).strip().partition(chr(10))[0]}")
            return
        for overrides, done in zip(composed, returns, strict=True):
            if done.status == JobStatus.FAILED:
                cell = overrides[: -len(kept)]
                self.request.refused.append(f"{' '.join(cell)}: {done._return_value}")


def _overrides(
    loader: ConfigLoader, config: DictConfig, declared: Declared | None, arguments: Iterable[str]
) -> dict[str, Override]:
    """By key, what the study declares; over that its demonstration; over that the command line."""
    texts: list[str] = []
    if declared:
        texts += [f"{key}={','.join(levels)}" for key, levels in declared.levels.items()]
        name = config.name or Path(config.hydra.runtime.choices.get("study") or "").name  # or of its file
        if is_demonstration(config):
            if "demo" not in config.study:
                raise ConfigError(
                    "size=demo: this study declares no demo, as demo: {train.steps: 60}; leave size out"
                )
            texts += [f"{key}={','.join(levels)}" for key, levels in declared.demo.items()]
            name = f"{name}-demo" if name else ""
        texts += [f"name={as_value(name)}"] if name and name != config.name else []
    elif is_demonstration(config):
        raise ConfigError("size=demo: only a study has a demonstration; add study=NAME, as study=fusion")
    parsed = OverridesParser.create(config_loader=loader).parse_overrides([*texts, *arguments])
    return {override.get_key_element(): override for override in parsed}


def _levels(override: Override) -> list[str]:
    """The values of one override, as they are written in an override."""
    if not override.is_sweep_override():
        return [override.get_value_element_as_str()]
    if not override.is_discrete_sweep():
        raise ConfigError(f"{override.input_line}: an interval has no values to try; list them, as 1,2,4")
    yaml_words = {"True": "true", "False": "false"}
    levels = [yaml_words.get(level, level) for level in override.sweep_string_iterator()]
    if not levels:
        raise ConfigError(f"{override.input_line}: the sweep is empty; list values, as 1,2,4")
    return levels


def _unique(runs: Mapping[Overrides, Run]) -> dict[Overrides, Run]:
    """Two ways to write one run are one run."""
    first = {run.run_id: cell for cell, run in reversed(list(runs.items()))}
    return {cell: run for cell, run in runs.items() if first[run.run_id] == cell}


def _variant(cell: Overrides, cells: Sequence[Overrides]) -> str:
    """The overrides that tell a cell from the others, the seed aside."""
    shared = set(cells[0]).intersection(*cells) if len(cells) > 1 else set()
    return " ".join(o for o in cell if o not in shared and not o.startswith("seed="))


def _keep(key: str, kept: Any, asked: Any) -> Any:
    """What a study was begun with, it keeps: its bytes depend on it."""
    if kept and asked and kept != asked:
        raise StoreError(
            f"{key}={asked}: this study was begun with {kept}; leave it out, or give another name=NAME"
        )
    return kept or asked


def _linear(runs: Mapping[Overrides, Run]) -> str:
    return fastest_product() if any(run.linear in PRODUCTS for run in runs.values()) else "auto"


def _threads(launcher: Launcher) -> int | None:
    """What the launcher was told; None where it may choose, or has no say."""
    return getattr(launcher, "threads", None)


def _side_by_side(launcher: Launcher) -> int | None:
    """How many runs the launcher was told to make at once; None for as many as the cores serve."""
    if isinstance(launcher, BasicLauncher):
        return 1
    told = getattr(launcher, "workers", None) or getattr(launcher, "joblib", {}).get("n_jobs")
    return told if told and told > 0 else None  # joblib counts from below: -1 is every core
