"""The findings of a comparison in plain sentences, for a report, a terminal, a notebook. Prints nothing."""

import math
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import NEVER, NO_TEST, Comparison
from ablate.analysis.contrasts import NO_VERDICTS, names
from ablate.analysis.ladder import LadderResult
from ablate.analysis.power import seconds_a_run, seeds_of
from ablate.analysis.variants import USABLE, levels_of
from ablate.compute.limits import available_cores
from ablate.phrases import capital, counted, duration, lines_if
from ablate.reporting import ladder
from ablate.reporting.commands import is_duel, whole_study, with_budget, with_seeds
from ablate.reporting.ladder_details import details
from ablate.reporting.words import (
    Voice,
    confidence,
    fields,
    finding,
    interactions,
    is_perhaps_within,
    parametrization,
    seeds_in_words,
    unit,
    verdict,
)
from ablate.store.columns import column_named
from ablate.store.record import LEVEL, NO_STUDY, StudyRecord

MOST = 3  # the most sentences
FIRST_SEEDS = 8  # how many seeds to advise for a grid of one seed
ONE_SEED = "One seed shows nothing: the same variant with another seed differs as well."
A_DEMONSTRATION = "A demonstration: `{}` asks it properly, and --dry-run says how long that takes."
PLAIN = Voice(
    untested="",  # no answer is about what was not tested
    undecided="whether {one} costs or saves anything against {other}{at} is undecided:"
    " {diff}{of} ({low} to {high}){look}",
    equivalent="{one} and {other} differ by less than {margin}{of}{at}: {diff} ({low} to {high}){look}",
    decided="{one} {verb} {size}{of} ({least} to {most}) against {other}{at}{weight}{look}",
    verbs=("saves", "costs"),
    within=", less than the {margin} that would matter",
    perhaps=", perhaps within the margin of {margin}",
    beyond="{share}{perplexity}",
)
IN_STEPS = replace(
    PLAIN,
    decided="{one} takes {size}{of} ({least} to {most}) {verb} than {other}{at}{weight}{look}",
    verbs=("fewer", "more"),
)
# Of a metric of which more is better, and of one without a known direction.
OF_GAINS = replace(
    PLAIN, undecided=PLAIN.undecided.replace("costs or saves", "gains or loses"), verbs=("gains", "loses")
)
OF_EITHER = replace(
    PLAIN,
    undecided="whether {one} and {other}{at} differ is undecided: {diff}{of} ({low} to {high}){look}",
    decided="{one} is {verb} than {other}{at} by {size}{of} ({least} to {most}){weight}{look}",
    verbs=("higher", "lower"),
)


def _voice(comparison: Comparison) -> Voice:
    if column_named(comparison.metric).unit == "steps":
        return IN_STEPS
    return {True: OF_GAINS, False: PLAIN, None: OF_EITHER}[comparison.higher_is_better]


def _brief(voice: Voice) -> Voice:
    """The same beside a table that has the numbers."""
    return replace(
        voice,
        undecided=voice.undecided.partition(":")[0],
        equivalent="{one} and {other} differ by less than {margin}{of}{at}",
        decided=voice.decided.removesuffix("{look}"),
        beyond="",
    )


@dataclass(frozen=True)
class Answer:
    """findings: the results of the contrasts, in at most MOST sentences. trust: how certain they are. more:
    what would make them more certain, with the command to type and its time on this machine."""

    findings: list[str]
    trust: list[str]
    more: list[str]


def answer(comparison: Comparison, record: StudyRecord, *, brief: bool = False) -> Answer:
    """The answer of a comparison. record: of its study. brief: for beside a table that has the numbers."""
    rows = comparison.rows[comparison.rows["status"].isin(USABLE)]
    variants = comparison.table["variant"].nunique()
    if comparison.ladder:
        return _of_ladder(comparison, comparison.ladder, brief=brief)
    if int(comparison.table["n"].max()) < 2:
        return Answer([ONE_SEED], [], of_one_seed(rows, record, variants))
    tested = comparison.tested
    sentences = findings(comparison, record.answer, record.tuned_column, brief=brief)
    if tested.empty and len(comparison.identical):
        return Answer(_placed(sentences, rows, brief=brief), [], [])
    if tested.empty or not sentences:
        why = [line.removeprefix(NO_VERDICTS) for line in comparison.notes if line.startswith(NO_VERDICTS)]
        reasons = comparison.table["why"].dropna()
        why += [text.removesuffix(NO_TEST) for text in reasons if text.endswith(NO_TEST)]
        nothing = f"Nothing was tested: {[*why, 'no variant has a baseline and two paired seeds'][0]}."
        if record.looks and comparison.table["look"].eq(0).any():
            late = (
                f": a late seed in development ({', '.join(record.looks.late)})" if record.looks.late else ""
            )
            nothing = f"Nothing is judged before the first look, at {record.looks.taken[0]} seeds{late}."
        return Answer(sentences or [nothing], [], [])
    trust = (_trust_in_brief if brief else _trust)(comparison, record)
    return Answer(
        _placed(sentences, rows, brief=brief), trust, _to_decide(comparison, rows, record, variants)
    )


def _of_ladder(comparison: Comparison, result: LadderResult, *, brief: bool) -> Answer:
    """The answer of a ladder, which may be under way."""
    sentences = _placed(ladder.findings(comparison, result), comparison.rows, brief=brief)
    if comparison.tested.empty:
        trust = ["Nothing is tested before there are two paired seeds."]
    else:
        trust = (_trust_in_brief if brief else _trust)(comparison, result.record)
        trust += lines_if(result.is_predicted, f"Predictions are intervals of {100 * LEVEL:g} %.")
    if result.record.demonstration:
        more = [A_DEMONSTRATION.format(whole_study(result.record))]
    else:
        more = ladder.more(comparison, result)
    return Answer(sentences, trust, more)


def _placed(sentences: Sequence[str], rows: pd.DataFrame, *, brief: bool) -> list[str]:
    """The sentences, the first one with the conditions that all rows share."""
    where = place(rows).partition(" (")[0] if brief else place(rows)
    first, *rest = sentences
    return [f"{where}: {first[:1].lower()}{first[1:]}" if where else first, *rest]


def of_one_seed(rows: pd.DataFrame, record: StudyRecord, variants: int) -> list[str]:
    """Advice for a grid with one seed. rows: of finished runs. variants: how many there are."""
    return _with_seeds(FIRST_SEEDS, "{} would show how large a difference has to be", rows, record, variants)


def lines(comparison: Comparison, records: Sequence[StudyRecord]) -> list[str]:
    """The answer as lines. records: of one or several studies."""
    record = records[0] if len(records) == 1 else NO_STUDY
    parts = answer(comparison, record)
    why = details(comparison, comparison.ladder) if comparison.ladder else []
    return [*parts.findings, *parts.trust, *why, *parts.more]


def findings(
    comparison: Comparison,
    terms: Mapping[str, str] | None = None,
    tuned: str = "",
    *,
    brief: bool = False,
) -> list[str]:
    """A sentence for each primary contrast or, without any, for each contrast. For more than MOST, the counts
    of the verdicts and the largest difference.

    terms: names of the levels for use in sentences, such as {sum: summing the heads}. tuned: the column of
    which each variant has its own value; it is not named. brief: without numbers of what is undecided, and
    without remarks on what a difference amounts to.
    """
    tested, terms = comparison.tested, terms or {}
    same = comparison.identical
    for side in ("variant", "baseline"):
        tested = tested.assign(**{side: [without(name, tuned) for name in tested[side]]})
        same = same.assign(**{side: [without(name, tuned) for name in same[side]]})
    parts_of = [_setting(row) for row in tested.to_dict("records")]
    shared = set[str]().union(*parts_of).intersection(*parts_of)  # what all share need not be repeated
    voice = _brief(_voice(comparison)) if brief else _voice(comparison)

    def sentence(row: Mapping[Any, Any]) -> str:
        own = ", ".join(part for part in _setting(row) if part not in shared)
        given = {"at": f" ({own})" if own else ""}
        if not unit(comparison.metric):
            given["of"] = f" of {comparison.metric}"
        remark = "" if brief else parametrization(row, comparison)
        return f"{finding(row, comparison, voice, terms, **given)}{remark}."

    if len(tested) > MOST and brief:
        sentences = [_tally_in_brief(tested)]
    elif len(tested) > MOST:
        sizes = tested["diff"].abs().where(tested["verdict"] != stats.UNDECIDED, -1.0)
        largest = tested.to_dict("records")[int(sizes.argmax())]
        alike = int(tested["same_class"].sum())
        line = f"In {alike} of them both can learn the same functions, so all of it is parametrization."
        sentences = [f"Of {_tally(tested, 'comparison')}.", f"The largest: {sentence(largest)}"]
        sentences += lines_if(alike, line)
    else:
        open_ = tested[tested["verdict"] == stats.UNDECIDED]
        together = ""
        if len(open_) > 1 and all({*parts} == shared for parts in parts_of):
            together = _undecided(open_, comparison, terms, brief=brief)
        rest = tested.drop(open_.index) if together else tested
        sentences = [*map(sentence, rest.to_dict("records")), *lines_if(together, together)]
    sentences += [f"{finding(row, comparison, voice, terms)}." for row in same.to_dict("records")[:MOST]]
    sentences += lines_if(len(same) > MOST, f"{len(same) - MOST} more are identical to their baselines.")
    sentences += [] if brief else interactions(comparison)
    return [*map(capital, sentences)]


def _setting(row: Mapping[Any, Any]) -> list[str]:
    """What the two variants of a contrast share, as K=V each."""
    shared = names(row["variant"], row["baseline"])[2]
    return re.split(r", (?=\w+=)", shared) if shared else []


def without(name: str, column: str) -> str:
    """The name of a variant without a column."""
    return " ".join(f"{key}={level}" for key, level in levels_of(name).items() if key != column)


def _undecided(rows: pd.DataFrame, comparison: Comparison, terms: Mapping[str, str], *, brief: bool) -> str:
    """One sentence about several undecided contrasts, with one baseline or with different ones."""
    each, baselines = [], set[str]()
    for row in rows.to_dict("records"):
        of_row = fields(row, comparison, terms)
        words = "{one}, {diff}{of} ({low} to {high})".format(**of_row)
        remark = parametrization(row, comparison).replace(";", ",")
        each.append(of_row["one"] if brief else f"{words}{remark}")
        baselines.add(of_row["other"])
    against = f" against {baselines.pop()}" if len(baselines) == 1 else ""
    return f"nothing is decided yet{against} about {'; '.join(each)}."


def _tally(tested: pd.DataFrame, what: str) -> str:
    """The number of contrasts with each verdict, in words."""
    rows = tested.to_dict("records")
    counts = Counter(row["verdict"] for row in rows)
    perhaps = Counter(row["verdict"] for row in rows if is_perhaps_within(row))
    each = [
        f"{count} {of}" + (f" ({perhaps[of]} perhaps within the margin)" if perhaps[of] else "")
        for of, count in counts.most_common()
    ]
    return f"{counted(len(rows), what)}: {', '.join(each)}"


def _tally_in_brief(tested: pd.DataFrame) -> str:
    """The same as a sentence."""
    counts = Counter(verdict(row) for row in tested.to_dict("records"))
    each = [f"{count} {'is' if count == 1 else 'are'} {of}" for of, count in counts.most_common()]
    return f"of {len(tested)} comparisons, {'; '.join(each)}."


def place(rows: pd.DataFrame) -> str:
    """The conditions that all rows share, as in `On docs (2 layers, 64 wide, 1,000 steps)`."""
    one = {c: rows[c].dropna().unique() for c in ("corpus", "layers", "d_model", "steps") if c in rows}
    known = {column: values[0] for column, values in one.items() if len(values) == 1}
    words = {"layers": "layers", "d_model": "wide", "steps": "steps"}
    size = ", ".join(f"{int(known[c]):,} {word}" for c, word in words.items() if c in known)
    text = f"On {known['corpus']}" if "corpus" in known else "At this size" if size else ""
    return f"{text} ({size})" if size else text


def _trust(comparison: Comparison, record: StudyRecord) -> list[str]:
    tested = comparison.tested
    hold = "the interval holds" if len(tested) == 1 else f"all {len(tested)} intervals hold together"
    seeds = seeds_in_words(tested)
    looks = ", at whichever look each was decided" if tested["look"].notna().any() else ""
    lines = [f"{seeds}; {hold} with {confidence(comparison)} confidence{looks}."]
    if (tuned := record.tuned_key) and not record.rungs:  # reporting/ladder.py says it of each rung
        lines.append(f"Each variant is at its own {tuned}, chosen on development seeds.")
    if (margin := comparison.margin) == margin:
        lines.append(f"Less than {margin:g}{unit(comparison.metric)} counts as no difference.")
    if record.claim:
        lines.append("The runs of a claim, on which docs/ledger.md has the verdict.")
    elif not len(comparison.family("primary")):
        lines.append("No contrast was named beforehand: take this as a lead to test, not as a result.")
    elif len(others := comparison.table.query("family == 'exploratory' and p == p")):
        lines.append(f"{_tally(others, 'more comparison')}. They are leads to test, not results.")
    return lines


def _trust_in_brief(comparison: Comparison, record: StudyRecord) -> list[str]:
    tested = comparison.tested
    together = {1: "", 2: " for both together"}.get(len(tested), f" for all {len(tested)} together")
    sure = f"{confidence(comparison)} confidence{together}"
    if tested["look"].notna().any():
        sure = f"{sure}, {_at_looks(tested)}"
    else:
        sure = f"{seeds_in_words(tested)}, {sure}"
    return [f"{sure}.", *lines_if(record.claim, "A claim, on which docs/ledger.md has the verdict.")]


def _at_looks(tested: pd.DataFrame) -> str:
    """At how many seeds contrasts were decided or stand, as in `decided at 6 to 8 of at most 32 seeds`."""
    is_open, parts = tested["verdict"] == stats.UNDECIDED, []
    for when, rows in (("decided at", tested[~is_open]), ("so far", tested[is_open])):
        if len(rows):
            low, high = int(rows["look"].min()), int(rows["look"].max())
            parts.append(f"{when} {f'{low} to ' if low < high else ''}{high}")
    return f"{', '.join(parts)} of at most {counted(int(tested['last_look'].max()), 'seed')}"


def _to_decide(comparison: Comparison, rows: pd.DataFrame, record: StudyRecord, variants: int) -> list[str]:
    """What would decide the tested contrasts, or narrow their intervals."""
    tested = comparison.tested
    if record.demonstration:
        return [A_DEMONSTRATION.format(whole_study(record))]
    if record.looks:
        return _until_last_look(tested, rows, record)
    seeds = int(seeds_of(tested).max())
    undecided = tested[tested["verdict"] == stats.UNDECIDED]
    needed = undecided["more_seeds"].dropna()
    if undecided.empty:
        line = "{} would narrow the intervals by a third"
        return _with_seeds(2 * seeds, line, rows, record, variants)
    if needed.empty and (whys := {*undecided["why"].dropna()} - {NEVER}):
        return [f"No verdict: {'; '.join(sorted(whys))}."]
    if needed.empty:
        why = "about as large as the margin" if comparison.margin > 0 else "too small"
        return [f"No number of seeds would decide this: the difference is {why}."]
    which = "it" if len(undecided) == 1 else f"all {len(needed)}"
    if len(needed) < len(undecided):
        which = f"{len(needed)} of the {len(undecided)} undecided"
    more = int(needed.max())
    line = f"About {counted(more, 'more seed')} would decide {which}: {{}}"
    return _with_seeds(seeds + more, line, rows, record, variants)


def _until_last_look(tested: pd.DataFrame, rows: pd.DataFrame, record: StudyRecord) -> list[str]:
    """What a study with looks does about undecided contrasts, with the time to its next look."""
    undecided = tested[tested["verdict"] == stats.UNDECIDED]
    if undecided.empty:
        return []
    going_on = undecided[undecided["look"] < undecided["last_look"]]
    if len(going_on):
        command = shlex.join(["ablate", "run", *record.typed]) if record.typed else record.command
        arms = {*going_on["variant"], *going_on["baseline"]}
        assert record.looks
        look = int(going_on["look"].min())
        more = min(at for at in record.looks.taken if at > look) - look
        time = _time(len(arms) * more, rows)
        which = f"`{command}`" if command else "The command of the study"
        return [f"{which} goes on with what is undecided{f'{time} to the next look' if time else ''}."]
    stays = "It stays" if len(undecided) == 1 else "They stay"
    return [f"{stays} undecided: a study goes on beyond its last look only under another name."]


def _with_seeds(count: int, line: str, rows: pd.DataFrame, record: StudyRecord, variants: int) -> list[str]:
    """`line` with the command that gives every variant `count` seeds, and its time on this machine."""
    more = variants * max(0, count - rows["seed"].nunique())
    if is_duel(record):  # which begins anew with another budget
        seconds, at_once = seconds_a_run(rows, available_cores())
        command, time = with_budget(record, (len(record.runs) + more) * seconds / at_once), ""
    else:
        command, time = with_seeds(record, count), _time(more, rows)
    return [f"{line.format(f'`{command}`' if command else f'{count} seeds')}{time}."]


def _time(runs: int, rows: pd.DataFrame) -> str:
    """How long so many more runs take, in words; empty if the rows do not say."""
    seconds, at_once = seconds_a_run(rows, available_cores())
    return "" if math.isnan(seconds) else f", about {duration(runs * seconds / at_once)} here"
