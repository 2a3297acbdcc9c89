"""A comparison in a few lines: the answer, how sure it is, what to type next, and one table. Prints nothing.

Everything else stands under --why: families, corrections, shares, columns that differ, notes.
"""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import BASELINE, Comparison
from ablate.analysis.finding import Finding
from ablate.analysis.variant import varying
from ablate.phrases import Note, counted, lines_if, texts
from ablate.reporting import cells, words
from ablate.reporting.answers import answer
from ablate.reporting.tables import lines_of
from ablate.store.record import NO_STUDY, StudyRecord

if TYPE_CHECKING:
    from ablate.analysis.ladder import LadderResult

MOST_ROWS = 10  # of the table; for more, baselines have none
MOST_DOUBTS = 3
WIDTH, HEIGHT = 80, 5  # of the lines above the table


def lines(comparison: Comparison, records: Sequence[StudyRecord], notes: Sequence[Note]) -> list[str]:
    """The answer with how sure it is and its doubts, the next command with its time, and what was taken for
    what, each a paragraph. notes: all that there is to say of the rows and of the comparison."""
    record = records[0] if len(records) == 1 else NO_STUDY
    parts = answer(comparison, record, brief=True)
    why = _why(comparison, notes, is_claim=bool(record.claim))
    other = "" if comparison.ladder else _without_baselines(_contrasts(comparison, _family(comparison)))
    against = lines_if(other, f"Each is against {other}, otherwise equal.")
    paragraph = " ".join([*parts.findings, *against, *parts.trust, *why])
    room = max(2, HEIGHT - _height(paragraph))
    taken = texts(note for note in notes if note.kind == "taken")
    return [paragraph, *(_next(line, record, room) for line in parts.more), *taken]


def doubts(notes: Sequence[Note], where: str = "--why explains") -> str:
    """The doubts among these notes in a few words, and where they are explained; empty without any."""
    briefs = [*dict.fromkeys(note.brief or note.text for note in notes if note.is_doubt)]
    shown = briefs[:MOST_DOUBTS]
    shown += lines_if(len(briefs) > MOST_DOUBTS, f"{len(briefs) - MOST_DOUBTS} more")
    return f"Doubts: {', '.join(shown)}; {where}" if briefs else ""


def _why(comparison: Comparison, notes: Sequence[Note], *, is_claim: bool) -> list[str]:
    """A sentence on what --why has; none if nothing was tested and nothing is doubtful."""
    tested = comparison.tested
    is_lead = not is_claim and not any(one.is_primary for one in comparison.findings)
    leads = lines_if(is_lead and any(one.verdict in stats.CLAIMS for one in tested), LEAD)
    sentence = doubts([*leads, *notes]) or ("--why says how this was tested" if tested else "")
    others = sum(one.is_tested for one in comparison.findings) - len(tested)
    more = f", and has {counted(others, 'more comparison')}" if others else ""
    return lines_if(sentence, f"{sentence}{more}.")


LEAD = Note("not named beforehand", "doubt")


def _next(line: str, record: StudyRecord, room: int) -> str:
    """The line with the next command, or that command alone if the line takes more than `room` lines; if
    even that does, the command goes by its study and its seeds; of a ladder, --why shows it."""
    before, _, rest = line.partition("`")
    command, _, after = rest.partition("`")
    alone = f"Next: `{command}`{after}"
    if _height(line) <= room:
        return line
    if record.rungs:
        return f"{before}the command that --why shows{after}"
    if "'seed=" not in command:
        return line
    if _height(alone) <= room:
        return alone
    seeds = command[command.rindex("'seed=") :]
    return f"{before}the command of {record.name} with {seeds}{after} --why has it whole."


def _height(text: str) -> int:
    """The lines that it takes in a terminal of WIDTH."""
    return len(textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False))


def table(comparison: Comparison, tuned: str = "", *, marginal: bool = False) -> pd.DataFrame:
    """Each contrast in a row: variant, n, mean, difference [low, high], verdict; each baseline above those
    that are compared with it. Baselines have no rows where there would be too many and names suffice. If
    nothing is compared: variant, n, mean.

    tuned: the column of which each variant has its own value; it is in no name. marginal: with
    marginal intervals, too. Of a ladder, each arm has a row for each rung.
    """
    if comparison.ladder:
        return _of_ladder(comparison, comparison.ladder, marginal=marginal)
    name = _family(comparison)
    family, contrasts = comparison.family(name), _contrasts(comparison, name)
    rows = family if not contrasts else family[family["baseline"].notna()]
    if contrasts and not _without_baselines(contrasts):
        rows = _with_baselines(family, rows)
    read = pd.DataFrame({"variant": _names(comparison, rows["variant"], tuned)})
    read["n"] = cells.numbers_of_seeds(rows)
    read["mean"] = rows["mean"].tolist()
    if rows["diff"].notna().any():
        digits = cells.digits(comparison.metric)
        read["difference [low, high]"] = cells.differences(rows, digits)
        if marginal:
            ends = cells.intervals(rows, "low_marginal", "high_marginal", digits)
            read[f"marginal {words.confidence(comparison)}"] = ends
        read["verdict"] = cells.verdicts(rows, comparison.findings_of(rows))
    if "step_ms" in rows:
        read["step_ms"] = rows["step_ms"].tolist()
        read["step_ratio"] = [cells.step_ratio(row) for row in rows.to_dict("records")]
    return read


def _of_ladder(comparison: Comparison, ladder: "LadderResult", *, marginal: bool) -> pd.DataFrame:
    """Each arm at each rung in a row, with the predicted interval at the top."""
    from ablate.reporting.ladder import sizes

    digits, top, read = cells.digits(comparison.metric), len(ladder.rungs) - 1, list[dict[str, str]]()
    names = [f"{rung.name} {size} M" for rung, size in zip(ladder.rungs, sizes(ladder), strict=True)]
    of_marginal = lines_if(marginal, f"marginal {words.confidence(comparison)}")
    for arm in ladder.arms:
        steps = arm.steps
        columns = {
            "arm": [arm.name] * len(steps),
            "rung": [names[at] for at in steps["rung"]],
            "n": cells.numbers_of_seeds(steps),
            "difference [low, high]": cells.differences(steps, digits),
            **{name: cells.intervals(steps, "low_marginal", "high_marginal", digits) for name in of_marginal},
            "verdict": cells.verdicts(steps, comparison.findings_of(steps)),
        }
        read += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        if arm.predicted:
            if not ladder.has_top(arm):
                read.append({"arm": arm.name, "rung": names[top]})
            read[-1]["predicted"] = words.interval(arm.predicted.low, arm.predicted.high, digits)
    order = ["arm", "rung", "n", "difference [low, high]", *of_marginal, "predicted", "verdict"]
    return pd.DataFrame(read).reindex(columns=order).astype(object).fillna("")


def in_width(read: pd.DataFrame, width: int) -> pd.DataFrame:
    """The table with its longest verdict shortened if it is too wide otherwise."""
    is_wide = max(map(len, lines_of(read, None)[0].splitlines())) > width
    return _shortened(read) if is_wide and "verdict" in read else read


def _shortened(read: pd.DataFrame) -> pd.DataFrame:
    """worse, perhaps within the margin -> worse, perhaps. The answer above it has the whole verdict."""
    return read.assign(verdict=read["verdict"].str.replace(words.PERHAPS, ", perhaps", regex=False))


def _family(comparison: Comparison) -> str:
    """The first family with a contrast that was tested or, without any, with a contrast."""
    for column in ("p", "diff"):
        if len(having := comparison.table[comparison.table[column].notna()]):
            return str(having["family"].iloc[0])
    return comparison.families[0]


def _contrasts(comparison: Comparison, family: str) -> list[Finding]:
    return [one for one in comparison.findings if one.family == family]


def _without_baselines(contrasts: Sequence[Finding]) -> str:
    """What the baselines of these contrasts are, if they need no rows: they would make the table too long,
    and are the same but for what each variant shares with its own. Else empty."""
    others = {one.sides()[1] for one in contrasts}
    variants, baselines = {one.variant for one in contrasts}, {one.baseline for one in contrasts}
    is_short = len(contrasts) + len(baselines) <= MOST_ROWS
    return "" if is_short or len(others) > 1 or len(variants) < len(contrasts) else others.pop()


def _with_baselines(family: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows and their baselines, best first; below its baseline each, if there are several."""
    bases = family[(family["verdict"] == BASELINE) & family["variant"].isin(rows["baseline"])]
    if len(bases) == 1:
        return family[family.index.isin([*bases.index, *rows.index])]
    return pd.concat(
        part
        for name in bases["variant"]
        for part in (bases[bases["variant"] == name], rows[rows["baseline"] == name])
    )


def _names(comparison: Comparison, names: pd.Series, tuned: str) -> list[str]:
    """What variants are called here: without what all of them share; a fusion is named by itself."""
    variants = [comparison.variants[name].without(tuned) for name in names]
    columns = varying(variants) or [*variants[0].levels][:1]
    called = [one.label(columns) for one in variants]
    return called if len({*called}) == names.nunique() else [one.name for one in variants]
