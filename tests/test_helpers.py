"""Studies by helpers, with a cluster that starts them as processes of this machine."""

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest
import torch

from ablate.clusters import Cluster
from ablate.clusters.slurm import Slurm
from ablate.compose.sweep import compose
from ablate.compute import device
from ablate.config.rules import ConfigError
from ablate.files import atomic
from ablate.live.board import Board
from ablate.live.table import job_lines
from ablate.store.jobs import Array, JobStatus, State, arrays_of, new_array, with_statuses
from ablate.store.store import Store
from ablate.study.cluster import helper, sharing
from tests.helpers import call_cli, make_config

QUICK = ("corpus=grammar", "corpus.characters=5000", "train.steps=3", "train.batch=2", "model.context=16")
JOBS = ("hydra/launcher=slurm", "hydra.launcher.jobs=2", "hydra.launcher.threads=1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Here(Cluster):
    """Helpers as processes of this machine. before: words before the command."""

    name = "slurm"
    jobs: int = 2
    cpus_per_task: int | None = None
    wait: bool = True
    before: list[str] = dataclasses.field(default_factory=list)
    started: dict[str, list[subprocess.Popen[bytes]]] = dataclasses.field(default_factory=dict)

    def require(self) -> None:
        pass

    def start(self, array: str, count: int, command: Sequence[str], directory: Path, log: str) -> str:
        for number in range(count):
            with Path(log.replace("{number}", str(number))).open("wb") as file:
                process = subprocess.Popen(
                    [*self.before, *command, str(number)], cwd=directory, stdout=file, stderr=file
                )
            self.started.setdefault(array, []).append(process)
        return "here"

    def look(self, arrays: Sequence[str]) -> dict[str, list[JobStatus]]:
        return {array: [_status(*each) for each in enumerate(self.started[array])] for array in arrays}

    def cancel(self, arrays: Sequence[str]) -> None:
        for array in arrays:
            for process in self.started.get(array, []):
                process.terminate()


def _status(number: int, process: subprocess.Popen[bytes]) -> JobStatus:
    return JobStatus(number, State.RUNNING if process.poll() is None else State.ENDED, "here", "")


@pytest.fixture
def here(monkeypatch) -> Iterator[Here]:
    cluster = Here()
    for method in ("require", "start", "look", "cancel"):
        monkeypatch.setattr(Slurm, method, getattr(cluster, method))
    monkeypatch.setattr(sharing, "LOOK_EVERY_S", 0.5)
    monkeypatch.setattr(sharing, "EVERY_S", 0.05)
    yield cluster
    for process in (process for array in cluster.started.values() for process in array):
        process.wait()


@pytest.mark.slow
def test_helpers_come_to_what_a_pool_comes_to_and_two_stores_are_merged_by_copying(here, tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    for directory in (a, b):
        directory.mkdir()
    done = call_cli("run", "-m", "seed=0,1", "name=grid", *QUICK, *JOBS, cwd=a)
    assert done.returncode == 0 and "[2/2] " in done.stderr, done.stderr
    assert call_cli("run", "-m", "seed=1,2", "name=grid", *QUICK, cwd=b).returncode == 0
    shutil.copytree(b / "runs/store", a / "runs/store", dirs_exist_ok=True)
    done = call_cli("run", "-m", "seed=0,1,2", "name=grid", *QUICK, cwd=a)
    assert done.returncode == 0 and "3 runs had finished before" in done.stderr
    rows = {row["seed"]: row["val_loss"] for row in Store(a / "runs").rows()}
    assert rows.items() >= {row["seed"]: row["val_loss"] for row in Store(b / "runs").rows()}.items()


@pytest.mark.slow
def test_jobs_that_train_nothing_are_given_up_after_three_starts(here, tmp_path):
    here.before[:] = ["sh", "-c", "echo no module ablate; exit 1"]
    done = call_cli("run", "-m", "seed=0,1", "name=grid", *QUICK, *JOBS, cwd=tmp_path)
    assert done.returncode == 1 and len(here.started) == 3
    assert "3 starts without progress; the last job: here ended; no answer from it in " in done.stderr
    assert "no module ablate" in done.stderr
    assert len(arrays_of(tmp_path / "runs/studies/grid").read()) == 3


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"cpus_per_task": None}, ["--exclusive"]),  # a whole node, as for Ray
        ({"cpus_per_task": 3, "mem_gb": 1e-9}, ["--cpus-per-task=3", "--mem=1M"]),  # 0 would be all of a node
        ({"additional_parameters": {"hold": True, "oversubscribe": False, "x_y": None}}, ["--hold"]),
    ],
)
def test_settings_as_sbatch_takes_them(given, asked, monkeypatch):
    monkeypatch.setattr("ablate.clusters.slurm.shutil.which", lambda name: name)
    monkeypatch.setattr("ablate.clusters.slurm._run", lambda *_: "4 4000\n")
    sweep = compose(["-m", "hydra/launcher=slurm"])
    assert sweep is not None and isinstance(sweep.launcher, Slurm)
    cluster = dataclasses.replace(sweep.launcher, **{"cpus_per_task": 4, **given})
    cluster.require()
    options = {*cluster._options()} - {"--nodes=1", "--ntasks=1", "--time=60", "--cpus-per-task=4"}
    assert sorted(options) == asked


@pytest.mark.slow
def test_a_run_that_no_helper_can_begin_is_told(here, tmp_path):
    (tmp_path / "mine.txt").write_text("a b c d e f g h. " * 200)
    here.before[:] = ["sh", "-c", 'rm -f mine.txt; exec "$@"', "sh"]
    text = ("corpus=file", "corpus.path=mine.txt", "train.steps=3", "train.batch=2", "model.context=16")
    done = call_cli("run", "-m", "seed=0", *text, *JOBS, cwd=tmp_path)
    assert done.returncode == 1 and len(here.started) == 1
    assert "corpus.path=mine.txt: no such file" in done.stderr, done.stderr


@pytest.mark.slow
def test_a_machine_with_another_torch_trains_nothing(here, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)  # which helpers get from the command
    fake = tmp_path / "elsewhere" / "torch-1.0.dist-info"
    fake.mkdir(parents=True)
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
    here.before[:] = ["env", f"PYTHONPATH={fake.parent}"]
    done = call_cli("run", "-m", "seed=0", *QUICK, *JOBS, cwd=tmp_path)
    assert done.returncode == 1 and "it has torch 1.0, and the command 2." in done.stderr
    assert not [*tmp_path.glob("runs/store/*/result.json")]


@pytest.mark.slow
def test_a_dry_run_counts_jobs_and_warns_of_a_short_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("ablate.study.estimate.total", lambda kinds, *_: (600.0 * len(kinds), 600.0))
    study = ("-m", "seed=range(0,8)", *QUICK, *JOBS, "hydra.launcher.timeout_min=5", "--dry-run")
    done = call_cli("run", *study, cwd=tmp_path)
    assert done.returncode == 0
    assert "8 runs; 2 jobs of 4 cores, 8 at a time, 1 thread each" in done.stdout
    assert "as timed here; the queue is not counted" in done.stdout
    assert "hydra.launcher.timeout_min=5: the longest run takes about 10 min here" in done.stderr
    done = call_cli("run", *study, "device=cuda", cwd=tmp_path)
    assert done.returncode == 0 and "how long is not known: device=cuda" in done.stdout


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("-m", "seed=0,1", "device=cuda"), "ablate: device=cuda: this machine has no CUDA"),
        (("hydra/launcher=slurm",), "a single run is trained here; add -m"),
        (("-m", "seed=0,1", *JOBS), "hydra/launcher=slurm: no sbatch here"),
    ],
)
def test_what_can_not_be_trained_is_refused_before_anything_is(tmp_path, monkeypatch, words, line):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = call_cli("run", *QUICK, *words, cwd=tmp_path)
    assert done.returncode == 2 and line in done.stderr


def test_of_two_commands_one_lists_the_jobs(tmp_path):
    first = new_array("ablate-p-1", "slurm", "p", 3)
    arrays_of(tmp_path).change(lambda arrays: [*arrays, first])
    arrays_of(tmp_path).change(lambda arrays: arrays if sum(a.at_work for a in arrays) == 3 else [])
    assert arrays_of(tmp_path).read() == [first]


def test_every_array_that_is_listed_is_started_whatever_other_commands_write(tmp_path, monkeypatch):
    """Another version of the list lands after that of this command, before it sees its own in place, so that
    its change is applied again to a list that has it."""
    started, publish = list[tuple[str, int]](), atomic.Versions._publish

    class Noted(Here):
        def start(self, array: str, count: int, *rest: object) -> str:
            started.append((array, count))
            return "7"

    work = helper.Phase("s", "p", 2, None, None, None, None, [], [helper.Job("a", make_config(), [], "")])
    one = sharing.Sharing(work, Noted(), Store(tmp_path), Board("s", 1))
    mended = iter([True])

    def outpaced(versions: atomic.Versions) -> int:
        newest = publish(versions)
        if next(mended, False):
            arrays_of(one.study).change(lambda arrays: [*arrays, new_array("ablate-q-1", "slurm", "q", 1)])
        return publish(versions) or newest

    monkeypatch.setattr(atomic.Versions, "_publish", outpaced)
    assert one.start(work.jobs) == 1
    listed = [array for array in arrays_of(one.study).read() if array.phase == "p"]
    assert started == [(array.name, len(array.seen)) for array in listed] and len(started) == 1
    assert [array.job for array in listed] == ["7"]


def test_a_helper_that_is_back_in_the_queue_is_not_counted():
    array = new_array("a", "slurm", "p", 2)
    assert array.at_work == 2
    waits, held = JobStatus(1, State.QUEUED, "", "Resources"), JobStatus(0, State.QUEUED, "", "BeginTime")
    running = with_statuses(array, {"a": [JobStatus(0, State.RUNNING, "n1", ""), waits]})
    assert running.at_work == 2
    again = with_statuses(running, {"a": [held, JobStatus(1, State.RUNNING, "n2", "")]})
    assert again.at_work == 1 and not again.has_ended
    assert with_statuses(again, {}).has_ended


def test_a_line_says_how_the_jobs_are():
    states = ((State.RUNNING, "n1", ""), (State.QUEUED, "", "Resources"), (State.ENDED, "", ""))
    array = Array("a", "slurm", "p", [JobStatus(n, *each) for n, each in enumerate(states)], "12")
    assert job_lines([array]) == ["job 12: 1 running (n1), 1 queued (Resources), 1 ended"]
    assert job_lines([with_statuses(array, {})]) == []


def test_a_list_of_another_program_is_refused(tmp_path):
    work = helper.Phase("study", "p", 1, None, None, None, None, [], [])
    work.write(tmp_path / "p.json")
    assert helper.open_phase(tmp_path / "p.json") == dataclasses.replace(work, plugins=[], jobs=[])
    reasons = {"Python": "it has Python 3", "torch": "it has torch 2", "code": "its ablate is not"}
    for what, words in reasons.items():
        other = helper.program() | {what: "other"}
        with mock.patch.object(helper, "program", lambda other=other: other):
            work.write(tmp_path / "p.json")
        with pytest.raises(ConfigError, match=words):
            helper.open_phase(tmp_path / "p.json")


@pytest.mark.parametrize(("visible", "count", "each"), [("", 1, []), ("", 3, [*"012"]), ("5,7", 2, [*"57"])])
def test_workers_share_several_gpus_one_each(monkeypatch, visible, count, each):
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert device.each([torch.device("cuda")]) == each
    assert device.each([torch.device("cuda:1")]) == device.each([torch.device("cpu")]) == []
