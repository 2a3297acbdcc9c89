"""Stored runs in trackers, read back with each tracker's own reader: every value is that of the store."""

import contextlib
import csv
import dataclasses
import importlib
import importlib.util
import json
import math
import os
import re
import struct
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from ablate.config.identity import digest
from ablate.config.overrides import as_value, flatten
from ablate.export import trackers
from ablate.export.exporter import Exporter, exporter
from ablate.export.runs import NUMBERS
from ablate.store.columns import Row
from ablate.store.store import Store
from tests.synthetic import small_study, synthetic_row

STUDY = "_wide.heads-2-report"
DONE: Row = {"status": "done", "val_loss": 1.25, "best_step": 200}
FAILED: Row = {"status": "failed", "error": "OSError: no space"}


@pytest.fixture
def store(tmp_path, monkeypatch) -> Store:
    """A study with an odd name, odd settings, and a diverged run whose losses are not finite."""
    for name in ("ABLATE_RUNS", "WANDB_PROJECT", "WANDB_BASE_URL", "WANDB_ENTITY", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    store = small_study(Path("runs"), name=STUDY)
    add(store, 8, {"status": "diverged", "error": "the loss is not finite\nat step 37"}, math.nan)
    return store


@pytest.fixture
def quick_report(monkeypatch):
    """A page that is drawn in no time."""

    def write(directory: Path, out: Path) -> Path:
        out.write_text(f"<p>{directory.name}", encoding="utf-8")
        return out

    monkeypatch.setattr(trackers, "write_report", write)


def needs(package: str) -> None:
    """Skip the test without this package. It is not imported, since Trackio would take its directory then."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")


def add(store: Store, seed: int, end: Row | None, loss: float = 1.25, study: str = STUDY) -> Path:
    """Add a run of this seed to the study, instead of any earlier one. end: of its row; None if the run was
    interrupted."""
    row = synthetic_row("concat", 4, True, 0.003, seed) | {"run_id": digest(["added", seed])[:16]}
    run = store.run(f"concat-Ä.+-s{seed}-{row['run_id'][:8]}")
    run.remove()
    config = {"fusion": {"name": "concat", "options": {}}, "seed": seed, "splits": [0.8, 0.2], "bias": True}
    config |= {"corpus": {"path": "C:\\Ümläut\n|a", "split": None}, "train": {"lr": 0.003, "eps": 1e-8}}
    with run.attempt(config, row, known=[]) as writer:
        for step, value in ((100, 2.7), (200, loss), (300, loss and 1 / loss)):
            point = {"step": step, "tokens": step * 7, "lr": 1 / step, "val_loss": value, "seconds": step / 9}
            writer.metrics({**point, "train_loss": -math.inf if math.isnan(value) else value / 3})
        if end:
            run.finish(writer, row | end, known=[])
    if record := store.read_study(study):
        runs = sorted({*record.runs, row["run_id"]})
        store.change_study(study, lambda _: dataclasses.replace(record, runs=runs))
    return run.directory


def curves(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """The columns of metrics.csv as (step, value), without cells that are empty."""
    columns: dict[str, list[tuple[int, float]]] = {}
    with (directory / "metrics.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for name in row.keys() - {"step"}:
                if row[name]:
                    columns.setdefault(name, []).append((int(row["step"]), float(row[name])))
    return columns


def config(directory: Path) -> dict[str, Any]:
    """The settings in config.yaml that have a value, by key; a list as it is typed."""
    flat = flatten(yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8")))
    return {
        key: as_value(value) if isinstance(value, list | dict) else value
        for key, value in flat.items()
        if value is not None
    }


def results(directory: Path) -> dict[str, float]:
    row = json.loads((directory / "result.json").read_text(encoding="utf-8"))
    return {key: row[key] for key in NUMBERS if isinstance(row.get(key), int | float)}


def run_id(directory: Path) -> str:
    return json.loads((directory / "result.json").read_text(encoding="utf-8"))["run_id"]


def ended(store: Store) -> list[Path]:
    """The directories of all runs that are done or diverged."""
    rows = store.results()
    found = store.directories(id for id, row in rows.items() if row["status"] in ("done", "diverged"))
    return [*found.values()]


def files(directory: Path) -> dict[Path, bytes]:
    """But for logs, in which W&B's service goes on to write."""
    paths = (path for path in directory.rglob("*") if path.is_file() and path.suffix != ".log")
    return {path: path.read_bytes() for path in paths}


def float32(points: list[tuple[int, float]]) -> list[tuple[int, bytes]]:
    """Their bytes, as NaN equals nothing."""
    return [(step, np.float32(value).tobytes()) for step, value in points]


# --- TensorBoard ----------------------------------------------------------------------------------


def accumulated(directory: Path) -> Any:
    module = "tensorboard.backend.event_processing.event_accumulator"
    events = pytest.importorskip(module, reason="needs tensorboard")
    everything = {"scalars": 0, "tensors": 0}
    return events.EventAccumulator(str(directory), size_guidance=everything).Reload()


def hparams(directory: Path) -> dict[str, Any]:
    """The protocol buffers of the HParams tab, by tag."""
    proto = importlib.import_module("tensorboard.plugins.hparams.plugin_data_pb2")
    found = accumulated(directory).PluginTagToContent("hparams")
    return {tag: proto.HParamsPluginData.FromString(content) for tag, content in found.items()}


def tensorboard_runs(place: Path) -> dict[str, Path]:
    """The directories of runs, by the name of their group in HParams, which is the run_id."""
    (study,) = (path for path in place.iterdir() if path.is_dir())
    paths = [path for path in study.iterdir() if path.is_dir() and path.name != "report"]
    return {hparams(path)[START].session_start_info.group_name: path for path in paths}


START, END = "_hparams_/session_start_info", "_hparams_/session_end_info"


@pytest.mark.slow
def test_tensorboard_shows_every_value_of_the_store(store, command):
    pytest.importorskip("tensorboard", reason="needs tensorboard")
    code, out, err = command("export", STUDY, "--to", "tensorboard")
    assert (code, out) == (0, f"tensorboard: 5 runs of {STUDY} in runs/exports/tensorboard: 5 new\n"), err
    shown = tensorboard_runs(Path("runs/exports/tensorboard"))
    stored = {run_id(path): path for path in ended(store)}
    assert shown.keys() == stored.keys() and len(stored) == 5
    for id, directory in stored.items():
        events, about = accumulated(shown[id]), hparams(shown[id])
        scalars = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
        assert scalars.keys() == curves(directory).keys() | results(directory).keys()
        for name, points in curves(directory).items():
            assert float32(scalars[name][: len(points)]) == float32(points), name
            assert len(scalars[name]) <= len(points) + 1
        for name, value in results(directory).items():
            assert np.float32(scalars[name][-1][1]) == np.float32(value), name
        typed = {
            key: getattr(value, value.WhichOneof("kind"))
            for key, value in about[START].session_start_info.hparams.items()
        }
        assert typed == config(directory)
        diverged = "not finite" in str(store.results()[id].get("error"))
        assert about[END].session_end_info.status == (2 if diverged else 1)  # STATUS_FAILURE, STATUS_SUCCESS
    assert sum("NaN" in repr([*curves(p).values()]).replace("nan", "NaN") for p in stored.values()) == 1
    study = next(iter(shown.values())).parent
    experiment = hparams(study)["_hparams_/experiment"].experiment
    assert {h.name for h in experiment.hparam_infos} == {k for p in stored.values() for k in config(p)}
    (seeds,) = (h for h in experiment.hparam_infos if h.name == "seed")
    assert [value.number_value for value in seeds.domain_discrete.values] == [0, 1, 8]
    results_of_all = {k for p in stored.values() for k in results(p)} - {"tokens"}
    assert {metric.name.tag for metric in experiment.metric_infos} == results_of_all
    page = (study / "report" / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and STUDY in page


# --- W&B ------------------------------------------------------------------------------------------


def wandb_log(directory: Path) -> list[Any]:
    """The protocol buffers of one run's log, in order. It is a log of LevelDB's format behind 7 bytes: blocks
    of 32 KiB, in which each part of a record has a checksum, its length, and its kind: 1 whole, 2 first,
    3 middle, 4 last."""
    proto = importlib.import_module("wandb.proto.wandb_internal_pb2")
    (path,) = directory.glob("*.wandb")
    data, at, parts, records = path.read_bytes(), 7, b"", []
    assert data.startswith(b":W&B")
    while at < len(data):
        if (left := -at % 32768) < 7:  # too little for a head
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            records.append(proto.Record.FromString(parts))
            parts = b""
    return records


def wandb_logs(place: Path) -> dict[str, list[Any]]:
    """The logs of all runs, by id without the digest at its end. No run is there twice."""
    logs: dict[str, list[Any]] = {}
    for directory in place.glob("wandb/offline-run-*"):
        records = wandb_log(directory)
        (run,) = (record.run for record in records if record.HasField("run"))
        id = run.run_id.rpartition("-")[0].rpartition("-")[2]
        assert id not in logs
        logs[id] = records
    return logs


def plain(items: Any) -> dict[str, Any]:
    return {item.key or item.nested_key[0]: json.loads(item.value_json) for item in items}


@pytest.mark.slow
def test_a_wandb_log_has_every_value_of_the_store(store, command, quick_report):
    pytest.importorskip("wandb", reason="needs wandb")
    code, out, err = command("export", STUDY, "--to", "wandb")
    assert (code, out) == (0, f"wandb: 5 runs of {STUDY} in runs/exports/wandb: 5 new\n"), err
    logs = wandb_logs(Path("runs/exports/wandb"))
    stored = {run_id(path): path for path in ended(store)}
    assert logs.keys() == stored.keys() | {"report"}
    for id, directory in stored.items():
        (run,) = (record.run for record in logs[id] if record.HasField("run"))
        assert (run.run_group, run.display_name, run.project) == (STUDY, directory.name, "ablate")
        settings = {key: value for key, value in plain(run.config.update).items() if key != "_wandb"}
        facts = {key: settings.pop(key) for key in [*settings] if key.startswith("ablate.")}
        assert {key: value for key, value in settings.items() if value is not None} == config(directory)
        assert facts["ablate.status"] == store.results()[id]["status"]
        points = [plain(record.history.item) for record in logs[id] if record.HasField("history")]
        for name, curve in curves(directory).items():
            shown = [(point["_step"], float(point[name])) for point in points if name in point]
            assert repr(shown) == repr(curve), name
        summary: dict[str, Any] = {}
        for record in logs[id]:
            summary |= plain(record.summary.update)
        assert {name: summary[name] for name in results(directory)} == results(directory)
        (end,) = (record.exit for record in logs[id] if record.HasField("exit"))
        assert end.exit_code == (store.results()[id]["status"] == "diverged")
    (artifact,) = (
        r.request.log_artifact.artifact if r.HasField("request") else r.artifact
        for r in logs["report"]
        if r.HasField("artifact") or r.request.HasField("log_artifact")
    )
    assert [entry.path for entry in artifact.manifest.contents] == ["report.html"]


# --- MLflow ---------------------------------------------------------------------------------------


def finite(curve: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """In its database MLflow has the largest number in place of infinity."""
    most = sys.float_info.max
    return [(step, max(-most, min(most, value)) if math.isinf(value) else value) for step, value in curve]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of SQLAlchemy, by MLflow
def test_mlflow_has_every_value_of_the_store(store, command, quick_report):
    tracking = pytest.importorskip("mlflow.tracking", reason="needs mlflow-skinny")
    pytest.importorskip("sqlalchemy", reason="needs sqlalchemy")
    code, out, err = command("export", STUDY, "--to", "mlflow")
    assert (code, out) == (0, f"mlflow: 5 runs of {STUDY} in runs/exports/mlflow: 5 new\n"), err
    client = tracking.MlflowClient(f"sqlite:///{Path('runs/exports/mlflow/mlflow.db').absolute()}")
    experiment = client.get_experiment_by_name(STUDY)
    runs = {run.data.tags["ablate.run_id"]: run for run in client.search_runs([experiment.experiment_id])}
    stored = {run_id(path): path for path in ended(store)}
    assert runs.keys() == stored.keys() | {"report"}
    for id, directory in stored.items():
        shown, number = runs[id], runs[id].info.run_id
        assert shown.data.params == {key: str(value) for key, value in config(directory).items()}
        assert shown.info.status == ("FINISHED" if store.results()[id]["status"] == "done" else "FAILED")
        for name, curve in curves(directory).items():
            history = client.get_metric_history(number, name)
            points = sorted(((m.step, m.timestamp, m.value) for m in history), key=lambda m: m[:2])
            values = [(step, value) for step, _, value in points][: len(curve)]
            assert repr(values) == repr(finite(curve)), name
        assert {name: shown.data.metrics[name] for name in results(directory)} == results(directory)
    (page,) = client.list_artifacts(runs["report"].info.run_id)
    assert page.path == "report.html"

    before = len(client.search_runs([experiment.experiment_id]))
    assert command("export", STUDY, "--to", "mlflow")[1].endswith(": 5 equal\n")
    add(store, 8, DONE, loss=1.5)
    with torn(exporter("mlflow")):
        assert command("export", STUDY, "--to", "mlflow")[0] == 2
    assert command("export", STUDY, "--to", "mlflow")[1].endswith(": 1 changed, 4 equal\n")
    after = client.search_runs([experiment.experiment_id])
    assert len(after) == before == 6
    (changed,) = (run for run in after if run.data.tags["ablate.run_id"] == run_id(add_path(store, 8)))
    assert changed.data.metrics["val_loss"] == 1.25 and changed.info.status == "FINISHED"
    assert [m.value for m in client.get_metric_history(changed.info.run_id, "grad_norm")] == []


# --- Trackio --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _trackio_elsewhere(monkeypatch):
    """Trackio takes its directory as it is imported: each test imports it anew."""
    monkeypatch.setenv("TRACKIO_DIR", "")
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "trackio"]:
        del sys.modules[name]


def trackio_runs(place: Path) -> dict[str, tuple[Any, list[dict[str, Any]]]]:
    """The runs of all projects with what was logged of them, by the ids of ablate's."""
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    api = importlib.import_module("trackio").Api()
    runs = [run for path in place.glob("*.db") for run in api.runs(path.stem)]
    ids = [(run.config or {}).get("ablate.run_id", "report") for run in runs]  # a report has nothing logged
    found = {id: (run, storage.get_logs(run.project, run.name)) for id, run in zip(ids, runs, strict=True)}
    assert len(found) == len(runs)
    return found


@pytest.mark.slow
def test_trackio_has_every_value_of_the_store(store, command, quick_report):
    needs("trackio")
    code, out, err = command("export", STUDY, "--to", "trackio")
    assert (code, out) == (0, f"trackio: 5 runs of {STUDY} in runs/exports/trackio: 5 new\n"), err
    shown = trackio_runs(Path("runs/exports/trackio"))
    stored = {run_id(path): path for path in ended(store)}
    assert shown.keys() == stored.keys() | {"report"}
    for id, directory in stored.items():
        run, points = shown[id]
        settings = {key: value for key, value in run.config.items() if not key.startswith(("_", "ablate."))}
        assert {key: value for key, value in settings.items() if value is not None} == config(directory)
        for name, curve in curves(directory).items():
            logged = [(point["step"], float(point[name])) for point in points if name in point]
            assert repr(logged[: len(curve)]) == repr(curve), name
        last = {name: point[name] for point in points for name in point}
        assert {name: last[name] for name in results(directory)} == results(directory)
    assert f"<p>{STUDY}".encode() in files(Path("runs/exports/trackio")).values()  # the report, as a blob


# --- once, whatever happens -----------------------------------------------------------------------


def add_path(store: Store, seed: int) -> Path:
    (path,) = (store.root / "store").glob(f"*-s{seed}-*")
    return path


class _Torn(list):
    """A curve that breaks off."""

    def __iter__(self) -> Iterator[Any]:
        yield from self[: len(self) // 2]
        raise OSError("no space\nleft")


@contextlib.contextmanager
def torn(kind: type[Exporter]) -> Iterator[None]:
    """In here the exporter breaks off in the midst of each run. Then what its tracker left running ends, as
    with the process."""
    whole = kind.write

    def write(self: Exporter, run: Any) -> None:
        whole(self, dataclasses.replace(run, curves=_Torn(run.curves)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "write", write)
        yield
    if wandb := sys.modules.get("wandb"):
        wandb.teardown()


READERS: Mapping[str, Callable[[Path], Mapping[str, Any]]] = {
    "tensorboard": tensorboard_runs,
    "trackio": trackio_runs,
    "wandb": wandb_logs,
}


@pytest.mark.parametrize("target", READERS)
def test_a_run_is_there_once_whatever_happens(store, command, quick_report, target):
    needs(target)
    place, export = Path("out"), ("export", STUDY, "--to", target, "--out", "out")
    with torn(exporter(target)):
        code, out, err = command(*export)
        assert (code, out) == (2, "") and len(err.splitlines()) == 1
        assert "not written to out (no space left); the same command goes on from there" in err
    assert json.loads((place / "ablate-export.json").read_text())["runs"] == {}
    assert command(*export)[1].endswith(": 5 new\n")
    assert len(READERS[target](place).keys() - {"report"}) == 5
    assert not [*place.glob("part-*")]

    before = files(place)
    assert command(*export)[1].endswith(": 5 equal\n")
    assert files(place) == before

    changed = add(store, 8, DONE, loss=1.5)
    os.utime(add(store, 9, DONE) / "result.json", (1e9, 1e9))  # now the first run of the study
    with torn(exporter(target)):
        assert command(*export)[0] == 2
    if target == "tensorboard":  # the run as it was
        assert files(place) == before | files_of_new(place)
    code, out, err = command(*export)
    assert out.endswith(": 1 new, 1 changed, 4 equal\n"), err
    shown = READERS[target](place)
    assert len(shown.keys() - {"report"}) == 6 and run_id(changed) in shown
    assert not [*place.glob("part-*")]
    if target == "tensorboard":
        assert len([*shown[run_id(changed)].parent.glob("events*")]) == 1
        of_run = accumulated(shown[run_id(changed)]).Scalars("val_loss")
        assert [e.value for e in of_run][:2] == [np.float32(2.7), 1.5]

    one = run_id(changed)
    assert command("export", one, *export[2:])[1].endswith(": 1 equal\n")


def files_of_new(place: Path) -> dict[Path, bytes]:
    return {path: data for path, data in files(place).items() if "part-" in str(path)}


# --- what is exported -----------------------------------------------------------------------------

DOCS = Path(__file__).parent.parent / "docs" / "export.md"


@pytest.fixture
def notes(tmp_path, monkeypatch, quick_report):
    """The exporter of docs/export.md, word for word, in a distribution of its own."""
    indented = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", DOCS.read_text(encoding="utf-8"), re.M)
    pyproject, module = (textwrap.dedent(block) for block in indented[-2:])
    (point,) = tomllib.loads(pyproject)["project"]["entry-points"]["ablate.exporters"].items()
    about = tmp_path / "site" / "notes-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: notes\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[ablate.exporters]\n{} = {}\n".format(*point))
    (about.parent / "my_notes.py").write_text(module)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(about.parent)
    yield
    sys.modules.pop("my_notes", None)


def test_an_installed_exporter_is_a_target(store, command, notes):
    code, out, err = command("export", STUDY, "--to", "notes")
    assert (code, out) == (0, f"notes: 5 runs of {STUDY} in runs/exports/notes: 5 new\n"), err
    place = Path("runs/exports/notes")
    directory = add_path(store, 8)
    text = (place / f"{directory.name}.txt").read_text()
    assert "'seed': 8" in text and "'ngram_loss'" in text
    assert {path.name for path in ended(store)} < {path.stem for path in place.glob("*.txt")}
    assert (
        "choices: hf, mlflow, notes, tensorboard, trackio, wandb"
        in command("export", STUDY, "--to", "note")[2]
    )


def test_runs_without_a_result_are_left_out_and_counted(store, command, notes):
    add(store, 9, FAILED)
    add(store, 10, None)
    code, out, err = command("export", STUDY, "--to", "notes")
    assert (code, err) == (0, "")
    assert out.endswith(": 5 new; left out: 1 failed, 1 interrupted\n")
    assert len([*Path("runs/exports/notes").glob("*-s*.txt")]) == 1  # of seed 8
    code, _, err = command("export", add_path(store, 9).name, "--to", "notes")
    assert code == 2 and "failed (OSError: no space); take a run that is done" in err
    code, _, err = command("export", "nothing", "--to", "notes")
    assert code == 2 and "nothing: no finished run begins with it" in err and len(err.splitlines()) == 1


def test_a_run_of_no_study_is_exported_by_its_name(store, command, notes):
    add(store, 11, DONE, study="")
    directory = add_path(store, 11)
    code, out, err = command("export", directory.name, "--to", "notes")
    assert (code, out.endswith("runs/exports/notes: 1 new\n")) == (0, True), err
    assert (Path("runs/exports/notes") / f"{directory.name}.txt").exists()


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "package"),
    [("tensorboard", "tensorboard"), ("wandb", "wandb"), ("mlflow", "mlflow"), ("mlflow", "sqlalchemy")],
)
def test_a_missing_package_is_one_line_with_the_way_to_install_it(
    store, command, monkeypatch, target, package
):
    if package == "sqlalchemy":
        pytest.importorskip("mlflow", reason="needs mlflow-skinny")
    monkeypatch.setitem(sys.modules, package, None)
    code, out, err = command("export", STUDY, "--to", target)
    assert (code, out) == (2, "") and len(err.splitlines()) == 1
    assert f"needs {package}, which is not installed; pip install 'ablate-heads[{target}]'" in err
    assert not Path("runs/exports").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--to", "wandbb"], "--to wandbb: no such target; did you mean wandb? choices: hf, mlflow,"),
        (["--to", "notes", "--out", "taken"], "taken: exists, and ablate export did not make it, so nothing"),
        (["--to", "notes", "--out", "taken/file"], "taken/file: a file, and nothing is overwritten"),
        (["--to", "notes", "--out", "theirs"], "theirs: holds an export to hf; name another with --out"),
        (["--to", "notes", "--out", "broken"], "broken/ablate-export.json: damaged; move it away, and"),
        (["--to", "notes", "--out", ""], "name a directory"),
    ],
)
def test_a_place_or_target_that_is_wrong_is_one_line(store, command, notes, arguments, reason):
    for name, text in {"taken/file": "", "theirs/ablate-export.json": '{"target": "hf", "runs": {}}'}.items():
        Path(name).parent.mkdir()
        Path(name).write_text(text)
    Path("broken").mkdir()
    Path("broken/ablate-export.json").write_text("[]")
    before = files(Path())
    code, out, err = command("export", STUDY, *arguments)
    assert (code, out) == (2, "") and reason in err
    assert files(Path()).keys() - before.keys() <= {Path("runs/store/.rows.json")}


@pytest.mark.parametrize("address", ["127.0.0.1:9", "127.0.0.1:50o0"])
def test_a_server_that_does_not_answer_is_one_line(store, command, address):
    pytest.importorskip("mlflow", reason="needs mlflow-skinny")
    code, out, err = command("export", STUDY, "--to", "mlflow", "--out", f"http://me:secret@{address}")
    assert (code, out) == (2, "") and len(err.splitlines()) == 1
    assert f"http://{address} does not answer" in err and "secret" not in err and "leave out --out" in err
    assert not Path("runs/exports").exists()


def test_a_wandb_server_that_does_not_answer_is_one_line_and_a_directory_serves_instead(
    store, command, monkeypatch, quick_report
):
    wandb = pytest.importorskip("wandb", reason="needs wandb")
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")

    def silent(**about: Any) -> None:
        (Path(about["dir"]) / "wandb" / "run-20260101_000000-x").mkdir(parents=True)
        raise wandb.errors.CommError("Run initialization has timed out after 30.0 sec.\nMore.")

    with monkeypatch.context() as patch:
        patch.setattr(wandb, "init", silent)
        code, out, err = command("export", STUDY, "--to", "wandb")
    assert (code, out) == (2, "") and len(err.splitlines()) == 1, err
    assert "127.0.0.1:9/ablate: Run initialization has timed out after 30.0 sec; with WANDB_MODE=off" in err
    assert not Path("runs/exports").exists()
    code, out, err = command("export", STUDY, "--to", "wandb", "--out", "logs")
    assert (code, out) == (2, "") and "--out logs: a server is written to; with WANDB_MODE=offline a" in err
    monkeypatch.setenv("WANDB_MODE", "offline")
    code, out, err = command("export", STUDY, "--to", "wandb")
    assert code == 0 and out.endswith("runs/exports/wandb: 5 new\n"), err


def test_an_exporter_that_can_not_be_opened_is_one_line(store, command, notes, monkeypatch):
    def broken(self: Exporter, out: str | None, default: Path) -> None:
        raise RuntimeError("no such\nproject")

    monkeypatch.setattr(importlib.import_module("my_notes").Notes, "__init__", broken)
    code, out, err = command("export", STUDY, "--to", "notes")
    assert (code, out) == (2, "") and err == "ablate: --to notes: can't be used (no such project)\n"
