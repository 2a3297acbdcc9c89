"""Is bfloat16 the same science as float32? Seven equivalences over paired seeds, from docs/precision.csv.

    python benchmarks/precision.py

For each method the loss in bfloat16 less that in float32, and for each difference to concat the same. Each is
tested by two one-sided t-tests at 5 % against the margin. All seven have to hold, so nothing is corrected.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t

CSV = Path(__file__).parent.parent / "docs" / "precision.csv"
BASELINE = "concat"
POWER = 0.8


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("csv", nargs="?", type=Path, default=CSV)
    parser.add_argument("--margin", type=float, default=0.005, help="nats")
    arguments = parser.parse_args()
    rows = pd.read_csv(arguments.csv)
    losses = rows.pivot_table(index="seed", columns=["fusion", "precision"], values="val_loss").dropna()
    changes = losses.xs("bfloat16", axis=1, level=1) - losses.xs("float32", axis=1, level=1)
    others = [str(fusion) for fusion in changes.columns if fusion != BASELINE]
    compared = {
        **{fusion: changes[fusion] for fusion in (BASELINE, *others)},
        **{f"{fusion} − {BASELINE}": changes[fusion] - changes[BASELINE] for fusion in others},
    }
    print(f"bfloat16 less float32, {len(changes)} paired seeds, margin {arguments.margin:g} nats")
    print(f"{'':>24}    mean     90 % interval        sd       p  seeds for {POWER:.0%} power")
    for name, values in compared.items():
        mean, sd, n = values.mean(), values.std(ddof=1), len(values)
        half = t.ppf(0.95, n - 1) * sd / n**0.5
        p = t.sf((arguments.margin - abs(mean)) / (sd / n**0.5), n - 1)
        print(
            f"{name:>24} {mean:+7.4f}  [{mean - half:+.4f}, {mean + half:+.4f}]  {sd:.4f}  {p:.1g}"
            f"  {_seeds(sd, arguments.margin)}"
        )


def _seeds(sd: float, margin: float) -> int:
    """The fewest seeds that find two equal ones equivalent so often."""
    counts = np.arange(2, 1000)
    reach = margin / (sd / counts**0.5) - t.ppf(0.95, counts - 1)
    return int(counts[2 * t.cdf(reach, counts - 1) - 1 >= POWER][0])


if __name__ == "__main__":
    main()
