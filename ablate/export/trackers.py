"""Stored runs in TensorBoard, W&B, Trackio or MLflow: settings, curves and results.

A run is written under a name that begins with `part-`, and gets its own once it is whole. So what is there
under its own name is skipped, and what an interrupted export left is written anew.
"""

import contextlib
import io
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ablate.config.extras import require
from ablate.config.rules import ConfigError, as_value, flatten
from ablate.files import owned
from ablate.files.atomic import digest
from ablate.phrases import counted
from ablate.store.columns import METRICS, Status
from ablate.store.record import ONE_BY_ONE
from ablate.store.run_files import Damaged, read_config, read_finished, read_metrics
from ablate.store.store import Store

FACTS = ("run_id", "status", "error", "corpus", "torch", "ablate", "device", "processor")
PART = owned.PART
PATIENCE_S = 30  # for a server that does not answer


class StoredRun(NamedTuple):
    """A run as trackers take it. name: of its directory, which ends in its id. settings: by key as typed, and
    facts as `ablate.status`. points: a step, and what was measured at it; last the results, as
    `final/val_loss`."""

    name: str
    settings: Mapping[str, str | int | float]
    points: list[tuple[int, dict[str, float]]]


class Tracker(NamedTuple):
    """One study in a tracker. place: as printed. there: the runs that it has, by name. write: one more."""

    place: str
    there: Mapping[str, Any]
    write: Callable[[StoredRun], None]


def export(target: str, to: str, out: str | None) -> str:
    """Write a study's runs, or one run, into a tracker; returns a line on them.

    target: a study by its name, or a run by a prefix of its id or name. to: a key of TRACKERS. out: a
    directory, for MLflow also an address; by default exports/TRACKER beside the results. Raises ConfigError.
    """
    store = Store()
    if target in store.study_names():
        study, ids = target, [row["run_id"] for row in store.study_rows(target)]
        directories = [*store.directories(ids).values()]
    else:
        directories = [store.find(target)]
        run_id, records = read_finished(directories[0])["run_id"], store.studies().items()
        study = next((name for name, record in records if run_id in record.runs), ONE_BY_ONE)
    named = os.environ.get("MLFLOW_TRACKING_URI") if to == "mlflow" else None
    place, became = out or named or str(store.root / "exports" / to), Counter[str]()
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # on which some say where they write
            tracker = TRACKERS[to](study, place)
            for directory in directories:
                if directory.name in tracker.there:
                    became["there already"] += 1
                elif run := _read(directory):
                    tracker.write(run)
                    became["new"] += 1
                else:
                    became["left out, as not done"] += 1
    except ConfigError:
        raise
    except Exception as error:  # of a tracker's, which may be any
        reason = _without_password(" ".join(str(error).split())) or type(error).__name__
        written = counted(became["new"], "run")
        raise ConfigError(
            f"--to {to}: {reason[:300]}; {written} written, the same command goes on"
        ) from error
    counts = ", ".join(f"{count} {what}" for what, count in became.items())
    return f"{to}: {study} in {tracker.place}: {counts or 'no run has ended'}"


def _without_password(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", text)


def _read(directory: Path) -> StoredRun | None:
    """A run that ended done or diverged, else None."""
    try:
        row = read_finished(directory, thorough=True)
    except Damaged:
        return None
    if row["status"] not in (Status.DONE, Status.DIVERGED):
        return None
    config = {key: value for key, value in flatten(read_config(directory)).items() if value is not None}
    settings = {key: v if isinstance(v, str | int | float) else as_value(v) for key, v in config.items()}
    facts = {f"ablate.{key}": str(row[key]) for key in FACTS if row.get(key) not in (None, "")}
    points = [(int(point.pop("step")), point) for point in read_metrics(directory)]
    final = {f"final/{key}": row[key] for key in METRICS if isinstance(row.get(key), int | float)}
    return StoredRun(directory.name, settings | facts, [*points, (points[-1][0] if points else 0, final)])


def tensorboard(study: str, out: str) -> Tracker:
    """A directory a run, OUT/STUDY/NAME, with scalars and the HParams tab."""
    require("--to tensorboard", "tensorboard", extra="tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    place = _made(f"{out}/{study}")
    for left in place.glob(f"{PART}*"):  # by an export that was killed
        owned.drop(left)

    def write(run: StoredRun) -> None:
        with owned.scratch(place) as part:
            with SummaryWriter(str(part / run.name)) as writer:
                for step, values in run.points:
                    for name, value in values.items():
                        writer.add_scalar(name, value, step)
                step, final = run.points[-1]
                writer.add_hparams(dict(run.settings), final, run_name=".", global_step=step)
            owned.rename_onto_free(part / run.name, place / run.name)

    return Tracker(out, dict.fromkeys(os.listdir(place)), write)


def wandb(study: str, out: str) -> Tracker:
    """A group a study, in WANDB_PROJECT. With WANDB_MODE=offline every run in OUT, each time under one id."""
    require("--to wandb", "wandb", extra="wandb")
    module, is_offline = import_module("wandb"), os.environ.get("WANDB_MODE") == "offline"
    project = os.environ.get("WANDB_PROJECT", "ablate")
    runs = (
        {} if is_offline else _named(lambda: module.Api(timeout=PATIENCE_S).runs(project, {"group": study}))
    )
    settings = module.Settings(silent=True, console="off", init_timeout=PATIENCE_S, x_disable_stats=True)
    about = {"project": project, "group": study, "settings": settings, "dir": _made(out)}

    def write(run: StoredRun) -> None:
        same = digest([study, run.name])[:16] if is_offline else None
        with _logged(module, runs, run, id=same, **about) as made:
            made.name = run.name

    return Tracker(out if is_offline else f"project {project}", runs, write)


def trackio(study: str, out: str) -> Tracker:
    """A project a study, in a database in OUT, which its dashboard reads without a server."""
    require("--to trackio", "trackio", extra="trackio")
    os.environ["TRACKIO_DIR"] = str(Path(out).resolve())  # which it reads as it is imported
    module = import_module("trackio")
    runs = _named(lambda: module.Api().runs(study))

    def write(run: StoredRun) -> None:
        with _logged(module, runs, run, project=study, embed=False, auto_log_gpu=False, auto_log_cpu=False):
            pass
        _named(lambda: module.Api().runs(study))[PART + run.name].rename(new_name=run.name)

    return Tracker(out, runs, write)


def _named(runs: Callable[[], Any]) -> dict[str, Any]:
    """The runs of W&B or of Trackio by name; none where there is no such project yet."""
    with contextlib.suppress(ValueError):
        return {run.name: run for run in runs()}
    return {}


@contextlib.contextmanager
def _logged(module: Any, there: Mapping[str, Any], run: StoredRun, **about: Any) -> Iterator[Any]:
    """A run of W&B or of Trackio that has all of this one; it ends with the block, when all is written."""
    if half := there.get(PART + run.name):
        half.delete()
    made = module.init(name=PART + run.name, config=dict(run.settings), **about)
    try:
        for step, values in run.points:
            made.log(values, step=step)
        yield made
    finally:
        module.finish()


def mlflow(study: str, out: str) -> Tracker:
    """An experiment a study, in OUT/mlflow.db or, if OUT is an address, at that server."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(PATIENCE_S))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # or it waits for minutes
    for needed in ("mlflow", "sqlalchemy", "alembic"):
        require("--to mlflow", needed, extra="mlflow")
    module = import_module("mlflow")
    for chatty in ("mlflow", "alembic"):
        logging.getLogger(chatty).setLevel(logging.ERROR)
    module.set_tracking_uri(out if "://" in out else f"sqlite:///{_made(out).absolute()}/mlflow.db")
    experiment = module.set_experiment(study).experiment_id
    runs = module.search_runs([experiment], output_format="list")
    there = {run.info.run_name: run.info.run_id for run in runs}

    def write(run: StoredRun) -> None:
        if half := there.get(PART + run.name):
            module.delete_run(half)
        with module.start_run(run_name=PART + run.name):
            module.log_params(run.settings)
            for step, values in run.points:
                module.log_metrics(values, step)
            module.set_tag("mlflow.runName", run.name)

    return Tracker(_without_password(out), there, write)


def _made(directory: str) -> Path:
    Path(directory).mkdir(parents=True, exist_ok=True)
    return Path(directory)


TRACKERS = {tracker.__name__: tracker for tracker in (mlflow, tensorboard, trackio, wandb)}
