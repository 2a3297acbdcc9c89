"""`ablate runs`: what there is."""

from typing import Annotated

import typer

from ablate.cli import completion
from ablate.cli.output import READ, Format, FormatOption, WideOption, print_table, say


def runs(
    target: Annotated[
        str | None,
        typer.Argument(help="A study by name; without one, every run.", autocompletion=completion.studies),
    ] = None,
    format: FormatOption = Format.table,
    wide: WideOption = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on showing what runs, and how far it is, until Ctrl-C.")
    ] = False,
) -> None:
    """List the runs and what became of them.

    Each is done, failed, diverged, interrupted, running, or stale (made by other code or another torch).
    """
    import pandas as pd

    from ablate.store.store import Store

    store = Store()
    if watch:
        from ablate.live.watch import watch as watch_store

        return watch_store(store, target)
    rows = store.rows() if target is None else store.study_rows(target)
    if not rows:
        say("no runs yet; ablate run makes one")
        if format in READ:
            return
    columns = ["run_id", "status", "study", "fusion", "heads", "out_proj", "seed", "corpus", "steps"]
    columns += ["val_loss", "wall_s", "error"]
    print_table(pd.DataFrame(rows).reindex(columns=columns), format, wide=wide)
