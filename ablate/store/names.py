"""The name of a run as people read it: that of its directory, with the values of what its studies sweep.

A directory is named alike whichever study trains the run, so that every command finds it; what a study sweeps
beyond that (a rate, an option) is put in where the name is shown, as in concat-h2-d48x2-lr0.003-s0-1a2b3c4d.
"""

import json
import re
from collections.abc import Iterable

from ablate.config.conditions import column_for
from ablate.config.schema import PARTS
from ablate.store.columns import Row, csv_value
from ablate.store.record import StudyRecord, keys_of_arms

IN_EVERY_NAME = ("fusion", "heads", "out_proj", "model.d_model", "model.layers", "seed")
END = re.compile(r"(-s\d+)?-[0-9a-f]{8}$")  # the seed and the id, with which the name of a directory ends
UNFIT = re.compile(r"[^\w.+-]+")  # characters that a shell would read


def swept(record: StudyRecord) -> set[str]:
    """The keys that a study sweeps and that directories are not named by."""
    keys = {key for key, levels in record.factors.items() if len(levels) > 1}
    return {*keys, *keys_of_arms(record.arms), record.tuned_key} - {*IN_EVERY_NAME, ""}


def title(name: str, row: Row, keys: Iterable[str]) -> str:
    """The name of a run with its values of these keys. name: of its directory."""
    parts = [part for key in sorted(keys) if (part := _part(key, row))]
    end = END.search(name)
    at = end.start() if end else len(name)
    return "-".join([name[:at], *parts]) + name[at:]


def without_id(name: str) -> str:
    """The name of a run but for its id."""
    return name.rpartition("-")[0]


def _part(key: str, row: Row) -> str:
    """A key with its value, as lr0.003 or per_channel; empty if the row has none."""
    column, (kind, _, option) = column_for(key), key.partition(".")
    value = row.get(column)
    if value is None and kind in PARTS:
        value = json.loads(row.get(f"{kind}_options") or "{}").get(option)
    if value is None:
        return ""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    text = csv_value(value).removesuffix(".0") if is_number else f"_{csv_value(value)}"
    return UNFIT.sub("_", column + text)
