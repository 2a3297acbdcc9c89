"""How often the forecast of a ladder holds, and the naive one, that all is as on the rung below.

    python benchmarks/ladder.py [--ladders 2000] [--draws 1000] [--rungs 4 5] [--noise 0.017 0.024]

A ladder has the sizes and seeds of the shipped rungs 80×3 to 160×5 (or to 192×6), a baseline with
L = E + A·N^−α, and three arms whose differences to it follow one law, about 0.01, 0.03 and 0.1 nats large.
The highest rung is held out: the interval at level 90 % is for the mean difference that its seeds show. The
noise of a paired difference has sd 0.017 on each rung, as seeds of corpus=study scatter; or 0.024, the median
of docs/ladder.

Score: the mean interval score, in nats; lower is better. Wrong sign: the interval excludes 0 on the other
side of the true difference, where that is at least 0.001. Ten times: the same for ten times the parameters
of the highest rung, which is then among the fitted ones.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ablate.analysis.rungs import Pairs, Rungs, seen
from ablate.analysis.scaling import forecast

SHAPES = (80, 3), (96, 4), (128, 4), (160, 5), (192, 6)  # d_model, layers
SIZES = np.array([12 * layers * d_model**2 for d_model, layers in SHAPES], float)
SEEDS = {4: (16, 12, 12, 10), 5: (16, 12, 12, 10, 8)}  # of a ladder with so many rungs, the lowest ones
E, A, ALPHA = 1.8, 1.7, 0.3  # nats, nats at the lowest rung
ARMS = np.array([0.01, 0.03, 0.1])  # nats
PAIRS = [(1, 0), (2, 0), (3, 0)]
LEVEL, LEAST = 0.9, 0.001

Law = Callable[[float], np.ndarray]  # N / N of the lowest rung -> the true differences
WITH_A_BAR: dict[str, Law] = {
    "constant": lambda n: ARMS,
    "shrinking, N^−α": lambda n: ARMS * n**-ALPHA,
    "growing, log N": lambda n: ARMS * (1 + np.log(n) / 2),
}
WITHOUT: dict[str, Law] = {
    "one arm of each": lambda n: 0.03 * np.array([1, n**-ALPHA, 1 + np.log(n) / 2]),
    "crossing zero, log N": lambda n: ARMS * (1 - np.log(n) / np.log(11.2)),
    "crossing zero on a curve": lambda n: ARMS * (n**-0.6 - 0.25) / 0.75,
    "shrinking to an offset": lambda n: ARMS * (1 + 1 / n) / 2,
    "saturating": lambda n: ARMS * (1 - 1 / n),
    "an exponent for each arm": lambda n: A * (n ** (ARMS / 2 - ALPHA) - n**-ALPHA),
}


# Parameters -> the sd of a paired difference, in nats.
NOISES: dict[str, Callable[[float], float]] = {
    "0.017": lambda size: 0.017,
    "0.024": lambda size: 0.024,
}


def interval_score(low: np.ndarray, high: np.ndarray, observed: np.ndarray, level: float) -> np.ndarray:
    """Width, plus 2/(1 − level) times how far the observed value lies outside; lower is better. Elementwise.

    See: Gneiting and Raftery (2007), Strictly proper scoring rules, section 6.2.
    """
    outside = np.maximum(low - observed, 0) + np.maximum(observed - high, 0)
    return high - low + 2 / (1 - level) * outside


@dataclass(frozen=True)
class Tally:
    """(ladders, arms) intervals, what was observed, and what is true."""

    low: np.ndarray
    high: np.ndarray
    observed: np.ndarray
    true: np.ndarray

    def cells(self) -> str:
        hit = (self.low <= self.observed) & (self.observed <= self.high)
        score = interval_score(self.low, self.high, self.observed, LEVEL).mean()
        wrong = np.where(self.true > 0, self.high < 0, self.low > 0)[np.abs(self.true) >= LEAST].mean()
        arms = ", ".join(f"{share:.0%}"[:-1] for share in hit.mean(0))
        return f"{hit.mean():.1%} ({arms}) | {(self.high - self.low).mean():.4f} | {score:.4f} | {wrong:.1%}"

    def covered(self) -> str:
        return f"{((self.low <= self.observed) & (self.observed <= self.high)).mean():.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ladders", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=1000, help="of a forecast")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise", nargs="+", default=list(NOISES), choices=NOISES)
    parser.add_argument("--rungs", type=int, nargs="+", default=list(SEEDS), choices=SEEDS)
    args = parser.parse_args()
    for rungs in args.rungs:
        for noise in args.noise:
            print(f"\n{rungs} rungs, noise: {noise}\n")
            print("| differences | covered (each arm) | width | score | wrong sign", end=" ")
            print("| naive: covered | width | score | wrong sign | ten times: covered |")
            print("| --- " * 10 + "|")
            for name, law in (WITH_A_BAR | WITHOUT).items():
                ours, naive, far = simulate(args, law, NOISES[noise], SEEDS[rungs])
                print(f"| {name} | {ours.cells()} | {naive.cells()} | {far.covered()} |", flush=True)


def simulate(
    args: argparse.Namespace, law: Law, sd: Callable[[float], float], seeds: tuple[int, ...]
) -> tuple[Tally, Tally, Tally]:
    """The forecast of the highest rung, the naive one, and the forecast of ten times its parameters."""
    rng = np.random.default_rng(args.seed)
    sizes = np.append(SIZES[: len(seeds)], 10 * SIZES[len(seeds) - 1])
    seeds = (*seeds, seeds[-1])
    rows: list[list[tuple[np.ndarray, ...]]] = [[], [], []]
    for _ in range(args.ladders):
        losses = [trained(rng, law, size, n, sd(size)) for size, n in zip(sizes, seeds, strict=True)]
        ladder = Rungs(sizes, losses)
        near, far = [(loss[1:] - loss[0]).mean(1) for loss in losses[-2:]]
        below, all_rungs = ladder.up_to(len(sizes) - 2), ladder.up_to(len(sizes) - 1)
        ours = forecast(below, PAIRS, sizes[-2], seeds[-2], level=LEVEL, draws=args.draws)
        farther = forecast(all_rungs, PAIRS, sizes[-1], seeds[-1], level=LEVEL, draws=args.draws)
        rows[0].append((ours.low, ours.high, near, law(sizes[-2] / sizes[0])))
        rows[1].append((*as_below(below, PAIRS, seeds[-2], level=LEVEL), near, law(sizes[-2] / sizes[0])))
        rows[2].append((farther.low, farther.high, far, law(sizes[-1] / sizes[0])))
    ours, naive, farther = (Tally(*map(np.array, zip(*of, strict=True))) for of in rows)
    return ours, naive, farther


def as_below(rungs: Rungs, pairs: Pairs, seeds: int, *, level: float) -> tuple[np.ndarray, np.ndarray]:
    """The naive interval for the mean difference over `seeds` seeds of a larger model: that it is as on the
    highest measured rung."""
    from scipy.stats import t

    top = seen(Rungs(rungs.sizes[-1:], rungs.losses[-1:]), pairs)
    n, mean, sd = (values[:, 0] for values in (top.n, top.mean, top.sd))
    half = t.isf((1 - level) / 2, n - 1) * sd * np.sqrt(1 / n + 1 / seeds)
    return mean - half, mean + half


def trained(rng: np.random.Generator, law: Law, size: float, seeds: int, sd: float) -> np.ndarray:
    """(arms and the baseline, seeds) losses."""
    relative = size / SIZES[0]
    level = E + A * relative**-ALPHA + np.array([0, *law(relative)])
    return level[:, None] + sd / np.sqrt(2) * rng.standard_normal((len(level), seeds))


if __name__ == "__main__":
    main()
