"""The rows of all finished runs, without opening each of them every time. Loads no torch.

What was read is kept beside the runs, under the size and time of its file: a run that changed shows.
"""

import contextlib
import json
import os
import re
from pathlib import Path

from ablate.files.atomic import StoreError, write_atomically
from ablate.store.columns import Row
from ablate.store.run_files import Damaged, Stamp, read_finished, stamp
from ablate.store.status import Status

RUN = re.compile(r".+-[0-9a-f]{8}")  # what config.run_name ends with


def read_rows(store: Path) -> list[Row]:
    """The row of each finished run below `store`; of a damaged one, a failed row that says so."""
    cache = store / ".rows.json"
    known = _read(cache)
    seen: dict[str, tuple[Stamp, Row]] = {}
    damaged: list[Row] = []
    for name in sorted(os.listdir(store)) if store.is_dir() else []:
        if name.startswith("."):
            continue
        now = stamp(store / name)
        if not now and not RUN.fullmatch(name):  # nothing of ours
            continue
        if now and name in known and known[name][0] == now:
            seen[name] = known[name]
            continue
        try:
            seen[name] = (now, read_finished(store / name))
        except Damaged as error:
            if (store / name).exists():  # else it is being replaced at this moment
                damaged.append({**error.row, "status": Status.FAILED, "error": str(error)})
    if seen.keys() != known.keys() or any(seen[name][0] != known[name][0] for name in seen):
        with contextlib.suppress(StoreError):  # a disk that is full or read-only can still be read
            write_atomically(cache, json.dumps(seen))
    return [dict(row) for _, row in seen.values()] + damaged


def _read(cache: Path) -> dict[str, tuple[Stamp, Row]]:
    try:
        return {name: (when, row) for name, (when, row) in json.loads(cache.read_bytes()).items()}
    except (OSError, ValueError, AttributeError, TypeError):  # not there, or damaged: it is only a cache
        return {}
