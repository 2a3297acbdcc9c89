"""Hostile configs, of those that benchmarks/fuzz.py draws."""

import random
import sys

import pytest

from benchmarks.odd.configs import Cage, odd_config


@pytest.mark.slow
def test_a_hostile_config_runs_nothing_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    cage = Cage(tmp_path)
    for number in range(12):
        case = odd_config(random.Random(number))
        assert not cage.trial(case).faults, case.argv
