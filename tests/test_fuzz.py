"""Odd command lines and odd files, 32 of those that benchmarks/fuzz.py draws."""

import random
import sys
from collections.abc import Callable

import pytest

from benchmarks.odd.commands import odd_command
from benchmarks.odd.configs import Cage, odd_config
from benchmarks.odd.files import odd_file
from benchmarks.odd.trial import Case, Sandbox
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
@pytest.mark.parametrize("case", [*some(odd_command, 20), *some(odd_file, 12)], ids=lambda case: "")
def test_what_is_odd_ends_in_a_result_or_in_one_line(sandbox, case):
    assert not sandbox.trial(case).faults, case.argv


@pytest.mark.slow
def test_a_hostile_config_runs_nothing_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    cage = Cage(tmp_path)
    for number in range(12):
        case = odd_config(random.Random(number))
        assert not cage.trial(case).faults, case.argv
