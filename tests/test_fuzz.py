"""Odd command lines and odd files, a few of those that benchmarks/fuzz.py draws."""

import random

import pytest

from tests.helpers import call_cli
from tests.odd.case import Case
from tests.odd.commands import odd_command
from tests.odd.files import odd_file
from tests.odd.trial import Sandbox


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory) -> Sandbox:
    return Sandbox(tmp_path_factory.mktemp("odd"), call_cli)


def _is_quick(case: Case) -> bool:
    """Whether it trains nothing, draws no charts and starts no process."""
    return "--dry-run" in case.argv or case.argv[:1] not in (("run",), ("report",))


def _some(make, count: int):
    cases = (make(random.Random(number)) for number in range(10 * count))
    return [case for case in cases if _is_quick(case)][:count]


@pytest.mark.parametrize("case", [*_some(odd_command, 100), *_some(odd_file, 50)], ids=lambda case: "")
def test_what_is_odd_ends_in_a_result_or_in_one_line(sandbox, case):
    assert not sandbox.trial(case).faults
