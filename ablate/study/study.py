"""A study: which runs a command asks for. A plain sweep declares nothing, a single run is a sweep of one.
Runs that differ only in seeds are composed and resolved once."""

import contextlib
import dataclasses
import functools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ablate.analysis.looks import usual
from ablate.compose.composer import Mistake, Overrides
from ablate.compose.sweep import Sweep
from ablate.config.conditions import Condition, column_for
from ablate.config.read import read
from ablate.config.rules import ConfigError, as_override, as_value, did_you_mean, flatten, line_on
from ablate.config.schema import RunConfig, identity_keys
from ablate.data.text import CorpusError
from ablate.execution import plugins
from ablate.execution.formulas import before_training
from ablate.execution.run import Run, prepare
from ablate.files.atomic import digest
from ablate.phrases import counted, first_few
from ablate.store.record import ONE_BY_ONE, StudyRecord
from ablate.study.config import Design, Rows, StudyConfig
from ablate.study.plan import Plan, contrasts_of
from ablate.study.tuned import Tuned

if TYPE_CHECKING:
    from ablate.analysis.variants import Settings

NO_TEST = "corpus.splits: this study reports on the test split, which is empty; use [0.8,0.1,0.1]"
# What study.json keeps as every kind of study declares it.
DECLARED = ("question", "primary", "metric", "margin", "answer", "arms", "where")
R = TypeVar("R", bound=Run)
KINDS: dict[str, type[StudyConfig]] = {kind.kind: kind for kind in (StudyConfig, Tuned)}


def settings(runs: Iterable[Run]) -> "Settings":
    """The variants of these runs, by what they set."""
    from ablate.analysis.variants import settings_of
    from ablate.store.frames import frame

    return settings_of(frame([before_training(run) for run in runs]))


class Excluded(ConfigError):
    """A condition of the study leaves the run out."""


class Study:
    """What a sweep asks for, checked.

    config: what the study declares; None for a plain grid or a single run. configs: of the runs that can be
    trained. left_out: lines about all others; reasons: by variant, why it can't be built. Raises ConfigError.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.configs: dict[Overrides, RunConfig] = {}
        self.reasons: dict[str, str] = {}
        self.left_out: list[str] = []
        self._values: dict[Overrides, dict[str, Any]] = {}  # the keys of each variant
        self._of_variant = functools.cache(lambda variant: prepare(sweep.configs(variant)))
        self.config, texts = (config := read_declared(sweep.study) if sweep.study else None), list[str]()
        if config:  # its settings, which the command line overrides
            texts += [f"{key}={','.join(levels)}" for key, levels in config.levels.items()]
            name = sweep.name or Path(sweep.chosen or "").name  # by default the name of its file
            texts += [f"name={as_value(name)}"] if name and name != sweep.name else []
        levels = self.levels = sweep.configs.levels([*texts, *sweep.arguments])
        for key in sorted(config.own_keys & levels.keys()) if config else ():
            why = "the arms of this study set it; leave it out, or write a study of your own"
            raise ConfigError(f"{key}: {why}")
        self.design = config.design(levels) if config else Design(levels)
        self.conditions = [Condition(where, "study.where:") for where in config.where] if config else []
        if config and (plan := self._plan(config)):
            self.design = replace(self.design, plan=replace(plan, at=self._looks_at(config)))

    def _looks_at(self, config: StudyConfig) -> list[int]:
        """The numbers of seeds at which the study looks; none for a fixed design. The looks of a YAML are
        those of its own seeds, so other seeds on the command line have the usual ones. Raises ConfigError."""
        seeds, words = len(self.design.levels["seed"]), [*self.sweep.typed, *self.sweep.arguments]
        own_seeds = any(word.startswith("seed=") for word in words)
        given = config.looks if not own_seeds or any("study.looks=" in word for word in words) else None
        crossed = [key for key, of in self.levels.items() if key.startswith("seeds.") and len(of) > 1]
        instead = "give study.looks=[] for a fixed design"
        crosses = f"looks take seeds one after the other, and {''.join(crossed[:1])} crosses them"
        last = f"the last look is at all seeds, of which {seeds} are listed"
        wrong = {
            "this study names no primary contrast, so all contrasts count, and none may end before the"
            f" others; {instead}": not config.primary,
            f"{crosses}; {instead}": crossed,
            f"{last}; {instead}, or end it with {seeds}": given and given[-1] != seeds,
        }
        for why in (why for why, is_so in wrong.items() if given and is_so):
            raise ConfigError(f"study.looks={as_override(given)}: {why}")
        if crossed or not config.primary:
            return []
        return usual(seeds) if given is None else given

    def _plan(self, config: StudyConfig) -> Plan | None:
        """The contrasts as sums of arms, without looks; None if no arm can be built."""
        runs = dict[Overrides, Run]()
        for arm in self.design.compared:
            try:
                runs[arm] = self.run_of(arm)
            except ConfigError as error:  # it is left out, and `ready` says why
                if isinstance(error, Mistake | CorpusError):
                    raise
        if not runs:
            return None
        variants = replace(settings(runs.values()), free=[*map(column_for, config.of_no_arm)])
        place = {run_id: at for at, run_id in enumerate(variants.table["run_id"])}
        names = {arm: self.design.name(arm) for arm in runs}
        at = {arm: place[run.run_id] for arm, run in runs.items() if run.run_id in place}
        named = config.places(self.design.levels)
        contrasts = contrasts_of(config.primary, variants, at, named, names)
        margin = math.nan if config.margin is None else config.margin
        seeds = self.design.levels["seed"]
        return Plan(contrasts=contrasts, arms=names, seeds=seeds, metric=config.metric, margin=margin)

    def ready(self, proposed: Sequence[Overrides]) -> dict[Overrides, Run]:
        """The proposed runs that can be trained. Raises ConfigError if one can't; where a study is declared,
        only for mistakes that affect every run."""
        runs: dict[Overrides, Run] = {}
        reasons: defaultdict[str, list[str]] = defaultdict(list)
        shared = set(proposed[0]).intersection(*proposed) if len(proposed) > 1 else set()
        for overrides in proposed:
            try:
                runs[overrides] = self.run(overrides)
            except Excluded as error:
                reasons[str(error)].append("")
            except ConfigError as error:
                if self.config is None or isinstance(error, Mistake | CorpusError):
                    raise
                # What distinguishes the run from the others, without the seed.
                name = " ".join(o for o in overrides if o not in shared and not o.startswith("seed="))
                reasons[str(error)].append(name)
                self.reasons[name] = str(error)
        for condition in self.conditions if self._values else []:
            condition.require_known([*self._values.values()])
        for why, names in reasons.items():
            variants = [name for name in dict.fromkeys(names) if name]
            which = f" ({first_few(variants)})" if variants else ""
            self.left_out.append(f"{len(names)} of {counted(len(proposed), 'run')} left out: {why}{which}")
        return runs

    def run(self, overrides: Overrides) -> Run:
        """The run of these overrides, placed on this machine. Raises ConfigError if it is
        impossible, Excluded if a condition excludes it."""
        variant, config = self.sweep.configs.by_variant(overrides)
        if variant not in self._values:
            self._values[variant] = values_of(dataclasses.asdict(config))
        values = self._values[variant] | {"seed": config.seed}
        for condition in self.conditions:
            if not condition.holds(values):
                raise Excluded(f"not ({condition.text})")
        run = self._of_variant(variant).with_seeds(config)
        if self.design.needs_test_split and not run.corpus.splits["test"].size:
            raise ConfigError(NO_TEST)
        self.configs[overrides] = config
        return run

    def run_of(self, arm: Overrides) -> Run:
        """A run of one of the design's `compared`, at the first value at which it can be built. Raises
        ConfigError if there is none."""
        *others, last = self.design.first_runs(arm)
        for overrides in others:
            with contextlib.suppress(ConfigError):
                return self.run(overrides)
        return self.run(last)

    def check_primary(self) -> None:
        """Raises ConfigError for a primary contrast of which no runs of the study can show anything; a line
        is left if that is so because some of its runs can't be built, and on levels that the study does not
        declare and names no contrast of."""
        if self.config is None or not self.design.plan:
            return
        plan, levels, factors = self.design.plan, self.design.levels, self.config.factors
        known = {override for one in plan.contrasts for _, arm in one.sides for override in arm}
        known |= {f"{key}={level}" for key, of in factors.items() for level in of}
        of_arms = (one for arm in plan.arms for one in arm if one.partition("=")[0] in factors)
        if (new := sorted({*of_arms} - known)) and self.config.primary:
            everywhere = f"study.primary=[{{baseline:{as_override(self.config.primary[0].baseline)}}}]"
            plans = f"'{everywhere}' plans some at all levels"
            self.left_out.append(f"no contrast is planned at {', '.join(new)}; {plans}")
        names = {one.declared for one in plan.contrasts}
        for one in self.config.primary:
            if str(one) in names:
                continue
            line = f"study.primary: {one}: no two runs of this study differ so"
            whole = all({*of} <= {*levels.get(key, of)} for key, of in factors.items())
            if whole and len(plan.arms) == len(self.design.compared):
                raise ConfigError(line)
            self.left_out.append(f"{line}, as some of its arms are left out")

    def record(self, runs: Mapping[Overrides, Run], rows: Rows, ids: Mapping[Overrides, str]) -> StudyRecord:
        """The record of the study with these runs: its factors with their levels, and all keys that are
        fixed. rows: so far; ids: of all runs so far."""
        config, sweep = self.config, self.sweep
        configs = [self.configs[overrides] for overrides in runs]
        run_ids, seeds = sorted(run.run_id for run in runs.values()), sorted({one.seed for one in configs})
        if sweep.is_single:  # it joins a list of such runs
            own = {"factors": {}, "fixed": {}, "seeds": seeds, "config_dir": sweep.config_dir}
            return StudyRecord(name=configs[0].name or ONE_BY_ONE, kind=ONE_BY_ONE, runs=run_ids, **own)
        of_yaml: dict[str, Any] = {}
        if config:
            of_all = {key.name for key in dataclasses.fields(StudyConfig)}
            of_kind = {key: value for key, value in vars(config).items() if key not in of_all}
            of_yaml = {key: getattr(config, key) for key in DECLARED} | {"declared": of_kind}
        levels = config.levels if config else ()  # also those with one level, since they may grow
        swept = {key for key, of in self.levels.items() if len(of) > 1 or key in levels} - {"seed"}
        factors = {key: [*self.design.levels[key]] for key in self.levels if key in swept}
        free = swept | (config.own_keys if config else set())
        given = self.levels.keys() - swept
        fixed = {
            key: value
            for key, value in values_of(identity_keys(configs[0])).items()
            if key != "seed" and (key in given or not any(key == f or key.startswith(f"{f}.") for f in free))
        }
        roles, chosen = self.design.roles(rows, ids)
        judged = dict[Overrides, list[str]]()
        for run in self.design.reporting(ids, rows):
            judged.setdefault(self.design.arm_of(run), []).append(ids[run])
        return StudyRecord(
            name=configs[0].name or f"sweep-{digest(run_ids)[:8]}",
            kind=(config or StudyConfig).kind,
            factors=factors,
            fixed=fixed,
            seeds=seeds,
            runs=sorted({*run_ids}),
            **of_yaml,
            contrasts=plan.recorded(judged) if (plan := self.design.plan) else [],
            looks=self.design.planned(rows),
            typed=[] if sweep.command else [*plugins.words(), *sweep.typed],
            study=sweep.chosen,
            digest=sweep.digest,
            command=sweep.command,
            config_dir=sweep.config_dir,
            left_out=self.reasons,
            roles=roles,
            chosen=chosen,
        )


def one_of_each(runs: Iterable[R]) -> list[tuple[R, int]]:
    """One run of each variant, with how many there are; runs that differ only in seeds share a spec."""
    variants: dict[int, R] = {}
    counts = Counter[int]()
    for run in runs:
        variants.setdefault(id(run.spec), run)
        counts[id(run.spec)] += 1
    return [(run, counts[spec]) for spec, run in variants.items()]


def values_of(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys, with values as they are after a round trip through JSON."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in flatten(nested).items()}


def read_declared(study: Any) -> StudyConfig:
    """Read the `study` block of a config. Raises ConfigError."""
    if not isinstance(study, Mapping):
        raise ConfigError(f"study={study}: name one of configs/study")
    kind = study.get("kind")
    if not (isinstance(kind, str) and kind in KINDS):
        chosen = f"study.kind={as_override(kind)}"
        near = did_you_mean(str(kind), KINDS)
        raise ConfigError(line_on(chosen) or f"{chosen}: no such kind of study{near}")
    keys = {key: value for key, value in study.items() if key != "kind"}
    if isinstance(arms := keys.get("arms"), Mapping):  # null leaves out one of the file's
        keys["arms"] = {name: arm for name, arm in arms.items() if arm is not None}
    example = f"study={KINDS[kind].example} --cfg job shows a whole one"
    config, given = read(KINDS[kind], keys, "study", missing=example), study.get("arms") or {}
    for contrast in config.primary:
        if gone := [name for _, name in contrast.terms if name in given and name not in config.arms]:
            without = f"study.arms.{gone[0]}=null; give study.primary too, without it"
            raise ConfigError(f"study.primary: {contrast}: {without}")
    return config
