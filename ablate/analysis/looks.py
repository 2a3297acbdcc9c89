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

import numpy as np

from ablate.analysis import stats
from ablate.analysis.stats import Array, Judged
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


def stand(
    differences_KS: Array,
    ended_KS: Array,
    more_KS: Array,
    *,
    at: Sequence[int],
    k: int,
    margin: float,
    higher_is_better: bool | None = False,
    scale: float | Array = 0.0,
    untested: Array | None = None,
) -> Judged:
    """Judge each contrast at the first look that decides it, each look taking the seeds up to it. Of what is
    judged, seeds is the look that decided or, if none did, the last one with all its runs, 0 before the
    first; sd the scatter that the interval takes; decided whether more seeds change nothing.

    ended_KS: which seeds have all their results; a look takes all results of its seeds. more_KS: on how many
    more arms of the variant's side than of its baseline's a seed diverged. k: the size of the family. scale:
    as of `stats.paired`. untested: (K,) what is one function by construction: it stands at its first look.
    """
    K, S = differences_KS.shape
    never = np.zeros(K, bool) if untested is None else untested
    numbers = ("diff", "sd", "level", "low", "high", "p", "p_adjusted")
    now = Judged(
        np.zeros(K, int),
        **{name: np.full(K, np.nan) for name in numbers},
        verdict=np.full(K, stats.UNDECIDED, object),
        seeds=np.zeros(K, int),
        decided=np.zeros(K, bool),
    )
    scale_K, open_, own = np.broadcast_to(scale, K), np.ones(K, bool), np.full(K, np.nan)
    for n, spent in zip(at, spending(at), strict=True):
        open_ = open_ & (ended_KS[:, :n].all(1) if n <= S else False)
        if not open_.any():
            break
        here = np.flatnonzero(open_)
        by_itself = stats.paired(differences_KS[here, :n], 0.0, scale_K[here])
        own[here] = np.where(np.isnan(by_itself.se) | never[here], np.nan, by_itself.sd)
        median = 0.0 if np.isnan(own).all() else np.nanmedian(own)
        least = 0.0 if n == at[-1] else median
        estimate = stats.paired(differences_KS[here, :n], least, scale_K[here])
        level = 1 - stats.ALPHA * spent / max(k, 1)
        judged = stats.judge(estimate, level, margin, higher_is_better)
        for name in ("n", *numbers):
            getattr(now, name)[here] = getattr(judged, name)
        now.seeds[here], now.sd[here] = n, np.where(least > judged.sd, least, judged.sd)
        now.verdict[here] = stats.withheld(judged.verdict, more_KS[here, :n].sum(1))
        constant = np.isnan(estimate.se) & (estimate.n >= 2)
        is_sure = (now.verdict[here] != stats.UNDECIDED) & (judged.n >= FEWEST)
        now.decided[here] = never[here] | constant | is_sure
        open_ = open_ & ~now.decided
    return now
