"""`ablate runs`: list runs and delete them."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.shared import (
    READ,
    Format,
    FormatOption,
    RunsOption,
    WhereOption,
    WideOption,
    known_studies,
    known_studies_and_runs,
    print_table,
)
from ablate.config.rules import ConfigError
from ablate.phrases import counted, duration, first_few, lines_if
from ablate.printing import say
from ablate.store.frames import column_of
from ablate.store.rows import without_id

if TYPE_CHECKING:
    import pandas as pd

    from ablate.store.columns import Row
    from ablate.store.removal import RemovalCandidate
    from ablate.store.store import Store

SHOWN = ("run_id", "age", "status", "study", "run", "fusion", "heads", "out_proj", "seed", "corpus", "steps")
SHOWN += ("val_loss", "wall_s", "error")
IN_NAME = ("fusion", "heads", "out_proj", "seed")  # what a reader finds in the name of a run
SPARE = ("age",)  # what a very narrow terminal leaves out too
SHORT_ID = 8  # characters of an id that are shown; every command accepts these


def runs(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STUDY]",
            help="A study by name; else every run. With --delete: runs, by a prefix of their id or name.",
            autocompletion=known_studies_and_runs,
        ),
    ] = None,
    where: WhereOption = None,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="COL",
            help="Sort by this column, smallest first; -COL: largest first. Else the newest run is last.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="COL[,COL]", help="Show these columns."),
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
        typer.Option(
            "--prune",
            help="The same for runs that no study needs: failed, interrupted and stale ones, and those whose"
            " study is gone.",
        ),
    ] = False,
    delete_study: Annotated[
        str | None,
        typer.Option(
            metavar="STUDY",
            help="The same for a study and its runs, but for those that others have too.",
            autocompletion=known_studies,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --delete, --prune or --delete-study: really delete.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Delete also runs that a study needs or that are running.", hidden=True),
    ] = False,
    format: FormatOption = "table",
    wide: WideOption = False,
    runs_dir: RunsOption = None,
) -> None:
    """List the runs with their status.

    A run is done, failed, diverged, interrupted, running, or stale (by another version of the numerics or
    another torch).
    """
    from ablate.store.store import Store

    store = Store()
    if delete_study is not None:
        if delete or prune or targets:
            raise typer.BadParameter("stands alone; leave the rest out", param_hint="--delete-study")
        return _remove_study(store, delete_study, yes=yes, force=force, format=format)
    if delete or prune:
        return _remove(store, targets or [], prune=prune, yes=yes, force=force, format=format)
    if len(targets or []) > 1:
        raise typer.BadParameter("one study at a time; --delete takes several runs", param_hint="STUDY")
    study = targets[0] if targets else None
    if study and Path(study).is_dir():
        from ablate.analysis.load import find_source

        source = find_source(study)
        store, study = source.store or store, source.study or None
    if watch:
        from ablate.live import watch as watch_store

        return watch_store(store, study)
    rows = store.by_name(study)
    if not rows:
        say("no runs yet; ablate run makes one")
        if format in READ:
            return
    table = _table(store, rows, where or (), sort, columns)
    if format in READ:
        table = _for_reading(table if columns else table.drop(columns=[*IN_NAME]))
    print_table(table, format, wide=wide, spare=SPARE)


def _table(
    store: "Store", rows: "dict[str, Row]", where: Sequence[str], sort: str | None, columns: str | None
) -> "pd.DataFrame":
    """The chosen rows and columns; age in seconds since the run last changed. rows: by directory."""
    import pandas as pd

    from ablate.store.frames import frame, select, with_options

    changed, now = store.changed(), time.time()
    table = with_options(frame([*rows.values()]))
    table["age"] = [now - changed.get(name, now) for name in rows]
    table["run"] = [*map(without_id, rows)]
    table = select(table, where)
    if sort:
        column = column_of(sort.removeprefix("-"), table, f"--sort {sort}")
        table = table.sort_values(column, ascending=not sort.startswith("-"), kind="stable")
    else:
        table = table.sort_values("age", ascending=False, kind="stable")
    if columns:
        names = [name.strip() for name in columns.split(",")]
        return table[[column_of(name, table, f"--columns {columns}") for name in names]]
    return pd.DataFrame(table, columns=[*SHOWN])


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
    from ablate.store.removal import named, prunable, remove

    if prune and runs:
        raise typer.BadParameter(f"takes no runs; --delete {runs[0]} takes one", param_hint="--prune")
    if not (prune or runs):
        raise typer.BadParameter("name the runs: ablate runs --delete RUN…", param_hint="--delete")
    candidates = prunable(store) if prune else named(store, runs)
    if not candidates:
        say("nothing to delete")
        return
    for run in candidates:
        if run.needed_by and not force:
            raise ConfigError(f"{run.name}: {run.needed_by}; --force --yes deletes it all the same")
    size = _listed(store, candidates, format)
    if not yes:
        say(f"nothing is deleted yet: --yes deletes {size}")
        return
    remove(store, candidates)
    say(f"deleted {size}")


def _remove_study(store: "Store", study: str, *, yes: bool, force: bool, format: Format) -> None:
    from ablate.store.removal import of_study, remove_study

    own, shared = of_study(store, study)
    for run in own:
        if run.is_running and not force:
            raise ConfigError(f"{run.name}: it is running; --force --yes deletes it all the same")
    size, directory = _listed(store, own, format), store.study_directory(study)
    others = sorted({name for run in shared for name in (*run.studies, *run.lists)} - {study})
    verb = "stays" if len(shared) == 1 else "stay"
    stay = "".join(lines_if(shared, f"; {counted(len(shared), 'run')} {verb}, used by {first_few(others)}"))
    if not yes:
        say(f"nothing is deleted yet: --yes deletes {directory} with all in it, and {size}{stay}")
        return
    remove_study(store, study, own)
    say(f"deleted {directory} with all in it, and {size}{stay}")


def _listed(store: "Store", candidates: "Sequence[RemovalCandidate]", format: Format) -> str:
    """Print the runs; returns how many they are, and their size."""
    import pandas as pd

    rows = [
        (run.name, run.row["status"], " ".join(run.studies), f"{run.size / 1e6:.1f}") for run in candidates
    ]
    if rows:
        print_table(pd.DataFrame(rows, columns=["run", "status", "study", "MB"]), format)
    return f"{counted(len(rows), 'run')}, {sum(run.size for run in candidates) / 1e6:,.1f} MB"
