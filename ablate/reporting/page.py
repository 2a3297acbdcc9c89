"""Gather the content of a report's page from rows, without drawing anything. Loads no torch."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import pandas as pd

from ablate.analysis import series
from ablate.analysis.compare import Comparison, Question, compare, report_rows
from ablate.analysis.load import metrics
from ablate.analysis.notes import missing_seeds, not_begun, unusable
from ablate.analysis.probes import FILE
from ablate.analysis.roles import at_own_value
from ablate.analysis.select import as_text, as_texts, select, with_options
from ablate.compute.cores import available
from ablate.config.identity import digest
from ablate.reporting.answers import Answer, answer
from ablate.reporting.commands import SINGLE_RUNS, commands
from ablate.reporting.heads import Heads
from ablate.reporting.heads import find as find_heads
from ablate.reporting.limits import limits
from ablate.reporting.methods import hyperparameters, paragraph
from ablate.reporting.subject import Subject

VERSIONS = ("ablate", "code", "git", "torch", "device", "engine", "linear", "attention", "compile", "threads")


@dataclass(frozen=True)
class Page:
    """curves, rates, seeds, weights, costs: as from analysis.series, empty if there is nothing to draw.
    tuned: in a tuned study, the column for which each arm has its own value. rates: `rate_metric` by that
    column, else by learning rate. heads: the data of probes, if there are any. facts: versions, text and
    machine of the rows. hyperparameters: as from reporting.methods."""

    name: str
    question: str
    answer: Answer
    limits: list[str]
    comparison: Comparison
    notes: list[str]
    curves: pd.DataFrame
    tuned: str
    rate_metric: str
    rates: pd.DataFrame
    seeds: pd.DataFrame
    weights: pd.DataFrame
    costs: pd.DataFrame
    cost: str
    heads: Heads | None
    failures: list[str]
    commands: list[str]
    facts: dict[str, str]
    methods: str
    hyperparameters: pd.DataFrame


def gather(subject: Subject, *, margin: float | None = None, **question: Unpack[Question]) -> Page:
    """The content of the page about these rows. Raises ConfigError, Incomparable."""
    record, reproduced = subject.record, commands(subject)
    if where := question.pop("where", ()):
        chosen = select(with_options(subject.rows), where)
        only = f"only rows where {' and '.join(where)}"
        subject = replace(subject, rows=chosen, is_whole=False, notes=[*subject.notes, only])
    comparison = compare(subject.rows, margin=margin, records=[record], **question)
    rows, _ = report_rows(subject.rows)
    own, shown = at_own_value(rows), comparison.shown
    tuned = record.tuned_key.rpartition(".")[2]
    # Values are chosen on the validation split, so the test split is shown only in the results.
    rate_metric = comparison.metric.replace("test_", "val_", 1)
    development = _development(subject.rows)
    failures = [
        *unusable(rows, comparison.metric),
        *_undeveloped(development, rate_metric, tuned),
        *missing_seeds(rows),
        *_not_begun(subject),
    ]
    environment = _environment(subject)
    return Page(
        name=subject.name,
        question=record.question,
        answer=answer(comparison, rows, record, cores=available()),
        limits=limits(rows, comparison, record, environment.pop("train_tokens")),
        comparison=comparison,
        notes=[line for line in (*subject.notes, *comparison.notes) if line not in failures],
        curves=series.curves(own, metrics(subject.directories), shown),
        tuned=tuned,
        rate_metric=rate_metric,
        rates=series.by_value(subject.rows, rate_metric, shown, tuned or "lr"),
        seeds=series.per_seed(own, comparison.metric, shown),
        weights=series.weights(own, shown),
        costs=(costs := series.costs(own, shown)),
        cost=_cost(costs),
        heads=find_heads(subject.page.with_name(FILE), _names(own, shown)),
        failures=failures,
        commands=reproduced,
        facts=_facts(subject, environment),
        methods=paragraph(rows, comparison, record, development),
        hyperparameters=hyperparameters(own),
    )


def _cost(costs: pd.DataFrame) -> str:
    """What the variants cost, in a sentence; empty if the rows do not say."""

    def spread(column: str) -> str:
        low, high = int(costs[column].min()), int(costs[column].max())
        return f"{low:,}" if low == high else f"{low:,} to {high:,}"

    costs = costs.dropna(subset=["params", "flops_per_token"])
    if costs.empty:
        return ""
    return f"Cost: {spread('params')} parameters, {spread('flops_per_token')} FLOPs a token (forward)."


def _names(rows: pd.DataFrame, shown: Sequence[str]) -> pd.Series:
    """The names of variants, by run_id."""
    rows = rows[rows["run_id"].notna()]
    return pd.Series(series.names(rows, shown).to_numpy(), index=rows["run_id"].astype(str), dtype=object)


def _development(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that were used to choose values and are in no result."""
    phase = as_texts(rows["phase"]) if "phase" in rows else pd.Series("", index=rows.index)
    return rows[~phase.isin(["", "report"])]


def _undeveloped(development: pd.DataFrame, metric: str, column: str) -> list[str]:
    """A line for each development run without a result, with its value of the tuned key."""
    if column not in development:
        return unusable(development, metric)
    return [
        f"{line} ({column}={as_text(value)}, a development run; diverged, it counts as infinite)"
        for value, rows in development.groupby(column, dropna=False)
        for line in unusable(rows, metric)
    ]


def _not_begun(subject: Subject) -> list[str]:
    """A line if runs of the study have no row yet."""
    line = "not begun: {} of {} runs; the study's command goes on from there"
    return not_begun(subject.rows, subject.record, line) if subject.is_whole else []


def _environment(subject: Subject) -> dict[str, Any]:
    """train_tokens by run_id, and python, platform and processor of the runs, if known."""
    known: dict[str, Any] = {"train_tokens": {}}
    for run_id, directory in subject.directories.items():
        with contextlib.suppress(OSError, ValueError):
            about = json.loads((directory / "environment.json").read_text(encoding="utf-8"))
            if about.get("train_tokens") is not None:  # a task may go on forever
                known["train_tokens"][run_id] = about["train_tokens"]
            for key in ("python", "platform", "processor"):
                known.setdefault(key, []).append(str(about.get(key, "")))
    return known


def _facts(subject: Subject, environment: Mapping[str, list[str]]) -> dict[str, str]:
    rows, record = subject.rows, subject.record
    facts = {
        "runs": f"{len(rows)}",
        "text": _all(rows, "corpus"),
        "text's fingerprint (SHA-256)": _all(rows, "corpus_sha256"),
        **{column: _all(rows, column) for column in VERSIONS},
        **{key: ", ".join(sorted(set(values))) for key, values in environment.items()},
    }
    if record.question:
        named = {"question": record.question, "seeds": record.seeds, **record.declaration}
        facts["declared beforehand (digest)"] = digest(named)[:16]
    if record.is_one_by_one and len(rows) > SINGLE_RUNS:
        facts["commands"] = f"the first {SINGLE_RUNS} of {len(rows)} runs"
    return {key: value for key, value in facts.items() if value}


def _all(rows: pd.DataFrame, column: str) -> str:
    if column not in rows:
        return ""
    values = [f"{v:g}" if isinstance(v, float) else str(v) for v in rows[column].dropna().unique()]
    return ", ".join(values)
