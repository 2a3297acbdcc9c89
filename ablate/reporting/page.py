"""Gather the content of a report's page from rows, without drawing anything. Loads no torch."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Unpack

import pandas as pd

from ablate.analysis.compare import Comparison, compare
from ablate.analysis.frames import as_texts, select, with_options
from ablate.analysis.load import Results
from ablate.analysis.notes import missing_seeds, not_begun, only_where, unusable
from ablate.analysis.question import Question
from ablate.config.conditions import as_text
from ablate.config.identity import digest
from ablate.files.atomic import StoreError, read_json
from ablate.phrases import Note, texts
from ablate.reporting.answers import Answer, answer
from ablate.reporting.commands import SINGLE_RUNS, commands
from ablate.reporting.methods import hyperparameters, paragraph
from ablate.store.columns import of_role, on_validation


@dataclass(frozen=True)
class Page:
    """subject: with the rows shown; charts take their numbers from those that were compared. doubts: in a few
    words each. facts: versions, text and machine of the rows. hyperparameters: as from reporting.methods."""

    subject: Results
    comparison: Comparison
    answer: Answer
    doubts: list[str]
    notes: list[str]
    cost: str
    failures: list[str]
    commands: list[str]
    facts: dict[str, str]
    methods: str
    hyperparameters: pd.DataFrame


def gather(subject: Results, *, margin: float | None = None, **question: Unpack[Question]) -> Page:
    """The content of the page about these rows. Raises ConfigError, Incomparable."""
    record, reproduced = subject.record, commands(subject)
    if where := question.pop("where", ()):
        chosen = select(with_options(subject.rows), where)
        only = only_where(where, chosen, question.get("metric") or "")
        subject = replace(subject, rows=chosen, is_whole=False, notes=[*subject.notes, *only])
    comparison = compare(subject.rows, margin=margin, records=[record], **question)
    rows = comparison.rows
    development = _development(subject.rows)
    failures = [
        *unusable(rows, comparison.metric, comparison.shown),
        *_undeveloped(development, on_validation(comparison.metric), record.tuned_column),
        *([] if record.looks else missing_seeds(rows, comparison.shown)),
        *(not_begun(subject.rows, record) if subject.is_whole else []),
    ]
    return Page(
        subject=subject,
        comparison=comparison,
        answer=answer(comparison, record),
        doubts=[*dict.fromkeys(one.brief or one.text for one in comparison.notes if one.is_doubt)],
        notes=texts(
            [
                *(note for note in (*subject.notes, *comparison.notes) if note not in failures),
                *(one for one in comparison.caveats if not one.is_doubt),
            ]
        ),
        cost=_cost(rows),
        failures=texts(failures),
        commands=reproduced,
        facts=_facts(subject, _environment(subject)),
        methods=paragraph(comparison, record, development),
        hyperparameters=hyperparameters(rows),
    )


def _cost(rows: pd.DataFrame) -> str:
    """What the variants cost, in a sentence; empty if the rows do not say."""
    costs = rows[["params", "flops_per_token"]].dropna()

    def spread(column: str) -> str:
        low, high = int(costs[column].min()), int(costs[column].max())
        return f"{low:,}" if low == high else f"{low:,} to {high:,}"

    if costs.empty:
        return ""
    return f"Cost: {spread('params')} parameters, {spread('flops_per_token')} FLOPs a token (forward)."


def _development(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that were used to choose values and are in no result."""
    return rows[~as_texts(rows["phase"]).isin(["", "report"])]


def _undeveloped(development: pd.DataFrame, metric: str, column: str) -> list[Note]:
    """A line for each development run without a result, with its value of the tuned key."""
    if column not in development:
        return unusable(development, metric)
    return [
        Note(f"{one.text} ({column}={as_text(value)}, a development run; diverged, it counts as infinite)")
        for value, rows in development.groupby(column, dropna=False)
        for one in unusable(rows, metric)
    ]


def _environment(subject: Results) -> dict[str, Any]:
    """python and platform of the runs, if known."""
    found: dict[str, list[str]] = {}
    for directory in subject.directories.values():
        with contextlib.suppress(FileNotFoundError, StoreError):
            about = read_json(directory / "environment.json", set())
            for key in ("python", "platform"):
                found.setdefault(key, []).append(str(about.get(key, "")))
    return found


def _facts(subject: Results, environment: Mapping[str, list[str]]) -> dict[str, str]:
    rows, record = subject.rows, subject.record
    facts = {
        "runs": f"{len(rows)}",
        "text": _all(rows, "corpus"),
        "text's fingerprint (SHA-256)": _all(rows, "corpus_sha256"),
        **{column: _all(rows, column) for column in of_role("provenance")},
        **{key: ", ".join(sorted(set(values))) for key, values in environment.items()},
    }
    if record.question:
        named = {"question": record.question, "seeds": record.seeds, **record.declaration}
        facts["declared beforehand (digest)"] = digest(named)[:16]
    if record.is_one_by_one and len(rows) > SINGLE_RUNS:
        facts["commands"] = f"the first {SINGLE_RUNS} of {len(rows)} runs"
    return {key: value for key, value in facts.items() if value}


def _all(rows: pd.DataFrame, column: str) -> str:
    values = [f"{v:g}" if isinstance(v, float) else str(v) for v in rows[column].dropna().unique()]
    return ", ".join(values)
