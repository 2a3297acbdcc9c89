"""Gather the content of a report's page from rows, without drawing anything. Loads no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ablate.analysis.compare import Comparison, compare
from ablate.analysis.load import Results
from ablate.analysis.probes import COLUMNS, FILE, FIRST, over_seeds, read
from ablate.analysis.question import NOTHING_ASKED, Question
from ablate.analysis.variants import names
from ablate.phrases import texts
from ablate.reporting.answers import Answer, answer
from ablate.reporting.cells import by_layer
from ablate.reporting.methods import levels_in_words, paragraph
from ablate.reporting.next import repeated
from ablate.store.frames import as_texts, is_foreign


@dataclass(frozen=True)
class Page:
    """subject: with all its rows; charts take their numbers from those that were compared. notes: what
    weakens the result, a line each. compared: a row an arm: parameters, the tuned value, seeds, mean. heads:
    a row a layer, as the terminal has it; empty if none were probed.
    command: that repeats it; empty if that is not known. methods: a paragraph for a paper. version: of
    ablate, that made the rows."""

    subject: Results
    comparison: Comparison
    answer: Answer
    notes: list[str]
    compared: pd.DataFrame
    heads: pd.DataFrame
    command: str
    methods: str
    version: str


def gather(subject: Results, question: Question = NOTHING_ASKED) -> Page:
    """The content of the page about these rows. Raises ConfigError."""
    record = subject.record
    comparison = compare(subject.rows, question, subject.records)
    columns = comparison.varying or comparison.shown[:1]
    development = subject.rows[~as_texts(subject.rows["phase"]).isin(["", "report"])]
    return Page(
        subject=subject,
        comparison=comparison,
        answer=answer(comparison, subject.records, subject.notes, "“How robust is it?” explains"),
        notes=texts(note for note in (*subject.notes, *comparison.notes) if note.kind != "remark"),
        compared=_compared(comparison, columns, record.tuned_column),
        heads=_heads(subject.page.with_name(FILE), names(comparison.rows, columns)),
        command=repeated(record),
        methods=paragraph(comparison, record, development),
        version=levels_in_words(comparison.rows["ablate"]),
    )


def _heads(path: Path, variant: pd.Series) -> pd.DataFrame:
    """What `ablate probe` found of these runs. Raises ConfigError if its file can't be read."""
    values = read(path) if path.is_file() else pd.DataFrame(columns=[*COLUMNS])
    values = values[values["probe"].isin(FIRST) & values["run_id"].isin(variant.index)]
    return by_layer(over_seeds(values, variant)) if len(values) else values


def _compared(comparison: Comparison, columns: Sequence[str], tuned: str) -> pd.DataFrame:
    """A row an arm, best first."""
    own = [not comparison.variants[name].difference for name in comparison.summary["variant"]]
    summary = comparison.summary[own].reset_index(drop=True)
    variants = [comparison.variants[name] for name in summary["variant"]]
    table = pd.DataFrame({"arm": [one.title(columns) for one in variants]})
    if any(one.arm for one in variants) and len(columns) > 1:
        table["it sets"] = [one.label(columns, pattern="{} {}", between=" · ") for one in variants]
    if summary["params"].notna().any():
        table["parameters"] = summary["params"].astype("Int64")
    rate = tuned or ("" if is_foreign(comparison.rows) else "lr")
    rates = comparison.rows.dropna(subset=["run_id"]).drop_duplicates("run_id").set_index("run_id")
    runs = dict(zip(comparison.arrays.names, comparison.arrays.table["run_id"], strict=True))
    of_runs = rates[rate].reindex([*map(runs.get, summary["variant"])]) if rate in rates else None
    if of_runs is not None and of_runs.notna().any():
        table["rate" if rate == "lr" else rate] = [f"{float(value):g}" for value in of_runs]
    table["seeds"] = summary["n"]
    if summary["diverged"].any():
        table["diverged"] = summary["diverged"]
    return table.assign(mean=summary["mean"])
