"""The rows of finished runs, as far as they can be read. Loads no torch."""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from ablate.files.atomic import StoreError, names, write_atomically
from ablate.printing import leave_out
from ablate.store.columns import Row, Status
from ablate.store.run_files import ROW_KEYS, Damaged, Stamp, read_finished, stamp

RUN = re.compile(r".+-[0-9a-f]{8}")  # what config.run_name ends with


@contextlib.contextmanager
def leaving_out() -> Iterator[None]:
    """Leave out what can't be read in the block, and go on."""
    try:
        yield
    except FileNotFoundError:  # gone since
        pass
    except StoreError as error:
        leave_out(error)


def is_run(directory: Path) -> bool:
    """Whether this is the directory of a run, be it damaged: it has two files of three that each run has."""
    files = (directory / file for file in ("result.json", "config.yaml", "metrics.csv"))
    return sum(map(os.path.isfile, files)) > 1


def read_rows(store: Path) -> dict[str, Row]:
    """The row of each finished run below `store`, by the name of its directory; a damaged run gets a failed
    row with the reason, and the half of its id that is in its name.

    Rows are cached beside the runs, so that not every file is opened every time, with the stamp of each file,
    by which a changed run is noticed.
    """
    cache = store / ".rows.json"
    known = _cached_rows(cache)
    rows: dict[str, tuple[Stamp, Row]] = {}
    damaged: dict[str, Row] = {}
    for name in names(store):
        if name.startswith("."):
            continue
        with leaving_out():
            now = stamp(store / name)
            if not now and not RUN.fullmatch(name):  # not a run
                continue
            if now and name in known and known[name][0] == now:
                rows[name] = known[name]
                continue
            try:
                rows[name] = (now, read_finished(store / name))
            except Damaged as error:
                if is_run(store / name):  # otherwise it is not, or is just being replaced
                    failed = {"status": Status.FAILED, "error": str(error)}
                    damaged[name] = {"run_id": short_id(name), "code": None, "torch": None, **failed}
    if rows != known:
        with contextlib.suppress(StoreError):  # a disk that is full or read-only can still be read
            write_atomically(cache, json.dumps(rows))
    return {name: dict(row) for name, (_, row) in rows.items()} | damaged


def _cached_rows(cache: Path) -> dict[str, tuple[Stamp, Row]]:
    """The stamp and the row of each run; nothing of a file that is damaged or was edited."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        known = json.loads(cache.read_bytes()).items()
        return {name: (stamp, row) for name, (stamp, row) in known if row.keys() >= ROW_KEYS}
    return {}


def short_id(name: str) -> str:
    """The first half of the identity, from the name of a run's directory."""
    return name.rpartition("-")[2]


def without_id(name: str) -> str:
    """The name of a run but for its id."""
    return name.rpartition("-")[0]
