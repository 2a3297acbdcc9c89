"""Looks: the numbers of seeds at which a study may decide a contrast and train no more of it.

They are named before the study begins. At the look of n_i seeds, each of the k contrasts of a family has an
interval at 1 − α_i/k, where α_i = α·(n_i − n_{i−1})/n_last: the level is spent linearly in the seeds (Lan and
DeMets, 1983). Over all looks and contrasts these shares add up to α (Bonferroni). So with probability ≥ 1 − α
every interval of every look contains its true difference, wherever a contrast stops: they are repeated
confidence intervals (Jennison and Turnbull, 1989). Before the last look, an interval takes at least the
median scatter of its family, since few seeds may lie close together by luck, and skewed ones often do. Arrays
in, arrays out; no files, no tables, no torch.

Shapes: K contrasts, S seeds in the order in which they are trained; NaN for a run without a number.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ablate.analysis import stats
from ablate.analysis.stats import Array
from ablate.phrases import counted, duration

FIRST = (8, 12, 16)
LAST = {1: 24, 3: 32}  # by up to how many contrasts; MOST for more
MOST = 48
# Of paired differences in docs/noise.csv, taken for every text.
USUAL_SD = {"val_loss": 0.0147, "test_loss": 0.0274, "mix_loss": 0.0152}
DRAWS = 4_000


@dataclass(frozen=True)
class Standing:
    """Where K contrasts stand. seeds: the look that decided or, if none did, the last one with all its runs;
    0 before the first. share: of α, spent at that look. diff, low, high: the mean difference there, with its
    interval; scatter: the standard deviation that this takes. verdict: undecided if none falls. decided:
    whether more seeds change nothing."""

    seeds: Array
    share: Array
    diff: Array
    low: Array
    high: Array
    scatter: Array
    verdict: Array
    decided: Array


def usual(seeds: int) -> list[int]:
    """The looks of a study with so many seeds; none for fewer than LAST, which looks would cost more than
    they save."""
    return [*FIRST, seeds] if seeds >= min(LAST.values()) else []


def usual_seeds(contrasts: int) -> int:
    """The seeds of a study that names none."""
    return next((last for most, last in LAST.items() if contrasts <= most), MOST)


def spending(looks: Sequence[int]) -> Array:
    """The share of α that each look spends."""
    return np.diff([0, *looks]) / looks[-1]


def stand(
    variant_KS: Array,
    baseline_KS: Array,
    lost_KS: tuple[Array, Array],
    looks: Sequence[int],
    *,
    margin: float,
    alpha: float = 0.05,
    higher_is_better: bool | None = False,
    in_family: Array | None = None,
    contrasts: int = 0,
    studies: int = 1,
) -> Standing:
    """Where each contrast stands: at the first look that decides it, each look taking the seeds up to it.

    lost_KS: where the variant and where its baseline diverged; a seed without a number that did not diverge
    has no result yet, and a look takes all results of its seeds. in_family: (K,) the contrasts that are
    tested; the others are not equal by chance, and stand decided at their first look. contrasts: how many the
    family has, if not as many as are tested here. studies: how many these contrasts are of, in equal parts.
    """
    from scipy.stats import t

    K, S = variant_KS.shape
    known_KS = np.all(
        [np.isfinite(x) | lost for x, lost in zip((variant_KS, baseline_KS), lost_KS, strict=True)], axis=0
    )
    tested = np.ones(K, bool) if in_family is None else in_family
    k = contrasts or max(int(tested.sum()), 1)
    now = Standing(
        seeds=np.zeros(K, int),
        **{name: np.full(K, np.nan) for name in ("share", "diff", "low", "high", "scatter")},
        verdict=np.full(K, stats.UNDECIDED, object),
        decided=np.zeros(K, bool),
    )
    open_, own = np.ones(K, bool), np.full(K, np.nan)
    for n, spent in zip(looks, spending(looks), strict=True):
        open_ &= known_KS[:, :n].all(1) if n <= S else False
        if not open_.any():
            break
        at = np.flatnonzero(open_)
        one, base = variant_KS[at, :n], baseline_KS[at, :n]
        pairs, middle, sd = stats.moments(one - base)
        constant = ~stats.scatters(one, base)
        own[at] = np.where(constant | ~tested[at], np.nan, sd)
        least = _median(own.reshape(studies, -1)) if n < looks[-1] else 0.0
        sd = np.where(constant, np.nan, np.fmax(sd, np.where(tested, least, 0.0)[at]))
        half = t.isf(alpha * spent / k / 2, np.maximum(pairs - 1, 1)) * sd / np.sqrt(np.maximum(pairs, 1))
        verdict = stats.verdicts(middle - half, middle + half, margin, higher_is_better)
        more = np.subtract(*(lost[at, :n].sum(1) for lost in lost_KS))
        same = stats.identical(one, base) & (more == 0)
        now.seeds[at], now.share[at], now.scatter[at] = n, spent, sd
        now.diff[at], now.low[at], now.high[at] = middle, middle - half, middle + half
        now.verdict[at] = np.where(same, stats.IDENTICAL, stats.withheld(verdict, more))
        now.decided[at] = ~tested[at] | constant & (pairs >= 2) | (now.verdict[at] != stats.UNDECIDED)
        open_ &= ~now.decided
    return now


@dataclass(frozen=True)
class Wanted:
    """(V,) at how many seeds each of V variants is trained: now; next, if the look under way decides nothing;
    and at most."""

    now: Array
    next: Array
    most: Array


def wanted(
    pairs: Sequence[tuple[int, int]], standing: Standing, looks: Sequence[int], variants: int
) -> Wanted:
    """A variant whose contrasts are all decided gets no more seeds. One without a contrast goes on while any
    other does: it may be what others are measured by."""
    last = looks[-1]
    after = dict(zip([0, *looks], [*looks, last], strict=True))
    at, open_ = standing.seeds, ~standing.decided
    now = np.where(open_, [after[n] for n in at], at)
    counts = now, np.where(open_, [after[n] for n in now], at), np.where(open_, last, at)
    of_variants = [np.zeros(variants, int) for _ in counts]
    ones_and_bases = np.array(pairs, int).reshape(-1, 2).T
    for of_variant, of_contrast in zip(of_variants, counts, strict=True):
        for side in ones_and_bases:
            np.maximum.at(of_variant, side, of_contrast)
        alone = ~np.isin(np.arange(variants), ones_and_bases)
        of_variant[alone] = of_contrast.max(initial=looks[0])
    return Wanted(*of_variants)


# --- what looks will cost, by simulation ------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """What looks cost and find. seeds: of a contrast, on average; of_baseline: of the baseline that they
    share. power: the probability that a contrast is decided. overstated: for each look, by what share a
    difference that it decides is larger than the true one, on average; NaN for a look that decides none."""

    seeds: float
    of_baseline: float
    power: float
    overstated: Array


@functools.lru_cache(1024)
def expected(
    looks: tuple[int, ...], contrasts: int, difference: float, margin: float, alpha: float = 0.05
) -> Expected:
    """Of simulated studies: a baseline, and so many contrasts with it of one true difference. difference,
    margin: in standard deviations of a paired difference. Seeds are normal and do not correlate."""
    draws = max(DRAWS // contrasts, 250)
    arms = np.random.default_rng(0).standard_normal((draws, contrasts + 1, looks[-1])) / np.sqrt(2)
    one = arms[:, 1:].reshape(-1, looks[-1]) + difference
    base = np.repeat(arms[:, 0], contrasts, axis=0)
    lost = np.zeros_like(one, bool)
    now = stand(
        one, base, (lost, lost), looks, margin=margin, alpha=alpha, contrasts=contrasts, studies=draws
    )
    is_above = now.decided & (now.low > 0)
    overstated = [
        now.diff[of].mean() / difference - 1
        if difference and (of := is_above & (now.seeds == look)).any()
        else np.nan
        for look in looks
    ]
    of_baseline = now.seeds.reshape(draws, contrasts).max(1).mean()
    return Expected(
        float(now.seeds.mean()), float(of_baseline), float(now.decided.mean()), np.array(overstated)
    )


def least_difference(seeds: int, sd: float, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest true difference that one contrast with the usual looks of so many seeds detects with this
    power."""
    if not (at := tuple(usual(seeds))):
        return float(stats.least_difference(seeds, sd, alpha, power=power))
    low, high = 0.0, 4.0
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if expected(at, 1, middle, 0.0, alpha).power >= power else (middle, high)
    return high * sd


def cost_lines(
    looks: Sequence[int],
    contrasts: int,
    runs_a_seed: tuple[float, float],
    difference: float,
    margin: float,
    sd: float | None,
    seconds: float,
) -> list[str]:
    """Lines on how many runs a study with looks takes, and how long. runs_a_seed: of the variants, and of
    their baselines and all else. sd: of a paired difference, None if unknown. seconds: of a run; NaN if
    unknown."""
    of_variants, of_others = runs_a_seed

    def cost(seeds: float, others: float) -> str:
        runs = of_variants * seeds + of_others * others
        return counted(round(runs), "run") + ("" if seconds != seconds else f", {duration(runs * seconds)}")

    least, most = (cost(n, n) for n in (looks[0], looks[-1]))
    lines = [f"looks at {', '.join(map(str, looks))} seeds: at least {least}; at most {most}"]
    if sd and contrasts:
        of_it, of_none = (expected(tuple(looks), contrasts, d / sd, margin / sd) for d in (difference, 0))
        lines.append(
            f"expected: {cost(of_it.seeds, of_it.of_baseline)}, if each difference is {difference:g};"
            f" {cost(of_none.seeds, of_none.of_baseline)}, if there is none; differences scatter by {sd:.2g}"
        )
    return lines


# --- helpers ----------------------------------------------------------------------------------------


def _median(scatter_NK: Array) -> Array:
    """(N·K,) for each of K contrasts of N studies the median of its study; 0 where none of them scatters."""
    known_NK = np.where(np.isnan(scatter_NK).all(1, keepdims=True), 0.0, scatter_NK)
    return np.repeat(np.nanmedian(known_NK, axis=1), scatter_NK.shape[1])
