"""`ablate runs`: list runs and delete them."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli import completion
from ablate.cli.options import WhereOption
from ablate.cli.output import READ, Format, FormatOption, WideOption, print_table, say
from ablate.config.rules import ConfigError, did_you_mean
from ablate.phrases import counted, duration

if TYPE_CHECKING:
    import pandas as pd

    from ablate.store.columns import Row
    from ablate.store.removal import Doomed
    from ablate.store.store import Store

SHOWN = ("run_id", "age", "status", "study", "fusion", "heads", "out_proj", "seed", "corpus", "steps")
SHOWN += ("val_loss", "wall_s", "error")
SPARE = ("age", "out_proj", "heads")  # what a very narrow terminal leaves out too
SHORT_ID = 8  # characters of an id that are shown; every command accepts these


def runs(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STUDY]",
            help="A study by name; else every run. With --delete: runs, by a prefix of their id or name.",
            autocompletion=completion.studies_and_runs,
        ),
    ] = None,
    where: WhereOption = None,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="COL",
            help="Sort by this column, smallest first; -COL: largest first. Else the newest run is last.",
            autocompletion=completion.results_columns,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="COL[,COL]", help="Show these columns.", autocompletion=completion.results_columns
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Keep showing what is running, its progress and the time left."),
    ] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="List the runs that would be deleted; with --yes, delete them.")
    ] = False,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="The same for failed, interrupted and stale runs that no study needs."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --delete or --prune: really delete.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --delete: also runs that a study needs or that are running.")
    ] = False,
    format: FormatOption = Format.table,
    wide: WideOption = False,
) -> None:
    """List the runs with their status.

    A run is done, failed, diverged, interrupted, running, or stale (made by other code or another torch).
    """
    from ablate.store.store import Store

    store = Store()
    if delete or prune:
        return _remove(store, targets or [], prune=prune, yes=yes, force=force, format=format)
    if len(targets or []) > 1:
        raise typer.BadParameter("one study at a time; --delete takes several runs", param_hint="STUDY")
    study = targets[0] if targets else None
    if watch:
        from ablate.live.watch import watch as watch_store

        return watch_store(store, study)
    rows = store.rows() if study is None else store.study_rows(study)
    if not rows:
        say("no runs yet; ablate run makes one")
        if format in READ:
            return
    table = _table(store, rows, where or (), sort, columns)
    print_table(_for_reading(table) if format in READ else table, format, wide=wide, spare=SPARE)


def _table(
    store: "Store", rows: "list[Row]", where: Sequence[str], sort: str | None, columns: str | None
) -> "pd.DataFrame":
    """The chosen rows and columns; age in seconds since the run last changed."""
    import pandas as pd

    from ablate.analysis.frames import frame
    from ablate.analysis.select import select, with_options

    changed, now = store.changed(), time.time()
    table = with_options(frame(rows))
    table["age"] = [now - changed.get(run_id[:8], now) for run_id in table["run_id"]]
    table = select(table, where)
    if sort:
        column = _column(table, sort.removeprefix("-"), "--sort")
        table = table.sort_values(column, ascending=not sort.startswith("-"), kind="stable")
    else:
        table = table.sort_values("age", ascending=False, kind="stable")
    if columns:
        names = [name.strip() for name in columns.split(",")]
        return table[[_column(table, name, "--columns") for name in names]]
    return pd.DataFrame(table, columns=[*SHOWN])


def _column(table: "pd.DataFrame", name: str, option: str) -> str:
    for column in (name, name.rpartition(".")[2]):
        if column in table:
            return column
    raise ConfigError(f"{option} {name}: no column of results{did_you_mean(name, [*map(str, table)])}")


def _for_reading(table: "pd.DataFrame") -> "pd.DataFrame":
    """The table with ages in words, short ids and no empty error column."""
    shown = table.copy()
    if "age" in shown:
        shown["age"] = [duration(seconds).replace(" ", "") for seconds in shown["age"]]  # one word
    if "run_id" in shown:
        shown["run_id"] = shown["run_id"].str[:SHORT_ID]
    if "error" in shown and shown["error"].isna().all():
        shown = shown.drop(columns="error")
    return shown


def _remove(
    store: "Store", runs: Sequence[str], *, prune: bool, yes: bool, force: bool, format: Format
) -> None:
    """List the runs that would be deleted or, with `yes`, delete them."""
    from ablate.store.removal import named, remove, worthless

    if prune and runs:
        raise typer.BadParameter(f"takes no runs; --delete {runs[0]} takes one", param_hint="--prune")
    doomed = worthless(store) if prune else named(store, runs)
    if not doomed:
        say("nothing to delete" if prune else "name the runs: ablate runs --delete RUN…")
        return
    for run in doomed:
        if run.needed_by and not force:
            raise ConfigError(f"{run.name}: {run.needed_by}; --force --yes deletes it all the same")
    print_table(_of_doomed(doomed), format)
    size = f"{sum(run.size for run in doomed) / 1e6:,.1f} MB"
    if not yes:
        say(f"nothing is deleted yet: --yes deletes {counted(len(doomed), 'run')}, {size}")
        return
    remove(store, doomed)
    say(f"deleted {counted(len(doomed), 'run')}, {size}")


def _of_doomed(doomed: "Sequence[Doomed]") -> "pd.DataFrame":
    import pandas as pd

    rows = [(run.name, run.row["status"], " ".join(run.studies), f"{run.size / 1e6:.1f}") for run in doomed]
    return pd.DataFrame(rows, columns=["run", "status", "study", "MB"])
