"""Lists of loose runs (`single`): only those of one text and equal settings are compared with each other."""

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from ablate.analysis.frames import is_empty
from ablate.analysis.select import select
from ablate.analysis.variants import Incomparable
from ablate.config.conditions import as_text, column_for
from ablate.phrases import counted, lines_if, option
from ablate.store.columns import WIDTHS, column_named, config_about
from ablate.store.record import StudyRecord

TEXT = config_about("text")
# Settings of a run besides its attention, which is what variants differ in; widths follow from others.
SETTINGS = tuple(name for name in config_about("model", "training") if name not in WIDTHS)
SHOWN = 3  # the most commands to name


def require_equal_settings(
    rows: pd.DataFrame, records: Sequence[StudyRecord], compared: Iterable[str] = ()
) -> None:
    """Raises Incomparable, with a command for each group, if all rows are from lists of single runs and
    differ in their text or their settings. compared: keys that variants may differ in all the same."""
    if not records or not all(record.is_one_by_one for record in records):
        return
    free = {*map(column_for, compared)}
    columns = [name for name in (*TEXT, *SETTINGS) if name in rows and name not in free]
    known = rows.dropna(subset=columns, how="all")  # not a damaged run, of which only the id is known
    texts = [known[name].map(lambda value: "null" if is_empty(value) else as_text(value)) for name in columns]
    groups = [group for _, group in known.groupby(texts, sort=False)] if len(known) else []
    if len(groups) < 2:
        return
    groups.sort(key=len, reverse=True)
    names = " ".join(record.name for record in records)
    asked = [
        f"ablate compare {names} {' '.join(_conditions(rows, group, columns))} ({counted(len(group), 'run')})"
        for group in groups[:SHOWN]
    ]
    more = lines_if(len(groups) > SHOWN, f"and {len(groups) - SHOWN} more")
    raise Incomparable(
        f"{names}: loose runs of {len(groups)} texts or settings, which say nothing about each other; compare"
        f" one group: {', '.join([*asked, *more])}; --mixed compares all"
    )


def _conditions(rows: pd.DataFrame, group: pd.DataFrame, columns: Sequence[str]) -> Iterator[str]:
    """The options that choose this group among the rows."""
    settings = [name for name in columns if name not in TEXT]
    for name in ("corpus", *settings, *(name for name in columns if name in TEXT)):
        value = group[name].iloc[0]
        condition = f"{name}={'null' if is_empty(value) else as_text(value)}"
        if column_named(name).kind == "json":  # its commas would be read as those between values
            continue
        chosen = select(rows, [condition])
        if len(group) <= len(chosen) < len(rows):
            rows = chosen
            yield option("--where", condition)
