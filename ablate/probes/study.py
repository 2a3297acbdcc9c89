"""Probe the runs of a study and write the values to a CSV beside its results."""

import functools
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import torch

from ablate.analysis.probes import COLUMNS, read
from ablate.compute.cores import available
from ablate.config.rules import ConfigError
from ablate.execution import plugins
from ablate.execution.kept import in_float64, prepared, weights_by_step, weights_of
from ablate.files.atomic import write_atomically
from ablate.launch import server
from ablate.probes.measure import measure
from ablate.store.run_files import read_started, weights_on_the_way
from ablate.store.status import Status, status_now


def probe_run(
    directory: Path, run_id: str, *, prune: bool = False, each: Callable[..., Iterable[pd.DataFrame]] = map
) -> pd.DataFrame:
    """The probes of one finished run, as COLUMNS: of the trained model and of intermediate weights, if it
    kept any, with the values of the untrained model beside them. Raises ConfigError if the run kept no
    weights, or if there is too little text.

    each: measures the models, as `map` does.
    """
    if status_now(read_started(directory)) == Status.STALE:
        reason = "other code or another torch made it, so what it began as is not known"
        raise ConfigError(f"{directory.name}: {reason}; train it again with force=stale, or take another")
    weights_of(directory)  # refuses a run that kept none
    run = prepared(directory)
    if prune and sum(spec.heads * layers for spec, layers in run.spec.kinds.values()) > MOST_PRUNED:
        raise ConfigError(f"--prune: {run.name} has more than {MOST_PRUNED} heads; leave it out here")
    steps = [UNTRAINED, *weights_on_the_way(directory), run.config.train.steps]
    untrained, *tables = each(functools.partial(_measured, directory, prune=prune), steps)
    place = ["layer", "head", "probe"]
    twin = untrained[[*place, "value"]].rename(columns={"value": "untrained"})
    table = pd.concat(tables, ignore_index=True).merge(twin, "left", on=place)
    return table.assign(run_id=run_id)[[*COLUMNS]]


def _measured(directory: Path, step: int, *, prune: bool) -> pd.DataFrame:
    """Of the model of a run as it was after this step."""
    run = prepared(directory)
    model, last = in_float64(run), step == run.config.train.steps
    if last:
        model.load_state_dict(weights_of(directory))
    elif step != UNTRAINED:
        model.load_state_dict(dict(weights_by_step(directory))[step])
    briefly = not last and step != UNTRAINED
    values = measure(run, model, prune=prune and last, briefly=briefly, ranges=step != UNTRAINED)
    return _table(values).assign(step=step)


def probe_runs(
    directories: Mapping[str, Path], path: Path, *, prune: bool, told: Callable[[str], None]
) -> pd.DataFrame:
    """Probe these runs, given by run_id, with one process per core. `path` is written after each run, and
    keeps the values of other runs.

    told: called with a line for each run, also for one that can't be probed. Raises ConfigError if none can.
    """
    before = read(path) if path.exists() else pd.DataFrame(columns=[*COLUMNS])
    parts = [before[~before["run_id"].isin([*directories])]]
    for number, (name, found) in enumerate(_each(directories, prune=prune), 1):
        if isinstance(found, ConfigError):
            told(f"[{number}/{len(directories)}] {found}")
            continue
        parts.append(found)
        told(f"[{number}/{len(directories)}] {name}")
        _write(path, parts)
    if len(parts) == 1:
        raise ConfigError("none of the runs could be probed, for the reasons above")
    return pd.concat(parts[1:], ignore_index=True)


def _each(
    directories: Mapping[str, Path], *, prune: bool
) -> Iterator[tuple[str, pd.DataFrame | ConfigError]]:
    """The name of each run with its values, or with the reason why it has none, in order of completion. A
    process measures a run, or a model of a run that is alone."""
    alone = len(directories) == 1
    workers = min(2 if alone else len(directories), available())
    if workers == 1:
        yield from (_probed(item, prune=prune) for item in directories.items())
        return
    pool = ProcessPoolExecutor(workers, server.context(), _begin, (plugins.used(),))
    try:
        with server.as_workers_begin(), server.without_main():
            if alone:
                yield from (_probed(item, prune=prune, each=pool.map) for item in directories.items())
                return
            probe = functools.partial(_probed, prune=prune)
            futures = [pool.submit(probe, item) for item in directories.items()]
        yield from (future.result() for future in as_completed(futures))
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(used: Sequence[plugins.Plugin]) -> None:
    """Set up a worker: one thread, as other workers use the other cores; Ctrl-C is left to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    plugins.install(used)


def _probed(
    item: tuple[str, Path], *, prune: bool, each: Callable[..., Iterable[pd.DataFrame]] = map
) -> tuple[str, pd.DataFrame | ConfigError]:
    run_id, directory = item
    try:
        return directory.name, probe_run(directory, run_id, prune=prune, each=each)
    except ConfigError as error:
        return directory.name, ConfigError(str(error))


UNTRAINED = -1  # the step of the model before training
MOST_PRUNED = 64  # the most heads to prune, as the cost is quadratic in their number


def _table(values: Iterable) -> pd.DataFrame:
    numbers = dict.fromkeys(("value", "null", "low", "high"), float)
    return pd.DataFrame([asdict(value) for value in values]).astype({"head": "Int64", **numbers})


def _write(path: Path, parts: list[pd.DataFrame]) -> None:
    table = pd.concat([part for part in parts if len(part)], ignore_index=True)
    write_atomically(Path(os.path.realpath(path)), table.to_csv(index=False, lineterminator="\n").encode())
