"""Whether `ablate compare` detects known differences as often as `ablate plan` predicts.

    python benchmarks/power.py [--sd SD --correlation R --studies 5000]

Noise is normal, and --correlation that of two variants at equal seeds. For each true difference it prints the
seeds that plan gives for 80 % power, the power that it predicts for them, and the share of studies in which
compare calls the variant worse, as it is; the same for half the seeds. It also prints how often the interval
of two equal variants is within the margin.
"""

import argparse

import numpy as np

from ablate.analysis import stats
from ablate.config.contrast import MARGIN

ALPHA, COMPARISONS = 0.05, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sd", type=float, default=0.0104, help="of a variant over seeds, nats")
    parser.add_argument("--correlation", type=float, default=0.0, help="of two variants at equal seeds")
    parser.add_argument("--margin", type=float, default=MARGIN)
    parser.add_argument("--studies", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    sd = args.sd * np.sqrt(2 * (1 - args.correlation))  # of paired differences
    print("difference    n  as planned   seen  equal ones within the margin: as planned   seen")
    for difference in (0.01, 0.02, 0.04, 0.06):
        planned = int(stats.seeds_to_claim(difference, sd, ALPHA / COMPARISONS))
        for n in sorted({max(2, planned // 2), planned}):
            said = float(stats.power_difference(np.array(n), np.array(difference), sd, ALPHA / COMPARISONS))
            equal = float(
                stats.power_equivalence(np.array(n), np.zeros(()), sd, ALPHA / COMPARISONS, args.margin)
            )
            verdict_NK = simulate(rng, args, difference, n)
            seen = np.isin(verdict_NK[:, 0], (stats.WORSE, stats.WORSE_WITHIN)).mean()
            within = (stats.EQUIVALENT, stats.BETTER_WITHIN, stats.WORSE_WITHIN)
            held = np.isin(verdict_NK[:, 1], within).mean()
            print(f"{difference:>10}{n:>5}{said:>12.1%}{seen:>7.1%}{equal:>42.1%}{held:>7.1%}")


def simulate(rng: np.random.Generator, args: argparse.Namespace, difference: float, n: int) -> np.ndarray:
    """(studies, comparisons) verdicts; the first variant is worse by `difference`, the others are equal."""
    shared = rng.normal(size=(args.studies, 1, n))
    own = rng.normal(size=(args.studies, COMPARISONS + 1, n))
    loss = args.sd * (np.sqrt(args.correlation) * shared + np.sqrt(1 - args.correlation) * own)
    loss[:, 1] += difference
    low, high = stats.t_interval((loss[:, 1:] - loss[:, :1]).reshape(-1, n), ALPHA / COMPARISONS)
    return stats.verdicts(low, high, args.margin).reshape(-1, COMPARISONS)


if __name__ == "__main__":
    main()
