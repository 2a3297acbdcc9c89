"""Sweeps whose runs are trained as one: their rows, verdicts and files are those of runs alone."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch

from ablate.execution import grouping
from ablate.launch.queue import Queue
from ablate.store.columns import RESOURCE_COLUMNS
from tests.helpers import QUICK, SIMULATED, but, call_cli
from tests.test_pool import breaking, results  # noqa: F401
from tests.test_tuned import TUNED

ONE_AT_A_TIME = ("hydra.launcher.workers=1",)
GROUPED = "hydra.launcher.members=4"
SHORT = (*but(QUICK, "train.steps=6", "train.batch=8"), "train.eval_every=3")
SHORT += ("model.d_model=16", "model.layers=1")

RATES = "train.lr=0.00005,0.0001,0.0002"  # which do not amplify rounding


def tables(cwd: Path, name: str) -> tuple[pd.DataFrame, set[str]]:
    """The rows of a study, and the files of its runs."""
    rows = pd.read_csv(cwd / "runs" / "studies" / name / "results.csv").set_index("run_id").sort_index()
    files = {str(path.relative_to(cwd)) for path in cwd.glob("runs/store/[!.]*/*")}
    return rows.drop(columns=[*RESOURCE_COLUMNS, "threads"]), files


def both_ways(tmp_path: Path, *command: str) -> dict[str, tuple[pd.DataFrame, set[str]]]:
    """The command with its runs alone, and as one; what compare says is to be the same."""
    said, found = {}, {}
    for way, more in (("alone", ()), ("as one", (GROUPED,))):
        (cwd := tmp_path / way).mkdir()
        done = call_cli(*command, *more, *ONE_AT_A_TIME, "name=study", cwd=cwd)
        assert done.returncode == 0, done.stderr
        compared = call_cli("compare", "study", "--format", "csv", cwd=cwd)
        said[way] = [line.split(",")[:4] for line in compared.stdout.splitlines()]
        found[way] = tables(cwd, "study")
    assert said["alone"] == said["as one"]
    (alone, files), (grouped, others) = found["alone"], found["as one"]
    assert files == others and {*alone["members"]} == {1}
    pd.testing.assert_frame_equal(
        alone.drop(columns="members"), grouped.drop(columns="members"), rtol=0, atol=1e-5
    )
    return found


@pytest.mark.slow
def test_a_tuned_study_in_groups(tmp_path):
    fixed = ("study.looks=[]", "study.extend=0")
    study = but(TUNED[: -len(QUICK)], RATES, "seed=range(100,102)")
    rows = both_ways(tmp_path, *study, *fixed, *SHORT)["as one"][0]
    develop, report = (rows[rows["phase"] == phase]["members"] for phase in ("develop", "report"))
    assert {*develop} <= {2, 4} and 4 in {*develop}  # 3 rates × 2 seeds of an arm
    assert 2 in {*report}  # the seeds of an arm


@pytest.mark.slow
def test_only_the_run_of_a_bad_member_fails(tmp_path, breaking, start_python):  # noqa: F811
    """Its process dies with all of its group, which is halved until it is alone."""
    codes = {1: "raise ValueError('no luck')", 2: "os._exit(7)", 5: "os.kill(os.getpid(), 11)"}
    as_one = ("hydra.launcher.members=6", "hydra.launcher.workers=2")
    sweep = ("run", "-m", "seed=range(6)", *SIMULATED, *as_one)
    process = start_python(*sweep, cwd=tmp_path, **breaking(codes))
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1 and "Traceback" not in err, err
    assert "6 runs as one: " in err and "; halved" in err
    rows = results(tmp_path).set_index("seed")
    assert rows["status"].to_dict() == {seed: "failed" if seed in codes else "done" for seed in range(6)}
    reasons = {1: "ValueError: no luck", 2: "exit code 7", 5: "SIGSEGV"}
    assert all(reason in str(rows.loc[seed, "error"]) for seed, reason in reasons.items())


@pytest.mark.slow
def test_three_commands_never_train_a_member_twice(tmp_path, start):
    sweep = ("run", "-m", "seed=range(9)", *SIMULATED, "train.steps=10", "train.simulated.step_ms=20")
    sweep += ("hydra.launcher.members=3", "name=one", *ONE_AT_A_TIME)
    commands = [start(*sweep, cwd=tmp_path) for _ in range(3)]
    texts = [command.communicate(60)[1] for command in commands]
    assert [command.returncode for command in commands] == [0, 0, 0], texts
    assert sum(text.count(": done, val_loss") for text in texts) == 9, texts
    made = [path.read_text() for path in tmp_path.glob("runs/store/[!.]*/log.txt")]
    assert len(made) == 9 and all(text.count("begun") == 1 and "going on" not in text for text in made)


# --- what waits ---------------------------------------------------------------------------------------


@pytest.fixture
def queued(monkeypatch):
    monkeypatch.setattr(grouping, "kind", lambda run: run.kind)
    monkeypatch.setattr(grouping, "why_alone_by_config", lambda run: run.kind == "alone")

    def queued(*kinds: str, device: str = "cpu", **given: Any) -> Queue:
        given = {"start": 0, "members": 3, **given}
        return Queue(waiting(*kinds, device=device), set(), **given)

    return queued


def waiting(*kinds: str, device: str) -> list[Any]:
    return [
        SimpleNamespace(name=f"run-{n:08x}", kind=of, device=torch.device(device))
        for n, of in enumerate(kinds)
    ]


def picked(queue: Queue) -> list[list[int]]:
    groups = itertools.takewhile(bool, iter(queue.next, None))
    return [[int(run.name[4:], 16) for run in group] for group in groups]


def test_runs_of_a_kind_are_given_as_one(queued):
    waits = queued("a", "b", "b", "alone", "a", "b", "b", "alone")
    assert waits.groups == 2 + 1 + 2
    assert picked(waits) == [[0, 4], [1, 2, 5], [6], [3], [7]]
    assert picked(queued(*"abbab", members=1)) == [[0], [1], [2], [3], [4]]
    assert picked(queued(*"abbab", members=None)) == [[0], [1], [2], [3], [4]]
    assert picked(queued(*"abbab", members=None, device="cuda")) == [[0, 3], [1, 2, 4]]
    assert picked(queued(*"aabaa", members=None, device="cuda", apart=2)) == [[0, 1], [3, 4], [2]]
    # another command begins at another group
    assert picked(queued(*"aaaaaaaa", start=0.5)) == [[3, 4, 5], [6, 7], [0, 1, 2]]
    assert picked(queued(*"aaabbb", start=0.5)) == [[3, 4, 5], [0, 1, 2]]


def test_a_group_whose_process_died_is_halved_before_all_others(queued):
    waits = queued(*"aaaab", members=5)
    group = waits.next()
    waits.put_back(group[:2], group[2:])
    assert waits.groups == 3 and picked(waits) == [[0, 1], [2, 3], [4]]


# --- what a person sees -------------------------------------------------------------------------------


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_hydras_launchers_have_no_members(tmp_path, launcher):
    given = (f"hydra/launcher={launcher}", "hydra.launcher.members=2")
    done = call_cli("run", "-m", "seed=0,1", *QUICK, *given, cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "a key of hydra/launcher=pool; choose that" in done.stderr
