"""Gather the content of a report's page from rows, without drawing anything. Loads no torch."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ablate.analysis.compare import Comparison, compare
from ablate.analysis.load import Results
from ablate.analysis.probes import COLUMNS, FILE, FIRST, over_seeds, read
from ablate.analysis.question import NOTHING_ASKED, Question
from ablate.analysis.variants import names
from ablate.phrases import advised, first_few, lines_if, texts
from ablate.reporting.answers import Answer, answer
from ablate.reporting.cells import by_layer, called
from ablate.reporting.methods import paragraph, what_differs
from ablate.reporting.next import repeated
from ablate.store.frames import as_texts


@dataclass(frozen=True)
class Page:
    """subject: with all its rows; charts take their numbers from those that were compared. title: what was
    compared. notes: what weakens the result, a line each. heads: a row a layer, as the terminal has it; empty
    if none were probed. command: that repeats it, in lines; empty if that is not known. methods: a
    paragraph for a paper."""

    subject: Results
    title: str
    comparison: Comparison
    answer: Answer
    notes: list[str]
    heads: pd.DataFrame
    command: str
    methods: str


def gather(subject: Results, question: Question = NOTHING_ASKED) -> Page:
    """The content of the page about these rows. Raises ConfigError."""
    record = subject.record
    comparison = compare(subject.rows, question, subject.records)
    commands = [*filter(None, [repeated(record)])]
    if commands and question.within:
        commands += [advised(["ablate", "compare", record.name, "--within", question.within])]
    development = subject.rows[~as_texts(subject.rows["phase"]).isin(["", "report"])]
    variant = names(comparison.rows, comparison.shown).replace(called(comparison))
    heads = _heads(subject.page.with_name(FILE), variant)
    missing = sorted({*variant} - {*heads["variant"]}) if len(heads) else []
    unprobed = f"The table of heads lacks {first_few(missing)}: `ablate probe` measures them"
    notes = texts(note for note in (*subject.notes, *comparison.notes) if note.kind != "remark")
    return Page(
        subject=subject,
        title=f"{subject.name}: {what_differs(comparison, record)}",
        comparison=comparison,
        answer=answer(comparison, subject.records, subject.notes, "explained below"),
        notes=[*notes, *lines_if(missing, unprobed)],
        heads=heads,
        command="\n".join(commands),
        methods=paragraph(comparison, record, development),
    )


def _heads(path: Path, variant: pd.Series) -> pd.DataFrame:
    """What `ablate probe` found of these runs, each with its variant. Raises ConfigError if its file can't be
    read."""
    values = read(path) if path.is_file() else pd.DataFrame(columns=[*COLUMNS])
    values = values[values["probe"].isin(FIRST) & values["run_id"].isin(variant.index)]
    return by_layer(over_seeds(values, variant)) if len(values) else values
