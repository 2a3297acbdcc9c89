"""How often the judge of `ablate race` is wrong, and how many pairs it needs.

    python benchmarks/race.py

Of 2,000 simulated races of two commands, with the looks of the command: how often it is better or worse
without a difference, whatever the distribution of the paired differences; and at a difference of one sd its
power, and its pairs against those of a fixed number that has this power, and of one that has 0.95.
"""

import numpy as np

from ablate.analysis import stats
from ablate.analysis.looks import Case, stand
from ablate.cli.race import LOOKS, SEEDS

RACES = 2000
DRAWS = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "Student's t, 3 df": lambda rng, size: rng.standard_t(3, size) / np.sqrt(3),
    "of two skewed values": lambda rng, size: (
        (rng.exponential(size=size) - rng.exponential(size=size)) / 2**0.5
    ),
}


def raced(differences_KS: stats.Array) -> tuple[stats.Array, stats.Array]:
    """The verdict of each of K races, and its pairs. Each is a family of its own."""
    at = [*(look for look in LOOKS if look < SEEDS), SEEDS]
    none, weights = np.zeros((1, SEEDS), bool), np.ones(1)
    cases = [Case(weights, one[None], none) for one in differences_KS]
    ends = [stand([one], at=at, k=1, margin=np.nan, higher_is_better=False) for one in cases]
    return np.array([end.verdict[0] for end in ends]), np.array([end.seeds[0] for end in ends])


def main() -> None:
    for name, draw in DRAWS.items():
        differences = draw(np.random.default_rng(0), (RACES, SEEDS))
        null, _ = raced(differences)
        verdict, pairs = raced(differences + 1)
        power = float((verdict == stats.WORSE).mean())
        same, enough = (float(stats.seeds_to_claim(1, 1, stats.ALPHA, power=of)) for of in (power, 0.95))
        print(
            f"{name}: better or worse in {np.mean(null != stats.UNDECIDED):.1%} of {RACES:,} races without a"
            f" difference; at one sd power {power:.3f} with {pairs.mean():.1f} pairs,"
            f" {pairs.mean() / same:.2f} of the {same:.0f} of a fixed number with that power,"
            f" {pairs.mean() / enough:.2f} of the {enough:.0f} of one with 0.95"
        )


if __name__ == "__main__":
    main()
