"""What goes on in a store, from another shell: `ablate runs --watch`. Loads no torch."""

import contextlib
import time
from collections import Counter

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ablate.store.columns import Row
from ablate.store.status import Status
from ablate.store.store import Store

EVERY_S = 1.0


def watch(store: Store, target: str | None) -> None:
    """Show how many runs are done, running or failed, and how far each running one is, until Ctrl-C.

    In a terminal the picture changes in place; elsewhere a line is printed when it does. Raises StoreError.
    """
    console, said = Console(highlight=False), ""
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        live = stack.enter_context(Live(console=console, auto_refresh=False)) if console.is_terminal else None
        while True:
            rows = store.rows() if target is None else store.study_rows(target)
            line = summary(rows)
            if live:
                live.update(_table(store, rows, line), refresh=True)
            elif line != said:
                console.print(line, markup=False, soft_wrap=True)
                said = line
            time.sleep(EVERY_S)


def summary(rows: list[Row]) -> str:
    """As `12 done, 2 running`."""
    counts = Counter(row["status"] for row in rows)
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "no runs yet"


def _table(store: Store, rows: list[Row], title: str) -> Table:
    table = Table("run", "step", "train_loss", "val_loss", title=title, title_justify="left", box=None)
    for row in rows:
        if row["status"] == Status.RUNNING:
            last = store.last_metrics(row["run_id"]) or {}
            name = f"{row['fusion']} heads={row['heads']} out_proj={row['out_proj']} seed={row['seed']}"
            losses = [f"{float(last[key]):.4f}" if key in last else "" for key in ("train_loss", "val_loss")]
            table.add_row(name, f"{last.get('step', 0)}/{row['steps']}", *losses)
    return table
