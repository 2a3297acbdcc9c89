"""Looks: the numbers of seeds at which a study may decide a contrast and train no more of it.

They are named before the study begins. At the look of n_i seeds, each of the k contrasts of a family has an
interval at 1 − α_i/k, where α_i = α·(n_i − n_{i−1})/n_last: the level is spent linearly in the seeds (Lan and
DeMets, 1983). Over all looks and contrasts these shares add up to α (Bonferroni). So with probability ≥ 1 − α
every interval of every look contains its true difference, wherever a contrast stops: they are repeated
confidence intervals (Jennison and Turnbull, 1989). Before the last look, an interval takes at least the
median scatter of its family, since few seeds may lie close together by luck, and skewed ones often do. A
study and its comparison judge by the same `stand`. Arrays in, arrays out; no files, no tables, no torch.

Shapes: K contrasts, S seeds in the order in which they are trained; NaN for a run without a number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ablate.analysis import stats
from ablate.analysis.stats import Array, Estimate, Judged
from ablate.config.contrast import FEWEST

SEEDS = 32  # of a study that lists none
FIRST = (8, 12, 16)
LEAST = 24  # seeds, below which looks would cost more than they save
# Of paired differences in docs/noise.csv, taken for every text.
USUAL_SD = {"val_loss": 0.0147, "test_loss": 0.0274, "mix_loss": 0.0152}


def usual(seeds: int) -> list[int]:
    """The looks of a study with so many seeds; none for fewer than LEAST."""
    return [*FIRST, seeds] if seeds >= LEAST else []


def spending(looks: Sequence[int]) -> Array:
    """The share of α that each look spends."""
    return np.diff([0, *looks]) / looks[-1]


@dataclass(frozen=True, eq=False)
class Case:
    """A contrast with what counts for it: (P,) the weights of its sides, (P, S) their values, and which runs
    diverged. is_equal: whether its sides are one function by construction, which nothing tests. is_grouped:
    whether values do not pair, so that its sides are groups."""

    weights: Array
    values: Array
    lost: Array
    is_equal: bool = False
    is_grouped: bool = False

    @property
    def difference(self) -> Array:
        return np.sum(self.weights[:, None] * self.values, 0)

    @property
    def more(self) -> Array:
        """(S,) on how many more arms of the variant's side than of its baseline's a run diverged."""
        return np.sign(self.weights) @ self.lost

    @property
    def ended(self) -> Array:
        """(S,) which seeds have all their results; a look takes all results of its seeds."""
        return np.all(np.isfinite(self.values) | self.lost, 0)

    @property
    def counts(self) -> Array:
        """(P,) the values of each side."""
        return np.isfinite(self.values).sum(1)


def stand(
    cases: Sequence[Case],
    *,
    at: Sequence[int],
    k: int,
    margin: float,
    higher_is_better: bool | None = False,
    waits: bool = True,
) -> Judged:
    """Judge each contrast at the first look that decides it, each look taking the seeds up to it. Of what is
    judged, seeds is the look that decided or, if none did, the last one with all its runs, 0 before the
    first; sd the scatter that the interval takes; decided whether more seeds change nothing.

    k: the size of the family. waits: whether a seed without a result may still have one.
    """
    K = len(cases)
    never = np.array([of.is_equal for of in cases], bool)
    numbers = ("diff", "sd", "level", "low", "high", "p", "p_adjusted")
    now = Judged(
        np.zeros(K, int),
        **{name: np.full(K, np.nan) for name in numbers},
        verdict=np.full(K, stats.UNDECIDED, object),
        seeds=np.zeros(K, int),
        decided=np.zeros(K, bool),
    )
    open_, own = np.ones(K, bool), np.full(K, np.nan)
    for n, spent in zip(at, spending(at), strict=True):
        ended = np.array([not waits or (n <= len(of.ended) and of.ended[:n].all()) for of in cases], bool)
        if not (open_ := open_ & ended).any():
            break
        here = np.flatnonzero(open_)
        of_look = [cases[i] for i in here.tolist()]
        estimate = _estimate(of_look, n)
        own[here] = np.where(np.isnan(estimate.se) | never[here], np.nan, estimate.sd)
        least = 0.0 if n == at[-1] or np.isnan(own).all() else np.nanmedian(own)
        estimate = replace(estimate, se=np.maximum(estimate.se, least / np.sqrt(np.maximum(estimate.n, 1))))
        level = 1 - stats.ALPHA * spent / max(k, 1)
        judged = stats.judge(estimate, level, margin, higher_is_better)
        for name in ("n", *numbers):
            getattr(now, name)[here] = getattr(judged, name)
        now.seeds[here], now.sd[here] = n, np.where(least > judged.sd, least, judged.sd)
        now.verdict[here] = stats.withheld(judged.verdict, np.array([of.more[:n].sum() for of in of_look]))
        constant = np.isnan(estimate.se) & (estimate.n >= 2)
        is_sure = (now.verdict[here] != stats.UNDECIDED) & (judged.n >= FEWEST)
        now.decided[here] = never[here] | constant | is_sure
        open_ = open_ & ~now.decided
    return now


def _estimate(cases: Sequence[Case], n: int) -> Estimate:
    """Of each case by its first n seeds, or by its groups."""
    scale = [np.abs(of.values[np.isfinite(of.values)]).max(initial=0) for of in cases]
    estimate = stats.paired(np.array([of.difference[:n] for of in cases]), scale)
    for i, of in enumerate(cases):
        for name, value in vars(stats.of_groups(of.weights, of.values)).items() if of.is_grouped else ():
            getattr(estimate, name)[i] = value
    return estimate
