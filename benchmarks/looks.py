"""How often a study without any difference claims one: with looks, and at its fixed number of seeds.

    python benchmarks/looks.py [--studies 5000]

Each simulated study has a baseline and 1, 3 or 8 variants with independent noise, so that a paired difference
has an sd of 1, a margin of 0.8, and the usual looks. exponential: each difference is skewed.
"""

import argparse
from collections.abc import Callable

import numpy as np

from ablate.analysis import stats
from ablate.analysis.looks import Looks, usual, usual_seeds

NOISE: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape) / np.sqrt(2),
    "t3": lambda rng, shape: rng.standard_t(3, shape) / np.sqrt(6),
    "exponential": lambda rng, shape: (rng.exponential(size=shape) - 1) * (np.arange(shape[0]) > 0)[:, None],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--studies", type=int, default=5000)
    args = parser.parse_args()
    print(f"{'noise':12} {'contrasts':>9} {'looks':>8} {'fixed':>8} {'seeds of a contrast':>20}")
    for noise, draw in NOISE.items():
        for contrasts in (1, 3, 8):
            claims, seeds = simulated(draw, contrasts, args.studies)
            looks, fixed = (f"{100 * share:.2f} %" for share in claims)
            print(f"{noise:12} {contrasts:9} {looks:>8} {fixed:>8} {seeds:>20.1f}", flush=True)


def simulated(
    draw: Callable[[np.random.Generator, tuple[int, int]], np.ndarray], contrasts: int, studies: int
) -> tuple[np.ndarray, float]:
    """(2,) the share of studies that claim a difference, with looks and at the last one alone; and how many
    seeds a contrast takes with looks."""
    at, rng = usual(usual_seeds(contrasts)), np.random.default_rng(0)
    pairs = [(k, 0) for k in range(1, contrasts + 1)]
    planned = [Looks(at=each, pairs=pairs, contrasts=contrasts, margin=0.8) for each in (at, at[-1:])]
    claims, seeds = np.zeros(2), 0.0
    for _ in range(studies):
        values = draw(rng, (contrasts + 1, at[-1]))
        both = [looks.decide(values, np.zeros(values.shape, bool)) for looks in planned]
        claims += [np.isin(now.verdict, stats.CLAIMS).any() for now in both]
        seeds += both[0].seeds.mean()
    return claims / studies, seeds / studies


if __name__ == "__main__":
    main()
