"""A comparison in a few lines: the answer, how sure it is, what to type next, and one table. Prints nothing.

Everything else stands under --why: families, corrections, shares, columns that differ, notes.
"""

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import BASELINE, Comparison
from ablate.analysis.contrasts import names
from ablate.analysis.ladder import LadderResult
from ablate.analysis.variants import levels_of
from ablate.phrases import Doubt, Taken, cleaned, counted, lines_if
from ablate.reporting import words
from ablate.reporting.answers import answer, without
from ablate.reporting.ladder import sizes
from ablate.reporting.tables import lines_of, render
from ablate.store.columns import column_named
from ablate.store.record import NO_STUDY, StudyRecord

MOST_ROWS = 10  # of the table; for more, baselines have none
MOST_DOUBTS = 3
WIDTH, HEIGHT = 80, 5  # of the lines above the table


def lines(comparison: Comparison, records: Sequence[StudyRecord], notes: Sequence[str]) -> list[str]:
    """The answer with how sure it is and its doubts, the next command with its time, and what was taken for
    what, each a paragraph. notes: all that there is to say of the rows and of the comparison."""
    record = records[0] if len(records) == 1 else NO_STUDY
    parts = answer(comparison, record, brief=True)
    why = _why(comparison, notes, is_claim=bool(record.claim))
    other = "" if comparison.ladder else _without_baselines(_contrasts(comparison))
    against = lines_if(other, f"Each is against {other}, otherwise equal.")
    paragraph = " ".join([*parts.findings, *against, *parts.trust, *why])
    room = max(2, HEIGHT - _height(paragraph))
    taken = [note for note in notes if isinstance(note, Taken)]
    return [paragraph, *(_next(line, record, room) for line in parts.more), *taken]


def doubts(notes: Sequence[str], where: str = "--why explains") -> str:
    """The doubts among these notes in a few words, and where they are explained; empty without any."""
    briefs = [*dict.fromkeys(note.brief for note in notes if isinstance(note, Doubt))]
    shown = briefs[:MOST_DOUBTS]
    shown += lines_if(len(briefs) > MOST_DOUBTS, f"{len(briefs) - MOST_DOUBTS} more")
    return f"Doubts: {', '.join(shown)}; {where}" if briefs else ""


def _why(comparison: Comparison, notes: Sequence[str], *, is_claim: bool) -> list[str]:
    """A sentence on what --why has; none if nothing was tested and nothing is doubtful."""
    tested = comparison.tested
    is_lead = not is_claim and not len(comparison.family("primary"))
    leads = lines_if(is_lead and tested["verdict"].isin(stats.CLAIMS).any(), LEAD)
    sentence = doubts([*leads, *notes]) or ("" if tested.empty else "--why says how this was tested")
    others = int(comparison.table["p"].notna().sum()) - len(tested)
    more = f", and has {counted(others, 'more comparison')}" if others else ""
    return lines_if(sentence, f"{sentence}{more}.")


LEAD = Doubt("not named beforehand")


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
    family, rows = comparison.family(_family(comparison)), _contrasts(comparison)
    rows = family if rows.empty else rows if _without_baselines(rows) else _with_baselines(family, rows)
    read = pd.DataFrame({"variant": _names(rows["variant"], tuned)})
    read["n"] = words.numbers_of_seeds(rows)
    read["mean"] = rows["mean"].tolist()
    each = rows.to_dict("records")
    if rows["diff"].notna().any():
        read["difference [low, high]"] = [_difference(row, comparison.metric) for row in each]
        if marginal:
            read[f"marginal {words.confidence(comparison)}"] = [
                _interval(row, "low_marginal", "high_marginal", comparison.metric) for row in each
            ]
        read["verdict"] = [words.verdict(row) for row in each]
    if "step_ms" in rows:
        read["step_ms"] = rows["step_ms"].tolist()
        read["step_ratio"] = [words.step_ratio(row) for row in each]
    return read


def _of_ladder(comparison: Comparison, ladder: LadderResult, *, marginal: bool) -> pd.DataFrame:
    """Each arm at each rung in a row, with the predicted interval at the top."""
    metric, top, read = comparison.metric, len(ladder.rungs) - 1, []
    names = [f"{rung.name} {size} M" for rung, size in zip(ladder.rungs, sizes(ladder), strict=True)]
    for arm in ladder.arms:
        seeds = words.numbers_of_seeds(arm.steps)
        for row, n in zip(arm.steps.to_dict("records"), seeds, strict=True):
            read.append({"arm": arm.name, "rung": names[row["rung"]], "n": n})
            read[-1]["difference [low, high]"] = _difference(row, metric)
            if marginal:
                level = words.confidence(comparison)
                read[-1][f"marginal {level}"] = _interval(row, "low_marginal", "high_marginal", metric)
            read[-1]["verdict"] = words.verdict(row)
        if arm.predicted:
            if not ladder.at_top(arm):
                read.append({"arm": arm.name, "rung": names[top]})
            read[-1]["predicted"] = _interval(asdict(arm.predicted), "low", "high", metric)
    columns = ["arm", "rung", "n", "difference [low, high]", "predicted", "verdict"]
    columns[4:4] = lines_if(marginal, f"marginal {words.confidence(comparison)}")
    return pd.DataFrame(read).reindex(columns=columns).astype(object).fillna("")


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


def _contrasts(comparison: Comparison) -> pd.DataFrame:
    """The contrasts of that family."""
    family = comparison.family(_family(comparison))
    return family[family["baseline"].notna()]


def _without_baselines(rows: pd.DataFrame) -> str:
    """What the baselines of these contrasts are, if they need no rows: they would make the table too long,
    and are the same but for what each variant shares with its own. Else empty."""
    others = {names(row["variant"], row["baseline"])[1] for row in rows.to_dict("records")}
    is_short = len(rows) + rows["baseline"].nunique() <= MOST_ROWS
    return "" if is_short or len(others) > 1 or rows["variant"].duplicated().any() else others.pop()


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


def _names(variants: pd.Series, tuned: str) -> list[str]:
    """The names of variants without what all of them share; a fusion is named by itself."""
    levels = [levels_of(without(name, tuned)) for name in variants]
    keys = [key for key in levels[0] if len({one.get(key) for one in levels}) > 1] or [*levels[0]][:1]
    called = [
        " ".join(one[key] if key == "fusion" else f"{key}={one[key]}" for key in keys if one.get(key))
        for one in levels
    ]
    return called if len({*called}) == variants.nunique() else [*variants]


def _difference(row: Mapping[Any, Any], metric: str) -> str:
    diff = row["diff"]
    interval = _interval(row, "low", "high", metric)
    return "" if diff != diff else f"{diff:+{_format(metric)}} {interval}".rstrip()


def _interval(row: Mapping[Any, Any], low: str, high: str, metric: str) -> str:
    form = _format(metric)
    return "" if row[low] != row[low] else f"[{row[low]:{form}}, {row[high]:{form}}]"


def _format(metric: str) -> str:
    return ",.1f" if column_named(metric).unit == "steps" else ".4f"


# --- in a notebook ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShownComparison(Comparison):
    """A comparison that displays its answer, its tables and its notes. answer: as lines. records: of its
    studies."""

    answer: list[str]
    records: Sequence[StudyRecord]

    def __repr__(self) -> str:
        """The text that `ablate compare` prints."""
        width = shutil.get_terminal_size().columns
        tuned = self.records[0].tuned_column if self.records else ""
        read = in_width(table(self, tuned), width)
        return cleaned("\n".join([*lines(self, self.records, self.notes), "", render(read, "table")]))

    def _repr_html_(self) -> str:
        from ablate.reporting.html import comparison_html

        return comparison_html(self, self.answer)
