"""Whether two commits of ablate give the same results, and whether one can continue the other's store.

    OLD/python benchmarks/same_results.py make old     # the interpreter chooses the commit
    NEW/python benchmarks/same_results.py make new
    NEW/python benchmarks/same_results.py compare old new
    NEW/python benchmarks/same_results.py grow old     # after compare: it adds runs to old

It uses only the command line and the files of ablate, so the same script works with any commit. In two
directories it compares the names of runs and studies, metrics.csv, every results.csv, and the output of
`ablate compare` for each study, without measured columns and columns about the program's version.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MEASURED = {"seconds", "tokens_per_s", "wall_s", "peak_memory_mb"}
ASIDE = MEASURED | {"code", "parts", "form", "git"}
SMALL = (
    *("corpus=grammar", "corpus.characters=7001", "train.steps=7", "train.eval_every=3", "train.batch=2"),
    *("train.linear=mkl", "device=cpu"),
)
SINGLE = ("fusion=weighted_sum", "model.dropout=0.1")
SWEEP = ("-m", "fusion=concat,sum", "out_proj=true,false", "seed=0,1", "name=sweep")
UNNAMED = ("-m", "fusion=mean,grouped", "heads=4,8", "seed=0,1")  # it has the name of its plan
GRID = ("study=fusion", "fusion=concat,sum,weighted_sum", "heads=1,4", "out_proj=true")
ARMS = ("study=arms", "fusion=concat,sum", "match=none,params", "out_proj=true,false", "seed=0,1")
TUNED = (
    "study=tuned",
    "fusion=concat,sum",
    "train.lr=0.004,0.008,0.016",
    "study.develop=[0,1]",
    "seed=97,98",
)
STUDIES = ((*SWEEP, "heads=2,4"), UNNAMED, (*GRID, "seed=0,1,2"), ARMS, TUNED)
GROWN = ((*SWEEP, "heads=2,4,8"), (*GRID, "seed=0,1,2,3"))
NEW = 2 * 2 * 2 + 3 * 2  # the sweep's cells at eight heads, the grid's at seed 3


def ablate(directory: Path, *arguments: str) -> str:
    """What a command writes on standard output; it ends the program if it fails."""
    command = [sys.executable, "-m", "ablate", *arguments]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"ablate {' '.join(arguments)}\n{done.stderr}")
    return done.stdout


def sweep(directory: Path, overrides: tuple[str, ...]) -> None:
    ablate(directory, "run", *overrides, *SMALL, "hydra.launcher.threads=1")


def studies(directory: Path) -> list[str]:
    return sorted(path.parent.name for path in directory.glob("runs/studies/*/study.json"))


def make(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        sys.exit(f"{directory} is not empty")
    ablate(directory, "run", *SINGLE, *SMALL)
    for overrides in STUDIES:
        sweep(directory, overrides)
    for name in studies(directory):
        (directory / f"{name}.csv").write_text(ablate(directory, "compare", name, "--format", "csv"))
        ablate(directory, "report", name)


def table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The columns of a CSV file that are not aside, and its rows."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    return [name for name in reader.fieldnames or () if name not in ASIDE], rows


def files(directory: Path) -> set[str]:
    """What has to be there on both sides: each run by its directory, each table by its path."""
    patterns = ("runs/store/*", "runs/store/*/metrics.csv", "runs/**/results.csv", "*.csv")
    found = {
        path.relative_to(directory).as_posix() for pattern in patterns for path in directory.glob(pattern)
    }
    return {path for path in found if not path.startswith("runs/store/.")}  # the cache of rows


def differences(one: Path, other: Path) -> Iterator[str]:
    for path in sorted(files(one) ^ files(other)):
        yield f"{path}: only in {one if path in files(one) else other}"
    for path in sorted(path for path in files(one) & files(other) if path.endswith(".csv")):
        (columns, rows), (others, other_rows) = table(one / path), table(other / path)
        if columns != others:
            yield f"{path}: other columns: {sorted({*columns} ^ {*others}) or 'in another order'}"
        if len(rows) != len(other_rows):
            yield f"{path}: {len(rows)} and {len(other_rows)} rows"
        for number, (row, other_row) in enumerate(zip(rows, other_rows, strict=False), 2):
            for name in columns:
                if name in others and row[name] != other_row[name]:
                    yield f"{path}, line {number}, {name}: {row[name]} and {other_row[name]}"


def grow(directory: Path) -> Iterator[str]:
    """What goes wrong when a store of other code is opened, read and grown."""
    old = {row["run_id"]: "stale" for row in table(directory / "runs" / "results.csv")[1]}
    yield from wrong_statuses(directory, old)
    for name in studies(directory):
        ablate(directory, "compare", name, "--format", "csv")
        ablate(directory, "report", name)
    for overrides in GROWN:
        sweep(directory, overrides)
    new = {row["run_id"]: "done" for row in table(directory / "runs" / "results.csv")[1]}
    if len(new) != len(old) + NEW:
        yield f"{len(new) - len(old)} new runs, not {NEW}"
    yield from wrong_statuses(directory, new | old)


def wrong_statuses(directory: Path, expected: dict[str, str]) -> Iterator[str]:
    rows = json.loads(ablate(directory, "runs", "--format", "json"))
    listed = {row["run_id"]: row["status"] for row in rows}
    for run, status in expected.items():
        if listed.get(run) != status:
            yield f"{run}: {listed.get(run, 'not listed')}, not {status}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=["make", "compare", "grow"])
    parser.add_argument("directory", type=Path, nargs="+")
    arguments = parser.parse_args()
    match arguments.action, [path.resolve() for path in arguments.directory]:
        case "make", [directory]:
            return make(directory)
        case "compare", [one, other]:
            found = list(differences(one, other))
        case "grow", [directory]:
            found = list(grow(directory))
        case action, _:
            parser.error(f"{action} takes {'two directories' if action == 'compare' else 'one directory'}")
    print("\n".join(found) or "nothing differs")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
