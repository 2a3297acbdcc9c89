"""What a refactor must not change: losses, results, and texts as models read them."""

import json
from pathlib import Path

import pytest

from ablate.data.corpora import registry
from ablate.model import fusion, scores
from ablate.version import NUMERICS
from tests.golden.renew import EXACT, FILE, RUNS, TEXTS, TOLERANCES, differing, losses, texts

GOLDEN = json.loads(FILE.read_text(encoding="utf-8"))
WAY_OUT = (
    "if this is meant, raise NUMERICS in ablate/version.py, so that older results become stale, and write"
    " the new numbers: python -m tests.golden.renew; if it is not, mend it"
)


def test_every_method_and_text_is_golden():
    chosen = {word.partition("=")[2] for words in RUNS.values() for word in words}
    missing = {*fusion.methods(), *scores.methods()} - {"softmax"} - chosen  # which is of concat
    assert not missing, f"{missing}: add a run to RUNS in tests/golden/renew.py, and run that"
    fixed_by_digests = {"download"}
    assert chosen | {*TEXTS, "file"} >= {*registry.methods()} - fixed_by_digests
    assert {*GOLDEN["losses"]} == {*RUNS} and {*GOLDEN["texts"]} == {*TEXTS}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_results_are_the_golden_ones(name):
    changed = differing(losses(name), GOLDEN["losses"][name], TOLERANCES.get(name, EXACT))
    assert not changed, f"{name}: {'; '.join(changed)}: {WAY_OUT}"


@pytest.mark.slow
def test_texts_are_read_as_before(tmp_path: Path):
    changed = {name for name, of in texts(tmp_path).items() if of != GOLDEN["texts"][name]}
    assert not changed, f"{sorted(changed)}: {WAY_OUT}"


def test_the_golden_numbers_are_of_this_version():
    assert GOLDEN["numerics"] == NUMERICS, "python -m tests.golden.renew, and commit both"
