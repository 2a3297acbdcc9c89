"""Which training settings answer a question in the least time.

    python benchmarks/settings.py "train.steps=500 train.lr=0.003 train.warmup=0.05" "" --seeds 12
    python benchmarks/settings.py "" --streams 5
    python benchmarks/settings.py "corpus=stdlib train.steps=1500" "corpus=stdlib train.steps=2000" --looks

Each setting is a list of overrides, "" for the defaults. They take turns, four seeds at a time, in one store.
One line per setting: the loss of the first method, its sd over seeds, the sd of paired differences (pooled
over the other methods), seconds per run on all cores, and the seconds that two methods take until a true
difference of the margin, 0.02, is detected with 80 % power, or until two equal ones are called equivalent
within it, with the 90 % interval from the uncertainty of the sd. --looks: whether attention has learned to
look: a second line per setting with how far the first method is ahead of heads that read fixed places
(scores=offsets), in nats a token on validation and on test with 95 % t-intervals, how many bits a byte its
mixture with counting lies below counting alone, the loss of counting, and epochs. --streams: crosses
seeds.backbone with seeds.data, and says how much of the noise comes from each.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from ablate.analysis.power import sd_interval
from ablate.analysis.stats import bimodal, seeds_to_claim, t_interval
from ablate.config.contrast import MARGIN

TURN = 4  # seeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("settings", nargs="+", help="overrides, a string for each setting")
    parser.add_argument("--fusion", default="concat,sum,mean", help="the first is the baseline")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--streams", type=int, default=0, help="seeds of each of the two streams")
    parser.add_argument("--looks", action="store_true", help="compare with heads that read fixed places")
    parser.add_argument("--metric", default="val_loss")
    parser.add_argument("--keep", type=Path, help="where the CSV of all rows goes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        cwd, seconds = Path(directory), dict.fromkeys(range(len(args.settings)), 0.0)
        for turn, first in enumerate(range(args.first, args.first + args.seeds, TURN)):
            seeds = f"seed=range({first},{min(first + TURN, args.first + args.seeds)})"
            if args.streams:
                numbers = f"range({args.first},{args.first + args.streams})"
                seeds = f"seeds.backbone={numbers} seeds.data={numbers}"
            for at in [*seconds][:: -1 if turn % 2 else 1]:
                overrides = [
                    f"name=s{at}",
                    f"fusion={args.fusion}",
                    *seeds.split(),
                    *args.settings[at].split(),
                ]
                seconds[at] += run(overrides, cwd)
                if args.looks:
                    first_method = args.fusion.partition(",")[0]
                    fixed = [f"name=o{at}", f"fusion={first_method}", "scores=offsets", *overrides[2:]]
                    run(fixed, cwd)
            if args.streams:
                break
        tables = {at: pd.read_csv(cwd / f"runs/studies/s{at}/results.csv") for at in seconds}
        fixed = {at: pd.read_csv(cwd / f"runs/studies/o{at}/results.csv") for at in seconds if args.looks}
    if args.keep:
        pd.concat([*tables.values(), *fixed.values()]).to_csv(args.keep, index=False)
    print(f"fusion={args.fusion}, {args.metric}")
    if not args.streams:
        titles = (("loss", 7), ("sd", 9), ("paired", 9), ("s a run", 9), ("s to see", 9), ("[90 %]", 14))
        print("".join(f"{title:>{width}}" for title, width in titles) + "  s equivalent")
    for at, table in tables.items():
        name = args.settings[at] or "(defaults)"
        (streams if args.streams else line)(name, table, args, seconds[at] / len(table))
        if args.looks:
            looks(table[table["fusion"] == args.fusion.partition(",")[0]], fixed[at])


def run(overrides: list[str], cwd: Path) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-m", "ablate", "run", "-m", *overrides, "train.save=none"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    return time.perf_counter() - began


def line(name: str, table: pd.DataFrame, args: argparse.Namespace, run_s: float) -> None:
    first, *others = args.fusion.split(",")
    loss = table.pivot(index="seed", columns="fusion", values=args.metric)
    sd = pooled([loss[other] - loss[first] for other in others])
    low, high = sd_interval(sd, len(loss) - 1)  # they share a baseline: the degrees of freedom of one
    see, least, most = (2 * run_s * float(seeds_to_claim(MARGIN, one, 0.05)) for one in (sd, low, high))
    equivalent = 2 * run_s * float(seeds_to_claim(0.0, sd, 0.05, margin=MARGIN))
    kinds = ", bimodal seeds" if any(bimodal(loss[c].to_numpy()) is not None for c in loss) else ""
    print(
        f"{loss[first].mean():>7.3f}{loss[first].std():>9.4f}{sd:>9.4f}{run_s:>9.2f}{see:>9.0f}"
        f"{f'{least:.0f}–{most:.0f}':>14}{equivalent:>14.0f}  {name}{kinds}"
    )


def looks(table: pd.DataFrame, fixed: pd.DataFrame) -> None:
    """How far learned patterns are ahead of fixed ones, and a model mixed with counting of counting alone."""
    own, other = (of.set_index("seed").sort_index() for of in (table, fixed))
    ahead = []
    for metric in ("val_loss", "test_loss"):
        difference = (other[metric] - own[metric]).to_numpy()
        (low,), (high,) = t_interval(difference[None])
        ahead.append(f"{metric} {difference.mean():+.3f} [{low:+.3f}, {high:+.3f}]")
    bytes_a_token = (own["val_loss"] / own["val_bpb"] / math.log(2)).mean()
    gain = (own["ngram_loss"] - own["mix_loss"]).mean() / math.log(2) / bytes_a_token
    print(
        f"    ahead of fixed places: {', '.join(ahead)}; mixture {gain:.3f} bits a byte below counting"
        f" ({own['ngram_loss'].mean():.3f} nats a token); {own['epochs'].mean():.1f} epochs"
    )


def streams(name: str, table: pd.DataFrame, args: argparse.Namespace, _: float) -> None:
    """The sd that each stream makes, by the mean squares of a two-way layout without repetition."""
    print(name)
    first, *others = args.fusion.split(",")
    cells = {
        fusion: of.pivot(index="seed_backbone", columns="seed_data", values=args.metric).to_numpy()
        for fusion, of in table.groupby("fusion")
    }
    differences = {f"{other} − {first}": cells[other] - cells[first] for other in others}
    for what, value in {first: cells[first], **differences}.items():
        n = len(value)
        rows, columns = (value.mean(axis) - value.mean() for axis in (1, 0))
        of_rest = ((value - value.mean() - rows[:, None] - columns) ** 2).sum() / (n - 1) ** 2
        shown = [f"both together {math.sqrt(of_rest):.4f}"]
        for stream, effect in (("data", columns), ("backbone", rows)):
            square = n * (effect**2).sum() / (n - 1)
            shown.insert(0, f"{stream} {math.sqrt(max(0.0, square - of_rest) / n):.4f}")
        print(f"  {what}: sd {', '.join(shown)}")


def pooled(differences: list[pd.Series]) -> float:
    return float(np.sqrt(np.mean([difference.var() for difference in differences])))


if __name__ == "__main__":
    os.environ.pop("OMP_NUM_THREADS", None)
    main()
