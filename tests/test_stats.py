"""Statistics of paired seeds: answers worked by hand, and the same from scipy and statsmodels."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats as reference
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import ttost_paired

from ablate.analysis import stats
from ablate.analysis.stats import bimodal, limit, widest_gap

NAN = math.nan


def noisy(seed: int, k: int = 4, n: int = 7, effect: float = 0.01) -> tuple[np.ndarray, np.ndarray]:
    """k variants that differ by multiples of `effect`, and their baseline, at n paired seeds."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=n)
    variants = 2 + 0.01 * (shared + rng.normal(size=(k, n))) + effect * np.arange(k)[:, None]
    return variants, np.broadcast_to(2 + 0.01 * (shared + rng.normal(size=n)), (k, n)).copy()


@pytest.mark.parametrize(
    "low, high, verdict, if_higher_is_better",
    [
        (-0.03, -0.002, "better", "worse"),
        (-0.03, -0.02, "better", "worse"),
        (-0.008, -0.002, "better but within the margin", "worse but within the margin"),
        (-0.008, 0.009, "equivalent", "equivalent"),
        (-0.008, 0.011, "undecided", "undecided"),
        (-0.010, 0.001, "undecided", "undecided"),
        (0.002, 0.008, "worse but within the margin", "better but within the margin"),
        (0.002, 0.030, "worse", "better"),
        (NAN, NAN, "undecided", "undecided"),
    ],
)
def test_one_interval_decides_among_six(low, high, verdict, if_higher_is_better):
    low, high = np.array([low]), np.array([high])
    assert stats.verdicts(low, high, 0.01).tolist() == [verdict]
    assert stats.verdicts(low, high, 0.01, higher_is_better=True).tolist() == [if_higher_is_better]


@pytest.mark.parametrize("seed", range(5))
def test_the_same_as_scipy_and_statsmodels(seed):
    a, b = noisy(seed)
    result = stats.paired(a, b, margin=0.013)
    p = reference.ttest_rel(a, b, axis=1).pvalue
    assert result["p"] == pytest.approx(p, rel=1e-9)
    assert result["p_holm"] == pytest.approx(multipletests(p, method="holm")[1], rel=1e-9)
    tost = [ttost_paired(x, y, -0.013, 0.013)[0] for x, y in zip(a, b, strict=True)]
    assert result["p_tost"] == pytest.approx(tost, rel=1e-9)
    assert result["p_tost_holm"] == pytest.approx(multipletests(tost, method="holm")[1], rel=1e-9)
    welch = [reference.ttest_ind(x, y, equal_var=False)[1] for x, y in zip(a, b, strict=True)]
    assert result["p_welch"] == pytest.approx(welch)
    assert result["skew"] == pytest.approx(reference.skew(a - b, axis=1))
    correlation = [np.corrcoef(x, y)[0, 1] for x, y in zip(a, b, strict=True)]
    assert result["correlation"] == pytest.approx(correlation)
    interval = reference.ttest_rel(a, b, axis=1).confidence_interval(1 - 0.05 / 4)
    assert result["low"] == pytest.approx(interval.low) and result["high"] == pytest.approx(interval.high)


@pytest.mark.parametrize("seed", range(12))
def test_a_claim_is_never_without_its_p(seed):
    rng = np.random.default_rng(seed)
    a, b = noisy(seed, n=int(rng.integers(3, 30)), effect=rng.choice([0.0, 0.004, 0.01, 0.03]))
    result = stats.paired(a, b, margin=0.01)
    excludes = (result["low"] > 0) | (result["high"] < 0)
    within = (result["low"] > -0.01) & (result["high"] < 0.01)
    assert (excludes == (4 * result["p"] < 0.05)).all()
    assert (result["p_holm"][excludes] < 0.05).all() and (result["p_tost_holm"][within] < 0.05).all()
    assert ((result["verdict"] == "undecided") == ~(excludes | within)).all()
    mirrored = stats.paired(b, a, margin=0.01)
    swap = {"better": "worse", "worse": "better"}
    words = [str(verdict).split(" ") for verdict in result["verdict"]]
    turned = [" ".join(swap.get(word, word) for word in verdict) for verdict in words]
    assert mirrored["verdict"].tolist() == turned
    assert mirrored["p"] == pytest.approx(result["p"])


def test_missing_seeds_leave_the_pair():
    a, b = noisy(3, k=1)
    gaps_a, gaps_b = a.copy(), b.copy()
    gaps_a[0, 1], gaps_b[0, 4] = NAN, NAN
    kept = [0, 2, 3, 5, 6]
    with_gaps = pd.DataFrame(stats.paired(gaps_a, gaps_b, margin=0.01))
    without = pd.DataFrame(stats.paired(a[:, kept], b[:, kept], margin=0.01))
    assert with_gaps["n"].tolist() == [5]
    pd.testing.assert_frame_equal(with_gaps, without, rtol=1e-9)


def test_what_does_not_vary_or_has_one_seed_never_reaches_a_test():
    a = np.array([[2.3, 2.4, 2.5], [2.1, NAN, NAN], [2.0, 2.2, 2.5], [NAN, NAN, NAN]])
    b = np.array([[2.1, 2.2, 2.3]] * 4)  # 2.3 − 2.1 and 2.4 − 2.2 differ in their last bits
    result = stats.paired(a, b, margin=0.01)
    assert result["family"].tolist() == [False, False, True, False]
    assert np.isnan(result["p"]).tolist() == [True, True, False, True]
    assert result["p_holm"][2] == result["p"][2]  # alone in its family
    assert result["verdict"].tolist() == ["undecided"] * 4
    assert result["diff"][:2] == pytest.approx([0.2, 0.0])


def test_who_is_left_out_of_the_family_changes_nobodys_p():
    a, b = noisy(1)
    only = np.array([True, False, True, False])
    result = stats.paired(a, b, margin=0.01, in_family=only)
    alone = stats.paired(a[only], b[only], margin=0.01)
    assert result["p_holm"][only] == pytest.approx(alone["p_holm"])
    assert result["low"][only] == pytest.approx(alone["low"])
    assert np.isnan(result["p"][~only]).all()


def test_power_is_that_of_statsmodels_and_seeds_those_of_the_table():
    for n in (3, 8, 21):
        for d in (0.2, 1.0, 1.7):
            mine = stats.power_difference(np.array(n), np.array(d), np.array(1.0), 0.05)
            assert float(mine) == pytest.approx(TTestPower().power(d, n, 0.05), abs=1e-9)
    sizes = [0.5, 0.8, 1, 1.5, 2, 3]
    assert stats.seeds_to_claim(sizes, 1.0, 0.05).tolist() == [34, 15, 10, 6, 5, 4]
    assert stats.seeds_to_claim(sizes, 1.0, 0.01).tolist() == [51, 22, 16, 9, 7, 5]
    assert stats.seeds_to_claim([1e-9, 1e9], 1.0, 0.05).tolist() == [math.inf, 2]


def test_power_of_equivalence_as_simulated():
    rng = np.random.default_rng(5)
    low, high = stats.t_interval(rng.normal(0.003, 0.01, (20_000, 30)), 0.05)
    seen = ((low > -0.01) & (high < 0.01)).mean()
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
    low, high = stats.t_interval(difference, 0.05 / 3)
    alarms = ((low > 0) | (high < 0)).reshape(-1, 3).any(1).mean()
    assert 0.02 < alarms < 0.05 + 2 * math.sqrt(0.05 * 0.95 / 4000)
    low, high = stats.t_interval(difference)
    assert ((low < 0) & (high > 0)).mean() == pytest.approx(0.95, abs=0.01)


def test_the_widest_gap_by_hand():
    """1, 2, 4, 9: the gap of 5 after the third; within, squares of 1, 2, 4 about 7/3, and 2 degrees of
    freedom."""
    at, ratio = widest_gap(np.array([[1.0, 2, 4, 9], [3, 3, 3, 3]]))
    within = sum((x - 7 / 3) ** 2 for x in (1, 2, 4))
    assert at[0] == 2 and ratio[0] == pytest.approx(5 / (within / 2) ** 0.5) and np.isnan(ratio[1])


@pytest.mark.parametrize("n", [6, 8, 24])
def test_one_kind_of_seeds_is_rarely_taken_for_two(n):
    draws = np.random.default_rng(n).standard_normal((4000, n))
    found = np.mean([bimodal(row) is not None for row in draws])
    assert abs(found - 0.01) < 3 * (0.01 * 0.99 / len(draws)) ** 0.5 + 0.002


def test_bimodal_seeds_are_named_by_the_smaller_group():
    rng = np.random.default_rng(1)
    values = np.append(rng.normal(1.8, 0.02, 9), [np.nan, 2.2, 2.25])
    found = bimodal(rng.permutation(values))
    assert found is not None and found.sum() == 2
    half = bimodal(np.array([1.0, 1.01, 1.02, 3.0, 3.01, 3.02]))
    assert half is not None and half.tolist() == [False] * 3 + [True] * 3
    assert bimodal(np.array([1.0, 1.01, 1.02, 3.0, 3.01])) is None  # too few
    assert bimodal(np.full(8, 2.3)) is None and bimodal(np.full(8, 2.3) + np.arange(8) * 1e-16) is None
    assert 1.5 < limit(1000) < limit(8) < limit(6)
