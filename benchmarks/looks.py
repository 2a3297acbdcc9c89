"""How often studies with looks make false claims, and what they cost beside a fixed number of seeds.

    python benchmarks/looks.py [--studies 5000]
    python benchmarks/looks.py --rules
    python benchmarks/looks.py --cost
    python benchmarks/looks.py --cost --csv docs/fresh.csv

Simulated studies have a baseline and 1, 3 or 8 variants, each with an independent noise of sd 1/√2, so that a
paired difference has an sd of 1, and a margin of 0.8. skewed: differences are exponential. late: one seed in
eight of the variants lies 6 standard deviations off, and the true difference, of the means, is as it says.
Ten studies a line also go through the proposals of a study and `ablate compare`, and have to get the same
verdicts at the same looks. --csv: seeds are drawn, with replacement, from rows of four methods, each centred.

--rules: what may keep early looks from false claims, each rule beside the fixed design (the last look only);
four times as many studies where there is one contrast. There, exponential means the noise of every arm, and
late seeds are in one variant alone, 12 standard deviations of an arm off, as one of eight runs was.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import nct
from scipy.stats import t as student

from ablate.analysis import looks, stats
from ablate.analysis.compare import compare
from ablate.analysis.load import load
from ablate.analysis.looks import Decisions, Looks
from ablate.config.contrast import MARGIN, Contrast
from ablate.store.record import SURE, PlannedLooks, StudyRecord
from ablate.study.config import Design, Overrides, seed_of
from benchmarks.false_alarms import as_results

ALPHA, BOUND = 0.05, 0.8
FAMILIES = (1, 3, 8)
Draw = Callable[..., np.ndarray]  # the shape -> paired noise (studies, arms, seeds), the baseline first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--studies", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--cost", action="store_true", help="all runs, beside the fixed design of equal power"
    )
    parser.add_argument("--csv", help="rows of four methods, for --cost")
    parser.add_argument("--rules", action="store_true", help="what may keep early looks from false claims")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    if args.rules:
        compare_rules(args)
        return
    if args.cost:
        costs(args, rng)
        return
    limit = ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / args.studies)
    print(f"limit {limit:.2%}")
    print("noise   truth   family  false claims   fixed  coverage  seeds  decided")
    for noise, draw in (("normal", normal), ("t3", heavy), ("skewed", skewed), ("late", late)):
        for truth in ("equal", "margin", "mixed") if noise in ("normal", "t3") else ("equal",):
            for k in FAMILIES:
                one_line(args, rng, noise, draw, truth, k)
    of_those_that_stop_first(args)


def of_those_that_stop_first(args: argparse.Namespace, k: int = 3) -> None:
    """Whether intervals hold over the contrasts that the first look decides, where nothing differs."""
    rng = np.random.default_rng(args.seed)
    planned, found = looks.usual(looks.usual_seeds(k)), list[np.ndarray]()
    for _ in range(8):
        now = looks.of_simulated(normal(rng, args.studies, k + 1, planned[-1]), planned, BOUND)
        first = now.decided & (now.seeds == planned[0])
        found.append(((now.low <= 0) & (now.high >= 0))[first])
    holds = np.concatenate(found)
    share = len(holds) / (8 * k * args.studies)
    print(
        f"normal, equal, {k}: {share:.2%} of contrasts stop first; {holds.mean():.0%} of intervals contain 0"
    )


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape) / np.sqrt(2)


def heavy(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_t(3, shape) / np.sqrt(3) / np.sqrt(2)


def skewed(rng: np.random.Generator, *shape: int) -> np.ndarray:
    noise = rng.exponential(size=shape) - 1
    noise[:, 0] = 0
    return noise


def late(rng: np.random.Generator, *shape: int) -> np.ndarray:
    noise, share, off = normal(rng, *shape), 1 / 8, 6 / np.sqrt(2)
    noise[:, 1:] += off * ((rng.random((shape[0], shape[1] - 1, shape[2])) < share) - share)
    return noise


def one_line(
    args: argparse.Namespace, rng: np.random.Generator, noise: str, draw: Draw, truth: str, k: int
) -> None:
    planned = looks.usual(looks.usual_seeds(k))
    cycle = {"equal": [0.0], "margin": [BOUND, -BOUND], "mixed": [0.0, BOUND, 10 * BOUND]}[truth]
    effect_K = np.resize(cycle, k)
    loss_NAS = draw(rng, args.studies, k + 1, planned[-1])
    loss_NAS[:, 1:] += effect_K[:, None]
    now = looks.of_simulated(loss_NAS, planned, BOUND)
    at_once = looks.of_simulated(loss_NAS, planned[-1:], BOUND)
    rates = [is_false(one, effect_K).any(1).mean() for one in (now, at_once)]
    true = np.tile(effect_K, args.studies)
    covered = ((now.low <= true) & (true <= now.high)).mean()
    check(loss_NAS[:10], now, planned)
    print(
        f"{noise:<8}{truth:<8}{k:>6}{rates[0]:>14.2%}{rates[1]:>8.2%}{covered:>10.2%}{now.seeds.mean():>7.1f}"
        f"{now.decided.mean():>9.1%}"
    )


def is_false(now: Decisions, effect_K: np.ndarray) -> np.ndarray:
    """(N, K) the verdicts that are not true."""
    verdict_NK, diff_NK = now.verdict.reshape(-1, len(effect_K)), now.diff.reshape(-1, len(effect_K))
    wrong_sign = np.isin(verdict_NK, stats.CLAIMS) & (np.sign(diff_NK) != np.sign(effect_K))
    within = np.isin(verdict_NK, (stats.EQUIVALENT, stats.BETTER_WITHIN, stats.WORSE_WITHIN))
    return wrong_sign | within & (np.abs(effect_K) >= BOUND)


def check(loss_NAS: np.ndarray, now: Decisions, planned: list[int]) -> None:
    """The same studies through `propose`, as `ablate run` drives it, and through `compare`."""
    arms = [f"arm{a}" for a in range(loss_NAS.shape[1])]
    seeds = [str(seed) for seed in range(planned[-1])]
    study = Design(
        {"fusion": arms, "seed": seeds},
        looks=Looks(
            at=planned,
            seeds=seeds,
            arms={(f"fusion={arm}",): arm for arm in arms},
            pairs=[(a, 0) for a in range(1, len(arms))],
            contrasts=len(arms) - 1,
            margin=BOUND,
        ),
    )
    for n, loss_AS in enumerate(loss_NAS):
        rows: dict[Overrides, dict[str, Any]] = {}
        while proposed := study.propose(rows):
            for run in proposed:
                arm, seed = study.arm_of(run)[0].partition("=")[2], int(seed_of(run))
                loss = 2 + loss_AS[arms.index(arm), seed]
                rows[run] = {"fusion": arm, "seed": seed, "val_loss": loss, "status": "done"}
        record = StudyRecord(
            name="simulated",
            kind="grid",
            factors={"fusion": arms},
            fixed={},
            seeds=[*range(planned[-1])],
            runs=[],
            primary=[Contrast(baseline={"fusion": arms[0]})],
            metric="val_loss",
            margin=BOUND,
            looks=PlannedLooks(at=planned, seeds=[*range(planned[-1])], contrasts=len(arms) - 1),
        )
        table = compare(as_results([*rows.values()]), records=[record]).family("primary").set_index("fusion")
        mine = slice(n * (len(arms) - 1), (n + 1) * (len(arms) - 1))
        assert table.loc[arms[1:], "verdict"].tolist() == now.verdict[mine].tolist()
        assert table.loc[arms[1:], "look"].tolist() == now.seeds[mine].tolist()


# --- rules for early looks ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """What a rule sees of C contrasts at a look of n seeds: the losses of variants and baselines, their
    differences, the level of an interval, whether it is the last look, what would have been decided at the
    look before, and the scatter of each contrast here or where it was decided. studies: of how many the
    contrasts are."""

    one_CS: np.ndarray
    base_CS: np.ndarray
    difference_CS: np.ndarray
    alpha: float
    is_last: bool
    before: np.ndarray
    scatter: np.ndarray
    studies: int

    @property
    def n(self) -> int:
        return self.difference_CS.shape[1]


def none(look: Look) -> float:
    return 0.0


def skew_or_gap(look: Look) -> np.ndarray:
    """The rule until now: below 12 seeds no verdict on skewed differences, or on an arm of two kinds."""
    if look.n >= 12:
        return np.zeros(len(look.one_CS))
    odd = np.abs(stats.skewness(look.difference_CS)) > 1
    for losses in (look.one_CS, look.base_CS) if look.n >= stats.FEWEST else ():
        odd |= stats.widest_gap(np.sort(losses))[1] > stats.limit(look.n)
    return np.where(odd, np.inf, 0.0)


def half_the_range(look: Look) -> np.ndarray:
    """An interval reaches at least half the range to either side."""
    quantile = student.isf(look.alpha / 2, look.n - 1) / np.sqrt(look.n)
    return np.ptp(look.difference_CS, axis=1) / 2 / quantile


def median_scatter(look: Look) -> np.ndarray:
    """An interval takes at least the median standard deviation of the study's contrasts."""
    scatter = look.scatter.reshape(look.studies, -1)
    return np.repeat(np.median(scatter, axis=1), scatter.shape[1])


def twice(look: Look) -> np.ndarray:
    """The same verdict at two looks in a row."""
    return np.where(look.before == decisions(look, 0.0), 0.0, np.inf)


def sign_flips(look: Look) -> np.ndarray:
    """Up to 16 seeds, the exact sign-flip test agrees at the level of the look."""
    waits = np.full(len(look.one_CS), np.inf if look.n <= 16 else 0.0)
    decision = decisions(look, 0.0)
    if 2.0 ** (1 - look.n) > look.alpha or look.n > 16:
        return waits
    signs = (1 - 2 * (np.arange(2 ** (look.n - 1))[:, None] >> np.arange(look.n) & 1)).astype(np.float32)
    for some in np.array_split(np.flatnonzero(decision), 1 + len(decision) // 100):
        is_claim = decision[some] % 4 != 0
        agrees = np.ones(len(some), bool)
        for shift in (BOUND, -BOUND):
            d = look.difference_CS[some] + np.where(is_claim, 0.0, shift)[:, None]
            sums = np.abs(signs @ d.T.astype(np.float32))
            agrees &= (sums >= sums[0] - 1e-5).mean(axis=0) <= look.alpha
        waits[some] = np.where(agrees, 0.0, np.inf)
    return waits


def decisions(look: Look, least_sd: float | np.ndarray) -> np.ndarray:
    """(C,) 1 or −1 for a difference, 4 more if it is within the margin; 0 for none."""
    d = look.difference_CS
    sd = np.maximum(d.std(axis=1, ddof=1), 0.0 if look.is_last else least_sd)
    half = student.isf(look.alpha / 2, look.n - 1) * sd / np.sqrt(look.n)
    low, high = d.mean(axis=1) - half, d.mean(axis=1) + half
    return (low > 0).astype(int) - (high < 0) + 4 * ((low > -BOUND) & (high < BOUND))


# Each with the looks before the last one.
RULES: Mapping[str, tuple[tuple[int, ...], Callable[[Look], float | np.ndarray]]] = {
    "skew or gap": ((4, 6, 8, 12, 16), skew_or_gap),
    "none": ((4, 6, 8, 12, 16), none),
    "none, from 6": ((6, 8, 12, 16), none),
    "none, from 8": ((8, 12, 16), none),
    "none, from 12": ((12, 16), none),
    "sign flips": ((4, 6, 8, 12, 16), sign_flips),
    "half the range": ((4, 6, 8, 12, 16), half_the_range),
    "twice, from 6": ((6, 8, 12, 16), twice),
    "median": ((4, 6, 8, 12, 16), median_scatter),
    "median, from 8": (looks.FIRST, median_scatter),
    "median, from 16": ((SURE,), median_scatter),
    "last look only": ((), none),
}


def exponential(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.exponential(size=shape) - 1) / np.sqrt(2)


def one_late(rng: np.random.Generator, *shape: int) -> np.ndarray:
    noise, share, off = normal(rng, *shape), 1 / 8, 12 / np.sqrt(2)
    noise[:, 1] += off * ((rng.random((shape[0], shape[2])) < share) - share)
    return noise


def compare_rules(args: argparse.Namespace) -> None:
    """False claims, in %, of studies in which all is equal, and in which all lies at the margin. Mean seeds
    of an arm at 0, 1, 2 and 5 margins of normal noise, and at 0 and 2 where seeds are late."""
    laws: Mapping[str, Draw] = {
        "normal": normal,
        "t3": heavy,
        "exponential": exponential,
        "skewed": skewed,
        "late": one_late,
    }
    print(
        "family  rule           ", *(f"{law:>12}" for law in laws), "   seeds at 0, 1, 2, 5 m", "late, 0, 2 m"
    )
    for k in (1, 3, 4):
        studies = args.studies * (4 if k == 1 else 1)
        for name, (first, rule) in RULES.items():
            planned = [*first, looks.usual_seeds(k)]
            wrong, costs = list[str](), list[str]()
            for draw in laws.values():
                of_truth = [
                    simulated(studies, args.seed, draw, k, truth, planned, rule)[0]
                    for truth in (np.zeros(k), np.resize([BOUND, -BOUND], k))
                ]
                wrong.append("/".join(f"{100 * share:.1f}" for share in of_truth))
            for draw, times in ((normal, (0, 1, 2, 5)), (one_late, (0, 2))):
                for m in times:
                    seeds = simulated(studies, args.seed, draw, k, np.full(k, m * BOUND), planned, rule)[1]
                    costs.append(f"{seeds:.1f}")
            print(f"{k:>6}  {name:<15}", *(f"{one:>11}" for one in wrong), *(f"{c:>6}" for c in costs))


def simulated(
    studies: int,
    seed: int,
    draw: Draw,
    k: int,
    effect_K: np.ndarray,
    planned: list[int],
    rule: Callable[[Look], float | np.ndarray],
) -> tuple[float, float]:
    """The share of studies with a false claim, and the mean number of seeds of an arm, the baseline too. All
    rules see the same studies."""
    rng, per = np.random.default_rng(seed), 1000
    wrong, seeds = list[float](), list[float]()
    for _ in range(studies // per):
        loss_NAS = draw(rng, per, k + 1, planned[-1])
        loss_NAS[:, 1:] += effect_K[:, None]
        one, base = loss_NAS[:, 1:].reshape(-1, planned[-1]), np.repeat(loss_NAS[:, 0], k, axis=0)
        verdict, at, before = (np.zeros(per * k, int) for _ in range(3))
        scatter = np.zeros(per * k)
        for n, spent in zip(planned, looks.spending(planned), strict=True):
            parts = one[:, :n], base[:, :n], (one - base)[:, :n]
            scatter = np.where(at == 0, parts[-1].std(axis=1, ddof=1), scatter)
            look = Look(*parts, ALPHA * spent / k, n == planned[-1], before, scatter, per)
            decision = decisions(look, rule(look))
            verdict = np.where(at == 0, decision, verdict)
            at = np.where((at == 0) & (decision != 0), n, at)
            before = decisions(look, 0.0)
        at[at == 0] = planned[-1]
        if rule is median_scatter:
            assert at.tolist() == looks.of_simulated(loss_NAS, planned, BOUND).seeds.tolist()
        true, sign, within = np.tile(effect_K, per), (verdict + 1) % 4 - 1, verdict >= 3
        is_false = (sign != 0) & (sign != np.sign(true)) | within & (np.abs(true) >= BOUND)
        wrong.append(is_false.reshape(per, k).any(1).mean())
        at = at.reshape(per, k)
        seeds.append((at.sum(1) + at.max(1)).mean() / (k + 1))
    return float(np.mean(wrong)), float(np.mean(seeds))


# --- cost ---------------------------------------------------------------------------------------------


def costs(args: argparse.Namespace, rng: np.random.Generator) -> None:
    """All runs, the baseline's too, relative to a fixed number of seeds with the same power at one margin."""
    draws: Mapping[str, tuple[Draw, float]] = {"normal": (normal, BOUND), "t3": (heavy, BOUND)}
    families = FAMILIES
    if args.csv:
        rows = load([args.csv]).rows
        loss_AS = rows.pivot(index="fusion", columns="seed", values="val_loss").loc[
            ["concat", *sorted({*rows["fusion"]} - {"concat"})]
        ]
        noise_AS = loss_AS.sub(loss_AS.mean(axis=1), axis=0).to_numpy()
        sd = np.std(noise_AS[1:] - noise_AS[0], axis=1, ddof=1)
        print(f"{noise_AS.shape[1]} seeds; sd of paired differences {', '.join(f'{one:.4f}' for one in sd)}")

        def resampled(rng: np.random.Generator, *shape: int) -> np.ndarray:
            drawn = noise_AS[:, rng.integers(noise_AS.shape[1], size=(shape[0], shape[2]))]
            arms = [0, *rng.permutation(np.arange(1, len(noise_AS)))[: shape[1] - 1]]
            return drawn[arms].transpose(1, 0, 2)

        pooled = float(np.sqrt(np.mean(sd**2)))
        draws = {"as it is": (resampled, MARGIN), "0.8 sd": (resampled, BOUND * pooled)}
        families = FAMILIES[:2]
    print("noise     family  looks at                  power  fixed     0  0.5 m    1 m    2 m    5 m")
    for noise, (draw, margin) in draws.items():
        for k in families:
            one_cost(args, rng, noise, draw, margin, k)


def one_cost(
    args: argparse.Namespace, rng: np.random.Generator, noise: str, draw: Draw, margin: float, k: int
) -> None:
    planned = looks.usual(looks.usual_seeds(k))
    runs, power, sd = [], 0.0, 1.0
    for times in (0, 0.5, 1, 2, 5):
        loss_NAS = draw(rng, args.studies, k + 1, planned[-1])
        loss_NAS[:, 1:] += times * margin
        now = looks.of_simulated(loss_NAS, planned, margin)
        seeds_NK = now.seeds.reshape(-1, k)
        runs.append((seeds_NK.sum(1) + seeds_NK.max(1)).mean())
        if times == 1:
            power = np.isin(now.verdict, stats.CLAIMS).mean()
            sd = float(np.std(loss_NAS[:, 1:] - loss_NAS[:, :1] - margin))
    fixed = next(n for n in range(3, 400) if _power(n, margin / sd, ALPHA / k) >= power)
    ratios = "".join(f"{one / fixed / (k + 1):>7.2f}" for one in runs)
    print(f"{noise:<10}{k:>6}  {', '.join(map(str, planned)):<24}{power:>7.1%}{fixed:>7}{ratios}")


def _power(n: int, effect: float, alpha: float) -> float:
    return float(nct.sf(student.isf(alpha / 2, n - 1), n - 1, effect * np.sqrt(n)))


if __name__ == "__main__":
    main()
