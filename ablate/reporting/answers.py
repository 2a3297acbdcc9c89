"""The findings of a comparison in plain sentences, for a report, a terminal, a notebook. Prints nothing."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.power import seconds_a_run
from ablate.analysis.variants import USABLE, levels_of
from ablate.compute.limits import available_cores
from ablate.phrases import counted, counted_between, duration, lines_if
from ablate.reporting.subject import NO_STUDY, whole_study, with_seeds
from ablate.reporting.words import (
    Voice,
    confidence,
    fields,
    finding,
    interactions,
    names,
    parametrization,
    unit,
)
from ablate.store.columns import column_named
from ablate.store.record import StudyRecord

MOST = 3  # the most sentences
FIRST_SEEDS = 8  # how many seeds to advise for a grid of one seed
ONE_SEED = "One seed shows nothing: the same variant with another seed differs as well."
PLAIN = Voice(
    untested="",  # no answer is about what was not tested
    undecided="whether {one} costs or saves anything against {other}{at} is undecided:"
    " {cost}{of} ({cost_low} to {cost_high}){look}",
    equivalent="{one} and {other} differ by less than {margin}{of}{at}:"
    " {cost} ({cost_low} to {cost_high}){look}",
    decided="{one} {verb} {size}{of} ({least} to {most}) against {other}{at}{weight}{look}",
    verbs=("saves", "costs"),
    within=", less than the {margin} that would matter",
    beyond="{share}{perplexity}",
)
IN_STEPS = replace(
    PLAIN,
    decided="{one} takes {size}{of} ({least} to {most}) {verb} than {other}{at}{weight}{look}",
    verbs=("fewer", "more"),
)


@dataclass(frozen=True)
class Answer:
    """findings: the results of the contrasts, in at most MOST sentences. trust: how certain they are. more:
    what would make them more certain, with the command to type and its time on this machine."""

    findings: list[str]
    trust: list[str]
    more: list[str]


def answer(comparison: Comparison, record: StudyRecord) -> Answer:
    """The answer of a comparison. record: of its study."""
    rows = comparison.rows[comparison.rows["status"].isin(USABLE)]
    variants = comparison.table["variant"].nunique()
    if int(comparison.table["n"].max()) < 2:
        return Answer([ONE_SEED], [], of_one_seed(rows, record, variants))
    tested = _tested(comparison)
    sentences = findings(comparison, record.answer, record.tuned_column)
    if tested.empty or not sentences:
        nothing = "Nothing was tested: no variant has a baseline and two paired seeds."
        if record.looks and comparison.table["look"].eq(0).any():
            nothing = f"Nothing is judged before the first look, at {record.looks.at[0]} seeds."
        return Answer(sentences or [nothing], [], [])
    if where := place(rows):
        sentences[0] = f"{where}: {sentences[0][:1].lower()}{sentences[0][1:]}"
    return Answer(sentences, _trust(comparison, record), _to_decide(tested, rows, record, variants))


def of_one_seed(rows: pd.DataFrame, record: StudyRecord, variants: int) -> list[str]:
    """Advice for a grid with one seed. rows: of finished runs. variants: how many there are."""
    return _with_seeds(FIRST_SEEDS, "{} shows how large a difference has to be", rows, record, variants)


def lines(comparison: Comparison, records: Sequence[StudyRecord]) -> list[str]:
    """The answer as lines. records: of one or several studies."""
    record = records[0] if len(records) == 1 else NO_STUDY
    parts = answer(comparison, record)
    return [*parts.findings, *parts.trust, *parts.more]


def findings(comparison: Comparison, terms: Mapping[str, str] | None = None, tuned: str = "") -> list[str]:
    """A sentence for each primary contrast or, without any, for each contrast. For more than MOST, the counts
    of the verdicts and the largest difference.

    terms: names of the levels for use in sentences, such as {sum: summing the heads}. tuned: the column of
    which each variant has its own value; it is not named.
    """
    tested, terms = _tested(comparison), terms or {}
    for side in ("variant", "baseline"):
        tested = tested.assign(**{side: [without(name, tuned) for name in tested[side]]})
    # A setting that all contrasts share need not be repeated.
    settings = {names(row["variant"], row["baseline"])[2] for row in tested.to_dict("records")}
    voice = IN_STEPS if column_named(comparison.metric).unit == "steps" else PLAIN

    def sentence(row: Mapping[Any, Any]) -> str:
        given = {"at": ""} if len(settings) == 1 else {}
        if not unit(comparison.metric):
            given["of"] = f" of {comparison.metric}"
        return f"{finding(row, comparison, voice, terms, **given)}{parametrization(row, comparison)}."

    if len(tested) > MOST:
        sizes = tested["diff"].abs().where(tested["verdict"] != stats.UNDECIDED, -1.0)
        largest = tested.to_dict("records")[int(sizes.argmax())]
        alike = int(tested["same_class"].sum())
        line = f"In {alike} of them both can learn the same functions, so all of it is parametrization."
        sentences = [f"Of {_tally(tested, 'comparison')}.", f"The largest: {sentence(largest)}"]
        sentences += lines_if(alike, line)
    else:
        open_ = tested[tested["verdict"] == stats.UNDECIDED]
        together = _undecided(open_, comparison, terms) if len(open_) > 1 and len(settings) == 1 else ""
        rest = tested.drop(open_.index) if together else tested
        sentences = [*map(sentence, rest.to_dict("records")), *lines_if(together, together)]
    return [line[:1].upper() + line[1:] for line in (*sentences, *interactions(comparison))]


def without(name: str, column: str) -> str:
    """The name of a variant without a column."""
    return " ".join(f"{key}={level}" for key, level in levels_of(name).items() if key != column)


def _undecided(rows: pd.DataFrame, comparison: Comparison, terms: Mapping[str, str]) -> str:
    """One sentence about several undecided contrasts, with one baseline or with different ones."""
    each, baselines = [], set[str]()
    for row in rows.to_dict("records"):
        of_row = fields(row, comparison, terms)
        words = "{one}, {cost}{of} ({cost_low} to {cost_high})".format(**of_row)
        each.append(f"{words}{parametrization(row, comparison).replace(';', ',')}")
        baselines.add(of_row["other"])
    against = f" against {baselines.pop()}" if len(baselines) == 1 else ""
    return f"nothing is decided yet{against} about {'; '.join(each)}."


def _tested(comparison: Comparison) -> pd.DataFrame:
    """The primary contrasts that were tested or, without any, all that were tested."""
    for table in (comparison.family("primary"), comparison.table):
        tested = table[table["p"].notna()]
        if len(tested):
            return tested
    return comparison.table.head(0)


def _tally(tested: pd.DataFrame, what: str) -> str:
    """The number of contrasts with each verdict, in words."""
    counts = tested["verdict"].value_counts()
    each = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return f"{counted(len(tested), what)}: {each}"


def place(rows: pd.DataFrame) -> str:
    """The conditions that all rows share, as in `On docs (2 layers, 64 wide, 1,000 steps)`."""
    one = {c: rows[c].dropna().unique() for c in ("corpus", "layers", "d_model", "steps") if c in rows}
    known = {column: values[0] for column, values in one.items() if len(values) == 1}
    words = {"layers": "layers", "d_model": "wide", "steps": "steps"}
    size = ", ".join(f"{int(known[c]):,} {word}" for c, word in words.items() if c in known)
    text = f"On {known['corpus']}" if "corpus" in known else "At this size" if size else ""
    return f"{text} ({size})" if size else text


def _trust(comparison: Comparison, record: StudyRecord) -> list[str]:
    tested = _tested(comparison)
    low, high = int(tested["pairs"].min()), int(tested["pairs"].max())
    hold = "the interval holds" if len(tested) == 1 else f"all {len(tested)} intervals hold together"
    seeds = counted_between(low, high, "paired seed")
    looks = ", at whichever look each was decided" if tested["look"].notna().any() else ""
    lines = [f"{seeds}; {hold} with {confidence(comparison)} confidence{looks}."]
    if tuned := record.tuned_key:
        lines.append(f"Each variant is at its own {tuned}, chosen on development seeds.")
    if (margin := comparison.margin) == margin:
        lines.append(f"Less than {margin:g}{unit(comparison.metric)} counts as no difference.")
    if record.claim:
        lines.append("The runs of a claim, which docs/ledger.md judges by its own rule.")
    elif not len(comparison.family("primary")):
        lines.append("No contrast was named beforehand: take this as a lead to test, not as a result.")
    elif len(others := comparison.table.query("family == 'exploratory' and p == p")):
        lines.append(f"{_tally(others, 'more comparison')}. They are leads to test, not results.")
    return lines


def _to_decide(tested: pd.DataFrame, rows: pd.DataFrame, record: StudyRecord, variants: int) -> list[str]:
    """What would decide these contrasts, or narrow their intervals."""
    if record.demonstration:
        command = whole_study(record)
        return [f"A demonstration: `{command}` asks it properly, and --dry-run says how long that takes."]
    if record.looks:
        return _until_last_look(tested, record)
    seeds = int(tested["pairs"].max())
    undecided = tested[tested["verdict"] == stats.UNDECIDED]
    needed = undecided["more_seeds"].dropna()
    if undecided.empty:
        line = "{} would narrow the intervals by a third"
        return _with_seeds(2 * seeds, line, rows, record, variants)
    if needed.empty:
        return ["No number of seeds would decide this: the difference is about as large as the margin."]
    which = "it" if len(undecided) == 1 else f"all {len(needed)}"
    if len(needed) < len(undecided):
        which = f"{len(needed)} of the {len(undecided)} undecided"
    more = int(needed.max())
    line = f"About {counted(more, 'more seed')} would decide {which}: {{}}"
    return _with_seeds(seeds + more, line, rows, record, variants)


def _until_last_look(tested: pd.DataFrame, record: StudyRecord) -> list[str]:
    """What a study with looks does about undecided contrasts."""
    undecided = tested[tested["verdict"] == stats.UNDECIDED]
    if undecided.empty:
        return []
    if (undecided["look"] < undecided["last_look"]).any():
        return ["The command of the study goes on with what is undecided."]
    stays = "It stays" if len(undecided) == 1 else "They stay"
    return [f"{stays} undecided: a study goes on beyond its last look only under another name."]


def _with_seeds(count: int, line: str, rows: pd.DataFrame, record: StudyRecord, variants: int) -> list[str]:
    """`line` with the command that gives every variant `count` seeds, and its time on this machine."""
    command = with_seeds(record, count)
    seconds, at_once = seconds_a_run(rows, available_cores())
    runs = variants * max(0, count - rows["seed"].nunique())
    time = "" if math.isnan(seconds) else f", about {duration(runs * seconds / at_once)} here"
    return [f"{line.format(f'`{command}`' if command else f'{count} seeds')}{time}."]


# --- in a notebook ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShownComparison(Comparison):
    """A comparison that displays its answer, its tables and its notes."""

    answer: list[str]

    def __repr__(self) -> str:
        """The text that `ablate compare` prints."""
        from ablate.reporting import words
        from ablate.reporting.tables import render

        blocks = [
            f"{words.caption(self, family)}\n{render(words.for_reading(self, family), 'table')}"
            for family in self.families
        ]
        return "\n".join([*self.answer, *blocks, *self.notes])

    def _repr_html_(self) -> str:
        from ablate.reporting.html import comparison_html

        return comparison_html(self, self.answer)
