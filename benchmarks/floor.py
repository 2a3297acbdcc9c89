"""How often the placebo floor is at least the largest true difference of its arms, and how large it is.

    python benchmarks/floor.py [--sd 0.015 --studies 5000]

Studies have three arms of the same functions, whose losses are normal and don't correlate: the arms are
identical, or one of them is worse than the two others by 0.01, or by 0.1, where noise hides nothing. Ten
studies of each line also go through `ablate compare` itself, row by row, and have to get the same floor.
"""

import argparse

import numpy as np

from ablate.analysis import stats
from ablate.analysis.compare import compare
from benchmarks.false_alarms import ALPHA, as_results

ARMS = ("sum", "mean", "weighted_sum")
PAIRS = ((0, 1), (0, 2), (1, 2))
SEEDS, TRUE = (4, 6, 8, 12, 16, 24), (0.0, 0.01, 0.1)
THROUGH_COMPARE = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sd", type=float, default=0.015, help="of an arm over seeds, nats")
    parser.add_argument("--studies", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    print("true difference   n  floor is at least as large  median floor")
    for true in TRUE:
        for n in SEEDS:
            loss_NAS = 2 + args.sd * rng.standard_normal((args.studies, len(ARMS), n))
            loss_NAS[:, -1] += true
            floor_N = floors(loss_NAS)
            check_against_compare(loss_NAS[:THROUGH_COMPARE], floor_N)
            print(f"{true:>15g}{n:>4}{np.mean(floor_N >= true):>28.2%}{np.median(floor_N):>14.4f}")


def floors(loss_NAS: np.ndarray) -> np.ndarray:
    """(N,) the floor of each study."""
    N, _, n = loss_NAS.shape
    one, other = (loss_NAS[:, [*side]].reshape(-1, n) for side in zip(*PAIRS, strict=True))
    found = stats.paired(one, other, margin=np.inf, alpha=ALPHA, contrasts=len(PAIRS))
    ends = np.abs([found["low"], found["high"]])
    return ends.max(0).reshape(N, len(PAIRS)).max(1)


def check_against_compare(loss_NAS: np.ndarray, floor_N: np.ndarray) -> None:
    for loss_AS, floor in zip(loss_NAS, floor_N, strict=False):
        rows = [
            {"fusion": arm, "form": arm, "function_class": "one", "seed": seed, "val_loss": loss}
            for arm, loss_S in zip(ARMS, loss_AS, strict=True)
            for seed, loss in enumerate(loss_S)
        ]
        found = compare(as_results(rows), baseline={"fusion": ARMS[0]}).floor
        assert found is not None and np.isclose(found.value, floor, rtol=1e-12)


if __name__ == "__main__":
    main()
