"""How a run ends that was trained to its last step: whatever is missing then loses none of it."""

import dataclasses
import errno
import math

import pytest

from ablate.data import text_statistics
from ablate.execution import networks
from ablate.execution.execute import execute
from ablate.execution.run import prepare
from ablate.execution.trained import weights_of
from ablate.files import cache
from ablate.store.store import Store
from tests.helpers import ignore, make_config

QUICK = ("corpus=grammar", "corpus.characters=9000", "model.layers=1", "heads=2", "model.d_model=16")
QUICK += ("train.batch=2", "train.steps=4", "train.eval_every=2", "model.context=16")


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_a_loss_at_the_end_that_is_not_finite_is_a_divergence_of_that_column(tmp_path, monkeypatch, number):
    run, scores = prepare(make_config(*QUICK)), networks.scores

    def scoring(group, split, *, context):
        (given,) = scores(group, split, context=context)
        return [dataclasses.replace(given, nats=number)]

    whole = execute(run, ignore, tmp_path / "whole")
    monkeypatch.setattr(networks, "scores", scoring)
    row = execute(run, ignore, tmp_path / "lost")
    assert row["status"] == "diverged"
    assert row["error"] == "test_loss not finite after the last step"
    metrics = ("val_loss", "test_loss", "mix_loss")
    assert {name: row[name] for name in metrics} == {
        name: None if name == "test_loss" else whole[name] for name in metrics
    }
    stored = Store(tmp_path / "lost").run(run.name)
    kept = stored.read()
    assert kept is not None and kept["error"] == row["error"] and weights_of(stored.directory)


def test_a_full_disk_of_the_cache_ends_no_training(tmp_path, monkeypatch):
    run = prepare(make_config(*QUICK, "corpus.seed=5"))

    def full(key: str, write: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(cache, "publish", full)
        row = execute(run, ignore, tmp_path / "full")
    known = text_statistics.text_statistics(run.corpus, 16)
    assert known is not None and row["status"] == "done" and row["ngram_loss"] == known.loss["test"]
    again = execute(run, ignore, tmp_path / "again")
    assert again["mix_loss"] == row["mix_loss"] < row["test_loss"]
