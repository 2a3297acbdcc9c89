"""From the arguments of `ablate run` to a Sweep, by way of Hydra, which only this package uses.

Hydra's overrides, groups, launchers and -m, --cfg job, -cn, -cd work, but Hydra runs nothing: it composes
configs, which are returned.
"""

import argparse
import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import hydra
from hydra import version
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobRuntime, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from ablate.compose.composer import Composer, Overrides, keys_of_a_run, to_run_config
from ablate.compose.configs import configs_dir
from ablate.compose.loading import Loader, without
from ablate.compose.private import Callbacks
from ablate.compose.refusals import KEY, LAUNCHER, check_overrides, explained, parse
from ablate.config.read import read, require_text
from ablate.config.rules import AtLeast, AtMost, ConfigError, Rule, did_you_mean
from ablate.config.schema import RunConfig
from ablate.printing import put

# How the words begin that hold for all runs of a sweep.
OF_ALL = ("study=", "study.", "name=", "hydra")
# Libraries whose errors mean that the launcher as a whole failed.
LIBRARIES = ("joblib", "submitit", "ray")


class LauncherFailed(ConfigError):
    """A launcher failed as a whole: a process died, or it could not start."""


Number = Annotated[
    Annotated[int, AtLeast(1), AtMost(1024)] | None,
    Rule(
        read=lambda value, path: None if value == "auto" else value,  # which leaves the choice to ablate
        text="use auto or a whole number from 1 to 1024",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Worker processes on this machine. workers: how many; threads: of each; members: how many runs of equal
    shapes are trained as one, at most; None for many on a GPU, and one elsewhere."""

    workers: Number = None
    threads: Number = None
    members: Number = None
    cores_each: ClassVar[None] = None  # runs share this machine's


TARGET = f"{Pool.__module__}.{Pool.__name__}"  # by which a YAML names it; Hydra does not instantiate it


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
        self.launcher.setup(
            hydra_context=self.context, task_function=functools.partial(_do, job), config=self.config
        )
        try:
            returns = self.launcher.launch([list(overrides) for overrides in runs], initial_job_idx=0)
        except EOFError as error:  # a job was killed as it wrote what submitit reads of it
            raise LauncherFailed("a job ended without a result; its log says why") from error
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
    return job(to_run_config(keys_of_a_run(config)))


@dataclass(frozen=True)
class Sweep:
    """What a command line means: a study, a grid (-m), or a single run, a sweep of one. No corpus is open.

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


def compose(args: Sequence[str]) -> Sweep:
    """What these arguments of `ablate run` ask for. Raises ConfigError, and SystemExit once --cfg job has
    shown the config."""
    for word in args:
        require_text(word)
    parsed = parse(args)
    check_overrides(parsed)
    if hydra.__version__.startswith("1.3."):  # its defaults would be those of 1.1; Hydra 1.4 has its own only
        version.setbase("1.3")
    JobRuntime.instance().set("name", "ablate")  # which a config may lack that does not begin with ablate's
    own = None if parsed.config_dir is None else Path(parsed.config_dir)
    if own and not own.is_dir():
        raise ConfigError(f"-cd {own}: there is no such directory; correct it")
    with explained():
        return _sweep(Loader(own), parsed, args)


@contextlib.contextmanager
def own_hydra() -> Iterator[None]:
    """What Hydra keeps for a whole process is ours inside the block, and the caller's again after it."""
    Plugins.instance()  # whose configs would go with the block: they are kept once, as modules are imported
    theirs = Singleton.get_state()
    OmegaConf.clear_resolvers()  # for ours: a program may well have one that evaluates what it is given
    try:
        yield
    finally:
        Singleton.set_state(theirs)


def _sweep(loader: Loader, parsed: argparse.Namespace, typed: Sequence[str]) -> Sweep:
    name, words = parsed.config_name or "config", parsed.overrides
    if parsed.study:  # whose file may leave keys of a study out
        words = [f"++{word}" if word.startswith("study.") else word for word in words]
    # A sweep is composed without the keys of its runs.
    is_single = not (parsed.multirun or parsed.study)
    base = [word for word in words if parsed.cfg or is_single or word.lstrip("+~").startswith(OF_ALL)]
    config = loader.load_configuration(name, base, run_mode=RunMode.RUN)
    if parsed.cfg:
        put(OmegaConf.to_yaml(without(config, "hydra")), end="")
        raise SystemExit(0)
    values: Any = OmegaConf.to_container(without(config, "hydra"))
    study, chosen = values.get("study") or None, config.hydra.runtime.choices.get("study")
    if is_single and (chosen or study):
        raise ConfigError(f"{f'study={chosen}' if chosen else f'-cn {name}'}: a study is a sweep, so add -m")
    if chosen and not (isinstance(study, Mapping) and "kind" in study):
        lines = "write '# @package _global_' as its first line, and a block study: with a kind"
        raise ConfigError(f"study={chosen}: its file declares no study; {lines}")
    arms = study.get("arms") if isinstance(study, Mapping) else None
    if gone := [arm for arm, of in arms.items() if of is None] if isinstance(arms, Mapping) else []:
        others = [word for word in base if not word.lstrip("+").startswith("study.arms")]
        own = loader.load_configuration(name, others, run_mode=RunMode.RUN).study.get("arms") or {}
        for arm in (arm for arm in gone if arm not in own):
            near = did_you_mean(str(arm), own) if own else ", which names none; leave it out"
            raise ConfigError(f"study.arms.{arm}=null: no arm of this study{near}")
    declaring = f"study/{chosen}" if chosen else name
    files = (folder / f"{declaring}.yaml" for folder in (configs_dir(), loader.own) if folder)
    path = next(filter(Path.is_file, files), None)
    of_runs = tuple(word for word in words if not word.lstrip("+~").startswith("hydra"))
    return Sweep(
        configs=Composer(loader, name, keys_of_a_run(config) if is_single else None),
        is_single=is_single,
        launcher=_launcher(loader, config, is_single=is_single),
        name=config.name,
        config_dir=parsed.config_dir,
        typed=tuple(typed),
        arguments=() if is_single else of_runs,
        study=study,
        chosen=chosen,
        digest=hashlib.sha256(path.read_bytes()).hexdigest() if study and path else "",
    )


def _launcher(loader: Loader, config: DictConfig, *, is_single: bool) -> Pool | HydraLauncher:
    """The launcher; of a single run always the pool, with a worker."""
    node = config.hydra.launcher or {}
    settings = {str(key): value for key, value in node.items() if key != "_target_"}
    target = node.get("_target_")
    if is_single or target == TARGET:
        given = settings if target == TARGET else {}  # Hydra's have no effect on a single run
        return read(Pool, given | ({"workers": 1} if is_single else {}), KEY)
    installed = {f"{one.__module__}.{one.__name__}": one for one in Plugins.instance().discover(Launcher)}
    if target not in installed:
        raise ConfigError(f"{KEY}._target_={target}: no launcher that is installed; choose {LAUNCHER}=NAME")
    launcher: Any = installed[target](**settings)
    return HydraLauncher(launcher, config, HydraContext(loader, Callbacks()))
