"""How often `ablate compare` reports bimodal seeds, when there is one kind and when there are two.

    python benchmarks/seed_kinds.py

Results are normal, with 4,000 variants per cell. Columns: the distance between the two kinds, in standard
deviations of one kind.
"""

import numpy as np

from ablate.analysis.stats import FEWEST, bimodal, limit

VARIANTS, APART = 4000, (0, 4, 6, 8, 12, 20)


def main() -> None:
    rng = np.random.default_rng(1)
    print(" n  limit  of another kind" + "".join(f"{f'{away} sd':>8}" for away in APART))
    for n in (FEWEST, 8, 12, 16, 24, 48):
        for others in (1, n // 4):
            draws = rng.standard_normal((VARIANTS, n))
            found = [said(draws + away * (np.arange(n) < others)) for away in APART]
            print(f"{n:>2}{limit(n):>7.2f}{others:>17}" + "".join(f"{share:>8.1%}" for share in found))


def said(results: np.ndarray) -> float:
    return float(np.mean([bimodal(row) is not None for row in results]))


if __name__ == "__main__":
    main()
