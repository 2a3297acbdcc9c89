"""Whether two commits of ablate give the same results, and whether one can continue the other's store.

    OLD/python benchmarks/same_results.py make old     # the interpreter chooses the commit
    NEW/python benchmarks/same_results.py make new
    NEW/python benchmarks/same_results.py compare old new
    NEW/python benchmarks/same_results.py grow old     # after compare, if both give runs the same ids

It uses only the command line and the files of ablate, so the same script works with any commit. Runs are
paired by their config columns and seeds, whatever their ids are. In two directories it compares metrics.csv,
every results.csv, and the output of `ablate compare` for each study, without measured columns, columns about
the program's version, and those named with --aside.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MEASURED = {"seconds", "tokens_per_s", "wall_s", "peak_memory_mb"}
ASIDE = MEASURED | {"run_id", "ablate", "code", "parts", "form", "git"}
LAST_OF_CONFIG = "seed_data"  # results.csv begins with what identifies a run, its config and its seeds
OF_THE_STUDY = ("study", "status", "error", "phase", "role", "tuned")
UNNAMED_STUDY = re.compile(r"sweep-[0-9a-f]{8}")  # its name is a digest of its plan
SMALL = (
    *("corpus=grammar", "corpus.characters=7001", "train.steps=7", "train.eval_every=3", "train.batch=2"),
    "device=cpu",
)
SINGLE = ("fusion=weighted_sum", "model.dropout=0.1")
SWEEP = ("-m", "fusion=concat,sum", "out_proj=true,false", "seed=0,1", "name=sweep")
UNNAMED = ("-m", "fusion=mean,grouped", "heads=4,8", "seed=0,1")  # it has the name of its plan
GRID = ("study=fusion", "fusion=concat,sum,weighted_sum", "heads=1,4", "out_proj=true")
ARMS = ("-m", "fusion=concat,sum", "match=none,params", "out_proj=true,false", "seed=0,1", "name=arms")
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


Row = dict[str, str]
Key = tuple[str, ...]


def table(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def key_of(row: Row, aside: set[str]) -> Key:
    """The config columns and seeds of a row of results.csv."""
    columns = [*row][: [*row].index(LAST_OF_CONFIG) + 1]
    return tuple(row[name] for name in columns if name not in {*OF_THE_STUDY, *aside})


def tables(directory: Path, aside: set[str]) -> dict[str, dict[Key, Row]]:
    """Every CSV file by a name that does not depend on ids, its rows by a key that does not either."""
    found: dict[str, dict[Key, Row]] = {}
    for path in sorted(directory.glob("runs/**/results.csv")):
        rows = {key_of(row, aside): row for row in table(path)}
        found[UNNAMED_STUDY.sub("sweep", path.relative_to(directory).as_posix())] = rows
    for key, row in found["runs/results.csv"].items():
        (path,) = directory.glob(f"runs/store/*-{row['run_id'][:8]}/metrics.csv")
        found[f"metrics.csv of {' '.join(filter(None, key))}"] = {(r["step"],): r for r in table(path)}
    for path in sorted(directory.glob("*.csv")):
        found[UNNAMED_STUDY.sub("sweep", path.name)] = {
            (str(number),): row for number, row in enumerate(sorted(table(path), key=lambda r: [*r.values()]))
        }
    return found


def differences(one: Path, other: Path, aside: set[str]) -> Iterator[str]:
    left, right = tables(one, aside), tables(other, aside)
    for name in sorted(left.keys() ^ right.keys()):
        yield f"{name}: only in {one if name in left else other}"
    for name in sorted(left.keys() & right.keys()):
        rows, others = left[name], right[name]
        for key in sorted(rows.keys() ^ others.keys()):
            yield f"{name}: only in {one if key in rows else other}: {' '.join(filter(None, key))}"
        for key in sorted(rows.keys() & others.keys()):
            before, after = (
                {column: cell for column, cell in row.items() if column not in aside}
                for row in (rows[key], others[key])
            )
            if [*before] != [*after]:
                apart = sorted({*before} ^ {*after}) or "in another order"
                yield f"{name}: other columns: {apart}"
                break
            for column, cell in before.items():
                if (now := UNNAMED_STUDY.sub("sweep", after[column])) != UNNAMED_STUDY.sub("sweep", cell):
                    yield f"{name}, {' '.join(filter(None, key))}, {column}: {cell} and {now}"


def grow(directory: Path) -> Iterator[str]:
    """What goes wrong when a store of other code is opened, read and grown."""
    old = {row["run_id"]: "stale" for row in table(directory / "runs" / "results.csv")}
    yield from wrong_statuses(directory, old)
    for name in studies(directory):
        ablate(directory, "compare", name, "--format", "csv")
        ablate(directory, "report", name)
    for overrides in GROWN:
        sweep(directory, overrides)
    new = {row["run_id"]: "done" for row in table(directory / "runs" / "results.csv")}
    if len(new) != len(old) + NEW:
        yield f"{len(new) - len(old)} new runs, not {NEW}"
    yield from wrong_statuses(directory, new | old)


def wrong_statuses(directory: Path, expected: dict[str, str]) -> Iterator[str]:
    found = json.loads(ablate(directory, "runs", "--format", "json"))
    rows = found["rows"] if isinstance(found, dict) else found  # as an older ablate has it
    listed = {row["run_id"]: row["status"] for row in rows}
    for run, status in expected.items():
        if listed.get(run) != status:
            yield f"{run}: {listed.get(run, 'not listed')}, not {status}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=["make", "compare", "grow"])
    parser.add_argument("directory", type=Path, nargs="+")
    parser.add_argument("--aside", nargs="*", default=[], help="further columns that may differ")
    arguments = parser.parse_args()
    match arguments.action, [path.resolve() for path in arguments.directory]:
        case "make", [directory]:
            return make(directory)
        case "compare", [one, other]:
            found = list(differences(one, other, ASIDE | {*arguments.aside}))
        case "grow", [directory]:
            found = list(grow(directory))
        case action, _:
            parser.error(f"{action} takes {'two directories' if action == 'compare' else 'one directory'}")
    print("\n".join(found) or "nothing differs")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
