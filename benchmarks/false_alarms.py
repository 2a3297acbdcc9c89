"""How often `ablate compare` claims what is not so, and how often its intervals cover the truth.

    python benchmarks/false_alarms.py [--sd 0.01 --correlation 0.5 --margin 0.01 --studies 5000]
    python benchmarks/false_alarms.py --csv runs/studies/aa/results.csv

Simulated: four variants that share seeds; loss = sd·(√r·a_seed + √(1−r)·noise). A sample of the studies also
goes through `ablate compare` itself, row by row, and has to get the same verdicts. --csv: a real A/A, the
first half of one variant's seeds against the other, and 1,000 random relabellings of them.
"""

import argparse

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import compare
from ablate.analysis.load import load
from ablate.analysis.where import select, with_options
from ablate.columns import COLUMNS

ALPHA, VARIANTS = 0.05, ("concat", "sum", "mean", "weighted_sum")
CLAIMS = (stats.BETTER, stats.BETTER_WITHIN, stats.WORSE, stats.WORSE_WITHIN)
WITHIN = (stats.EQUIVALENT, stats.BETTER_WITHIN, stats.WORSE_WITHIN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sd", type=float, default=0.01, help="of a variant over seeds, nats")
    parser.add_argument("--correlation", type=float, default=0.5, help="of two variants at equal seeds")
    parser.add_argument("--margin", type=float, default=0.01)
    parser.add_argument("--studies", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", help="results of one variant, with an even number of seeds")
    parser.add_argument("--where", action="append", default=[], help="which rows of --csv")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    if args.csv:
        relabel(args.csv, args.where, args.margin, rng)
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


def relabel(path: str, where: list[str], margin: float, rng: np.random.Generator, times: int = 1000) -> None:
    """The first half of the seeds against the second, as they are and relabelled at random."""
    rows = select(with_options(load([path])), where).sort_values("seed")
    loss = rows["val_loss"].to_numpy(float)
    if rows["seed"].nunique() != len(rows) or len(loss) % 2 or np.isnan(loss).any():
        raise SystemExit(f"{path}: {len(rows)} rows; give one variant's, an even number of seeds (--where)")
    half = len(loss) // 2
    orders = np.array([np.arange(len(loss)), *(rng.permutation(len(loss)) for _ in range(times))])
    difference = loss[orders[:, :half]] - loss[orders[:, half:]]
    low, high = stats.t_interval(difference, ALPHA)
    verdict = stats.verdicts(low, high, margin)
    alarms = np.isin(verdict[1:], CLAIMS).mean()
    print(f"sd over {len(loss)} seeds {loss.std(ddof=1):.4f}; first against second half: {verdict[0]}")
    print(f"  {difference[0].mean():+.4f} [{low[0]:.4f}, {high[0]:.4f}]")
    equivalent = np.mean(verdict[1:] == stats.EQUIVALENT)
    print(f"{times} relabellings: {alarms:.1%} false alarms, {equivalent:.1%} equivalent")


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
