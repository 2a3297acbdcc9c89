"""Looks: the numbers of seeds at which a study may decide a contrast and train no more of it.

They are named before the study begins. At the look of n_i seeds, each of the k contrasts of a family has an
interval at 1 − α_i/k, where α_i = α·(n_i − n_{i−1})/n_last: the level is spent linearly in the seeds (Lan and
DeMets, 1983). Over all looks and contrasts these shares add up to α (Bonferroni). So with probability ≥ 1 − α
every interval of every look contains its true difference, wherever a contrast stops: they are repeated
confidence intervals (Jennison and Turnbull, 1989). Before the last look, an interval takes at least the
median scatter of its family, since few seeds may lie close together by luck, and skewed ones often do. A
study and its comparison decide by the same `Looks`. Arrays in, arrays out; no files, no tables, no torch.

Shapes: V variants, K contrasts, S seeds in the order in which they are trained; NaN for a run without a
number.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ablate.analysis import stats
from ablate.analysis.stats import Array
from ablate.store.columns import column_named
from ablate.store.record import PlannedLooks

FIRST = (8, 12, 16)
LAST = {1: 24, 3: 32}  # by up to how many contrasts; MOST for more
MOST = 48
# Of paired differences in docs/noise.csv, taken for every text.
USUAL_SD = {"val_loss": 0.0147, "test_loss": 0.0274, "mix_loss": 0.0152}


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


@dataclass(frozen=True, kw_only=True)
class Looks:
    """The looks of one study at a family of contrasts.

    at: numbers of seeds, ascending. pairs: the contrasts, each a variant and its baseline, as indices. equal:
    which contrasts are of equal functions by construction: nothing tests them, and they stand decided at
    their first look. contrasts: the size of the family, fixed when the study begins. margin: in the unit of
    `metric`. seeds: in the order in which they are trained. arms: the variants, with what each is called.
    once: the contrasts of arms that end at the first look, at which these spend all of their level.
    """

    at: Sequence[int]
    pairs: Sequence[tuple[int, int]]
    equal: Sequence[int] = ()
    contrasts: int
    metric: str = "val_loss"
    margin: float
    alpha: float = 0.05
    seeds: Sequence[str] = ()
    arms: Mapping[Any, str] = field(default_factory=dict)
    once: Sequence[int] = ()

    def decide(self, values_VS: Array, lost_VS: Array) -> "Decisions":
        """Where each contrast stands: at the first look that decides it, each look taking the seeds up to it.

        lost_VS: which runs diverged; a seed without a number that did not diverge has no result yet, and a
        look takes all results of its seeds.
        """
        from scipy.stats import t

        ones, bases = np.array(self.pairs, int).reshape(-1, 2).T
        variant_KS, baseline_KS = values_VS[ones], values_VS[bases]
        lost_KS, ended_VS = (lost_VS[ones], lost_VS[bases]), np.isfinite(values_VS) | lost_VS
        ended_KS = ended_VS[ones] & ended_VS[bases]
        K, S = variant_KS.shape
        tested = ~np.isin(np.arange(K), self.equal)
        higher_is_better = column_named(self.metric).higher_is_better
        now = Decisions(
            looks=self,
            seeds=np.zeros(K, int),
            **{name: np.full(K, np.nan) for name in ("share", "diff", "low", "high", "scatter")},
            verdict=np.full(K, stats.UNDECIDED, object),
            decided=np.zeros(K, bool),
        )
        open_, own, once = np.ones(K, bool), np.full(K, np.nan), np.isin(np.arange(K), self.once)
        for n, spent in zip(self.at, spending(self.at), strict=True):
            open_ &= ended_KS[:, :n].all(1) if n <= S else False
            if not open_.any():
                break
            at = np.flatnonzero(open_)
            one, base = variant_KS[at, :n], baseline_KS[at, :n]
            pairs, middle, sd = stats.moments(one - base)
            constant = ~stats.scatters(one, base)
            own[at] = np.where(constant | ~tested[at], np.nan, sd)
            least = _median(own) if n < self.at[-1] else 0.0
            sd = np.where(constant, np.nan, np.fmax(sd, np.where((tested & ~once)[at], least, 0.0)))
            share = np.where(once[at], 1.0, spent)
            level = self.alpha * share / max(self.contrasts, 1)
            half = t.isf(level / 2, np.maximum(pairs - 1, 1)) * sd / np.sqrt(np.maximum(pairs, 1))
            verdict = stats.verdicts(middle - half, middle + half, self.margin, higher_is_better)
            more = np.subtract(*(lost[at, :n].sum(1) for lost in lost_KS))
            same = stats.identical(one, base) & (more == 0)
            now.seeds[at], now.share[at], now.scatter[at] = n, share, sd
            now.diff[at], now.low[at], now.high[at] = middle, middle - half, middle + half
            now.verdict[at] = np.where(same, stats.IDENTICAL, stats.withheld(verdict, more))
            stays = once[at] | ~tested[at] | constant & (pairs >= 2)
            now.decided[at] = stays | (now.verdict[at] != stats.UNDECIDED)
            open_ &= ~now.decided
        return now

    def places(self, seeds: Iterable[str]) -> Array:
        """The place of each of these seeds in their order; beyond the last look for any other seed."""
        place = {seed: at for at, seed in enumerate(self.seeds)}
        return np.array([place.get(seed, self.at[-1]) for seed in seeds], int)

    def planned(self, **known: Any) -> PlannedLooks:
        """The looks as study.json keeps them."""
        own = {"at": [*self.at], "seeds": [*map(int, self.seeds)], "contrasts": self.contrasts}
        return PlannedLooks(**own, **known)

    def contrast(self, pair: tuple[int, int]) -> str:
        """The name of a contrast."""
        one, base = ([*self.arms.values()][at] for at in pair)
        return f"{one} against {base}"

    def costs(self) -> tuple[int, int]:
        """How many runs the study takes at least and at most."""
        compared = {side for k, pair in enumerate(self.pairs) if k not in self.equal for side in pair}
        compared |= {base for _, base in self.pairs}
        ended = len(self.arms) - len(compared)  # at the first look
        return len(self.arms) * self.at[0], len(compared) * self.at[-1] + ended * self.at[0]


@dataclass(frozen=True)
class Decisions:
    """What `looks` have decided of K contrasts so far. seeds: the look that decided or, if none did, the last
    one with all its runs; 0 before the first. share: the fraction of α spent at that look. diff, low, high:
    the mean difference there, with its interval; scatter: the standard deviation that this takes. verdict:
    undecided if none falls. decided: whether more seeds change nothing."""

    looks: Looks
    seeds: Array
    share: Array
    diff: Array
    low: Array
    high: Array
    scatter: Array
    verdict: Array
    decided: Array

    def seeds_wanted(self, when: Literal["now", "most"]) -> Array:
        """(V,) at how many seeds each variant is trained: now, and at most. A variant whose contrasts are all
        decided gets no more seeds; one without a contrast has those of the first look."""
        at, variants = self.looks.at, np.arange(len(self.looks.arms))
        following_look = dict(zip([0, *at], [*at, at[-1]], strict=True))
        after = dict.fromkeys(following_look, at[-1]) if when == "most" else following_look
        following = np.array([after[n] for n in self.seeds.tolist()], int)
        of_contrasts = np.where(self.decided, self.seeds, following)
        wanted, sides = np.zeros(len(variants), int), np.array(self.looks.pairs, int).reshape(-1, 2).T
        for side in sides:
            np.maximum.at(wanted, side, of_contrasts)
        wanted[~np.isin(variants, sides)] = at[0]
        return wanted

    @property
    def passed(self) -> int:
        """The last look that no contrast still waits for; 0 before the first."""
        waiting = self.seeds[~self.decided]
        return int(waiting.min() if len(waiting) else self.seeds.max(initial=0))

    def lines(self, since: int) -> list[str]:
        """A line for each look that has been passed since that of so many seeds: what it decided, and what
        goes on."""
        return [self._line(look) for look in self.looks.at if since < look <= self.passed]

    def _line(self, look: int) -> str:
        looks = self.looks
        names, one_baseline = [*looks.arms.values()], len({base for _, base in looks.pairs}) == 1
        said, going_on = list[str](), list[str]()
        for k, pair in enumerate(looks.pairs):
            name = names[pair[0]] if one_baseline else looks.contrast(pair)
            if self.decided[k] and self.seeds[k] == look:
                interval = f", {self.diff[k]:+.4f} [{self.low[k]:.4f}, {self.high[k]:.4f}]"
                interval = "" if self.verdict[k] == stats.IDENTICAL else interval
                said.append(
                    f"{name}: equal by construction"
                    if k in looks.equal
                    else f"{name}: {self.verdict[k]}{interval}, decided"
                )
            elif not self.decided[k] or self.seeds[k] > look:
                going_on.append(name)
        if going_on:
            how = "undecided" if look == looks.at[-1] else "goes on" if len(going_on) == 1 else "go on"
            said.append(f"{', '.join(going_on)} {how}")
        return f"{look} seeds: {'; '.join(said)}"


def _median(scatter_K: Array) -> float:
    """The median of those that scatter; 0 if none does."""
    return 0.0 if np.isnan(scatter_K).all() else float(np.nanmedian(scatter_K))
