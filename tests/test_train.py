"""The training loop: what it learns from, when it looks, and how it ends."""

import copy
import math
import re
from typing import Any

import numpy as np
import pytest
import torch

from ablate.data.splits import Stream
from ablate.model.models import Model, build_model
from ablate.store.run_files import Checkpoint
from ablate.training import train
from ablate.training.evaluate import Score, scores
from ablate.training.events import Diverged, Evaluation, Event, Kept, Step
from ablate.training.group import Group
from ablate.training.train import Member, Training
from tests.helpers import make_config, make_spec

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
