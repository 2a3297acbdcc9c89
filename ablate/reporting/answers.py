"""The findings of a comparison in plain sentences, for a report, a terminal, a notebook. Prints nothing."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import NO_BASELINE, Comparison
from ablate.analysis.finding import Finding
from ablate.analysis.frames import REHEARSAL, is_simulated
from ablate.analysis.variants import USABLE
from ablate.phrases import Note, capital, counted, lines_if, texts
from ablate.reporting.backbone import backbone
from ablate.reporting.next import Next, next_steps
from ablate.reporting.words import (
    Voice,
    confidence,
    fields,
    remarks,
    seeds_in_words,
    sentence,
    setting_of,
    unit,
    verdict,
)
from ablate.store.record import NO_STUDY, StudyRecord

MOST = 3  # the most sentences on contrasts that nobody named
NAMED = 4  # and on those that a study named beforehand
MOST_DOUBTS = 3
LEAD = Note("not named beforehand", "doubt")
NO_PAIR = "Each variant has one run, and no two share a seed, so nothing pairs: give them equal seeds."
ONE_SEED = "One seed shows nothing: the same variant with another seed differs as well."
PLAIN = Voice(
    untested="",  # no answer is about what was not tested
    undecided="whether {one} costs or saves anything against {other}{at} is undecided:"
    " {diff}{of} ({low} to {high}){look}",
    equivalent="{one} and {other} differ by less than {margin}{of}{at}: {diff} ({low} to {high}){look}",
    decided="{one} {verb} {size}{of} ({least} to {most}) against {other}{at}{weight}{look}",
    verbs=("saves", "costs"),
    within=", less than the {margin} that would matter",
    beyond="{perplexity}",
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
    return {True: OF_GAINS, False: PLAIN, None: OF_EITHER}[comparison.higher_is_better]


def _brief(voice: Voice) -> Voice:
    """The voice for answers beside a table that has the numbers."""
    return replace(
        voice,
        undecided=voice.undecided.partition(":")[0],
        equivalent="{one} and {other} differ by less than {margin}{of}{at}",
        decided=voice.decided.removesuffix("{look}"),
        beyond="",
    )


@dataclass(frozen=True)
class Answer:
    """findings: the results of the contrasts, in at most NAMED sentences. trust: how certain they are. next:
    what to do next, what matters most first."""

    findings: list[str]
    trust: list[str]
    next: list[Next]


def answer(comparison: Comparison, record: StudyRecord, *, brief: bool = False) -> Answer:
    """The answer of a comparison. record: of its study. brief: for beside a table that has the numbers."""
    rows = comparison.rows[comparison.rows["status"].isin(USABLE)]
    if int(comparison.table["n"].max()) < 2:
        if rows["seed"].nunique() > 1:
            return Answer([NO_PAIR], [], [])
        return Answer([ONE_SEED], [], next_steps(rows, record))
    sentences = findings(comparison, record.answer, record.tuned_column, brief=brief)
    if not comparison.tested and comparison.identical:
        return Answer(_placed(sentences, rows, brief=brief), [], [])
    if not comparison.tested or not sentences:
        return Answer(sentences or [_nothing(comparison, record)], [], [])
    trust = (_trust_in_brief if brief else _trust)(comparison, record)
    return Answer(_placed(sentences, rows, brief=brief), trust, next_steps(rows, record, comparison))


def _nothing(comparison: Comparison, record: StudyRecord) -> str:
    """Why nothing was tested."""
    if record.looks and any(one.look == 0 for one in comparison.findings):
        return f"Nothing is judged before the first look, at {record.looks.at[0]} seeds."
    whys = [one.why for one in comparison.findings if one.why and one.is_undecided and one.seeds > 1]
    why = [comparison.nothing, *whys, "no variant has a baseline and two paired seeds"]
    return f"Nothing was tested: {next(filter(None, why))}."


def _placed(sentences: Sequence[str], rows: pd.DataFrame, *, brief: bool) -> list[str]:
    """The sentences, the first one with the conditions that all rows share."""
    where = place(rows).partition(" (")[0] if brief else place(rows)
    first, *rest = sentences
    return [f"{where}: {first[:1].lower()}{first[1:]}" if where else first, *rest]


def lines(comparison: Comparison, records: Sequence[StudyRecord]) -> list[str]:
    """The answer as lines. records: of one or several studies."""
    record = records[0] if len(records) == 1 else NO_STUDY
    parts = answer(comparison, record)
    return [*parts.findings, *parts.trust, *map(str, parts.next)]


# --- in short, above a table that has the numbers --------------------------------------------------------


def brief_lines(comparison: Comparison, records: Sequence[StudyRecord], notes: Sequence[Note]) -> list[str]:
    """The answer with how sure it is and its doubts, the first thing to do next, and what was taken for what,
    each a paragraph. notes: all that there is to say of the rows and of the comparison."""
    record = records[0] if len(records) == 1 else NO_STUDY
    parts = answer(comparison, record, brief=True)
    why = _why(comparison, notes)
    paragraph = " ".join([*parts.findings, *parts.trust, *why])
    taken = texts(note for note in notes if note.kind == "taken")
    return [paragraph, *map(str, parts.next[:1]), *taken]


def doubts(notes: Sequence[Note], where: str = "--why explains") -> str:
    """The doubts among these notes in a few words, and where they are explained; empty without any."""
    briefs = [*dict.fromkeys(note.brief or note.text for note in notes if note.is_doubt)]
    shown = briefs[:MOST_DOUBTS]
    shown += lines_if(len(briefs) > MOST_DOUBTS, f"{len(briefs) - MOST_DOUBTS} more")
    return f"Doubts: {', '.join(shown)}; {where}" if briefs else ""


def _why(comparison: Comparison, notes: Sequence[Note]) -> list[str]:
    """A sentence on what --why has; none if nothing was tested and nothing is doubtful."""
    tested = comparison.tested
    is_lead = not any(one.is_primary for one in comparison.findings)
    leads = lines_if(is_lead and any(one.verdict in stats.CLAIMS for one in tested), LEAD)
    sentence = doubts([*leads, *notes]) or ("--why says how this was tested" if tested else "")
    others = sum(one.is_tested for one in comparison.findings) - len(tested)
    more = f", and has {counted(others, 'more comparison')}" if others else ""
    return lines_if(sentence, f"{sentence}{more}.")


# --- the findings in sentences -----------------------------------------------------------------------------


def findings(
    comparison: Comparison,
    terms: Mapping[str, str] | None = None,
    tuned: str = "",
    *,
    brief: bool = False,
) -> list[str]:
    """A sentence for each primary contrast or, without any, for each contrast. For more than NAMED primary
    ones, or more than MOST others, the counts of the verdicts and the largest difference.

    terms: names of the levels for use in sentences, such as {sum: summing the heads}. tuned: the column of
    which each variant has its own value; it is not named. brief: without numbers of what is undecided, and
    without remarks on what a difference amounts to.
    """
    tested = [one.without(tuned) for one in comparison.tested]
    same = [one.without(tuned) for one in comparison.identical]
    settings = [setting_of(one, terms) for one in tested]
    shared = set[str]().union(*settings).intersection(*settings)  # what all share need not be repeated
    if comparison.table["verdict"].eq(NO_BASELINE).any() and not any(one.is_primary for one in tested):
        shared = set()  # a variant without a baseline may have something else
    voice = _brief(_voice(comparison)) if brief else _voice(comparison)

    def told(one: Finding) -> str:
        apart = ", ".join(part for part in setting_of(one, terms) if part not in shared)
        instead = {"at": f" ({apart})" if apart else ""}
        if not unit(comparison.metric):
            instead["of"] = f" of {comparison.metric}"
        remark = "" if brief else remarks(one)
        return f"{sentence(one, voice, terms, **instead)}{remark}."

    if len(tested) > MOST and brief:
        sentences = [_tally(tested)]
    elif len(tested) > (NAMED if all(one.is_primary for one in tested) else MOST):
        largest = max(tested, key=lambda one: -1.0 if one.is_undecided else abs(one.diff))
        alike = sum(one.same_class for one in tested)
        line = f"In {alike} of them both can learn the same functions, so all of it is parametrization."
        sentences = [_tally(tested), f"The largest: {told(largest)}"]
        sentences += lines_if(alike, line)
    else:
        open_ = [one for one in tested if one.is_undecided]
        is_one = len(open_) > 1 and all({*parts} == shared for parts in settings)
        sentences = [told(one) for one in tested if not (is_one and one.is_undecided)]
        sentences += [_undecided(open_, comparison, terms, brief=brief)] if is_one else []
    sentences += [f"{sentence(one, voice, terms)}." for one in same[:MOST]]
    sentences += lines_if(len(same) > MOST, f"{len(same) - MOST} more are identical to their baselines.")
    return [*map(capital, sentences)]


def _undecided(
    open_: Sequence[Finding], comparison: Comparison, terms: Mapping[str, str] | None, *, brief: bool
) -> str:
    """One sentence about several undecided contrasts, with one baseline or with different ones."""
    each, baselines = [], set[str]()
    for one in open_:
        told = fields(one, terms)
        words = "{one}, {diff}{of} ({low} to {high})".format(**told)
        remark = remarks(one).replace(";", ",")
        each.append(told["one"] if brief else f"{words}{remark}")
        baselines.add(told["other"])
    against = f" against {baselines.pop()}" if len(baselines) == 1 else ""
    return f"nothing is decided yet{against} about {'; '.join(each)}."


def _tally(tested: Sequence[Finding], what: str = "comparison") -> str:
    """The number of contrasts with each verdict, in words."""
    counts = Counter(map(verdict, tested))
    each = [f"{count} {'is' if count == 1 else 'are'} {of}" for of, count in counts.most_common()]
    return f"of {counted(len(tested), what)}, {'; '.join(each)}."


def place(rows: pd.DataFrame) -> str:
    """The conditions that all rows share: `On docs (GPT-2's backbone, 2 layers, 64 wide, 1,000 steps)`."""
    one = {c: rows[c].dropna().unique() for c in ("corpus", "layers", "d_model", "steps") if c in rows}
    shared = {column: values[0] for column, values in one.items() if len(values) == 1}
    words: dict[str, Callable[[int], str]] = {
        "layers": lambda layers: counted(layers, "layer"),
        "d_model": "{:,} wide".format,
        "steps": lambda steps: counted(steps, "step"),
    }
    sizes = [say(int(shared[column])) for column, say in words.items() if column in shared]
    kind = f"{REHEARSAL.capitalize()}. " if is_simulated(rows) else ""
    text = f"On {shared['corpus']}" if "corpus" in shared else "At this size" if sizes else ""
    conditions = [words for words in (backbone(rows), *sizes) if words]
    return kind + (f"{text} ({', '.join(conditions)})" if conditions else text)


def _trust(comparison: Comparison, record: StudyRecord) -> list[str]:
    tested = comparison.tested
    hold = "the interval holds" if len(tested) == 1 else f"all {len(tested)} intervals hold together"
    seeds = seeds_in_words(tested)
    looks = ", at whichever look each was decided" if any(one.look is not None for one in tested) else ""
    lines = [f"{seeds}; {hold} with {confidence(comparison)} confidence{looks}."]
    if tuned := record.tuned_key:
        lines.append(f"Each variant is at its own {tuned}, chosen on development seeds{record.tuned_at}.")
    if (margin := comparison.margin) == margin:
        lines.append(f"Less than {margin:g}{unit(comparison.metric)} counts as no difference.")
    if not any(one.is_primary for one in comparison.findings):
        lines.append("No contrast was named beforehand: take this as a lead to test, not as a result.")
    elif others := [one for one in comparison.findings if one.is_tested and one.family == "exploratory"]:
        lines.append(f"{capital(_tally(others, 'more comparison'))} They are leads to test, not results.")
    return lines


def _trust_in_brief(comparison: Comparison, record: StudyRecord) -> list[str]:
    tested = comparison.tested
    together = {1: "", 2: " for both together"}.get(len(tested), f" for all {len(tested)} together")
    sure = f"{confidence(comparison)} confidence{together}"
    if any(one.look is not None for one in tested):
        sure = f"{sure}, {_at_looks(tested)}"
    else:
        sure = f"{seeds_in_words(tested)}, {sure}"
    return [f"{sure}."]


def _at_looks(tested: Sequence[Finding]) -> str:
    """At how many seeds contrasts were decided or stand, as in `decided at 6 to 8 of at most 32 seeds`."""
    parts = []
    for when, is_open in (("decided at", False), ("so far", True)):
        if at := [one.look or 0 for one in tested if one.is_undecided == is_open]:
            parts.append(f"{when} {f'{min(at)} to ' if min(at) < max(at) else ''}{max(at)}")
    last = max(one.last_look or 0 for one in tested)
    return f"{', '.join(parts)} of at most {counted(last, 'seed')}"
