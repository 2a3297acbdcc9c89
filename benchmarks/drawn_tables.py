"""Tables of other programs whose truth is known: of each variant its runs and their values, of others which
rows are no runs; and tables without any difference.

    python -m benchmarks.drawn_tables [COUNT]

All 300 drawn tables are compared, and then COUNT of each kind without a difference, 1,000 by default: how
many have a verdict. The tests draw fewer.
"""

import csv
import gzip
import io
import itertools
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats as scipy_stats

import ablate
from ablate.analysis.findings import Finding

reference: Any = scipy_stats  # its results have no types
SPELT = """base|ours|1e5|100000|007|7|none|NA|null|nan|true|True|on|off|a,b|a=b|it's|"q"|12e4567|0.10|0.1"""
NAMES = f"{SPELT}|2024-01-01|x y|m[1]|é|1_000|-".split("|")
FINISHED = ["finished", "FINISHED", "Done", "ok", "success", "completed", "COMPLETE", "RunStatus.FINISHED"]
LOST = ["crashed", "FAILED", "killed", "running"]
SUMS = ["mean", "std", "avg", "Mean", "average", "mean±std"]
FORMATS = ["csv", "tsv", "semicolons", "commas", "minus", "jsonl", "json", "gz", "frame"]
TABLES = 300
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Drawn:
    """rows: of a table. runs: the value of each run of each variant, by what it is paired by. asked: the
    question. pairs: whether its runs pair. oddity: what rows there are beside those of runs."""

    kind: str
    oddity: str
    rows: Rows
    runs: dict[str, dict[int, float]]
    asked: dict[str, Any]
    pairs: bool

    def verdict(self) -> str:
        base, ours = self.runs.values()
        if self.pairs:
            both = sorted({*base} & {*ours})
            differences = np.array([ours[at] - base[at] for at in both])
            n, diff, test = len(both), differences.mean(), lambda: reference.ttest_1samp(differences, 0)
        else:
            n, diff = min(len(base), len(ours)), np.mean([*ours.values()]) - np.mean([*base.values()])
            test = lambda: reference.ttest_ind([*ours.values()], [*base.values()], equal_var=False)  # noqa: E731
        return "undecided" if n < 6 or test().pvalue >= 0.05 else "better" if diff < 0 else "worse"


def draw(seed: int) -> Drawn:
    """A table of runs, of documents or tasks, with seeds of several names or none, and rows that are none."""
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    base, ours = names = pick.sample(NAMES, 2)
    kind = pick.choice(["runs", "runs", "documents", "tasks", "unequal", "no seed"])
    key = {"tasks": "task"}.get(kind) or pick.choice(["seed", "random_seed", "config.seed", "Seed"])
    digits, effect, S = pick.choice([3, 4, 5, 10]), pick.choice([0, 0.02, 0.1]), pick.choice([2, 3, 6, 8])
    rows: Rows = []
    runs: dict[str, dict[int, float]] = {name: {} for name in names}
    noise = rng.normal(0, 0.01, 10)
    for name in names:
        for s in range(1, S + 2) if kind == "unequal" and name == ours else range(S):
            value = 3 - effect * (name == ours) + noise[s] + rng.normal(0, 0.02)
            scatter = rng.normal(0, 0.1, 8) if kind == "documents" else [0.0]
            values = [round(float(value + one), digits) for one in scatter]
            of_run = {} if kind == "no seed" else {key: f"t{s}" if kind == "tasks" else s}
            of_docs = [{"doc": at} if kind == "documents" else {} for at in range(len(values))]
            rows += [
                {"method": name, **of_run, **of, "loss": v} for of, v in zip(of_docs, values, strict=True)
            ]
            runs[name][s] = float(np.mean(values))
    single = kind in ("runs", "tasks", "unequal")
    oddity = pick.choice(["", "sums", "lost", "twice", "columns"])
    if (oddity in ("sums", "lost") and not single) or (oddity == "twice" and kind == "no seed"):
        oddity = ""
    match oddity:
        case "sums":
            rows += [
                {"method": name, key: word, "loss": 3.0} for name in names for word in pick.sample(SUMS, 2)
            ]
        case "lost":
            rows = [row | {"status": pick.choice(FINISHED)} for row in rows]
            rows.append(
                rows[0] | {key: "t99" if kind == "tasks" else 99, "loss": 9.9, "status": pick.choice(LOST)}
            )
        case "twice":
            rows += rows[:2]
        case "columns":
            rows = [row | {"steps": "10k", "params": "12M"} for row in rows]
    pick.shuffle(rows)
    pair_by = {"documents": pick.choice(["doc", f"{key},doc"]), "tasks": "task"}.get(kind, ())
    quoted = "=" in base or base[0] == '"'
    typed = f"method={json.dumps(base) if quoted else base}"
    baseline = pick.choice([typed, {"method": base}])
    asked = {"by": "method", "metric": "loss", "higher_is_better": False}
    asked |= {"pair_by": pair_by, "baseline": baseline}
    return Drawn(kind, oddity, rows, runs, asked, kind != "no seed")


def try_table(seed: int, directory: Path) -> None:
    """Its comparison has the runs, means and verdict that it was drawn with."""
    drawn = draw(seed)
    found = ablate.compare(written(drawn.rows, format_of(seed), directory), **drawn.asked)
    (one,), table = found.findings, found.summary.set_index("method")
    for name, of in drawn.runs.items():
        is_near = np.isclose(table["mean"][name], np.mean([*of.values()]), rtol=1e-6)
        assert is_near and table["n"][name] == len(of), (seed, str(found))
    assert one.verdict == drawn.verdict(), (seed, str(found))


def format_of(seed: int) -> str:
    return FORMATS[seed % len(FORMATS)]


def covering() -> list[int]:
    """The seeds of few tables that show each kind with each oddity, and both in each format."""
    shown, seeds = set[tuple[str, str]](), []
    for seed in range(TABLES):
        drawn = draw(seed)
        pairs = {*itertools.combinations((drawn.kind, drawn.oddity, format_of(seed)), 2)}
        if not pairs <= shown:
            seeds.append(seed)
            shown |= pairs
    return seeds


def written(rows: Rows, format: str, directory: Path) -> Path | pd.DataFrame:
    """The table in this format."""
    columns = [*dict.fromkeys(key for row in rows for key in row)]
    path = directory / f"table.{format}"
    if format == "frame":
        return pd.DataFrame(rows)
    if format in ("jsonl", "json", "gz"):
        text = json.dumps(rows) if format == "json" else "\n".join(map(json.dumps, rows)) + "\n"
        path.write_bytes(gzip.compress(text.encode()) if format == "gz" else text.encode())
        return path
    sign = {"minus": ("-", "\u2212"), "commas": (".", ",")}.get(format, ("", ""))
    text = io.StringIO(newline="")
    table = csv.writer(text, delimiter={"tsv": "\t", "semicolons": ";", "commas": ";"}.get(format, ","))
    table.writerow(columns)
    for row in rows:
        table.writerow(
            [str(row[key]).replace(*sign) if key == "loss" else row.get(key, "") for key in columns]
        )
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


# --- without any difference -------------------------------------------------------------------------------


def frame(S: int, items: int, scatter: float, rng: np.random.Generator) -> pd.DataFrame:
    """Two methods with S runs each, each over so many items, which are as hard for all."""
    hard = rng.normal(0, 0.1, items)
    runs = [(name, s, rng.normal(3, 0.02)) for name in ("base", "ours") for s in range(S)]
    return pd.DataFrame(
        {"method": name, "seed": s, "doc": at, "loss": of_run + hard[at] + rng.normal(0, scatter)}
        for name, s, of_run in runs
        for at in range(items)
    )


def plain(rng: np.random.Generator) -> pd.DataFrame:
    return frame(6, 1, 0, rng).drop(columns="doc")


def documents(rng: np.random.Generator) -> pd.DataFrame:
    return frame(6, 20, 0.05, rng)


def tasks(rng: np.random.Generator) -> pd.DataFrame:
    return frame(7, 5, 0.02, rng)


def unequal(rng: np.random.Generator) -> pd.DataFrame:
    rows = frame(9, 1, 0, rng).drop(columns="doc")
    return rows.drop(index=rows.index[rows["method"].eq("ours") & rows["seed"].lt(rng.integers(1, 3))])


def copies(rng: np.random.Generator) -> pd.DataFrame:
    rows = plain(rng).round(int(rng.choice([5, 6, 9])))
    again = rows[rows["seed"] < rng.integers(1, 4)]
    return pd.concat([rows, again.assign(seed=again["seed"] + 6)], ignore_index=True)


NULLS: dict[str, Callable[[np.random.Generator], pd.DataFrame]] = {
    of.__name__: of for of in (plain, documents, tasks, unequal, copies)
}


def compared(kind: str, count: int) -> Iterator[tuple[int, Finding]]:
    """Of so many tables without any difference: how many runs pair, and what was found."""
    for seed in range(count):
        rows = NULLS[kind](np.random.default_rng([seed, len(kind)]))
        pair_by = "doc" if "doc" in rows else ()
        asked: dict[str, Any] = {"by": "method", "metric": "loss", "baseline": "method=base"}
        (one,) = ablate.compare(rows, pair_by=pair_by, higher_is_better=False, **asked).findings
        yield rows.drop_duplicates(["method", "loss"]).groupby("method")["seed"].nunique().min(), one


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        for seed in range(TABLES):
            try_table(seed, Path(directory))
    print(f"{TABLES} tables: each with its runs, means and verdict", flush=True)
    for kind in NULLS:
        found = Counter(one.verdict for _, one in compared(kind, int((sys.argv[1:] or ["1000"])[0])))
        print(kind, dict(found), flush=True)


if __name__ == "__main__":
    main()
