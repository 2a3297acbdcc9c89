"""From the arguments of `ablate run` to a Sweep, by way of Hydra, which only this package uses.

All of Hydra's command line works (overrides, groups, -m, --cfg, --info, -cn, -cd, launchers), but Hydra runs
nothing: it composes configs, which are returned.
"""

import argparse
import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import hydra
from hydra import version
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobRuntime, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.basecontainer import BaseContainer

from ablate.compose.composer import Composer, Overrides, to_run_config
from ablate.compose.configs import configs_dir, offered, own_configs
from ablate.compose.launchers import KEY, TARGET, Pool
from ablate.compose.loading import Loader
from ablate.compose.private import Callbacks, Hydra, create_config_search_path
from ablate.compose.refusals import (
    check_overrides,
    chooses_a_study,
    explained,
    hydra_parser,
    only_of_the_pool,
    parse,
    sets_the_mode,
)
from ablate.compose.texts import as_written
from ablate.config.read import read, require_text
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.printing import put

# Libraries whose errors mean that the launcher as a whole failed.
LIBRARIES = ("joblib", "submitit", "ray")


class LauncherFailed(ConfigError):
    """A launcher failed as a whole: a process died, or it could not start."""


@dataclass(frozen=True)
class HydraLauncher:
    """A launcher of Hydra's, such as basic, joblib, submitit or ray."""

    launcher: Launcher
    config: DictConfig
    context: HydraContext
    threads: ClassVar[None] = None  # Hydra's launchers do not set them
    members: ClassVar[int] = 1  # each trains a run at a time

    @property
    def workers(self) -> int | None:
        """How many runs it is configured to run at once; None for as many as the cores serve."""
        if type(self.launcher).__name__ == "BasicLauncher":  # Hydra imports its module twice: no isinstance
            return 1
        n_jobs = getattr(self.launcher, "joblib", {}).get("n_jobs")
        return n_jobs if n_jobs and n_jobs > 0 else None  # for joblib, -1 means every core

    @property
    def cores_each(self) -> int | None:
        """The cores of each run where it has its own, as in SLURM; None where runs share this machine's."""
        if getattr(self.launcher, "_EXECUTOR", "") != "slurm":
            return None
        return getattr(self.launcher, "params", {}).get("cpus_per_task") or 1

    def launch(self, job: Callable[[RunConfig], Any], runs: Sequence[Overrides]) -> dict[int, str]:
        """Train the runs; returns, by index, the reason for each run that could not even begin.

        job: trains one run; it is pickled, as the launcher may call it in another process, where it composes
        the run again from its overrides. Raises LauncherFailed.
        """
        # A second setup: when Hydra made the launcher, and did the first, the job was not known yet.
        self.launcher.setup(
            hydra_context=self.context, task_function=functools.partial(_do, job), config=self.config
        )
        try:
            returns = self.launcher.launch([list(overrides) for overrides in runs], initial_job_idx=0)
        except Exception as error:
            library = type(error).__module__.partition(".")[0]
            if library not in LIBRARIES:
                raise
            raise LauncherFailed(f"{library}: {str(error).strip().partition(chr(10))[0]}") from error
        return {
            index: str(done._return_value)
            for index, done in enumerate(returns)
            if done.status == JobStatus.FAILED
        }


def _do(job: Callable[[RunConfig], Any], config: DictConfig) -> Any:
    """What Hydra calls with the config of a run."""
    return job(to_run_config(config))


@dataclass(frozen=True)
class Sweep:
    """What a command line means: a study, a grid (-m), or a single run, which is a sweep of one. No corpus is
    open yet.

    configs: maps the overrides of a run to its RunConfig. name: the value of `name`, from the command or a
    config. config_dir: the value of -cd. typed: the arguments, as one would type them to repeat the command.
    arguments: the overrides, some with several values; none for a single run, whose config is composed.
    study: the block that declares the study, as plain values; None for a plain grid. chosen: NAME of
    study=NAME. digest: the SHA-256 of the file that declares the study. command: what one would type to
    repeat it, if it is not `ablate run`.
    """

    configs: Composer
    is_single: bool
    launcher: Pool | HydraLauncher
    name: str | None
    config_dir: str | None
    typed: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    study: Mapping[str, Any] | None = None
    chosen: str | None = None
    digest: str = ""
    command: str = ""


def compose(args: Sequence[str]) -> Sweep | None:
    """What these arguments of `ablate run` ask for; None if they only show something, as --cfg does.

    Raises ConfigError.
    """
    for word in args:
        require_text(word)
    parsed = parse(args)
    overrides = check_overrides(parsed)
    with explained(overrides), _hydra(parsed) as hydra:
        if parsed.cfg or parsed.info or parsed.hydra_help:
            return _show(hydra, parsed)
        # What a swept choice brings, as fusion.per with fusion=gated,weighted_sum: Hydra asks concat.
        swept = {override.key_or_group for override in overrides if override.is_sweep_override()}
        below = [one for one in overrides if "." in one.key_or_group]
        brought = [str(one.input_line) for one in below if one.key_or_group.partition(".")[0] in swept]
        return _sweep(hydra, parsed, brought)


@contextlib.contextmanager
def own_hydra() -> Iterator[None]:
    """What Hydra keeps for a whole process is ours inside the block, and the caller's again after it."""
    kept, resolvers = Singleton._instances, BaseContainer._resolvers
    of_an_app = (JobRuntime, version.VersionBase)
    theirs = {cls: kept.pop(cls) for cls in of_an_app if cls in kept}
    OmegaConf.clear_resolvers()  # for ours: a program may well have one that evaluates what it is given
    try:
        yield
    finally:
        BaseContainer._resolvers = resolvers
        for cls in of_an_app:
            kept.pop(cls, None)
        kept.update(theirs)
        for kind, name in offered:
            ConfigStore.instance().repo[kind].pop(f"{name}.yaml", None)


@contextlib.contextmanager
def _hydra(parsed: argparse.Namespace) -> Iterator[Hydra]:
    """Hydra, set up as `hydra.main` does it. See: hydra/_internal/utils.py, _run_hydra."""
    if hydra.__version__.startswith("1.3."):  # its defaults would be those of 1.1; Hydra 1.4 has its own only
        version.setbase("1.3")
    path = configs_dir() if parsed.config_path is None else Path(parsed.config_path).absolute()
    search_path = create_config_search_path(str(path))
    if parsed.config_dir is not None:
        own = own_configs(parsed.config_dir).absolute()
        search_path.prepend("command-line", str(own), SearchPathQuery(provider="schema"))
    yield Hydra("ablate", Loader(search_path))  # not as GlobalHydra, which is the caller's


def _show(hydra: Hydra, parsed: argparse.Namespace) -> None:
    name, overrides = parsed.config_name or "config", _overrides(parsed)
    config = hydra.compose_config(name, overrides, run_mode=RunMode.RUN)  # refuses what must not be said
    if parsed.hydra_help:
        shown = hydra.get_sanitized_hydra_cfg(config)
        put(hydra.get_help(config.hydra.hydra_help, shown, hydra_parser(), resolve=False))
    elif parsed.cfg:
        part, shown = parsed.package, hydra.get_sanitized_cfg(config, parsed.cfg)
        if part not in (None, "_global_") and OmegaConf.select(shown, part) is None:
            raise ConfigError(f"--package {part}: it is not set; see ablate run --cfg {parsed.cfg}")
        hydra.show_cfg(name, overrides, parsed.cfg, parsed.package, parsed.resolve)
    else:
        hydra.show_info(parsed.info, name, overrides)


def _sweep(hydra: Hydra, parsed: argparse.Namespace, of_choices: Sequence[str]) -> Sweep:
    """of_choices: the overrides that Hydra can't apply before a run has chosen from their group."""
    name, sweeps = parsed.config_name or "config", parsed.multirun or chooses_a_study(parsed.overrides)
    overrides = [override for override in _overrides(parsed) if override not in of_choices]
    mode = RunMode.MULTIRUN if sweeps or sets_the_mode(parsed.overrides) else RunMode.RUN
    config = hydra.compose_config(name, overrides, run_mode=mode)
    wanted = RunMode.MULTIRUN if sweeps else config.hydra.mode or RunMode.RUN
    if wanted != mode:  # set by a user's config or by hydra.mode=
        config = hydra.compose_config(name, overrides, run_mode=wanted)
    is_single, chosen = wanted != RunMode.MULTIRUN, config.hydra.runtime.choices.get("study")
    sweep = Sweep(
        configs=Composer(config, hydra.config_loader, parsed.overrides, is_whole=is_single),
        is_single=is_single,
        launcher=_launcher(hydra, config, is_single=is_single),
        name=config.name,
        config_dir=parsed.config_dir,
        typed=(*_typed(parsed), *parsed.typed),
    )
    if is_single and chosen:
        raise ConfigError(f"study={chosen}: a study is a sweep, so add -m")
    if is_single:
        for word in parsed.overrides:
            if word.lstrip("+").startswith("hydra.sweeper."):
                raise ConfigError(f"{word}: a single run sweeps over nothing; add -m, or leave it out")
        return sweep
    # That of a config comes first, so that the command line has the last word.
    of_config = (as_written(f"{key}={of}") for key, of in _plain(config.hydra.sweeper.params or {}).items())
    arguments = (*of_config, *_plain(config.hydra.overrides.task), *of_choices)
    study = _plain(config.get("study")) or None
    if chosen and not (isinstance(study, Mapping) and "kind" in study):
        raise ConfigError(
            f"study={chosen}: its file declares no study; write '# @package _global_' as its first line, and"
            " a block study: with a kind"
        )
    digest = ""
    if study:
        assert isinstance(hydra.config_loader, Loader)
        declaring = hydra.config_loader.repository.load_config(f"study/{chosen}" if chosen else name)
        digest = hashlib.sha256(Path(declaring.path).read_bytes()).hexdigest() if declaring else ""
    return replace(sweep, arguments=arguments, study=study, chosen=chosen, digest=digest)


def _overrides(parsed: argparse.Namespace) -> list[str]:
    """The overrides for Hydra. A study runs as a sweep even if its file does not say so, and study.KEY may
    set keys that its file leaves out."""
    if not chooses_a_study(parsed.overrides):
        return parsed.overrides
    overrides = ["++" + o if o.startswith("study.") else o for o in parsed.overrides]
    return ["hydra.mode=MULTIRUN", *overrides]


def _launcher(hydra: Hydra, config: DictConfig, *, is_single: bool) -> Pool | HydraLauncher:
    """The launcher; of a single run always the pool, with a worker."""
    given = {**_plain(config.hydra.launcher or {})}
    is_own = given.pop("_target_", "") == TARGET
    if is_single:
        return read(Pool, {**(given if is_own else {}), "workers": 1}, KEY)  # Hydra's have no effect on it
    if is_own:
        return read(Pool, given, KEY)
    if "members" in given:  # joblib's would take it and do nothing
        chosen = config.hydra.runtime.choices["hydra/launcher"]
        raise ConfigError(only_of_the_pool(f"{KEY}.members", f"hydra/launcher={chosen}"))
    context = HydraContext(hydra.config_loader, Callbacks())
    launcher = Plugins.instance().instantiate_launcher(context, to_run_config, config)
    return HydraLauncher(launcher, config, context)


def _plain(node: Any) -> Any:
    return OmegaConf.to_container(node) if OmegaConf.is_config(node) else node


def _typed(parsed: argparse.Namespace) -> list[str]:
    """The options that precede the overrides, as one would type them again."""
    values = {"-cd": parsed.config_dir, "-cp": parsed.config_path, "-cn": parsed.config_name}
    given = [word for option, value in values.items() if value is not None for word in (option, value)]
    return [*given, *(["-m"] if parsed.multirun else [])]
