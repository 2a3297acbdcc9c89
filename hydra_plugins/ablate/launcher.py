"""Hydra finds plugins only below hydra_plugins: this one hands the runs over to ablate.launch."""

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class PoolLauncher(Launcher):
    """Long-lived worker processes on this machine.

    workers, threads: a number or `auto`; timeout: seconds a run may take, or None.
    """

    def __init__(self, workers: Any = "auto", threads: Any = "auto", timeout: Any = None) -> None:
        self.given = (workers, threads, timeout)

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from ablate.compose.hydra_app import current  # Hydra imports every plugin, even for --help
        from ablate.launch import server
        from ablate.launch.settings import settings

        self.config = config
        self.hydra_context = hydra_context
        self.workers, self.threads, self.timeout = settings(*self.given)
        if not current.get().dry_run:  # which times steps, and makes no run
            server.start()

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from ablate.compose.hydra_app import current
        from ablate.compose.variants import to_run_config
        from ablate.compute.cores import side_by_side, threads_each
        from ablate.config.rules import ConfigError
        from ablate.launch.pool import Job, run_jobs
        from ablate.live.progress import board

        assert self.config is not None and self.hydra_context is not None
        request, loader = current.get(), self.hydra_context.config_loader
        configs = [
            request.composed.get(tuple(overrides))
            or to_run_config(loader.load_sweep_config(self.config, list(overrides)))
            for overrides in job_overrides
        ]
        jobs = [Job.of(config) for config in configs]
        dearest = max(job.cost / job.config.train.steps for job in jobs)
        threads = request.threads or self.threads or threads_each(len(jobs), dearest)
        workers = self.workers or side_by_side(threads)
        with board(jobs, workers) as watcher:
            refused = run_jobs(
                jobs, workers=workers, threads=threads, timeout_s=self.timeout, watcher=watcher
            )
        returns = []
        for index, overrides in enumerate(job_overrides):
            failed = index in refused
            done = JobReturn(overrides=overrides, status=JobStatus.FAILED if failed else JobStatus.COMPLETED)
            done.return_value = ConfigError(refused[index]) if failed else None
            returns.append(done)
        return returns
