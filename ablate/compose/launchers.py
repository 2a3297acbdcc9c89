"""Where runs are trained, according to `hydra.launcher`: by ablate's own pool or by a launcher of Hydra's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hydra.core.utils import JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import DictConfig

from ablate.compose.clusters import CLUSTERS, Cluster
from ablate.compose.variants import Overrides, to_run_config
from ablate.config.read import read
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig

# Libraries whose errors mean that the launcher as a whole failed: a process died, or it could not start.
LIBRARIES = ("joblib", "submitit", "ray")


class Lost(ConfigError):
    """A launcher failed as a whole."""


@dataclass(frozen=True)
class Pool:
    """Worker processes on this machine. None leaves a value to ablate's choice."""

    at_once: int | None
    asked_threads: int | None
    timeout_s: float | None
    cores_each: ClassVar[None] = None  # its runs share the cores of this machine


def pool(workers: Any = "auto", threads: Any = "auto", timeout: Any = None) -> Pool:
    """The Pool for the values of hydra.launcher.workers, .threads and .timeout. Raises ConfigError."""
    return Pool(_count("workers", workers), _count("threads", threads), _seconds(timeout))


def own(name: str, given: Mapping[str, Any]) -> Pool | Cluster:
    """One of ablate's own launchers, from the values of hydra.launcher. Raises ConfigError."""
    return pool(**given) if name == "pool" else read(CLUSTERS[name], given, "hydra.launcher")


@dataclass(frozen=True)
class HydraLauncher:
    """A launcher of Hydra's, such as basic, joblib, submitit or ray."""

    launcher: Launcher
    config: DictConfig
    context: HydraContext
    asked_threads: ClassVar[None] = None  # Hydra's launchers do not set them

    @property
    def at_once(self) -> int | None:
        """How many runs it is configured to run at once; None for as many as the cores serve."""
        if type(self.launcher).__name__ == "BasicLauncher":  # Hydra imports its module twice: no isinstance
            return 1
        told = getattr(self.launcher, "joblib", {}).get("n_jobs")
        return told if told and told > 0 else None  # for joblib, -1 means every core

    @property
    def cores_each(self) -> int | None:
        """The cores of each run where it has its own, as in SLURM; None where runs share this machine's."""
        if getattr(self.launcher, "_EXECUTOR", "") != "slurm":
            return None
        return getattr(self.launcher, "params", {}).get("cpus_per_task") or 1

    def launch(self, job: Callable[[RunConfig], Any], runs: Sequence[Overrides]) -> dict[int, str]:
        """Train the runs; returns, by index, the reason for each run that could not even begin.

        job: trains one run; it is pickled, as the launcher may call it in another process, where it composes
        the run again from its overrides. Raises Lost.
        """
        # A second setup: when Hydra made the sweeper, which did the first, the job was not known yet.
        self.launcher.setup(hydra_context=self.context, task_function=_Task(job), config=self.config)
        try:
            returns = self.launcher.launch([list(overrides) for overrides in runs], initial_job_idx=0)
        except Exception as error:
            library = type(error).__module__.partition(".")[0]
            if library not in LIBRARIES:
                raise
            raise Lost(f"{library}: {str(error).strip().partition(chr(10))[0]}") from error
        return {
            index: str(done._return_value)
            for index, done in enumerate(returns)
            if done.status == JobStatus.FAILED
        }


@dataclass(frozen=True)
class _Task:
    """The task function that Hydra calls with the config of a run."""

    job: Callable[[RunConfig], Any]

    def __call__(self, config: DictConfig) -> Any:
        return self.job(to_run_config(config))


def _count(key: str, value: Any) -> int | None:
    if value == "auto":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1024:
        return value
    raise ConfigError(f"hydra.launcher.{key}={value}: use auto or a whole number from 1 to 1024")


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf"):
        return float(value)
    raise ConfigError(
        f"hydra.launcher.timeout={value}: use a number of seconds above 0, or null for no limit"
    )
