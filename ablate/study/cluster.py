"""Train the runs of a study by helpers on the machines of a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ablate.compose.clusters import Cluster, Slurm
from ablate.compute.cores import available
from ablate.config.rules import ConfigError
from ablate.execution import plugins
from ablate.execution.prepare import placed
from ablate.execution.run import Resolved
from ablate.launch.engines import engine_of
from ablate.launch.phase import Asked, Phase
from ablate.launch.pool import Job
from ablate.launch.sharing import Lost, Sharing
from ablate.live.shared import shared_board
from ablate.phrases import counted
from ablate.store.record import StudyRecord
from ablate.store.store import Store
from ablate.study import machine
from ablate.study.estimate import Estimate, Helpers, Times, total, unfinished
from ablate.study.replicates import one_of_each


@dataclass(frozen=True)
class Ended:
    """How a phase ended. refused: why runs could not begin, by name. lost: why helpers train nothing; empty
    if they did. left_at_work: what the command has submitted without waiting for it; empty if it waited."""

    refused: Mapping[str, str] = field(default_factory=dict)
    lost: str = ""
    left_at_work: str = ""


def share(cluster: Cluster, record: StudyRecord, phase: str, jobs: Sequence[Job]) -> Ended:
    """Keep helpers at the runs until each has a result. Returns why runs could not begin, by name; and, if
    the command does not wait, what is at work. Raises ConfigError, before anything is submitted, for what
    can't be trained there."""
    if record.machine and cluster.cpus_per_task and record.machine.threads > cluster.cpus_per_task:
        raise ConfigError(
            f"hydra.launcher.cpus_per_task={cluster.cpus_per_task}: this study was begun with"
            f" {record.machine.threads} threads; ask for as many cores at least"
        )
    engine = engine_of(cluster)
    engine.require()
    workers = None if cluster.workers == "auto" else cluster.workers
    asked = Asked(cluster.jobs, cluster.cpus_per_task, workers, cluster.asked_threads)
    work = Phase(record.name, phase, asked, plugins.used(), jobs)
    with shared_board(record.name, len(jobs)) as watcher:
        sharing = Sharing(work, engine, Store(), watcher)
        try:
            started = sharing.begin()
            if cluster.wait:
                sharing.wait()
                return Ended(sharing.refused)
        except Lost as error:
            return Ended(sharing.refused, str(error))
        except KeyboardInterrupt:
            sharing.interrupt()
            raise
    at_work = sum(array.at_work for array in sharing.arrays)
    new = counted(started, "job") if started else "no new job"
    told = f"{new} submitted, {at_work} at work or waiting; the same command waits for them"
    return Ended(left_at_work=told)


def of_cluster(
    cluster: Cluster, record: StudyRecord, runs: Sequence[Resolved], forecast: Sequence[str]
) -> Estimate:
    """The estimate for these runs, from timing a few steps on this machine, if they could be trained here."""
    todo = unfinished(runs)
    kinds = one_of_each(todo)
    cores = cluster.cpus_per_task
    threads = record.machine.threads if record.machine else cluster.asked_threads
    threads = threads or (machine.threads_of_helpers(len(todo), todo, cluster.jobs, cores) if todo else 1)
    workers = cluster.workers if cluster.workers != "auto" else max(1, (cores or available()) // threads)
    times, untimed = Times(), ""
    try:
        here = [(placed(run), count) for run, count in kinds]
        times = total(here, threads) if here else times
    except ConfigError as error:
        untimed = str(error)
    limit = cluster.timeout_min * 60.0 if isinstance(cluster, Slurm) else None
    return Estimate(
        record,
        len(runs),
        len(runs) - len(todo),
        min(cluster.jobs * workers, max(1, len(todo))),
        threads,
        times,
        helpers=Helpers(cluster.jobs, cores, limit, untimed),
        forecast=forecast,
    )
