"""How often studies with looks make false claims, and what they cost beside a fixed number of seeds.

    python benchmarks/looks.py [--studies 5000]
    python benchmarks/looks.py --cost
    python benchmarks/looks.py --cost --csv docs/fresh.csv

Simulated studies have a baseline and 1, 3 or 8 variants, each with an independent noise of sd 1/√2, so that a
paired difference has an sd of 1, and a margin of 0.8. skewed: differences are exponential. late: one seed in
eight of the variants lies 6 standard deviations off, and the true difference, of the means, is as it says.
Ten studies a line also go through the proposals of a study and `ablate compare`, and have to get the same
verdicts at the same looks. --csv: seeds are drawn, with replacement, from rows of four methods, each centred.
"""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.stats import nct
from scipy.stats import t as student

from ablate.analysis import looks, stats
from ablate.analysis.compare import compare
from ablate.analysis.load import load
from ablate.analysis.looks import Standing
from ablate.config.contrast import MARGIN, Contrast
from ablate.store.record import PlannedLooks, StudyRecord
from ablate.study.config import Design, Overrides, seed_of
from ablate.study.looks import Looks
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
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
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
    now = standing(loss_NAS, planned, BOUND)
    at_once = standing(loss_NAS, planned[-1:], BOUND)
    rates = [is_false(one, effect_K).any(1).mean() for one in (now, at_once)]
    true = np.tile(effect_K, args.studies)
    covered = ((now.low <= true) & (true <= now.high)).mean()
    check(loss_NAS[:10], now, planned)
    print(
        f"{noise:<8}{truth:<8}{k:>6}{rates[0]:>14.2%}{rates[1]:>8.2%}{covered:>10.2%}{now.seeds.mean():>7.1f}"
        f"{now.decided.mean():>9.1%}"
    )


def standing(loss_NAS: np.ndarray, planned: list[int], margin: float) -> Standing:
    """Of all contrasts of N studies, study by study."""
    A, S = loss_NAS.shape[1:]
    one, base = loss_NAS[:, 1:].reshape(-1, S), np.repeat(loss_NAS[:, 0], A - 1, axis=0)
    none = np.zeros_like(one, bool)
    return looks.stand(one, base, (none, none), planned, margin=margin, alpha=ALPHA, contrasts=A - 1)


def is_false(now: Standing, effect_K: np.ndarray) -> np.ndarray:
    """(N, K) the verdicts that are not true."""
    verdict_NK, diff_NK = now.verdict.reshape(-1, len(effect_K)), now.diff.reshape(-1, len(effect_K))
    wrong_sign = np.isin(verdict_NK, stats.CLAIMS) & (np.sign(diff_NK) != np.sign(effect_K))
    within = np.isin(verdict_NK, (stats.EQUIVALENT, stats.BETTER_WITHIN, stats.WORSE_WITHIN))
    return wrong_sign | within & (np.abs(effect_K) >= BOUND)


def check(loss_NAS: np.ndarray, now: Standing, planned: list[int]) -> None:
    """The same studies through `propose`, as `ablate run` drives it, and through `compare`."""
    arms = [f"arm{a}" for a in range(loss_NAS.shape[1])]
    seeds = [str(seed) for seed in range(planned[-1])]
    overrides: list[Overrides] = [(f"fusion={arm}",) for arm in arms]
    study = Design(
        {"fusion": arms, "seed": seeds},
        looks=Looks(
            at=planned,
            seeds=seeds,
            arms=overrides,
            names=arms,
            pairs=[(a, 0) for a in range(1, len(arms))],
            tested=[True] * (len(arms) - 1),
            contrasts=len(arms) - 1,
            metric="val_loss",
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
        now = standing(loss_NAS, planned, margin)
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
