"""The answer of a comparison in plain sentences, for a report, a terminal, a notebook: first what is wrong
with the rows, then the verdicts, then whether they stand by other means, then what to do next."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.findings import Finding
from ablate.analysis.variants import USABLE
from ablate.phrases import Note, capital, counted, described, first_few, joined, lines_if
from ablate.reporting.next import Next, next_steps
from ablate.reporting.words import Terms, confidence, contrast_in_words, sentence, size_of, units_in_words
from ablate.store.frames import REHEARSAL, is_foreign, is_simulated
from ablate.store.record import StudyRecord

MOST = 3  # the most contrasts that are named for each verdict
MOST_DOUBTS = 3
LEAD = "No contrast was named beforehand: this is exploratory, test it on new seeds."
WHY = "--why explains"
NO_PAIR = "Each variant has one run, and no two share a seed, so nothing pairs: give them equal seeds."
ONE_SEED = "One seed shows nothing: the same variant with another seed differs as well."


@dataclass(frozen=True)
class Answer:
    """doubts: in a few words each; health: the same in a line, empty without any. findings: a sentence on
    each contrast that was named beforehand or, without any, on all. short: the same in one. trust: how sure
    they are. robust: whether the verdicts stand by other means; empty if nothing can tell. next: what to do,
    what matters most first."""

    doubts: list[str]
    health: str
    findings: list[str]
    short: str
    trust: str = ""
    robust: str = ""
    next: list[Next] = field(default_factory=list)


def answer(
    comparison: Comparison, records: Sequence[StudyRecord], notes: Sequence[Note] = (), explained: str = WHY
) -> Answer:
    """The answer of a comparison. records: of its studies. notes: more than its own. explained: where the
    reader finds more on the doubts."""
    rows = comparison.rows[comparison.rows["status"].isin(USABLE)]
    weak = doubts([*notes, *comparison.notes])
    line, steps = health(weak, explained), next_steps(rows, records, comparison)
    if int(comparison.summary["n"].max()) < 2:
        why = NO_PAIR if rows["seed"].nunique() > 1 else ONE_SEED
        return Answer(weak, line, [why], why, next=steps)
    terms = {term: words for one in records for term, words in one.answer.items()}
    tested, same = comparison.tested, [one for one in comparison.findings if not one.verdict]
    sentences = [f"{capital(sentence(one, terms, tested))}." for one in tested]
    sentences += [f"{capital(sentence(one, terms))}." for one in same[:MOST]]
    if not tested:
        whys = [comparison.nothing, *(one.why for one in comparison.findings)]
        why = next(filter(None, whys), "no variant has a baseline and two paired seeds")
        said = sentences[0] if same else f"Nothing was tested: {why}."
        return Answer(weak, line, [said], said, next=steps[:1] if comparison.arrays.unfinished else [])
    is_exploratory = not any(one.is_planned for one in tested)
    lead = lines_if(is_exploratory and any(not one.is_undecided for one in tested), LEAD)
    others = sum(one.is_tested for one in comparison.findings) - len(tested)
    lead += lines_if(others, f"{capital(counted(others, 'more comparison'))}, exploratory: {explained}.")
    of = comparison.arrays
    sure = ", ".join(filter(None, (units_in_words(tested, of.items), of.scope, confidence(tested))))
    trust = " ".join([f"{sure}.", *lead])
    short = _short(tested, terms)
    if where := place(rows):  # the conditions that all rows share
        short = f"{where.partition(' (')[0]}{', ' if short.startswith('against') else ': '}{short}"
        sentences[0] = f"{where}: {sentences[0][:1].lower()}{sentences[0][1:]}"
    return Answer(weak, line, sentences, f"{capital(short)}.", trust, _robust(tested, terms), steps)


def lines(
    comparison: Comparison, records: Sequence[StudyRecord], notes: Sequence[Note] = (), explained: str = WHY
) -> list[str]:
    """The whole answer as lines."""
    parts = answer(comparison, records, notes, explained)
    said = [parts.health, *parts.findings, parts.trust, parts.robust]
    return [*filter(None, said), *map(str, parts.next)]


def around(
    comparison: Comparison, records: Sequence[StudyRecord], notes: Sequence[Note] = ()
) -> tuple[list[str], list[str]]:
    """The paragraphs above a table that has the numbers, and those below it."""
    parts = answer(comparison, records, notes)
    taken = described([*notes, *comparison.notes])
    above = [*lines_if(parts.health, parts.health), " ".join(filter(None, (parts.short, parts.trust)))]
    return above, [*lines_if(parts.robust, parts.robust), *map(str, parts.next[:1]), *taken]


def doubts(notes: Sequence[Note]) -> list[str]:
    """The doubts among these notes, in a few words each."""
    return [*dict.fromkeys(note.brief or note.text for note in notes if note.is_doubt)]


def health(doubts: Sequence[str], explained: str = WHY) -> str:
    """A line on the first of them, with where they are explained; empty without any."""
    more = len(doubts) - MOST_DOUBTS
    shown = [*doubts[:MOST_DOUBTS], *lines_if(more > 0, f"{more} more")]
    return f"Doubts: {', '.join(shown)}; {explained}." if doubts else ""


def _short(tested: Sequence[Finding], terms: Terms) -> str:
    """One or two contrasts in short sentences; of more the best and the worst, and counts of verdicts."""
    if len(tested) <= 2:
        return "; ".join(sentence(one, terms, tested, long=False) for one in tested)
    bases = {one.sides(terms)[1] for one in tested}
    against = f"against {bases.pop()}, " if len(bases) == 1 else ""
    words = [one.word for one in tested]
    counts = {of: words.count(of) for of in (*stats.VERDICTS, stats.HIGHER, stats.LOWER) if of in words}
    in_all = f"in all {joined([f'{count} {verdict}' for verdict, count in counts.items()])}"
    if tested[0].higher_is_better is None:
        return f"{against}{in_all}"
    alone = [one for one in tested if not one.variant.difference]
    alone = alone if len(alone) > 1 else tested
    worst, *_, best = sorted(alone, key=lambda one: one.diff, reverse=not tested[0].higher_is_better)
    high = "least bad" if best.verdict == stats.WORSE else "best"
    low = "least good" if worst.verdict == stats.BETTER else "worst"
    ends = (contrast_in_words(one, tested, terms, size_of(one), against=not against) for one in (best, worst))
    best_and_worst = f"{high} is {next(ends)}, {low} is {next(ends)}"
    names = [one.sides(terms)[0] for one in tested]
    if not against or len({*names}) == len(names):
        return f"{against}{best_and_worst}; {in_all}"
    whole = joined([f"{verdict} in {count}" for verdict, count in counts.items()])
    nowhere = "".join(f", nowhere {of}" for of in (stats.BETTER, stats.WORSE) if of not in counts)
    who, of = ("variants are", "comparisons") if len({*names}) > 1 else (f"{names[0]} is", "settings")
    return f"{against}{who} {whole} of {len(names)} {of}{nowhere}; {best_and_worst}"


def _robust(tested: Sequence[Finding], terms: Terms) -> str:
    """Whether the verdicts stand by other means, and what those are that do not."""
    by: dict[str, list[str]] = {}
    for one in tested:
        for how, verdict in one.otherwise().items():
            other = contrast_in_words(one, tested, terms, verdict, against=False)
            by.setdefault(how, []).extend(lines_if(verdict != one.verdict, other))
    same = [how for how, of in by.items() if not of]
    other = [f"{how}: {first_few(of, MOST)}" for how, of in by.items() if of]
    parts = lines_if(same, f"decided verdicts are the same {joined(same)}")
    parts += lines_if(other, f"not the same {', nor '.join(other)}")
    return f"{capital('; '.join(parts))}." if parts else ""


def place(rows: pd.DataFrame) -> str:
    """The conditions that all rows share: `On docs (2 layers, 64 wide, 1,000 steps)`; empty of another
    program, whose words for them mean something else."""
    if is_foreign(rows):
        return ""
    levels = {of: rows[of].dropna().unique() for of in ("corpus", "layers", "d_model", "steps") if of in rows}
    shared = {of: values[0] for of, values in levels.items() if len(values) == 1}
    sizes = ", ".join(
        f"{int(shared[of]):,} wide" if of == "d_model" else counted(int(shared[of]), of.removesuffix("s"))
        for of in ("layers", "d_model", "steps")
        if of in shared
    )
    of_one_size = "At this size" if {"layers", "d_model"} <= {*shared} else ""
    text = f"On {shared['corpus']}" if "corpus" in shared else of_one_size
    kind = f"{REHEARSAL.capitalize()}. " if is_simulated(rows) else ""
    return kind + (f"{text} ({sizes})" if text and sizes else text)
