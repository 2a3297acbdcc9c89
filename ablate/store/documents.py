"""documents.csv: the loss of each held-out document, of a run and of all runs of a study. Loads no torch."""

import contextlib
import csv
import io
from collections.abc import Mapping
from pathlib import Path

from ablate.files.reading import read_bytes
from ablate.store.columns import csv_text

FILE = "documents.csv"
DOCUMENT = ["split", "document", "targets"]
OF_A_RUN = [*DOCUMENT, "loss"]


def of_study(directories: Mapping[str, Path]) -> str:
    """A row for each document, with a column for the loss of each run; empty if no run has documents.
    directories: of the runs, by run_id."""
    losses, runs = dict[tuple[str, ...], dict[str, str]](), list[str]()
    for run_id, directory in sorted(directories.items()):
        with contextlib.suppress(OSError, ValueError, csv.Error):
            header, *rows = csv.reader(io.StringIO(read_bytes(directory / FILE).decode(), newline=""))
            if header == OF_A_RUN and all(len(row) == len(OF_A_RUN) for row in rows):
                runs.append(run_id)
                for *document, loss in rows:
                    losses.setdefault(tuple(document), {})[run_id] = loss
    columns = [*DOCUMENT, *runs]
    rows = ({**dict(zip(DOCUMENT, key, strict=True)), **of_runs} for key, of_runs in losses.items())
    return csv_text(rows, columns) if losses else ""
