"""Training: the optimizer, what the loop learns from, when it looks, and how it ends."""

import copy
import dataclasses
import errno
import math
import re
from typing import Any

import numpy as np
import pytest
import torch

from ablate.config.schema import TrainConfig
from ablate.data.counting import text_statistics
from ablate.data.splits import Stream
from ablate.execution import networks
from ablate.execution.execute import execute
from ablate.execution.run import prepare
from ablate.execution.trained import weights_of
from ablate.files import cache
from ablate.model.models import Model, build_model
from ablate.store.run_files import Checkpoint
from ablate.store.store import Store
from ablate.training import optim, train
from ablate.training.evaluate import Score, scores
from ablate.training.events import Diverged, Evaluation, Event, Kept, Step
from ablate.training.group import Group
from ablate.training.train import Member, Training
from tests.helpers import ignore, make_config, make_spec

# --- the optimizer, against torch.optim and by hand ---------------------------------------------------------


def trained(**keys: float) -> TrainConfig:
    return dataclasses.replace(make_config().train, **keys)


def test_adamw_is_torchs_for_each_member():
    """Of 4 members with 20 parameters, of which 13 decay: rates, decay and divisors are a member's, and two
    have equal rates and decay."""
    weights_MP = torch.randn(4, 20, dtype=torch.float64)
    decay, divisor_M = [0.3, 0.0, 0.1, 0.3], torch.tensor([2.5, 1.0, 7.0, 3.0])
    alike = [([0, 3], 0.3), ([1], 0.0), ([2], 0.1)]
    theirs = [[torch.nn.Parameter(part.clone()) for part in row.split([13, 7])] for row in weights_MP]
    reference = [
        torch.optim.AdamW(
            [{"params": [decays], "weight_decay": most}, {"params": [kept], "weight_decay": 0.0}],
            **{"betas": (0.8, 0.95), "eps": 1e-3},
        )
        for (decays, kept), most in zip(theirs, decay, strict=True)
    ]
    moments = optim.Moments.zeros(weights_MP)
    for step in range(1, 8):
        grads_MP, lr_M = (
            torch.randn(4, 20, dtype=torch.float64),
            torch.tensor([0.1, 0.2, 0.3, 0.1]).double() / step,
        )
        for params, optimizer, grads, divisor, lr in zip(
            theirs, reference, grads_MP, divisor_M, lr_M.tolist(), strict=True
        ):
            for param, grad, group in zip(
                params, (grads / divisor).split([13, 7]), optimizer.param_groups, strict=True
            ):
                param.grad, group["lr"] = grad, lr
            optimizer.step()
        rates: Any = {"lr_M": lr_M, "alike": alike, "decayed": 13, "divisor_M": divisor_M}
        optim.update_(weights_MP, grads_MP, moments, trained(beta1=0.8, beta2=0.95, eps=1e-3), **rates)
    for mine, params in zip(weights_MP, theirs, strict=True):
        torch.testing.assert_close(mine, torch.cat([*params]).detach(), rtol=1e-12, atol=1e-14)


def test_clipping_by_hand():
    norm_M = torch.tensor([5.0, 5.0, 5.0])
    divisors = optim.clipping_divisor(norm_M, torch.tensor([2.5, 10.0, math.inf]))
    assert divisors.tolist() == pytest.approx([2, 1, 1])  # the second is short enough, the third not clipped


def test_schedule_by_hand():
    def rate(step):
        return optim.learning_rate(step, trained(steps=10, warmup=0.2, min_lr_ratio=0.1), 1.0)

    # two steps of warm-up reach 1/3 and 2/3; then cosine over 8 steps: 1 at its start, 0.55 half-way
    assert [rate(1), rate(2), rate(3), rate(7)] == pytest.approx([1 / 3, 2 / 3, 1.0, 0.55])
    rates = [rate(step) for step in range(3, 11)]
    assert rates == sorted(rates, reverse=True) and 0.1 < rates[-1] < 0.14


def test_one_step_has_its_full_rate():
    assert optim.learning_rate(1, trained(steps=1, warmup=0.05, min_lr_ratio=0.1), 0.3) == pytest.approx(0.3)


# --- the loop -----------------------------------------------------------------------------------------------


SIZES = ("model.d_model=12", "heads=2", "model.context=7")
SIZES += ("train.steps=9", "train.batch=3", "train.eval_every=4")
HALF = ("train.precision=bfloat16",)
TOKENS = np.random.default_rng(0).integers(11, size=997).astype(np.uint16)


Events = list[Event]


def untrained(*overrides: str) -> Model:
    seeds = make_config(*SIZES, *overrides).resolved_seeds()
    return build_model(make_spec(*SIZES, *overrides, vocab=11), seeds)


def started(
    model: Model, *overrides: str, tokens: np.ndarray = TOKENS, seed: int = 0, start: Checkpoint | None = None
) -> Training:
    config = make_config(*SIZES, *overrides).train
    splits = {"train_split": Stream(tokens), "validation_split": Stream(tokens[:100])}
    context = model.get_parameter("position.weight").shape[0]
    members = [Member(config, seed, start)]
    return Training(Group([model], config.precision), members, **splits, context=context)


def events(*overrides: str, seed: int = 0) -> Events:
    return [*started(untrained(*overrides), *overrides, seed=seed).events()]


def losses(trained: Events) -> list[float]:
    return [event.loss_M.item() for event in trained if isinstance(event, Step)]


def evaluations(trained: Events) -> list[Evaluation]:
    return [event for event in trained if isinstance(event, Evaluation)]


def evaluated(model: Model, split: Any, context: int, precision: str = "float32") -> Score:
    (score,) = scores(Group([model], precision), split, context=context)
    return score


def test_evaluates_before_every_so_often_and_at_the_end():
    seen = evaluations(trained := events())
    assert [event.step for event in seen] == [0, 4, 8, 9]
    assert [event.tokens for event in seen] == [0, 4 * 3 * 7, 8 * 3 * 7, 9 * 3 * 7]
    first, at_4, *_ = seen
    assert (first.lr, first.train_loss, first.grad_norm) == (None, None, None)
    assert first.validation.loss == pytest.approx(math.log(11), abs=0.05)
    assert losses(trained)[0] == pytest.approx(math.log(11), abs=0.05)  # before the first update
    assert at_4.train_loss == losses(trained)[3]  # of its own batch


def test_dropout_has_its_own_draws_each_step_and_none_at_evaluation():
    one, again = events("model.dropout=0.3"), events("model.dropout=0.3", "train.eval_every=1")
    assert losses(one) == losses(again) != losses(events()) != losses(events(seed=1))
    assert evaluations(one)[-1].validation == evaluations(again)[-1].validation


def test_evaluation_by_hand():
    """Every token but the first is a target once, in windows of 7; a model that ignores its input."""
    model = untrained()
    for param in model.parameters():
        param.data.zero_()
    model.get_parameter("norm.weight").data[0] = 1.0
    tokens = np.array([3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0])  # 15 targets, 2 windows + 1
    score = evaluated(model, Stream(tokens), 7)
    assert score.targets == 15
    assert score.nats == pytest.approx(15 * math.log(11))
    assert score.correct == 6  # all logits equal: the first token, 0, is the guess; 6 of the targets are 0
    assert score.loss == pytest.approx(math.log(11)) and score.accuracy == 6 / 15


def test_a_loss_that_is_not_a_number_ends_the_run_and_names_the_step():
    *_, last = events("train.lr=1e30", "train.clip=null", "train.warmup=0")
    assert isinstance(last, Diverged) and re.search(r"not finite at step [2-9]", str(last))


def test_bfloat16_keeps_weights_in_float32_and_learns_alike():
    model = untrained(*HALF)
    trained = [*started(model, *HALF).events()]
    assert all(param.dtype == torch.float32 for param in model.parameters())
    assert losses(trained) != losses(events())
    assert losses(trained) == pytest.approx(losses(events()), abs=0.02)


def test_a_mid_run_evaluation_reads_what_it_may_and_changes_nothing_that_is_learned():
    whole, some = events(), events("train.eval_tokens=30")
    assert losses(whole) == losses(some)
    assert [e.validation.targets for e in evaluations(some)] == [28] * 4  # whole windows of 7
    assert [e.validation.targets for e in evaluations(whole)] == [99] * 4
    assert [e.validation.targets for e in evaluations(events("train.eval_tokens=1000"))] == [99] * 4


@pytest.mark.parametrize("more", ["", "model.dropout=0.2", "fusion=weighted_sum", *HALF])
def test_going_on_from_a_state_changes_nothing(more, monkeypatch):
    monkeypatch.setattr(train, "CHECKPOINTS", 1e9)  # each that is due
    overrides = (*more.split(), "train.checkpoint_every=2", "train.eval_every=3")

    def run(start: Checkpoint | None, stop: int | None) -> Events:
        training, trained = started(untrained(*overrides), *overrides, start=start), []
        for event in training.events():
            trained.append(copy.deepcopy(event))
            if isinstance(event, Kept) and event.checkpoint.step == stop:
                break
        return trained

    whole = run(None, None)
    assert [event.checkpoint.step for event in whole if isinstance(event, Kept)] == [2, 4, 6, 8]
    for stop in (2, 6):
        *before, resumable = run(None, stop)
        assert isinstance(resumable, Kept)
        after = run(resumable.checkpoint, None)
        assert losses(before) + losses(after) == losses(whole)
        scores = [event.validation for event in evaluations(before) + evaluations(after)]
        assert scores == [event.validation for event in evaluations(whole)]
        assert all(a.seconds >= resumable.checkpoint.seconds for a in evaluations(after))


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
    known = text_statistics(run.corpus, 16)
    assert known is not None and row["status"] == "done" and row["ngram_loss"] == known.loss["test"]
    again = execute(run, ignore, tmp_path / "again")
    assert again["mix_loss"] == row["mix_loss"] < row["test_loss"]
