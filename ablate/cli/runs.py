"""`ablate runs`: list runs and delete them."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.shared import FormatOption, RunsOption, WhereOption, print_table
from ablate.config.rules import ConfigError
from ablate.phrases import counted, duration, lines_if
from ablate.printing import say
from ablate.store.rows import without_id

if TYPE_CHECKING:
    import pandas as pd

    from ablate.store.columns import Row
    from ablate.store.removal import Removable
    from ablate.store.store import Store

SHOWN = ("run_id", "age", "status", "study", "run", "fusion", "heads", "out_proj", "seed", "corpus", "steps")
SHOWN += ("val_loss", "wall_s", "error")
IN_NAME = ("fusion", "heads", "out_proj", "seed")  # what a reader finds in the name of a run
SHORT_ID = 8  # characters of an id that are shown; every command accepts these


def runs(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STUDY|RUN",
            help="Studies by name, and runs by a prefix of their id or name; else every run.",
        ),
    ] = None,
    where: WhereOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep saying how many are done, and the time left.")
    ] = False,
    delete: Annotated[
        bool,
        typer.Option(
            "--delete",
            help="List the runs that would be deleted; with --yes, delete them. A study named alone goes with"
            " its directory, and the runs that others have too stay.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --delete: really delete.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Delete also runs that a study needs or that are running.", hidden=True),
    ] = False,
    format: FormatOption = "table",
    runs_dir: RunsOption = None,
) -> None:
    """List the runs with their status, the newest last.

    A run is done, failed, diverged, interrupted, running, or stale (by another version of the numerics or
    another torch).
    """
    from ablate.store.store import Store

    store, names = Store(), targets or []
    study = names[0] if len(names) == 1 else ""
    if study and Path(study).is_dir():
        from ablate.analysis.load import find_source

        source = find_source(study)
        store, study = source.store or store, source.study
        names = [study] if study else []
    if watch:
        from ablate.live import watch as watch_store

        if len(names) > 1:
            raise ConfigError(f"--watch {' '.join(names)}: it watches one study, or every run; give one name")
        return watch_store(store, study or None)
    if delete and not (names or where):
        raise ConfigError("--delete: name studies or runs, or give --where, as --where status=failed")
    rows = _chosen(store, names)
    table = _table(store, rows, where or ())
    if delete:
        alone = study if study in store.study_names() and not where else ""
        removed = _removed(store, {name: rows[name] for name in table.index}, alone, force=force)
        table = table.loc[[run.name for run in removed]]
    if not rows:
        from ablate.analysis.load import find_source, no_runs

        say(no_runs(map(find_source, targets or [])))
    if format != "table":
        print_table(table, format)
    elif len(table):
        print_table(_for_reading(table), format)
    if delete:
        _delete(store, removed, alone, yes=yes)


def _chosen(store: "Store", names: Sequence[str]) -> "dict[str, Row]":
    """The rows of these studies and runs, by directory; without any, of all runs. Raises StoreError."""
    every, studies = store.by_name(), store.study_names()
    if not names:
        return every
    chosen: dict[str, Row] = {}
    for name in names:
        if name in studies:
            chosen |= store.by_name(name)
        else:
            run = store.named(name, every, "run or study")
            chosen[run] = every[run]
    return chosen


def _table(store: "Store", rows: "Mapping[str, Row]", where: Sequence[str]) -> "pd.DataFrame":
    """The rows that meet the conditions; age in seconds since the run last changed. rows: by directory."""
    import pandas as pd

    from ablate.store.frames import frame, select, with_options

    changed, now = store.changed(), time.time()
    table = with_options(frame([*rows.values()])).set_axis([*rows])
    table["age"] = [now - changed.get(name, now) for name in rows]
    table["run"] = [*map(without_id, rows)]
    table = select(table, where).sort_values("age", ascending=False, kind="stable")
    return pd.DataFrame(table, columns=[*SHOWN])


def _for_reading(table: "pd.DataFrame") -> "pd.DataFrame":
    """The table with ages in words, short ids and no empty error column."""
    shown = table.drop(columns=[*IN_NAME, *lines_if(table["error"].isna().all(), "error")])
    ages = [duration(seconds).replace(" ", "") for seconds in shown["age"]]  # one word each
    return shown.assign(age=ages, run_id=shown["run_id"].str[:SHORT_ID])


def _removed(store: "Store", rows: "Mapping[str, Row]", study: str, *, force: bool) -> "list[Removable]":
    """What of these rows is to be deleted: of a study that goes itself the runs that no other has. Raises
    ConfigError for what is needed."""
    from ablate.store.removal import removable

    found = removable(store, rows)
    if study:
        found = [run for run in found if len(run.users) == 1]
    for run in found:
        if not force and (run.is_running or not study) and (why := run.needed_by):
            raise ConfigError(f"{run.name}: {why}; --force --yes deletes it all the same")
    return found


def _delete(store: "Store", runs: "Sequence[Removable]", study: str, *, yes: bool) -> None:
    """Delete runs, and the study that goes with them, if any; without `yes` only say so."""
    from ablate.store.removal import remove

    directory = store.study_directory(study) if study else None
    what = f"{f'{directory} with all in it, and ' * bool(study)}{counted(len(runs), 'run')}"
    what += "; runs that others have too stay" * bool(study)
    if yes:
        remove(store, runs, directory)
        say(f"deleted {what}")
    else:
        say(f"nothing is deleted yet: --yes deletes {what}")
