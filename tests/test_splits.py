"""Batches: every start, every target, and nothing but the arguments."""

import numpy as np
import pytest
import torch

from ablate.data.splits import Stream

TOKENS = np.arange(100, 123, dtype=np.uint16)  # 23 tokens, each the place it stands at, plus 100
TEXT = Stream(TOKENS)


def test_targets_are_the_inputs_one_later():
    inputs, targets, positions, _ = TEXT.batch(context=5, batch=7, seed=0, step=3)
    assert inputs.shape == targets.shape == (7, 5)
    assert inputs.dtype == targets.dtype == torch.int64
    assert inputs.is_contiguous() and targets.is_contiguous() and positions is None
    assert torch.equal(inputs[:, :1] + torch.arange(5), inputs)
    assert torch.equal(inputs + 1, targets)


def test_a_batch_depends_on_seed_and_step_alone():
    def batch(seed: int, step: int) -> list[int]:
        np.random.seed(step + 7 * seed)
        torch.manual_seed(step + 7 * seed)
        return TEXT.batch(context=5, batch=29, seed=seed, step=step)[0][:, 0].tolist()

    first = batch(1, 2)
    assert batch(1, 3) != first and batch(2, 2) != first
    assert batch(1, 2) == first


def test_every_start_is_drawn_equally_often():
    """23 tokens hold 18 windows of 5 and a target: starts 0 to 17, each 1/18 of the draws."""
    inputs, targets, *_ = TEXT.batch(context=5, batch=36_000, seed=0, step=0)
    counts = torch.bincount(inputs[:, 0] - 100)
    assert counts.shape == (18,) and targets.max() == 122
    assert (counts - 2000).abs().max() < 5 * np.sqrt(2000)
    inputs, targets, *_ = Stream(TOKENS[:6]).batch(context=5, batch=3, seed=0, step=0)  # the smallest
    assert inputs.tolist() == [[100, 101, 102, 103, 104]] * 3 and targets[0, -1] == 105


def test_evaluation_by_hand():
    """22 targets are 4 windows of 5, three at a time, and one of 2."""
    windows = list(TEXT.windows(context=5, windows=3))
    assert [tuple(inputs.shape) for inputs, *_ in windows] == [(3, 5), (1, 5), (1, 2)]
    assert torch.cat([inputs.flatten() for inputs, *_ in windows]).tolist() == list(range(100, 122))
    assert torch.cat([targets.flatten() for _, targets, *_ in windows]).tolist() == list(range(101, 123))
    assert windows[0][0][1].tolist() == [105, 106, 107, 108, 109]
    assert all(part.dtype == torch.int64 for window in windows for part in window[:2])


def test_evaluation_without_a_shorter_window():
    assert [tuple(x.shape) for x, *_ in TEXT.windows(context=11, windows=5)] == [(2, 11)]
    assert [tuple(x.shape) for x, *_ in TEXT.windows(context=31, windows=5)] == [(1, 22)]
    assert not list(Stream(TOKENS[:1]).windows(context=5, windows=3))
    assert not list(Stream(TOKENS[:0]).windows(context=5, windows=3))


@pytest.mark.parametrize(("most", "count"), [(1, 1), (5, 1), (14, 2), (350, 70), (998, 199)])
def test_some_windows_are_spread_over_the_split_and_the_same_each_time(most, count):
    tokens = np.arange(1000)  # 199 windows of 5

    def starts() -> list:
        batches = Stream(tokens).windows(context=5, windows=3, most=most)
        return [window[0].item() for inputs, *_ in batches for window in inputs]

    assert len(starts()) == count and starts() == starts()
    gaps = np.diff([*starts(), 199 * 5]) // 5
    assert gaps.max() - gaps.min() <= 1 and all(start % 5 == 0 for start in starts())
