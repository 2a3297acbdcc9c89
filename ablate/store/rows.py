"""The rows of finished runs, as far as they can be read. Loads no torch."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from ablate.config.identity import short_id
from ablate.files.atomic import StoreError, names, write_atomically
from ablate.files.reading import leave_out, read_bytes
from ablate.phrases import some
from ablate.store.columns import Row, Status
from ablate.store.run_files import Damaged, Stamp, read_finished, stamp

MOST_CACHED = 1 << 30  # bytes of the cache of rows; those of 100,000 runs have 200 MB
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


def plain_names(directory: Path) -> list[str]:
    """The names in a directory, without those that no command could print."""
    found = names(directory)
    if odd := [name for name in found if not name.isprintable()]:
        leave_out(f"{directory}: {some([*map(ascii, odd)])}: no names that ablate gives; rename what it is")
    return [name for name in found if name.isprintable()]


def is_run(directory: Path) -> bool:
    """Whether this is the directory of a run, be it damaged: it has two files of three that each run has."""
    files = (directory / file for file in ("result.json", "config.yaml", "metrics.csv"))
    return sum(map(os.path.isfile, files)) > 1


def read_rows(store: Path) -> list[Row]:
    """The row of each finished run below `store`; a damaged run gets a failed row with the reason.

    Rows are cached beside the runs, so that not every file is opened every time, with the stamp of each file,
    by which a changed run is noticed.
    """
    cache = store / ".rows.json"
    known = _cached_rows(cache)
    rows: dict[str, tuple[Stamp, Row]] = {}
    damaged: list[Row] = []
    for name in plain_names(store):
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
                    damaged.append({"run_id": short_id(name), "code": None, "torch": None, **failed})
    if rows.keys() != known.keys() or any(rows[name][0] != known[name][0] for name in rows):
        with contextlib.suppress(StoreError):  # a disk that is full or read-only can still be read
            data = json.dumps(rows).encode()
            write_atomically(cache, b'["%s", %s]' % (_seal(data), data))
    return [dict(row) for _, row in rows.values()] + damaged


def _cached_rows(cache: Path) -> dict[str, tuple[Stamp, Row]]:
    """The stamp and the row of each run, if every byte of the file is as it was written."""
    with contextlib.suppress(OSError):
        content = read_bytes(cache, MOST_CACHED)
        if content[2:66] == _seal(data := content[69:-1]):
            return json.loads(data)
    return {}


def _seal(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()
