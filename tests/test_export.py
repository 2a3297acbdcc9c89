"""Stored runs in trackers, read back with each tracker's own reader."""

import contextlib
import importlib.util
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ablate.export import trackers
from ablate.store.store import Store
from tests.helpers import ROOT
from tests.synthetic import small_study

STUDY = "_wide.heads-2-report"


@pytest.fixture
def store(tmp_path, monkeypatch) -> Iterator[Store]:
    """A study with an odd name."""
    for name in ("ABLATE_RUNS", "WANDB_PROJECT", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", "")
    monkeypatch.chdir(tmp_path)
    yield small_study(Path("runs"), name=STUDY)
    forget_trackio()


def forget_trackio() -> None:
    """It takes its directory as it is imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "trackio"]:
        del sys.modules[name]


def needs(package: str) -> None:
    """Skip the test without this package. It is not imported, since Trackio would take its directory then."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")


# --- what a tracker has: the settings of each run by name, and its curves -----------------------------------

Shown = Mapping[str, tuple[Mapping[str, Any], Mapping[str, list[tuple[int, float]]]]]


def tensorboard_runs() -> Shown:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    found = {}
    for directory in Path("out", STUDY).iterdir():
        events = EventAccumulator(str(directory)).Reload()
        content = events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
        about: Any = plugin_data_pb2
        hparams = about.HParamsPluginData.FromString(content).session_start_info.hparams
        settings = {key: getattr(value, value.WhichOneof("kind")) for key, value in hparams.items()}
        curves = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
        found[directory.name] = (settings, curves)
    return found


def trackio_runs() -> Shown:
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    found = {}
    for run in trackio.Api().runs(STUDY):
        curves: dict[str, list[tuple[int, float]]] = {}
        for point in SQLiteStorage.get_logs(run.project, run.name):
            for name in point.keys() - {"step", "timestamp"}:
                curves.setdefault(name, []).append((point["step"], point[name]))
        found[run.name] = (run.config or {}, curves)
    return found


def mlflow_runs() -> Shown:
    from mlflow.tracking import MlflowClient

    client, found = MlflowClient(f"sqlite:///{Path('out/mlflow.db').absolute()}"), {}
    experiment = client.get_experiment_by_name(STUDY)
    assert experiment is not None
    for run in client.search_runs([experiment.experiment_id]):
        history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        curves = {name: [(one.step, one.value) for one in points] for name, points in history.items()}
        found[run.info.run_name] = (run.data.params, curves)
        assert run.info.status == "FINISHED"
    return found


@pytest.fixture(scope="session")
def migrated(tmp_path_factory) -> Path:
    """An empty database of MLflow, which takes seconds to make one."""
    needs("mlflow")
    from mlflow.tracking import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def target(request, command) -> str:
    """A tracker, which has its databases already."""
    needs(request.param)
    if request.param == "mlflow":
        for place in ("out", "runs/exports/mlflow"):
            Path(place).mkdir(parents=True)
            shutil.copy(request.getfixturevalue("migrated"), place)
    return request.param


READERS: Mapping[str, Callable[[], Shown]] = {
    "mlflow": mlflow_runs,
    "tensorboard": tensorboard_runs,
    "trackio": trackio_runs,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of SQLAlchemy, by MLflow
@pytest.mark.parametrize("target", READERS, indirect=True)
def test_a_tracker_has_every_value_of_the_store_once(store, command, monkeypatch, target):
    export = ("export", STUDY, "--to", target, "--out", "out")
    with torn(monkeypatch):
        code, out, err = command(*export)
        assert (code, out) == (2, "") and err.count("\n") == 1, err
        assert f"--to {target}: no space; 0 runs written, the same command goes on" in err
    assert command(*export)[1].startswith(f"{target}: {STUDY} in out: 4 new; `")
    shown = READERS[target]()
    assert len(shown) == 4  # and nothing is left of the one that broke off
    for directory in store.directories(row["run_id"] for row in store.rows(STUDY)).values():
        run, (settings, curves) = trackers._read(directory), shown[directory.name]
        assert run is not None
        for key, value in run[0].items():
            assert settings[key] == value if target != "mlflow" else settings[key] == str(value), key
        for name in {name for _, values in run[1] for name in values}:
            written = [(step, values[name]) for step, values in run[1] if name in values]
            assert len(curves[name]) == len(written) and np.allclose(curves[name], written, rtol=1e-6), name
        assert "final/val_loss" in curves and "ablate.run_id" in settings
    assert f"{target}: {STUDY} in out: 4 there already; " in command(*export)[1]
    assert len(READERS[target]()) == 4


TINY = ("train.steps=20", "train.eval_every=10", "model.d_model=16", "heads=2", "model.context=16")
LIVE = ("run", "-m", "fusion=concat,sum", "name=live", *TINY, "corpus=grammar", "corpus.characters=20000")
LIVE += ("hydra/launcher=basic",)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("target", READERS, indirect=True)
def test_a_run_that_is_logged_as_it_goes_is_what_an_export_writes(command, monkeypatch, target):
    monkeypatch.setattr(f"{__name__}.STUDY", "live")
    code, _, err = command(*LIVE, "--track", target)
    place = f"runs/exports/{target}"
    assert code == 0 and "--track" not in err, err
    (look,) = re.findall(rf"(?m)^{target}: live in {place}; (`.*`) shows it$", err)
    assert look.replace("live", "STUDY") in (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    assert ": 2 there already; " in command("export", "live", "--to", target)[1]
    forget_trackio()
    assert ": 2 new; " in command("export", "live", "--to", target, "--out", "out")[1]
    exported = READERS[target]()
    Path("out").rename("again")
    Path(place).rename("out")
    forget_trackio()
    monkeypatch.setenv("TRACKIO_DIR", str(Path("out").resolve()))
    live = READERS[target]()
    assert live.keys() == exported.keys() and len(live) == 2
    for name, (settings, curves) in exported.items():
        own = {key: value for key, value in live[name][0].items() if not key.startswith("_")}
        assert own == {key: value for key, value in settings.items() if not key.startswith("_")}
        assert repr(sorted(curves.items())) == repr(sorted(live[name][1].items()))  # nan equals itself so


@pytest.mark.slow
def test_a_tracker_that_does_not_take_a_run_is_told_of_once_and_the_runs_go_on(command, monkeypatch):
    Path("runs").mkdir()
    Path("runs/exports").write_text("")
    code, out, err = command(*LIVE, "--track", "tensorboard")
    assert code == 0 and "2 runs in" in out and err.count("--track tensorboard: [Errno 20]") == 1
    assert "runs go on without, and ablate export --to tensorboard writes them afterwards" in err
    monkeypatch.setitem(sys.modules, "wandb", None)
    code, out, err = command(*LIVE, "seed=1", "--track", "wandb")
    assert code == 0 and "2 of them of this command" in out
    needs_it = "--track wandb: package wandb is not installed; pip install 'ablate-heads[wandb]'"
    assert err.count(needs_it) == 1


class Torn(list):
    """The points of a run, of which the first is written."""

    def __iter__(self) -> Iterator[Any]:
        yield self[0]
        raise OSError("no space\nleft")


@contextlib.contextmanager
def torn(monkeypatch) -> Iterator[None]:
    """In here an export breaks off in the midst of a run."""
    whole: Any = trackers._read
    with monkeypatch.context() as patch:
        patch.setattr(trackers, "_read", lambda at: ((run := whole(at))[0], Torn(run[1])))
        yield


def test_a_run_in_wandb_has_one_id_by_which_it_replaces_itself(store, command, monkeypatch):
    made = dict[str, dict[int, Mapping[str, float]]]()

    def init(id: str, group: str, project: str, **_: Any) -> SimpleNamespace:
        assert (group, project) == (STUDY, "ablate")
        own = made[id] = {}
        return SimpleNamespace(log=lambda values, step: own.update({step: values}), finish=lambda: None)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, Settings=dict, __spec__=init))
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("WANDB_API_KEY", "of an account")
    with torn(monkeypatch):
        assert command("export", STUDY, "--to", "wandb")[0] == 2
    assert [len(points) for points in made.values()] == [1]
    for _ in range(2):
        assert command("export", STUDY, "--to", "wandb")[1] == f"wandb: {STUDY} in project ablate: 4 new\n"
        assert len(made) == 4 and all("final/val_loss" in max(of.items())[1] for of in made.values())


# --- what is exported, and refusals -------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["tensorboard", "wandb"])
def test_a_missing_package_is_one_line_with_the_way_to_install_it(store, command, monkeypatch, target):
    monkeypatch.setitem(sys.modules, target, None)
    code, out, err = command("export", STUDY, "--to", target)
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert f"package {target} is not installed; pip install 'ablate-heads[{target}]'" in err
    assert not Path("runs/exports").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--to", "wandbb"], "--to wandbb: 'wandbb' is not one of 'tensorboard', 'wandb', 'trackio',"),
        (["--to", "tensorboard", "--out", "taken"], "--to tensorboard: [Errno 20] Not a directory: 'taken/"),
        (["--to", "mlflow", "--out", "http://me:secret@127.0.0.1:9"], "//127.0.0.1:9/api/2.0/mlflow/"),
    ],
)
def test_a_place_or_target_that_is_wrong_is_one_line(store, command, monkeypatch, arguments, reason):
    if arguments[1] != "wandbb":
        needs(arguments[1])
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    Path("taken").write_text("")
    code, out, err = command("export", STUDY, *arguments)
    assert (code, out) == (2, "") and reason in err and "secret" not in err
