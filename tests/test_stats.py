"""Statistics of paired seeds: answers worked by hand, and the same from scipy and statsmodels."""

import math

import numpy as np
import pytest
from scipy import stats as reference

from ablate.analysis import stats
from ablate.analysis.stats import bimodal, limit, widest_gap

NAN = math.nan


def noisy(seed: int, k: int = 4, n: int = 7, effect: float = 0.01) -> tuple[np.ndarray, np.ndarray]:
    """k variants that differ by multiples of `effect`, and their baseline, at n paired seeds."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=n)
    variants = 2 + 0.01 * (shared + rng.normal(size=(k, n))) + effect * np.arange(k)[:, None]
    return variants, np.broadcast_to(2 + 0.01 * (shared + rng.normal(size=n)), (k, n)).copy()


def judged(a: np.ndarray, b: np.ndarray, margin: float = 0.01, k: int = 4, better: bool | None = False):
    scale = np.nanmax(np.abs(a), 1)
    estimate = stats.paired(a - b, scale)
    return estimate, stats.judge(estimate, 1 - 0.05 / k, margin, better)


@pytest.mark.parametrize(
    "low, high, verdict, if_higher_is_better, if_neither",
    [
        (-0.03, -0.002, "better", "worse", "undecided"),
        (-0.008, -0.002, "equivalent", "equivalent", "equivalent"),
        (-0.008, 0.009, "equivalent", "equivalent", "equivalent"),
        (-0.008, 0.011, "undecided", "undecided", "undecided"),
        (-0.0101, 0.001, "undecided", "undecided", "undecided"),
        (0.002, 0.030, "worse", "better", "undecided"),
        (NAN, NAN, "undecided", "undecided", "undecided"),
    ],
)
def test_one_interval_decides_among_four(low, high, verdict, if_higher_is_better, if_neither):
    """Of 2 degrees of freedom, at the level where t is √2 · 3: 1 − α = 1 − 2(1 − F(√18)) = 3/√10."""
    middle, half = (low + high) / 2, (high - low) / 2
    one = np.ones(1)
    estimate = stats.Estimate(3 * one, middle * one, one, half / math.sqrt(18) * one, 2 * one)
    for better, expected in ((False, verdict), (True, if_higher_is_better), (None, if_neither)):
        found = stats.judge(estimate, 3 / math.sqrt(10), 0.01, better)
        assert found.verdict.tolist() == [expected]
        assert [found.low[0], found.high[0]] == pytest.approx([low, high], nan_ok=True)


@pytest.mark.parametrize("seed", range(12))
def test_a_verdict_is_never_without_its_p(seed):
    rng = np.random.default_rng(seed)
    a, b = noisy(seed, n=int(rng.integers(3, 30)), effect=rng.choice([0.0, 0.004, 0.01, 0.03]))
    _, found = judged(a, b)
    excludes = (found.low > 0) | (found.high < 0)
    within = (found.low > -0.01) & (found.high < 0.01)
    assert (excludes == (found.p_adjusted < 0.05)).all()
    assert ((found.verdict == "undecided") == ~(excludes | within)).all()
    assert ((found.verdict == "equivalent") == within).all()
    _, mirrored = judged(b, a)
    swap = {"better": "worse", "worse": "better"}
    assert mirrored.verdict.tolist() == [swap.get(one, one) for one in found.verdict]


def test_what_does_not_vary_or_has_one_seed_never_reaches_a_test():
    a = np.array([[2.3, 2.4, 2.5], [2.1, NAN, NAN], [2.0, 2.2, 2.5]])
    b = np.array([[2.1, 2.2, 2.3]] * 3)  # 2.3 − 2.1 and 2.4 − 2.2 differ in their last bits
    estimate, found = judged(a, b)
    assert np.isnan(found.p).tolist() == [True, True, False]
    assert found.verdict.tolist() == ["undecided"] * 3
    assert estimate.diff[:2] == pytest.approx([0.2, 0.0])


@pytest.mark.parametrize(
    "more, kept", [(1, ["worse"]), (-1, ["better"]), (0, ["better", "worse", "equivalent"])]
)
def test_a_verdict_that_favours_the_side_that_diverged_more_is_withheld(more, kept):
    verdicts = np.array(["better", "worse", "equivalent", "undecided"])
    found = stats.withheld(verdicts, np.full(4, more))
    assert found.tolist() == [one if one in kept else "undecided" for one in verdicts]


def test_sign_flips_by_hand():
    """Of 2⁴ ways to flip 1, 2, 3, −1, ten have a sum of 5 or more in size; of 1 to 6, two have all."""
    assert stats.by_sign_flips(np.array([1.0, 2.0, 3.0, -1.0, NAN])) == (6 / 16, 2 / 16)
    assert stats.by_sign_flips(np.arange(1.0, 7.0)) == (2 / 64, 2 / 64)
    p, least = stats.by_sign_flips(np.r_[np.ones(20), -np.ones(10)])
    assert least == 2e-4 and p == pytest.approx(2 * reference.binom.sf(19, 30, 0.5), abs=0.01)
    kept = stats.without_farthest(np.array([[1.0, 2.0, 9.0, NAN]]))
    assert kept[0].tolist() == pytest.approx([1.0, 2.0, NAN, NAN], nan_ok=True)


def test_power_is_that_of_statsmodels_and_seeds_those_of_the_table():
    theirs = pytest.importorskip("statsmodels.stats.power", reason="needs statsmodels").TTestPower()
    for n in (3, 8, 21):
        for d in (0.2, 1.0, 1.7):
            mine = stats.power_difference(np.array(n), np.array(d), np.array(1.0), 0.05)
            assert float(mine) == pytest.approx(theirs.power(d, n, 0.05), abs=1e-9)
    sizes = [0.5, 0.8, 1, 1.5, 2, 3]
    assert stats.seeds_to_claim(sizes, 1.0, 0.05).tolist() == [34, 15, 10, 6, 5, 4]
    assert stats.seeds_to_claim(sizes, 1.0, 0.01).tolist() == [51, 22, 16, 9, 7, 5]
    assert stats.seeds_to_claim([1e-9, 1e9], 1.0, 0.05).tolist() == [math.inf, 2]


def test_power_of_equivalence_as_simulated():
    rng = np.random.default_rng(5)
    found = stats.judge(stats.paired(rng.normal(0.003, 0.01, (20_000, 30))), 0.95, 0.01)
    seen = (found.verdict == stats.EQUIVALENT).mean()
    said = stats.power_equivalence(np.array(30), np.array(0.003), np.array(0.01), 0.05, 0.01)
    assert float(said) == pytest.approx(seen, abs=0.01)
    assert float(stats.power_equivalence(np.array(30), np.array(9.0), np.array(0.01), 0.05, 0.01)) == 0


def test_the_least_difference_is_seen_with_just_that_power():
    least = stats.least_difference([5, 12], 0.01, 0.05)
    power = stats.power_difference(np.array([5, 12]), least, np.array(0.01), 0.05)
    assert power == pytest.approx([0.8, 0.8], abs=1e-6)
    assert stats.least_difference(1, 0.01, 0.05) == math.inf


def test_false_alarms_stay_in_the_family_and_intervals_cover():
    rng = np.random.default_rng(11)
    loss = 0.01 * (rng.normal(size=(4000, 1, 5)) + rng.normal(size=(4000, 4, 5)))
    difference = (loss[:, 1:] - loss[:, :1]).reshape(-1, 5)
    found = stats.judge(stats.paired(difference), 1 - 0.05 / 3, np.nan)
    alarms = (found.verdict != stats.UNDECIDED).reshape(-1, 3).any(1).mean()
    assert 0.02 < alarms < 0.05 + 2 * math.sqrt(0.05 * 0.95 / 4000)
    found = stats.judge(stats.paired(difference), 0.95, np.nan)
    assert ((found.low < 0) & (found.high > 0)).mean() == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("n", [8, 24])
def test_seeds_of_two_kinds_make_no_more_false_alarms(n):
    """Every eighth run learns late, at 0.4 nats more."""
    rng = np.random.default_rng(n + 2)
    losses = 0.0087 * rng.standard_normal((2000, 2, n)) + 0.4 * (rng.random((2000, 2, n)) < 1 / 8)
    found = stats.judge(stats.paired(losses[:, 0] - losses[:, 1]), 0.95, 0.01)
    assert (found.p < 0.05).mean() <= 0.06


def test_the_widest_gap_by_hand():
    """1, 2, 4, 9: the gap of 5 after the third; within, squares of 1, 2, 4 about 7/3, and 2 degrees of
    freedom."""
    at, ratio = widest_gap(np.array([[1.0, 2, 4, 9], [3, 3, 3, 3]]))
    within = sum((x - 7 / 3) ** 2 for x in (1, 2, 4))
    assert at[0] == 2 and ratio[0] == pytest.approx(5 / (within / 2) ** 0.5) and np.isnan(ratio[1])


@pytest.mark.parametrize(("n", "of"), [(6, 1), (8, 1), (24, 1), pytest.param(8, 13, marks=pytest.mark.slow)])
def test_one_kind_of_seeds_is_rarely_taken_for_two(n, of):
    """The variants of a study are clean together in 99 of 100 studies."""
    draws = np.random.default_rng(n).standard_normal((4000, of, n))
    found = np.mean([any(bimodal(row, of).any() for row in study) for study in draws])
    assert abs(found - 0.01) < 3 * (0.01 * 0.99 / len(draws)) ** 0.5 + 0.002


def test_bimodal_seeds_are_named_by_the_smaller_group():
    rng = np.random.default_rng(1)
    values = np.append(rng.normal(1.8, 0.02, 9), [np.nan, 2.2, 2.25])
    found = bimodal(rng.permutation(values))
    assert found.sum() == 2
    half = bimodal(np.array([1.0, 1.01, 1.02, 3.0, 3.01, 3.02]))
    assert half.tolist() == [False] * 3 + [True] * 3
    assert not bimodal(np.array([1.0, 1.01, 1.02, 3.0, 3.01])).any()  # too few
    assert not bimodal(np.full(8, 2.3)).any()
    assert not bimodal(np.full(8, 2.3) + np.arange(8) * 1e-16).any()
    assert 1.5 < limit(1000) < limit(8) < limit(6)


def test_sign_flips_of_many_seeds_are_those_of_a_normal_distribution():
    """Where 2 to the power of the seeds is no number any more; on both sides of where flips are drawn."""
    d = np.random.default_rng(0).normal(0.1, 1, 3000)
    few = stats.by_sign_flips(d[: stats.NORMAL])[0]
    normal = 2 * reference.norm.sf(abs(d[: stats.NORMAL].sum()) / np.sqrt((d[: stats.NORMAL] ** 2).sum()))
    assert few == pytest.approx(normal, abs=0.02)
    p, least = stats.by_sign_flips(d)
    assert p == pytest.approx(2 * reference.norm.sf(d.sum() / np.sqrt((d**2).sum()))) and least == 0
