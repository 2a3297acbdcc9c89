"""Ladders: forecasts of a difference at a larger size, and what the measured rungs show."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from ablate.analysis.rungs import Rungs, noise_trend, seen, slopes
from ablate.analysis.scaling import forecast
from benchmarks.ladder import as_below

SIZES = np.array([1e5, 2.3e5, 4.4e5, 8e5, 1.7e6])
RELATIVE = SIZES / SIZES[0]
ALPHA = 0.3
SEEDS = (12, 12, 8, 6, 4)
LAWS = {
    "power": lambda n: n**-ALPHA,
    "constant": lambda n: np.ones_like(n),
    "log": lambda n: 1 - np.log(n) / np.log(11),  # crosses zero below the highest rung
}
PAIRS = [(1, 0), (2, 0)]


def ladder(
    *differences_R: np.ndarray, noise: float | np.ndarray = 0.0, seeds: tuple[int, ...] = SEEDS, rng: int = 0
) -> Rungs:
    """A baseline that follows a power law, and one variant for each row of differences to it."""
    random = np.random.default_rng(rng)
    sd_R = np.broadcast_to(noise, len(SIZES)) / np.sqrt(2)
    losses = []
    for r, n in enumerate(seeds):
        level_V = 1.8 + 1.7 * RELATIVE[r] ** -ALPHA + np.array([0.0, *(d[r] for d in differences_R)])
        losses.append(level_V[:, None] + sd_R[r] * random.standard_normal((len(level_V), n)))
    return Rungs(SIZES[: len(seeds)], losses)


def of_law(form: str, **given) -> Rungs:
    return ladder(*(size * LAWS[form](RELATIVE) for size in (0.03, -0.1)), **given)


# --- forecasts --------------------------------------------------------------------------------------


def test_a_difference_that_stays_or_follows_the_logarithm_is_held():
    """A constant is on both forms; of a line the centre is half way from the mean of the rungs to it."""
    same = forecast(of_law("constant").up_to(4), PAIRS, SIZES[4], 4)
    for value in (same.value, same.low, same.high):
        assert value == pytest.approx([0.03, -0.1], rel=5e-3)
    line = forecast(of_law("log").up_to(4), PAIRS, SIZES[4], 4)
    below = np.average(LAWS["log"](RELATIVE)[:4], weights=SEEDS[:4])
    ends = np.sort([below, LAWS["log"](RELATIVE)[4]]) * 0.03
    assert (line.low[0], line.value[0], line.high[0]) == pytest.approx(
        (ends[0], ends.mean(), ends[1]), rel=5e-3
    )


def test_neither_the_order_of_variants_nor_the_unit_of_sizes_changes_a_forecast():
    rungs = of_law("log", noise=0.01).up_to(4)
    made = forecast(rungs, PAIRS, SIZES[4], 4)
    turned = Rungs(rungs.sizes / 1e6, [loss[[2, 0, 1]] for loss in rungs.losses])
    again = forecast(turned, [(2, 1), (0, 1)], SIZES[4] / 1e6, 4)
    alone = forecast(rungs, PAIRS[1:], SIZES[4], 4)
    for name in ("value", "low", "high"):
        assert getattr(again, name) == pytest.approx(getattr(made, name), rel=1e-9)
    assert alone.value[0] == pytest.approx(made.value[1], abs=5e-3)  # they share the trend of noise


EVEN, FALLING = 0.01, 0.015 * RELATIVE**-0.2


@pytest.mark.parametrize(
    ("form", "noise"), [*((form, EVEN) for form in LAWS), ("constant", FALLING)], ids=[*LAWS, "falling"]
)
def test_nine_of_ten_intervals_hold_what_is_seen_and_fewer_naive_ones(form, noise):
    """Of 200 intervals; 0.06 is three standard errors."""
    held, naive = [], []
    for rng in range(100):
        rungs = of_law(form, noise=noise, rng=rng)
        top = seen(rungs, PAIRS).mean[:, -1]
        made = forecast(rungs.up_to(4), PAIRS, SIZES[4], SEEDS[4], draws=200)
        low, high = as_below(rungs.up_to(4), PAIRS, SEEDS[4], level=0.9)
        held.append((made.low <= top) & (top <= made.high))
        naive.append((low <= top) & (top <= high))
    assert 0.84 < np.mean(held) < 0.99
    assert np.mean(naive) < {"power": 0.85, "constant": 0.97, "log": 0.5}[form]


def test_an_interval_includes_the_noise_of_the_seeds_to_come():
    rungs = of_law("constant", noise=0.01).up_to(4)
    widths = [
        np.subtract(made.high, made.low)
        for n in (1, 4, 100_000)
        if (made := forecast(rungs, PAIRS, SIZES[4], n))
    ]
    assert (widths[0] > 1.5 * widths[1]).all() and (widths[1] > 1.3 * widths[2]).all()
    # One seed more: at least the 90 % range of a normal with the noise of a pair.
    assert (widths[0] > 0.8 * 2 * 1.645 * 0.01).all()


def test_variants_that_are_equal_by_construction_and_missing_seeds_do_no_harm():
    rungs = of_law("constant", noise=0.01)
    for loss in rungs.losses:
        loss[2] = loss[0]
    rungs.losses[0][1, 3] = rungs.losses[3][0, 0] = np.nan
    made = forecast(rungs.up_to(4), PAIRS, SIZES[4], 4)
    assert made.low[1] == made.value[1] == made.high[1] == 0
    assert made.low[0] < 0.03 < made.high[0]
    at = seen(rungs, PAIRS)
    assert at.n.tolist() == [[11, 12, 8, 5, 4], [12, 12, 8, 5, 4]]
    pairs = rungs.losses[3][:2, 1:]
    assert at.mean[0, 3] == pytest.approx((pairs[1] - pairs[0]).mean())
    assert [values[1] for values in as_below(rungs, PAIRS, 4, level=0.9)] == [0, 0]
    of_equal = slopes(rungs, PAIRS)
    assert of_equal.low[1] == of_equal.value[1] == of_equal.high[1] == 0


def test_two_seeds_a_rung_are_enough():
    made = forecast(of_law("constant", noise=0.01, seeds=(2, 2, 2, 2)), PAIRS, SIZES[4], 2)
    assert np.isfinite([made.low, made.high]).all() and (made.low < made.value).all()


# --- measured rungs ---------------------------------------------------------------------------------


def test_the_naive_interval_is_that_of_the_rung_below():
    rungs = of_law("log", noise=0.01)
    low, high = as_below(rungs.up_to(4), PAIRS, 4, level=0.9)
    difference = rungs.losses[3][1] - rungs.losses[3][0]
    half = scipy_stats.t.ppf(0.95, 5) * difference.std(ddof=1) * np.sqrt(1 / 6 + 1 / 4)
    assert (low[0], high[0]) == pytest.approx((difference.mean() - half, difference.mean() + half))


def test_noise_that_falls_with_size_is_seen():
    """The variance is proportional to N^−1, which 400 seeds show."""
    rungs = of_law("constant", noise=0.02 * RELATIVE**-0.5, seeds=(400,) * 5)
    assert noise_trend(seen(rungs, PAIRS), np.log(SIZES)) == pytest.approx(-1, abs=0.1)
    even = of_law("constant", noise=0.02, seeds=(400,) * 5)
    assert noise_trend(seen(even, PAIRS), np.log(SIZES)) == pytest.approx(0, abs=0.1)


def test_slopes_are_those_of_least_squares_and_their_intervals_hold_95_percent():
    rungs = of_law("log", noise=0.01)
    expected = np.polyfit(np.log(SIZES), seen(rungs, PAIRS).mean.T, 1, w=np.sqrt(SEEDS))[0]
    assert slopes(rungs, PAIRS).value == pytest.approx(expected)
    true = np.array([0.03, -0.1]) / -np.log(11)
    made = [slopes(of_law("log", noise=0.01, rng=rng), PAIRS) for rng in range(150)]
    held = np.mean([(of.low <= true) & (true <= of.high) for of in made])
    assert 0.91 < held < 0.99
