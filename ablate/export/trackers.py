"""Runs in TensorBoard, W&B, Trackio or MLflow: settings, curves and results; as they go, or from the store.

Except in W&B a run is written under a name that begins with `part-`, and gets its own once it is whole. So
what is there under its own name is skipped, and what an interrupted export left is written anew.
"""

import contextlib
import functools
import io
import logging
import os
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ablate.config.rules import ConfigError, as_value, flatten, line_on
from ablate.export import TRACK
from ablate.files import owned
from ablate.files.atomic import digest, locked
from ablate.phrases import counted, lines_if
from ablate.store.columns import METRICS, Status
from ablate.store.record import ONE_BY_ONE
from ablate.store.rows import short_id
from ablate.store.run_files import Damaged, read_config, read_finished, read_metrics, read_started
from ablate.store.store import Store
from ablate.training.events import Evaluation, Listener, News

FACTS = ("run_id", "corpus", "torch", "ablate", "device", "processor")  # known as a run begins
PART = "part-"  # prefix of a run that is not whole yet
UNSAID = re.compile(r"(?<=//)[^/@\s]*@|\?\S+")  # of an address: passwords, and what differs from run to run
PATIENCE_S = 30  # for a server that does not answer
AFTERWARDS = "runs go on without, and ablate export --to {0} writes them afterwards"

Point = tuple[int, dict[str, float]]  # a step, and what was measured at it
Settings = dict[str, str | int | float]  # by key as typed, and facts as `ablate.device`
Log = Callable[[int, Mapping[str, float]], None]


class Tracker(NamedTuple):
    """One study in a tracker. place: as printed. there: the names of runs that it has. open: one more, which
    is logged in the block. look: how to see the study; empty at a server."""

    place: str
    there: Collection[str]
    open: Callable[[str, Settings], contextlib.AbstractContextManager[Log]]
    look: str = ""

    def line(self, what: str) -> str:
        """What is in the tracker, and how to see it."""
        return "; ".join([what, *lines_if(self.look, self.look)])


def export(target: str, to: str, out: str | None) -> str:
    """Write a study's runs, or one run, into a tracker; returns a line on them.

    target: a study by its name, or a run by a prefix of its id or name. to: a key of TRACKERS. out: a
    directory, for MLflow also an address; by default exports/TRACKER beside the results. Raises ConfigError.
    """
    from ablate.store.frames import REHEARSAL, SIMULATED  # with pandas, which a run that is logged needs not

    store, became = Store(), Counter[str]()
    if target in store.study_names():
        study = target
        directories = [*store.directories([row["run_id"] for row in store.rows(study)]).values()]
    else:
        directories = [store.find(target)]
        study = _study_of(read_finished(directories[0])["run_id"])
    _require(f"--to {to}", to)
    try:
        with _silent():
            tracker = TRACKERS[to](study, out or _place(to))
            for directory in directories:
                if directory.name in tracker.there:
                    became["there already"] += 1
                elif run := _read(directory):
                    settings, points = run
                    with tracker.open(directory.name, settings) as log:
                        for point in points:
                            log(*point)
                    became["new"] += 1
                else:
                    became["left out, as not done"] += 1
    except Exception as error:  # of a tracker's, which may be any
        written = f"{counted(became['new'], 'run')} written, the same command goes on"
        raise ConfigError(f"--to {to}: {_reason(error)}; {written}") from error
    counts = ", ".join(f"{count} {what}" for what, count in became.items()) or "no run has ended"
    simulated = any(directory.name.startswith(f"{SIMULATED}-") for directory in directories)
    return tracker.line(f"{f'{REHEARSAL}; ' * simulated}{to}: {study} in {tracker.place}: {counts}")


# --- as runs go -------------------------------------------------------------------------------------------


def track(to: str) -> str:
    """Have this process, and those that it starts, log runs as they go; returns what to say, if anything."""
    try:
        _require(f"--track {to}", to)
    except ConfigError as error:
        return f"{error}; {AFTERWARDS.format(to)}"
    os.environ[TRACK] = to
    return ""


def begin(study: str, say: Callable[[str], object]) -> None:
    """Before runs of a study are logged: see that the tracker of this command takes them, and say where."""
    to = os.environ[TRACK]
    with _told(say):
        _opened(to, study)
    if TRACK in os.environ:
        tracker = _opened(to, study)
        say(tracker.line(f"{to}: {study} in {tracker.place}"))


def logged(name: str, listener: Listener) -> Listener:
    """The listener of a run, which the tracker of this command hears first."""
    points = _logged(name, os.environ[TRACK])
    with _told(listener):
        next(points)  # it loads the tracker, in no time of the run's

    def heard(news: News) -> None:
        if TRACK in os.environ and isinstance(news, Evaluation | dict):
            with _told(listener), contextlib.suppress(StopIteration):
                points.send(news)
        listener(news)

    return heard


@contextlib.contextmanager
def _told(say: Callable[[str], object]) -> Iterator[None]:
    """A tracker that fails in the block is told of, and asked no more by this process."""
    try:
        with _silent():
            yield
    except Exception as error:  # of a tracker's, which may be any
        to = os.environ.pop(TRACK)
        say(f"--track {to}: {_reason(error)}; {AFTERWARDS.format(to)}")


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without what trackers print: where they write, and the tracebacks of their threads."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _logged(name: str, to: str) -> Generator[None, News, None]:
    """Takes the events of a run, at which its new points are logged; at its end all that an export writes. A
    run that is interrupted, or fails, stays a part, which is begun anew with the run."""
    stored, tracker = Store().run(name), _opened(to, _study_of(short_id(name)))
    news, done = (yield), 0
    directory = stored.latest() or stored.directory
    if name in tracker.there:
        return
    settings = _settings(directory, read_started(directory))
    with contextlib.suppress(Damaged), tracker.open(name, settings) as log:
        while not isinstance(news, dict):
            points = _points(directory)
            for point in points[done:]:
                log(*point)
            news, done = (yield), len(points)
        if not (run := _read(stored.directory)):
            raise Damaged(stored.directory, "not done")
        for point in run[1][done:]:
            log(*point)


# --- what a run is, in a tracker --------------------------------------------------------------------------


def _read(directory: Path) -> tuple[Settings, list[Point]] | None:
    """A run that ended done or diverged, its last point the results as `final/val_loss`; else None."""
    try:
        row = read_finished(directory, thorough=True)
    except Damaged:
        return None
    if row["status"] not in (Status.DONE, Status.DIVERGED):
        return None
    points = _points(directory)
    final = {f"final/{key}": row[key] for key in METRICS if isinstance(row.get(key), int | float)}
    if row["status"] == Status.DIVERGED:
        final["final/diverged"] = 1.0
    return _settings(directory, row), [*points, (points[-1][0] if points else 0, final)]


def _settings(directory: Path, row: Mapping[str, Any]) -> Settings:
    config = {key: value for key, value in flatten(read_config(directory)).items() if value is not None}
    settings = {key: v if isinstance(v, str | int | float) else as_value(v) for key, v in config.items()}
    return settings | {f"ablate.{key}": str(row[key]) for key in FACTS if row.get(key) not in (None, "")}


def _points(directory: Path) -> list[Point]:
    return [(int(point.pop("step")), point) for point in read_metrics(directory)]


def _study_of(run_id: str) -> str:
    """The first study that has this run, by its id or what it begins with."""
    listed = ((name, listed) for name, record in Store().studies().items() for listed in record.runs)
    return next((name for name, listed in listed if listed.startswith(run_id)), ONE_BY_ONE)


@functools.cache
def _opened(to: str, study: str) -> Tracker:
    """For the runs of a process, each of which it trains once."""
    return TRACKERS[to](study, _place(to))


def _place(to: str) -> str:
    named = os.environ.get("MLFLOW_TRACKING_URI") if to == "mlflow" else None
    return named or str(Store().root / "exports" / to)


def _reason(error: Exception) -> str:
    """The first line of what it says, which all processes say alike."""
    return UNSAID.sub("", str(error).partition("\n")[0])[:300] or type(error).__name__


# --- the trackers -----------------------------------------------------------------------------------------


def tensorboard(study: str, out: str) -> Tracker:
    """A directory a run, OUT/STUDY/NAME, with scalars and the HParams tab."""
    from torch.utils.tensorboard import SummaryWriter

    place = _made(f"{out}/{study}")

    @contextlib.contextmanager
    def opened(name: str, settings: Settings) -> Iterator[Log]:
        part, points = place / f"{PART}{name}", list[Point]()

        def log(step: int, values: Mapping[str, float]) -> None:
            for key, value in values.items():
                if not key.startswith("final/"):  # which add_hparams writes
                    writer.add_scalar(key, value, step)
            writer.flush()
            points[:] = [(step, {**values})]

        if part.exists():
            owned.remove_tree(part)
        with SummaryWriter(str(part)) as writer:
            yield log
            for step, final in points:
                writer.add_hparams(settings, final, run_name=".", global_step=step)
        owned.rename_onto_free(part, place / name)

    look = f"`tensorboard --logdir {shlex.quote(str(place))}` shows it"
    return Tracker(out, os.listdir(place), opened, look)


def wandb(study: str, out: str) -> Tracker:
    """A group a study, in WANDB_PROJECT, offline in OUT. A run always has one id, so one that is written
    again replaces itself."""
    if is_offline := _is_offline():
        os.environ["WANDB_MODE"] = "offline"
    module, project = import_module("wandb"), os.environ.get("WANDB_PROJECT", "ablate")
    quiet = module.Settings(silent=True, console="off", init_timeout=PATIENCE_S, x_disable_stats=True)
    about = {"project": project, "group": study, "settings": quiet, "dir": _made(out)}

    @contextlib.contextmanager
    def opened(name: str, settings: Settings) -> Iterator[Log]:
        same = digest([study, name])[:16]
        made = module.init(name=name, id=same, config=dict(settings), reinit="create_new", **about)
        with contextlib.ExitStack() as ends:
            ends.callback(made.finish)
            yield lambda step, values: made.log(values, step=step)

    look = f"offline: `wandb sync {shlex.quote(out)}/wandb/offline-*` uploads it" if is_offline else ""
    return Tracker(out if is_offline else f"project {project}", (), opened, look)


def _is_offline() -> bool:
    """Whether W&B is told to be offline or, if it is told nothing, has no account here."""
    known, mode = Path(os.environ.get("NETRC", "~/.netrc")).expanduser(), os.environ.get("WANDB_MODE")
    has_account = "WANDB_API_KEY" in os.environ or (known.is_file() and "wandb" in known.read_text("utf-8"))
    return mode == "offline" if mode else not has_account


def trackio(study: str, out: str) -> Tracker:
    """A project a study, in a database in OUT, which its dashboard reads without a server."""
    os.environ["TRACKIO_DIR"] = str(_made(out).resolve())  # which it reads as it is imported
    warnings.filterwarnings("ignore", module="trackio")  # that it lost something: seen here, below
    module, storage = import_module("trackio"), import_module("trackio.sqlite_storage").SQLiteStorage
    about = {"project": study, "embed": False, "auto_log_gpu": False, "auto_log_cpu": False}

    @contextlib.contextmanager
    def opened(name: str, settings: Settings) -> Iterator[Log]:
        storage.delete_run(study, PART + name)
        made, steps = module.init(name=PART + name, config=dict(settings), **about), list[int]()
        module.context_vars.current_run.set(None)  # which the next one would end, and the program at exit

        def log(step: int, values: Mapping[str, float]) -> None:
            steps.append(step)
            made.log(dict(values), step=step)

        with contextlib.ExitStack() as ends:
            ends.callback(made.finish)
            yield log
        if storage.get_log_count(study, PART + name) < len(steps):
            raise OSError(f"{out}: what was logged is not all there; is the disk full?")
        storage.rename_run(study, PART + name, name)

    look = f"`TRACKIO_DIR={shlex.quote(out)} trackio show --project {shlex.quote(study)}` shows it"
    return Tracker(out, storage.get_runs(study), opened, look)


def mlflow(study: str, out: str) -> Tracker:
    """An experiment a study, in OUT/mlflow.db or, if OUT is an address, at that server."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(PATIENCE_S))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # or it waits for minutes
    module = import_module("mlflow")
    for chatty in ("mlflow", "alembic"):
        logging.getLogger(chatty).setLevel(logging.ERROR)
    is_server = "://" in out
    module.set_tracking_uri(out if is_server else f"sqlite:///{_made(out).absolute()}/mlflow.db")
    ui = f"`mlflow ui --backend-store-uri {shlex.quote(f'sqlite:///{out}/mlflow.db')}` shows it"
    with contextlib.nullcontext() if is_server else locked(Path(out) / "lock"):  # who makes the database
        experiment, client = module.set_experiment(study).experiment_id, module.MlflowClient()
    runs = functools.partial(module.search_runs, [experiment], output_format="list")

    @contextlib.contextmanager
    def opened(name: str, settings: Settings) -> Iterator[Log]:
        for half in runs(f"run_name = '{PART}{name}'"):
            client.delete_run(half.info.run_id)
        run_id = client.create_run(experiment, run_name=PART + name).info.run_id

        def log(step: int, values: Mapping[str, float]) -> None:
            module.log_metrics(values, step, run_id=run_id)

        module.log_params(settings, run_id=run_id)
        yield log
        client.set_tag(run_id, "mlflow.runName", name)
        client.set_terminated(run_id)

    names = {run.info.run_name for run in runs()}
    return Tracker(UNSAID.sub("", out), names, opened, "" if is_server else ui)


def _require(option: str, package: str) -> None:
    """Raises ConfigError for a tracker that is not installed."""
    if find_spec(package) is None:
        raise ConfigError(f"{option}: {line_on(f'package {package}')}")


def _made(directory: str) -> Path:
    Path(directory).mkdir(parents=True, exist_ok=True)
    return Path(directory)


TRACKERS = {tracker.__name__: tracker for tracker in (mlflow, tensorboard, trackio, wandb)}
