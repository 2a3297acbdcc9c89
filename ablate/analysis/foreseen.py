"""Doubts that are known before anything trains; of results they are the first ones."""

from collections.abc import Iterator, Sequence

import pandas as pd

from ablate.analysis.contrasts import equal_forms
from ablate.analysis.variant import FACTORS, distinguishing, variants_of, varying
from ablate.analysis.variants import Settings
from ablate.config.contrast import FEWEST
from ablate.config.schema import STANDARD_FUSION
from ablate.phrases import Note, advised, counted, first_few, lines_if
from ablate.store.frames import as_texts, is_foreign
from ablate.store.record import StudyRecord

MOST_OVERLAP = 0.05  # of a held-out split


def foreseen(
    variants: Settings, compared: Sequence[int], seeds: int, records: Sequence[StudyRecord]
) -> Iterator[Note]:
    """Doubts about these variants, of which those at the indices `compared` are, over so many seeds each."""
    if variants.is_foreign:
        return
    table, doubts = variants.table.iloc[[*compared]], list[tuple[str, str]]()
    if len(table) > 1:
        few = f"only {counted(seeds, 'seed')}"
        more = f"{few}, and a verdict takes {FEWEST}: add 'seed=range({FEWEST})'"
        doubts += [*lines_if(seeds < FEWEST, (more, few)), *_copies(variants, compared)]
        doubts += _one_rate(table, records)
    if "overlap" in variants.table:
        doubts += repeats(pd.to_numeric(variants.table["overlap"], errors="coerce").max())
    yield from (Note(text, "doubt", brief) for text, brief in doubts)


def repeats(overlap: float) -> list[tuple[str, str]]:
    """A doubt, and the same in short, about a text of which another split has so much of a held-out one."""
    short = "a text that repeats itself"
    line = (
        f"{short}: {100 * overlap:.1f} % of a held-out split lies in stretches of 50 characters or more that"
        " another split has, too: what remembers best wins there; corpus.unique=paragraph takes repeats away"
    )
    return lines_if(overlap > MOST_OVERLAP, (line, short))


def _copies(variants: Settings, compared: Sequence[int]) -> Iterator[tuple[str, str]]:
    """A doubt about variants that are one function from the same start, so that one is enough."""
    shown = distinguishing(variants.table, variants.columns)
    each, forms = variants_of(variants.table, shown), equal_forms(variants)
    names = [one.label(varying(each)) for one in each]
    first = {forms[at]: names[at] for at in reversed(compared)}
    if copies := [f"{names[at]} = {first[forms[at]]}" for at in compared if names[at] != first[forms[at]]]:
        count = f"{len(copies)} of {len(compared)} variants ({first_few(copies)})"
        line = f"{count} are the same function from the same start as another: one of each is enough"
        yield (line, "copies among the variants")


def shared_rate(rows: pd.DataFrame, records: Sequence[StudyRecord] = ()) -> str:
    """The learning rate that all of these share, which was tuned for none; empty without one."""
    if is_foreign(rows) or as_texts(rows["tuned"]).any() or any(record.tuned_key for record in records):
        return ""
    rates = {*as_texts(rows["lr"])} - {""}
    return rates.pop() if len(rates) == 1 else ""


def _one_rate(table: pd.DataFrame, records: Sequence[StudyRecord]) -> Iterator[tuple[str, str]]:
    """A doubt if all share one learning rate, tuned for none of them."""
    if rate := shared_rate(table, records):
        levels = {column: [*dict.fromkeys(table[column])] for column in FACTORS}
        varied = [f"{column}={','.join(of)}" for column, of in levels.items() if len(of) > 1]
        words = ["run", "study=tuned", *varied]
        if len(table) == len(levels["fusion"]) == 2:
            words = ["duel", *sorted(levels["fusion"], key=STANDARD_FUSION.__eq__)]
        tunes = f"`{advised(['ablate', *words])}`" if len(levels["fusion"]) > 1 else "study=tuned"
        line = f"all variants share one learning rate, {rate}, which was tuned for none of them: a"
        line = f"{line} difference may be how well it suits each; {tunes} tunes each"
        yield (line, "one rate")
