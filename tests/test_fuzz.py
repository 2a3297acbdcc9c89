"""Odd command lines and odd files, 100 of those that benchmarks/fuzz.py draws, and the judge of both."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.odd.commands import odd_command
from benchmarks.odd.configs import Cage, odd_config
from benchmarks.odd.files import odd_file
from benchmarks.odd.trial import PILOT, Case, Sandbox, faults_of
from tests.helpers import call_cli


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory) -> Sandbox:
    return Sandbox(tmp_path_factory.mktemp("odd"), call_cli)


def some(make: Callable[[random.Random], Case], count: int) -> list[Case]:
    """The first that are quick: they train nothing, draw no charts and start no process."""
    cases = (make(random.Random(number)) for number in range(10 * count))
    return [case for case in cases if is_quick(case)][:count]


def is_quick(case: Case) -> bool:
    return "--dry-run" in case.argv or case.argv[:1] not in (("run",), ("report",))


@pytest.mark.slow
@pytest.mark.parametrize("case", [*some(odd_command, 65), *some(odd_file, 35)], ids=lambda case: "")
def test_what_is_odd_ends_in_a_result_or_in_one_line(sandbox, case):
    assert not sandbox.trial(case).faults, case.argv


@pytest.mark.slow
def test_a_hostile_config_runs_nothing_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    cage = Cage(tmp_path)
    for number in range(20):
        case = odd_config(random.Random(number))
        assert not cage.trial(case).faults, case.argv


# --- the judge ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code, out, err, fault",
    [
        (0, "a table\n", "a note\nanother\n", None),
        (1, "a table\n", "failed: sum: why\n", None),
        (2, "", "ablate: a=b: why; do this\n", None),
        (2, "", "Usage: ablate\n\nError: why\n", "3 lines"),
        (2, "", "ablate: why\nand more\n", "2 lines"),
        (2, "", "ablate: \n", "1 lines"),
        (2, "", "ablate: ValueError: why; its traceback is in fault.txt\n", "a traceback"),
        (1, "", "Traceback (most recent call last):\n", "a traceback"),
        (-11, "", "ablate: why\n", "exit code -11"),
        (0, "a table\n", "/lib/hydra/x.py:12: UserWarning: why\n", "a warning"),
        (0, "", "\n", "silence"),
    ],
)
def test_an_ending_is_judged_by_its_code_and_its_streams(code, out, err, fault):
    found = faults_of(code, out, err)
    assert found == [] if fault is None else len(found) == 1 and fault in found[0]


FILES = {"book.txt": lambda path: path.write_text("a"), "link": lambda path: path.symlink_to("book.txt")}


def lose_a_run(work: Path) -> None:
    next(work.glob("runs/store/[!.]*/result.json")).unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv, act, fault",
    [
        (("runs",), lambda work: (work / "runs" / "new").touch(), None),
        (("report", PILOT), lambda work: (work / "table-report.html").touch(), None),
        (("report", "--charts=a/b"), lambda work: (work / "a" / "b" / "c").mkdir(parents=True), None),
        (("report", "--out=book.txt"), lambda work: (work / "book.txt").write_text("b"), "book.txt: was"),
        (("runs",), lambda work: (work / "link").write_text("b"), "book.txt: was"),
        (("runs",), lambda work: (work / "link").unlink(), "link: was link to book.txt, is gone"),
        (("runs",), lambda work: (work / ".book.txt.12").touch(), ".book.txt.12: a new file"),
        (("runs",), lambda work: (work.parent / "stray").mkdir(), "stray: a new d"),
        (("runs",), lose_a_run, "1 files of finished runs are lost"),
        (("run", "force=true"), lose_a_run, None),
    ],
)
def test_files_are_judged_by_what_was_there_and_what_was_asked_for(sandbox, monkeypatch, argv, act, fault):
    def call(*argv: str, cwd: Path, **_) -> subprocess.CompletedProcess:
        act(cwd)
        return subprocess.CompletedProcess(argv, 0, "a table\n", "")

    monkeypatch.setattr(sandbox, "call", call)
    faults = sandbox.trial(Case(argv, files=FILES, finished=True)).faults
    assert faults == [] if fault is None else len(faults) == 1 and fault in faults[0]


@pytest.mark.slow  # the sandbox trains runs
def test_a_command_that_hangs_is_ended(sandbox, monkeypatch):
    monkeypatch.setattr("benchmarks.odd.trial.LONGEST_S", 0.2)
    monkeypatch.setattr("tests.helpers.main", lambda: [None for _ in iter(int, 1)])
    ending = sandbox.trial(Case(("runs",)))
    assert ending.code is None and ending.faults == ["still running after 0.2 s"]


@pytest.mark.parametrize("make", [odd_command, odd_file, odd_config])
def test_a_number_gives_the_same_case_again(make):
    for number in range(20):
        one, other = (make(random.Random(number)) for _ in range(2))
        assert (one.argv, one.piped, [*one.files]) == (other.argv, other.piped, [*other.files])
