"""Where runs are to be made, as `hydra.launcher` says: on ablate's own pool, or by a launcher of Hydra's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hydra.core.utils import JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import DictConfig

from ablate.compose.variants import Overrides, to_run_config
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig

# Whose errors are of a launcher as a whole: a process of it died, or it could not begin.
LIBRARIES = ("joblib", "submitit", "ray")


class Lost(ConfigError):
    """A launcher did not end as it should."""


@dataclass(frozen=True)
class Pool:
    """Worker processes on this machine. None leaves the choice to it."""

    at_once: int | None
    threads: int | None
    timeout_s: float | None
    cores_each: ClassVar[None] = None  # its runs share those of this machine


def pool(workers: Any, threads: Any, timeout: Any) -> Pool:
    """From the values of hydra.launcher.workers, .threads and .timeout. Raises ConfigError."""
    return Pool(_count("workers", workers), _count("threads", threads), _seconds(timeout))


@dataclass(frozen=True)
class HydraLauncher:
    """A launcher of Hydra's, such as basic, joblib, submitit or ray."""

    launcher: Launcher
    config: DictConfig
    context: HydraContext
    threads: ClassVar[None] = None  # it has no say in them

    @property
    def at_once(self) -> int | None:
        """How many runs it was told to make side by side; None for as many as the cores serve."""
        if type(self.launcher).__name__ == "BasicLauncher":  # of a module that Hydra loads once more
            return 1
        told = getattr(self.launcher, "joblib", {}).get("n_jobs")
        return told if told and told > 0 else None  # joblib counts from below: -1 is every core

    @property
    def cores_each(self) -> int | None:
        """Of a run that has its own, as a job of SLURM has; None where runs share those of this machine."""
        if getattr(self.launcher, "_EXECUTOR", "") != "slurm":
            return None
        return getattr(self.launcher, "params", {}).get("cpus_per_task") or 1

    def launch(self, job: Callable[[RunConfig], Any], runs: Sequence[Overrides]) -> dict[int, str]:
        """Make the runs; returns why, by index, for those that could not even begin.

        job: makes one run, in whichever process, so it can be pickled. There the launcher composes the run
        again, from its overrides. Raises Lost.
        """
        # Again: the sweeper that Hydra made did it before anybody knew the job.
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
    """What Hydra calls with the config of a run."""

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
