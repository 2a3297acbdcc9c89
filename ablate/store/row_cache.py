"""The rows of all finished runs, cached so that not every file is opened every time. Loads no torch.

The cache is beside the runs and has size, time and inode of each file, by which a changed run is noticed.
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
    """The row of each finished run below `store`; a damaged run gets a failed row with the reason."""
    cache = store / ".rows.json"
    known = _read(cache)
    seen: dict[str, tuple[Stamp, Row]] = {}
    damaged: list[Row] = []
    for name in sorted(os.listdir(store)) if store.is_dir() else []:
        if name.startswith("."):
            continue
        now = stamp(store / name)
        if not now and not RUN.fullmatch(name):  # not a run
            continue
        if now and name in known and known[name][0] == now:
            seen[name] = known[name]
            continue
        try:
            seen[name] = (now, read_finished(store / name))
        except Damaged as error:
            if (store / name).exists():  # otherwise it is just being replaced
                damaged.append({**error.row, "status": Status.FAILED, "error": str(error)})
    if seen.keys() != known.keys() or any(seen[name][0] != known[name][0] for name in seen):
        with contextlib.suppress(StoreError):  # a disk that is full or read-only can still be read
            write_atomically(cache, json.dumps(seen))
    return [dict(row) for _, row in seen.values()] + damaged


def _read(cache: Path) -> dict[str, tuple[Stamp, Row]]:
    try:
        return {name: (when, row) for name, (when, row) in json.loads(cache.read_bytes()).items()}
    except (OSError, ValueError, AttributeError, TypeError):  # missing or damaged: it is only a cache
        return {}
