"""Check the ledger: entries as frozen, rows as recorded, verdicts as they follow from the rows."""

from collections.abc import Iterator
from pathlib import Path

from ablate.config.rules import ConfigError
from ablate.ledger.entry import CLAIMS, Filed, read_entries
from ablate.ledger.frozen import Frozen, read_frozen, require_frozen
from ablate.ledger.page import PAGE, page
from ablate.ledger.results import RESULTS, judged_again, read


def faults(directory: Path = CLAIMS, results: Path = RESULTS, ledger: Path = PAGE) -> list[str]:
    """A line for each thing in the ledger that does not fit. Raises ConfigError if an entry can't be read."""
    entries, frozen = read_entries(directory), read_frozen(directory)
    names = {filed.name for filed in entries}
    found = [f"{name}: frozen, but its file is gone; restore it" for name in sorted(frozen.keys() - names)]
    found += [line for filed in entries for line in _of_entry(filed, frozen, results)]
    if not found and (not ledger.exists() or ledger.read_text(encoding="utf-8") != page(directory, results)):
        found.append(f"{ledger}: not what the files give; ablate claims page writes it")
    return found


def faults_of_runs(directory: Path = CLAIMS, results: Path = RESULTS) -> Iterator[str]:
    """A line for each entry whose rows are not of the runs that it asks for, as composed anew. The ledger has
    to be without other faults."""
    from ablate.ledger.testing import run_ids  # it loads torch

    for filed in read_entries(directory):
        if not (results / filed.name).exists():
            continue
        try:
            rows, record = read(results / filed.name)
            other = run_ids(filed, rows) ^ {*record.runs}
        except ConfigError as error:
            yield f"{filed.name}: {error}"
            continue
        if other:
            yield f"{filed.name}: {len(other)} of its runs are not those that it asks for"


def _of_entry(filed: Filed, frozen: Frozen, results: Path) -> Iterator[str]:
    try:
        if filed.name in frozen or (results / filed.name).exists():
            require_frozen(filed, frozen)
        judged_again(filed, results)
    except ConfigError as error:
        line = str(error)
        yield line if filed.name in line else f"{filed.name}: {line}"
