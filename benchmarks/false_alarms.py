"""How often `ablate compare` makes false claims, and how often its intervals cover the true difference.

    python benchmarks/false_alarms.py [--sd SD --correlation R --margin 0.02 --studies 5000]
    python benchmarks/false_alarms.py --tuned

By default studies are simulated: four variants that share seeds, loss = sd·(√r·a_seed + √(1−r)·noise). A
sample of them also goes through `ablate compare` itself, row by row, and has to get the same verdicts.
--tuned: tuned studies of four equally good arms, each with its own best learning rate.
"""

import argparse

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import compare
from ablate.config.contrast import MARGIN, Contrast
from ablate.store.columns import COLUMNS
from ablate.study import tuned, tuning
from ablate.study.config import Overrides

ALPHA, VARIANTS = 0.05, ("concat", "sum", "mean", "weighted_sum")
CLAIMS = (stats.BETTER, stats.BETTER_WITHIN, stats.WORSE, stats.WORSE_WITHIN)
WITHIN = (stats.EQUIVALENT, stats.BETTER_WITHIN, stats.WORSE_WITHIN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sd", type=float, default=0.0104, help="of a variant over seeds, nats")
    parser.add_argument("--correlation", type=float, default=0.0, help="of two variants at equal seeds")
    parser.add_argument("--margin", type=float, default=MARGIN)
    parser.add_argument("--studies", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tuned", action="store_true", help="tuned studies, optima at random rates")
    parser.add_argument("--develop", type=int, default=5, help="development seeds of --tuned")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    if args.tuned:
        print("shape     curvature  false claims   limit  with the best of the grid  loss above the minimum")
        for shape in ("parabola", "steep"):
            for curvature in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3):
                one_curve(rng, args, shape, curvature)
        return
    print("truth     noise     n  false claims   limit  Holm + Holm  coverage")
    for truth in ("equal", "margin", "mixed"):
        for noise in ("normal", "t3"):
            for n in (5, 8, 16, 64):
                one_setting(rng, args, truth, noise, n)


def one_setting(rng: np.random.Generator, args: argparse.Namespace, truth: str, noise: str, n: int) -> None:
    """Print the rates of one line; `limit` is 5 % plus two Monte-Carlo standard errors."""
    m = args.margin
    effect_V = np.array(
        {"equal": [0, 0, 0, 0], "margin": [0, m, -m, m], "mixed": [0, 0, 10 * m, m]}[truth], float
    )
    loss_NVS = losses(rng, args, noise, n) + effect_V[:, None]
    difference_NKS = loss_NVS[:, 1:] - loss_NVS[:, :1]
    k = difference_NKS.shape[1]
    flat = difference_NKS.reshape(-1, n)
    low, high = (end.reshape(-1, k) for end in stats.t_interval(flat, ALPHA / k))
    verdict_NK = stats.verdicts(low, high, m)
    check_against_compare(loss_NVS[:10], verdict_NK[:10], m)

    # Holm on the differences beside Holm on the equivalences: each α by itself, not both together.
    number, mean, sd = stats.moments(flat)
    t = {shift: (mean + shift) / (sd / np.sqrt(number)) for shift in (-m, 0.0, m)}
    differs = holm(two_sided(t[0.0], n).reshape(-1, k)) < ALPHA
    tost = np.maximum(one_sided(t[m], n), one_sided(-t[-m], n)).reshape(-1, k)
    direction = np.sign(mean).reshape(-1, k)
    effect_K = effect_V[1:]
    false_two_families = (
        (differs & (direction != np.sign(effect_K))) | ((holm(tost) < ALPHA) & (np.abs(effect_K) >= m))
    ).any(1)

    claimed = np.isin(verdict_NK, CLAIMS)
    wrong_sign = claimed & (np.where(high < 0, -1, 1) != np.sign(effect_K))
    wrong_size = np.isin(verdict_NK, WITHIN) & (np.abs(effect_K) >= m)
    rate = (wrong_sign | wrong_size).any(1).mean()
    low, high = stats.t_interval(flat)
    true = np.tile(effect_K, len(loss_NVS))
    covered = ((low <= true) & (true <= high)).mean()
    limit = ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / len(loss_NVS))
    both = false_two_families.mean()
    print(f"{truth:<10}{noise:<8}{n:>3}{rate:>14.2%}{limit:>8.2%}{both:>13.2%}{covered:>10.2%}")


def losses(rng: np.random.Generator, args: argparse.Namespace, noise: str, n: int) -> np.ndarray:
    """(studies, variants, n) around 2 nats."""

    def draw(*shape: int) -> np.ndarray:
        return rng.normal(size=shape) if noise == "normal" else rng.standard_t(3, shape) / np.sqrt(3)

    r = args.correlation
    shared, own = draw(args.studies, 1, n), draw(args.studies, len(VARIANTS), n)
    return 2 + args.sd * (np.sqrt(r) * shared + np.sqrt(1 - r) * own)


def check_against_compare(loss_NVS: np.ndarray, verdict_NK: np.ndarray, margin: float) -> None:
    for loss_VS, verdict_K in zip(loss_NVS, verdict_NK, strict=True):
        rows = [
            {"fusion": fusion, "seed": seed, "val_loss": loss}
            for fusion, loss_S in zip(VARIANTS, loss_VS, strict=True)
            for seed, loss in enumerate(loss_S)
        ]
        table = compare(as_results(rows), margin=margin).table.set_index("fusion")
        assert table.loc[list(VARIANTS[1:]), "verdict"].tolist() == verdict_K.tolist()


def as_results(rows: list[dict]) -> pd.DataFrame:
    common = {"status": "done", "heads": 4, "out_proj": True, "normalize": "none", "params": 1}
    return pd.DataFrame([{**common, "run_id": str(i), **row} for i, row in enumerate(rows)]).reindex(
        columns=list(COLUMNS)
    )


# --- tuned studies ------------------------------------------------------------------------------------

REPORT, EXTEND = 8, 3
GRID = np.arange(-2 - EXTEND, 3 + EXTEND)  # octaves from the middle of the grid; the study begins with -2 … 2
HALVES = np.array([-tuning.HALF, tuning.HALF])  # beside the best point, where a curve is steep
OPTIMA = 2.5  # octaves from the middle within which the optima lie: some beyond the grid


def one_curve(rng: np.random.Generator, args: argparse.Namespace, shape: str, curvature: float) -> None:
    """Print one line: four arms whose losses have one minimum, at rates of their own, of `curvature` nats per
    squared octave; steep: twice as much above the optimum."""

    def excess(at: np.ndarray, optimum: np.ndarray) -> np.ndarray:
        away = at - optimum
        return curvature * away**2 * np.where((shape == "steep") & (away > 0), 2, 1)

    def noise(seeds: int, *others: int) -> np.ndarray:
        """What a seed adds, in part to all that it trains."""
        r, shared = args.correlation, rng.normal(size=(args.studies, *(1 for _ in others), seeds))
        own = rng.normal(size=(args.studies, *others, seeds))
        return args.sd * (np.sqrt(r) * shared + np.sqrt(1 - r) * own)

    optimum_NA = rng.uniform(-OPTIMA, OPTIMA, (args.studies, len(VARIANTS)))
    develop_NAGS = 2 + excess(GRID, optimum_NA[..., None])[..., None]
    develop_NAGS = develop_NAGS + noise(args.develop, len(VARIANTS), len(GRID))
    fitted_NA, best_NA, steep_NA = tune(develop_NAGS.mean(-1))
    half_NAHS = 2 + excess(best_NA[..., None] + HALVES, optimum_NA[..., None])[..., None]
    half_NAHS = half_NAHS + noise(args.develop, len(VARIANTS), len(HALVES))
    finer_NA = with_halves(develop_NAGS.mean(-1), half_NAHS.mean(-1), best_NA)
    fitted_NA = np.where(steep_NA, finer_NA, fitted_NA)
    fresh_NAS = 2 + noise(REPORT, len(VARIANTS))
    rates = []
    for at_NA in (fitted_NA, best_NA):
        loss_NAS = fresh_NAS + excess(at_NA, optimum_NA)[..., None]
        difference_NKS = loss_NAS[:, 1:] - loss_NAS[:, :1]
        k = difference_NKS.shape[1]
        low, high = stats.t_interval(difference_NKS.reshape(-1, REPORT), ALPHA / k)
        verdict_NK = stats.verdicts(low, high, args.margin).reshape(-1, k)
        rates.append(np.isin(verdict_NK, CLAIMS).any(1).mean())
        if at_NA is fitted_NA:
            ten = (array[:10] for array in (develop_NAGS, half_NAHS, best_NA, at_NA, loss_NAS, verdict_NK))
            check_against_study(*ten, margin=args.margin)
    limit = ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / args.studies)
    above = excess(fitted_NA, optimum_NA).mean()
    print(f"{shape:<10}{curvature:>9g}{rates[0]:>14.2%}{limit:>8.2%}{rates[1]:>27.2%}{above:>24.4f}")


def tune(loss_NAG: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What a parabola over octaves chooses, and the best of the grid, for many studies at once, in octaves
    from the middle; and where the curve is so steep that half-octaves come first."""
    index = np.arange(len(GRID))
    low, high = (np.full(len(loss_NAG), end) for end in (EXTEND, len(GRID) - 1 - EXTEND))
    for _ in range(EXTEND + 1):
        seen_NG = (index >= low[:, None]) & (index <= high[:, None])
        best_NA = np.where(seen_NG[:, None], loss_NAG, np.inf).argmin(-1)
        down, up = (best_NA == low[:, None]).any(1), (best_NA == high[:, None]).any(1)
        low, high = (
            np.where(down, np.maximum(low - 1, 0), low),
            np.where(up, np.minimum(high + 1, index[-1]), high),
        )
    first = np.clip(best_NA - 1, low[:, None], high[:, None] - 2)
    a, b, c = (np.take_along_axis(loss_NAG, (first + i)[..., None], -1)[..., 0] for i in range(3))
    bend = a - 2 * b + c
    with np.errstate(divide="ignore", invalid="ignore"):
        fitted = np.clip(first + 1 + (a - c) / (2 * bend), first, first + 2)
    is_inside = (best_NA > low[:, None]) & (best_NA < high[:, None])
    return (
        np.where(bend > 0, fitted, best_NA) + GRID[0],
        GRID[best_NA],
        is_inside & (bend / 2 > tuning.STEEP),
    )


def with_halves(loss_NAG: np.ndarray, half_NAH: np.ndarray, best_NA: np.ndarray) -> np.ndarray:
    """What a parabola through the lowest point and its neighbours chooses, with half-octaves beside the best
    point of the grid."""
    index = np.clip(best_NA - GRID[0], 1, len(GRID) - 2)
    of_grid = [np.take_along_axis(loss_NAG, (index + i)[..., None], -1)[..., 0] for i in (-1, 0, 1)]
    five_NAP = np.stack([of_grid[0], half_NAH[..., 0], of_grid[1], half_NAH[..., 1], of_grid[2]], -1)
    lowest = np.clip(five_NAP.argmin(-1), 1, 3)
    a, b, c = (np.take_along_axis(five_NAP, (lowest + i)[..., None], -1)[..., 0] for i in (-1, 0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        away = np.clip((a - c) / (2 * (a - 2 * b + c)), -1, 1)
    return best_NA + (lowest - 2 + away) / 2


def check_against_study(
    develop_NAGS: np.ndarray,
    half_NAHS: np.ndarray,
    best_NA: np.ndarray,
    at_NA: np.ndarray,
    loss_NAS: np.ndarray,
    verdict_NK: np.ndarray,
    *,
    margin: float,
) -> None:
    """The same studies through propose, as `ablate run` drives it, and through compare."""
    grid = [f"{2.0**x:.4g}" for x in GRID[EXTEND : len(GRID) - EXTEND]]
    declared = tuned.Tuned(
        question="Are equal arms told apart?",
        tune="train.lr",
        factors={"fusion": [*VARIANTS], "train.lr": grid},
        develop=[str(seed) for seed in range(develop_NAGS.shape[-1])],
        extend=EXTEND,
        seeds=[str(100 + seed) for seed in range(REPORT)],
        primary=[Contrast(baseline={"fusion": VARIANTS[0]})],
        metric="test_loss",
    )
    study = declared.design(declared.levels)
    of_each = zip(develop_NAGS, half_NAHS, best_NA, at_NA, loss_NAS, verdict_NK, strict=True)
    for develop_AGS, half_AHS, best_A, at_A, loss_AS, verdict_K in of_each:
        rows: dict[Overrides, dict] = {}
        while proposed := study.propose(rows):
            members = study.members(rows)
            for overrides in proposed:
                fusion, rate, seed = (override.partition("=")[2] for override in overrides)
                arm, number = VARIANTS.index(fusion), int(seed) % 100
                octave = np.log2(float(rate))
                if not members[overrides] and abs(octave - round(octave)) > 0.25:
                    loss = half_AHS[arm, int(octave > best_A[arm]), number]
                elif not members[overrides]:  # of development, on the grid
                    loss = develop_AGS[arm, int(np.abs(GRID - octave).argmin()), number]
                else:
                    loss = loss_AS[arm, number]  # what is an octave away plays no part here
                rows[overrides] = {
                    **{"fusion": fusion, "lr": float(rate), "seed": int(seed), "status": "done"},
                    **{"val_loss": loss, "test_loss": loss, "tuned": study.key},
                    **{"phase": "report" if members[overrides] else "develop"},
                    **{"role": " ".join(members[overrides])},
                }
        chosen = study.found(rows).choices.values()
        assert np.allclose([np.log2(float(choice.value or "nan")) for choice in chosen], at_A, atol=1e-3)
        table = compare(as_results(list(rows.values())), metric="test_loss", margin=margin).table
        own = table[table["family"] == "exploratory"].set_index("fusion")
        assert own.loc[list(VARIANTS[1:]), "verdict"].tolist() == verdict_K.tolist()


def holm(p_NK: np.ndarray) -> np.ndarray:
    """Holm's p's, row by row; stats.holm takes one family at a time."""
    k = p_NK.shape[1]
    order = p_NK.argsort(1)
    stepped = np.maximum.accumulate(np.take_along_axis(p_NK, order, 1) * np.arange(k, 0, -1), 1)
    return np.take_along_axis(stepped, order.argsort(1), 1)


def two_sided(t: np.ndarray, n: int) -> np.ndarray:
    return 2 * one_sided(np.abs(t), n)


def one_sided(t: np.ndarray, n: int) -> np.ndarray:
    from scipy.stats import t as student

    return student.sf(t, n - 1)


if __name__ == "__main__":
    main()
