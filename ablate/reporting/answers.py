"""The findings of a comparison in plain sentences, which readers see first. Prints nothing."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import Comparison, report_rows
from ablate.analysis.power import seconds_a_run
from ablate.analysis.select import select, with_options
from ablate.analysis.variants import STEPS_TO, USABLE, name_parts
from ablate.compute.cores import available
from ablate.phrases import counted, duration, only_if
from ablate.reporting.commands import whole_study, with_seeds
from ablate.reporting.subject import NOTHING_ASKED
from ablate.reporting.words import (
    interactions,
    names,
    number,
    parametrization,
    percent,
    share_of_attention,
    unit,
)
from ablate.store.columns import HIGHER_IS_BETTER
from ablate.store.record import StudyRecord

MOST = 3  # the most sentences
FIRST_SEEDS = 8  # how many seeds to advise for a grid of one seed
ONE_SEED = "One seed shows nothing: the same variant with another seed differs as well."
BETTER = (stats.BETTER, stats.BETTER_WITHIN)


@dataclass(frozen=True)
class Answer:
    """found: the results of the contrasts, in at most MOST sentences. trust: how certain they are. more: what
    would make them more certain, with the command to type and its time on this machine."""

    found: list[str]
    trust: list[str]
    more: list[str]


def answer(comparison: Comparison, rows: pd.DataFrame, record: StudyRecord, *, cores: int) -> Answer:
    """The answer of a comparison. rows: those compared. record: of their study. cores: of this machine, to
    estimate the time of more seeds."""
    rows = rows[rows["status"].isin(USABLE)]
    variants = comparison.table["variant"].nunique()
    if int(comparison.table["n"].max()) < 2:
        return Answer([ONE_SEED], [], of_one_seed(rows, record, variants, cores=cores))
    more = _More(record, rows, variants, cores)
    tested = _tested(comparison)
    found = findings(comparison, record.answer, record.tuned_key.rpartition(".")[2])
    if tested.empty or not found:
        return Answer(
            found or ["Nothing was tested: no variant has a baseline and two paired seeds."], [], []
        )
    where = place(rows)
    return Answer(
        [f"{where}: {_small(found[0])}" if where else found[0], *found[1:]],
        _trust(comparison, record),
        more.of(tested),
    )


def of_one_seed(rows: pd.DataFrame, record: StudyRecord, variants: int, *, cores: int) -> list[str]:
    """Advice for a grid with one seed. rows: of finished runs. variants: how many there are."""
    return _More(record, rows, variants, cores).seeds(
        FIRST_SEEDS, "{} shows how large a difference has to be"
    )


def lines(
    comparison: Comparison, rows: pd.DataFrame, records: Sequence[StudyRecord], where: Sequence[str] = ()
) -> list[str]:
    """The answer as lines. rows: of one or several studies; only those that meet `where` are compared."""
    record = records[0] if len(records) == 1 else NOTHING_ASKED
    chosen = select(with_options(report_rows(rows)[0]), where)
    found = answer(comparison, chosen, record, cores=available())
    return [*found.found, *found.trust, *found.more]


def findings(comparison: Comparison, terms: Mapping[str, str] | None = None, tuned: str = "") -> list[str]:
    """A sentence for each primary contrast or, without any, for each contrast. For more than MOST, the counts
    of the verdicts and the largest difference.

    terms: names of the levels for use in sentences, such as {sum: summing the heads}. tuned: the column of
    which each variant has its own value; it is not named.
    """
    tested, terms = _tested(comparison), terms or {}
    tested = tested.assign(**{side: tested[side].map(_without(tuned)) for side in ("variant", "baseline")})
    # A setting that all contrasts share need not be repeated.
    settings = {names(row["variant"], row["baseline"])[2] for row in tested.to_dict("records")}
    told = functools.partial(_sentence, comparison=comparison, terms=terms, with_setting=len(settings) > 1)
    if len(tested) > MOST:
        sizes = tested["diff"].abs().where(tested["verdict"] != stats.UNDECIDED, -1.0)
        largest = tested.to_dict("records")[int(sizes.argmax())]
        told_of = [f"Of {_tally(tested, 'comparison')}.", f"The largest: {told(largest)}"]
        alike = int(tested["same_class"].sum())
        line = f"In {alike} of them both can learn the same functions, so all of it is parametrization."
        told_of += only_if(alike, line)
    else:
        open_ = tested[tested["verdict"] == stats.UNDECIDED]
        together = _undecided(open_, comparison, terms) if len(open_) > 1 and len(settings) == 1 else ""
        rest = tested.drop(open_.index) if together else tested
        told_of = [*map(told, rest.to_dict("records")), *only_if(together, together)]
    return [*map(_capital, [*told_of, *interactions(comparison)])]


def _without(column: str) -> Callable[[str], str]:
    """Takes a column out of the name of a variant."""
    return lambda name: " ".join(part for part in name_parts(name) if part.partition("=")[0] != column)


def _undecided(rows: pd.DataFrame, comparison: Comparison, terms: Mapping[str, str]) -> str:
    """One sentence about several undecided contrasts, with one baseline or with different ones."""
    of, sign = unit(comparison.metric), -1 if comparison.metric in HIGHER_IS_BETTER else 1
    each, baselines = [], set[str]()
    for row in rows.to_dict("records"):
        variant, baseline, _ = names(row["variant"], row["baseline"], terms)
        low, high = sorted((sign * row["low"], sign * row["high"]))
        interval = f"{number(sign * row['diff'])}{of} ({number(low)} to {number(high)})"
        each.append(f"{variant}, {interval}{parametrization(row, comparison).replace(';', ',')}")
        baselines.add(baseline)
    against = f" against {baselines.pop()}" if len(baselines) == 1 else ""
    return f"nothing is decided yet{against} about {'; '.join(each)}."


def _tested(comparison: Comparison) -> pd.DataFrame:
    """The primary contrasts that were tested or, without any, all that were tested."""
    for table in (comparison.family("primary"), comparison.table):
        tested = table[table["p"].notna()]
        if len(tested):
            return tested
    return comparison.table.head(0)


def _sentence(
    row: Mapping[Any, Any], comparison: Comparison, terms: Mapping[str, str], with_setting: bool
) -> str:
    found = _finding(row, comparison, terms, with_setting)
    return f"{found[:-1]}{parametrization(row, comparison)}."


def _finding(
    row: Mapping[Any, Any], comparison: Comparison, terms: Mapping[str, str], with_setting: bool
) -> str:
    variant, baseline, setting = names(row["variant"], row["baseline"], terms)
    at = f" ({setting})" if with_setting and setting else ""
    metric, verdict = comparison.metric, row["verdict"]
    sign = -1 if metric in HIGHER_IS_BETTER else 1
    diff = sign * row["diff"]
    low, high = sorted((sign * row["low"], sign * row["high"]))
    of = unit(metric) or f" of {metric}"
    if verdict == stats.EQUIVALENT:
        between = f"{number(diff)} ({number(low)} to {number(high)})"
        return f"{variant} and {baseline} differ by less than {comparison.margin:g}{of}{at}: {between}."
    if verdict == stats.UNDECIDED:
        between = f"{number(diff)}{of} ({number(low)} to {number(high)})"
        return f"whether {variant} costs or saves anything against {baseline}{at} is undecided: {between}."
    saves = verdict in BETTER
    low, high = (-high, -low) if saves else (low, high)
    size = f"{number(abs(diff))}{of} ({number(low)} to {number(high)})"
    if metric.startswith(STEPS_TO):
        told = f"{variant} takes {size} {'fewer' if saves else 'more'} than {baseline}{at}"
    else:
        told = f"{variant} {'saves' if saves else 'costs'} {size} against {baseline}{at}"
    if verdict in (stats.BETTER_WITHIN, stats.WORSE_WITHIN):
        return f"{told}, less than the {comparison.margin:g} that would matter."
    return f"{told}{share_of_attention(row['share'])}{_perplexity(row['ratio'])}."


def _perplexity(ratio: float) -> str:
    """The words for a ratio of perplexities, which is exp of a difference in nats."""
    if not math.isfinite(ratio):
        return ""
    return f", about {percent(ratio - 1)} {'more' if ratio > 1 else 'less'} perplexity"


def _tally(tested: pd.DataFrame, what: str) -> str:
    """The number of contrasts with each verdict, in words."""
    counts = tested["verdict"].value_counts()
    each = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return f"{counted(len(tested), what)}: {each}"


def place(rows: pd.DataFrame) -> str:
    """The conditions that all rows share, as in `On pydoc (2 layers, 64 wide, 1,000 steps)`."""
    one = {c: rows[c].dropna().unique() for c in ("corpus", "layers", "d_model", "steps") if c in rows}
    known = {column: values[0] for column, values in one.items() if len(values) == 1}
    words = {"layers": "layers", "d_model": "wide", "steps": "steps"}
    size = ", ".join(f"{int(known[c]):,} {word}" for c, word in words.items() if c in known)
    text = f"On {known['corpus']}" if "corpus" in known else "At this size" if size else ""
    return f"{text} ({size})" if size else text


def _trust(comparison: Comparison, record: StudyRecord) -> list[str]:
    tested = _tested(comparison)
    low, high = int(tested["pairs"].min()), int(tested["pairs"].max())
    seeds = counted(high, "paired seed") if low == high else f"{low} to {high} paired seeds"
    level = f"{100 * (1 - comparison.alpha):g} %"
    hold = "the interval holds" if len(tested) == 1 else f"all {len(tested)} intervals hold together"
    lines = [f"{seeds}; {hold} with {level} confidence."]
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


@dataclass(frozen=True)
class _More:
    """Advice on more seeds. variants: how many have to be trained with each seed."""

    record: StudyRecord
    rows: pd.DataFrame
    variants: int
    cores: int

    def of(self, tested: pd.DataFrame) -> list[str]:
        """What would decide these contrasts, or narrow their intervals."""
        if self.record.demonstration:
            command = whole_study(self.record)
            return [f"A demonstration: `{command}` asks it properly, and --dry-run says how long that takes."]
        seeds = int(tested["pairs"].max())
        undecided = tested[tested["verdict"] == stats.UNDECIDED]
        needed = undecided["more_seeds"].dropna()
        if undecided.empty:
            return self.seeds(2 * seeds, "{} would narrow the intervals by a third")
        if needed.empty:
            return ["No number of seeds would decide this: the difference is about as large as the margin."]
        which = "it" if len(undecided) == 1 else f"all {len(needed)}"
        if len(needed) < len(undecided):
            which = f"{len(needed)} of the {len(undecided)} undecided"
        more = int(needed.max())
        return self.seeds(seeds + more, f"About {counted(more, 'more seed')} would decide {which}: {{}}")

    def seeds(self, count: int, line: str) -> list[str]:
        """`line` with the command that gives every variant `count` seeds, and its time on this machine."""
        command = with_seeds(self.record, count)
        seconds, at_once = seconds_a_run(self.rows, self.cores)
        runs = self.variants * max(0, count - self.rows["seed"].nunique())
        time = "" if math.isnan(seconds) else f", about {duration(runs * seconds / at_once)} here"
        return [f"{line.format(f'`{command}`' if command else f'{count} seeds')}{time}."]


def _capital(line: str) -> str:
    return line[:1].upper() + line[1:]


def _small(line: str) -> str:
    """A sentence with a small first letter, to follow a colon."""
    return line[:1].lower() + line[1:]
