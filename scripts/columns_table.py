"""Write docs/columns.csv, what each column of results.csv holds, from the code.

python scripts/columns_table.py
"""

import csv
import io
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from ablate.compose.configs import sections  # noqa: E402
from ablate.config.conditions import column_for  # noqa: E402
from ablate.store.columns import TABLE, split_of  # noqa: E402

PATH = ROOT / "docs" / "columns.csv"
SOURCES = {
    "identity": "the store",
    "derived": "config and text",
    "metric": "training",
    "resource": "training, on this machine",
    "provenance": "program and machine",
}


def table() -> str:
    """A row for each column: its name, its unit or kind, where it is from, and what it is."""
    names = [key.name for section in reversed(sections()) for key in section.keys]  # the first one counts
    keys = {column_for(name): name for name in names}
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["column", "unit", "from", "meaning"])
    for one in TABLE:
        key = keys.get(one.name) if one.role in ("config", "seed") else None
        source = (
            f"{split} split" if (split := split_of(one.name)) else SOURCES.get(one.role, "config and text")
        )
        rows.writerow([one.name, one.unit or one.kind, key or source, one.label])
    return text.getvalue()


if __name__ == "__main__":
    PATH.write_text(table(), encoding="utf-8", newline="\n")
