"""Results that were copied from their store: whether results.csv and study.json fit each other."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ablate.analysis.frames import read_cells
from ablate.analysis.select import PARTS, as_texts
from ablate.config.identity import id_of_row
from ablate.config.rules import ConfigError
from ablate.phrases import only_if
from ablate.store.code import PACKAGE
from ablate.store.record import StudyRecord
from ablate.store.status import RESULTS

WAY_OUT = "copy both files of one study from its store"


def require_fit(rows: pd.DataFrame, table: Path, record: StudyRecord) -> None:
    """Raises ConfigError unless the table has each run that the record lists, once, in the role that the
    record gives it, and with the settings and seeds that its run_id stands for. rows: of the table."""
    there, listed = {*rows["run_id"].dropna()}, {*record.runs}
    told = zip(as_texts(rows["phase"]), as_texts(rows["role"]), strict=True)
    roles = dict(zip(rows["run_id"], told, strict=True))
    of_record = {run_id: (role.phase, role.role) for run_id, role in record.roles.items()}
    changed = any(roles.get(run_id, role) != role for run_id, role in of_record.items())
    if len(rows) > len(there) or changed:
        raise ConfigError(
            f"{table.parent}: results.csv has a run twice, or in another phase or role than study.json says;"
            f" {WAY_OUT}"
        )
    if there != listed:
        missing, foreign = len(listed - there), len(there - listed)
        faults = [
            *only_if(missing, f"lacks {missing} of the {len(listed)} runs that study.json lists"),
            *only_if(foreign, f"has {foreign} that it does not list"),
        ]
        raise ConfigError(f"{table.parent}: results.csv {' and '.join(faults)}; {WAY_OUT}")
    tells = {line: _tells_its_id(row) for line, row in read_cells(table).items() if _is_known(row)}
    others = [line for line, as_told in tells.items() if not as_told]
    if others and any(tells.values()):  # where no id fits its row, ids were made by other rules
        more = only_if(others[1:], f" and {len(others) - 1} more")
        raise ConfigError(
            f"{table}: line {others[0]}{''.join(more)}: other settings or seeds than the run_id stands for;"
            f" {WAY_OUT}"
        )


def _is_known(row: Mapping[str, str]) -> bool:
    """Whether an id can be made from this row: not from that of a damaged run, which may have only its id,
    and not for a plugin's method, whose options only its file knows."""
    own = all((PACKAGE / "model" / kind / f"{row[kind]}.py").is_file() for kind in PARTS if row.get(kind))
    return own and row.get("status") in RESULTS


def _tells_its_id(row: Mapping[str, str]) -> bool:
    try:
        return id_of_row(row) == row["run_id"]
    except (ConfigError, KeyError, ValueError):
        return False
