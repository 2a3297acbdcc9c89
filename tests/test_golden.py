"""Losses that a refactor must not change; tests/golden/README.md tells how to renew them."""

import csv

import pytest

from ablate.model import fusion, scores
from tests.golden.renew import FILE, RUNS, losses


def test_every_method_has_a_golden_run():
    assert {*RUNS} >= {*fusion.methods(), *scores.methods()} - {"softmax"}  # of concat


@pytest.mark.parametrize("name", RUNS)
def test_losses_are_the_golden_ones(name):
    with FILE.open(encoding="utf-8", newline="") as file:
        golden = {(row["method"], row["what"]): float(row["loss"]) for row in csv.DictReader(file)}
    found = {(method, what): loss for method, what, loss in losses(name)}
    assert len(found) == 7
    assert found == pytest.approx({key: golden[key] for key in found}, abs=1e-4)
