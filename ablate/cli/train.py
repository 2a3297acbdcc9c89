"""`ablate run`: train models and print the results."""

import contextlib
import io
import math
import re
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.shared import (
    JsonOption,
    PluginOption,
    RunsOption,
    Tracker,
    keep_results_in,
    print_table,
    put_json,
    resumable,
    say_loading,
    use_plugins,
)
from ablate.config.contrast import FEWEST
from ablate.config.rules import ConfigError
from ablate.config.schema import STANDARD_FUSION
from ablate.phrases import about, advised, counted, first_few, lines_if, texts
from ablate.printing import put, say

if TYPE_CHECKING:
    from ablate.compose.sweep import Sweep
    from ablate.store.columns import Row
    from ablate.store.record import StudyRecord
    from ablate.study.estimate import Estimate
    from ablate.study.run import Outcome

SINGLE_RUN_COLUMNS = [
    *("fusion", "scores", "heads", "out_proj", "seed", "status", "params", "val_loss", "val_bpb", "val_acc"),
    *("val_exact", "test_loss", "tokens_per_s", "wall_s"),
]
# How the words begin of which a sweep over fusions and seeds has its own, or that would name or repeat a run.
OF_ONE_RUN = ("fusion=", "fusion.", "seed=", "name=", "force=")
SIMULATED = "train/simulated=losses"  # beside the choice of train that a study makes
SHOWN = 20  # the most values of a factor to print


def run(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="Hydra overrides, as KEY=VALUE (ablate keys lists the keys), and options of Hydra's: -m"
            " sweeps over values separated by commas, --cfg job shows the configuration, -cd DIR and -cn NAME"
            " take configs of your own."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the grid, its size and the estimated time; train nothing.")
    ] = False,
    rehearse: Annotated[
        bool,
        typer.Option(
            "--rehearse",
            help="Simulate all runs, with no model trained (ablate keys train.simulated), in a store of their"
            " own: what would the study do, and show? Followed by a number: so many times.",
        ),
    ] = False,
    track: Annotated[
        Tracker | None, typer.Option(help="Log runs as they go, as ablate export does afterwards.")
    ] = None,
    plugin: PluginOption = None,
    format: JsonOption = "table",
    runs_dir: RunsOption = None,
) -> None:
    """Train one model, a grid of them with -m, or a study with study=NAME.

    Prints a table and the path of its CSV at the end. Finished runs are not repeated (force=true repeats
    them); interrupted runs continue from their last checkpoint.
    """
    from ablate.compose.sweep import compose
    from ablate.study.run import run as run_sweep

    words, count = overrides or [], 0
    if rehearse:
        words, count = _rehearsal(words, dry_run=dry_run)
    ends_it = signal.getsignal(signal.SIGINT)
    if ends_it is signal.default_int_handler:  # not ignored, as after `&`
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # KeyboardInterrupt is lost while libraries are imported
    with resumable():
        if methods := use_plugins(plugin):
            from ablate.verify.contract import BEFORE_A_RUN, require_sound

            require_sound(methods, only=BEFORE_A_RUN)
        sweep = compose(words)
        say_loading()
        if rehearse:
            _keep_apart(sweep)
            if count > 1:
                from ablate.study.rehearsal import require_contrasts

                require_contrasts(sweep, count)
        elif track and not dry_run:
            from ablate.export import trackers

            if line := trackers.track(track):
                say(line)
        outcome = run_sweep(sweep, dry_run=dry_run, begun=lambda: signal.signal(signal.SIGINT, ends_it))
    with contextlib.redirect_stdout(io.StringIO()) if format == "json" else contextlib.nullcontext():
        if outcome.estimate is not None:
            show_estimate(outcome.estimate, outcome.remarks)
        failed = _show_results(outcome, sweep.typed) if outcome.estimate is None else 0
    if format == "json":
        _put_json(outcome)
    if count and format != "json":
        _show_rehearsal(sweep, outcome.study, count)
    if failed:
        raise typer.Exit(1)


# --- rehearsals -------------------------------------------------------------------------------------


def _rehearsal(words: Sequence[str], *, dry_run: bool) -> tuple[list[str], int]:
    """The overrides of a rehearsal, and how often to repeat it: a number among the words."""
    numbers = [word for word in words if re.fullmatch(r"[+-]?\d+", word)]
    if dry_run:
        raise ConfigError("--rehearse --dry-run: one trains nothing and the other simulates all; give one")
    if len(numbers) > 1 or any(int(number) < 1 for number in numbers):
        raise ConfigError(f"--rehearse {' '.join(numbers)}: give one number of rehearsals, of 1 or more")
    return [*(word for word in words if word not in numbers), SIMULATED], int(*numbers or ["1"])


def _keep_apart(sweep: "Sweep") -> None:
    """Keep a rehearsal in a store of its own, in which nothing else is assumed."""
    from ablate.files.atomic import digest
    from ablate.store.store import REHEARSALS, Store

    if sweep.is_single:
        raise ConfigError("--rehearse: a single run decides nothing; add -m with seeds, or study=NAME")
    name = sweep.name or sweep.chosen or "grid"
    keep_results_in(str(Store().root / REHEARSALS / f"{name}-{digest([*sweep.typed])[:8]}"))


def _show_rehearsal(sweep: "Sweep", study: str, count: int) -> None:
    """Print what the study decided, where its page is, and what it does if it is repeated."""
    from ablate.analysis.compare import compare
    from ablate.analysis.load import load
    from ablate.reporting.answers import lines
    from ablate.reporting.html import write_report

    try:
        results = load([study])
        for line in lines(compare(results.rows, records=results.records), results.records):
            put(line)
        put(str(write_report(study)))
    except ConfigError as error:
        say(str(error))
    if count == 1:
        return
    from ablate.study.rehearsal import rehearse

    made = rehearse(sweep, count)
    shares = {"right": "{:.1%}", "wrong": "{:.1%}", "effect": "{:+.3f}", "seeds": "{:.1f}"}
    shown = {name: made.contrasts[name].map(to.format) for name, to in shares.items()}
    print_table(made.contrasts.assign(**shown), "table")
    put(f"{count:,} rehearsals: {made.runs:.1f} runs each; {made.wrong:.1%} of them with a wrong verdict")


# --- what is printed --------------------------------------------------------------------------------


def _put_json(outcome: "Outcome") -> None:
    """Print the runs of the command, or what a dry run found, for programs."""
    from ablate.store.frames import frame
    from ablate.tables import records

    if (estimate := outcome.estimate) is not None:
        put_json(**estimate.as_json)
    else:
        put_json(rows=records(frame(outcome.rows())) if outcome.run_ids else [], study=outcome.study)


def _show_results(outcome: "Outcome", typed: Sequence[str]) -> int:
    """Print the results; returns how many runs failed or have not begun. typed: the command's arguments."""
    from ablate.store.columns import RESULTS
    from ablate.store.store import Store

    rows, store = outcome.rows(), Store()
    record = store.read_study(outcome.study)
    assert record is not None, "it is written before a run begins"
    lines = [*outcome.remarks, *outcome.refused]
    if len(rows) == 1:
        lines = [*_show_one(rows[0], typed), *lines]
    elif rows:
        lines += _show_several(rows, record, is_all=len(rows) == len(store.rows(outcome.study)))
    missing = len(outcome.run_ids) - len(rows)
    if missing > len(outcome.refused):
        lines.append(
            f"{missing} of {len(outcome.run_ids)} runs have not begun; the same command goes on from there"
        )
    for line in lines:
        say(line)
    total = len(store.rows(outcome.study))
    part = f", {len(rows):,} of them of this command" if len(rows) < total else ""
    put(f"\n{counted(total, 'run')} in {store.results_path(outcome.study)}{part}")
    return missing + sum(row["status"] not in RESULTS for row in rows)


def _show_one(row: "Row", typed: Sequence[str]) -> list[str]:
    """Print a single run; returns lines on it: where the loss of a text stands, between guessing and
    counting, what it says of the run, and the next command. Loads no pandas of a run that went well."""
    from ablate.execution.plugins import words
    from ablate.store.columns import RESULTS, Status, is_empty
    from ablate.tables import render_row

    put(render_row({key: row[key] for key in SINGLE_RUN_COLUMNS if not is_empty(row.get(key))}), end="")
    lines, loss, counting = list[str](), row.get("val_loss"), row.get("ngram_val_loss")
    guessing = math.log(row.get("vocab", 1))
    if loss is not None and counting is not None:
        lines.append(
            f"beside val_loss {loss:.4g}: an n-gram table of {counted(row['ngram_order'], 'token')} has"
            f" {counting:.4g}, guessing (ln vocabulary) {guessing:.4g}"
        )
    if row["status"] != Status.DONE or loss is None or loss > guessing:
        from ablate.analysis.notes import of_rows
        from ablate.store.frames import frame

        lines += texts(of_rows(frame([row])))
    next_one = f"next: `{two_fusions([*words(), *typed])}` compares two ways to combine heads"
    return [*lines, *lines_if(row["status"] in RESULTS, next_one)]


def two_fusions(typed: Sequence[str]) -> str:
    """A single run, of which this was typed, beside one with another fusion, with enough seeds."""
    given = [word.partition("=")[2] for word in typed if word.startswith("fusion=")]
    other = next((name for name in given if name != STANDARD_FUSION), "sum")
    rest = [word for word in typed if word != "-m" and not word.startswith(OF_ONE_RUN)]
    two = f"fusion={STANDARD_FUSION},{other}"
    return advised(["ablate", "run", "-m", two, f"seed=range({FEWEST})", *rest])


def _show_several(given: "Sequence[Row]", record: "StudyRecord", *, is_all: bool) -> list[str]:
    """Print a table of the variants; returns lines on it. is_all: whether the study has no other rows."""
    from ablate.analysis.compare import compare
    from ablate.analysis.notes import of_rows, of_values
    from ablate.store.frames import frame, is_simulated

    rows = frame(given)
    doubts = texts(of_rows(rows))
    try:
        comparison = compare(rows, records=[record])
    except ConfigError as error:
        print_table(rows[SINGLE_RUN_COLUMNS], "table")
        return [*doubts, str(error)]
    summary = comparison.arrays.best_first()
    empty = [column for column in ("diverged", "sd") if not summary[column].fillna(0).any()]
    print_table(summary.drop(columns=["variant", *empty]), "table")
    lines = [*doubts, *texts(of_values(comparison.arrays))]
    if len(summary) > 1 and summary["n"].max() == 1 and is_all:
        from ablate.reporting.answers import answer

        found = answer(comparison, [record])
        return [*lines, *found.findings, *map(str, found.next)]
    next_one = f"next: `{advised(['ablate', 'compare', record.name])}` says which differences are real"
    return [*lines, *lines_if(len(summary) > 1 and not is_simulated(rows), next_one)]


def show_estimate(estimate: "Estimate", remarks: Sequence[str]) -> None:
    """Print what a dry run found."""
    for line in remarks:
        say(line)
    named = {"arms": [*estimate.record.arms]} if estimate.record.arms else {}
    for key, levels in {**named, **estimate.record.factors}.items():
        put(f"{key}: {first_few(levels, SHOWN)}")
    put(f"seeds: {first_few(estimate.record.seeds, SHOWN)}")
    finished = f", {estimate.finished} of them finished" if estimate.finished else ""
    size = f"{estimate.workers} at a time, {counted(estimate.threads, 'thread')} each"
    first, in_all = (" first", f", {estimate.how}{estimate.in_all:,} in all") if estimate.how else ("", "")
    put(f"{counted(estimate.runs, 'run')}{first}{finished}{in_all}; {size}")
    if estimate.finished < estimate.runs:
        of = f" for these, {about(estimate.in_all_s)} if it comes to all" * (estimate.in_all > estimate.runs)
        put(f"{about(estimate.seconds)} here{of}, from timing a few steps as it is now")
    if estimate.difference is not None:
        shows = f"{estimate.seeds} seeds show a difference of {estimate.difference:.3f} nats (80 % power)"
        for key in dict.fromkeys(one.within for one in estimate.record.primary if one.within):
            crossed = math.sqrt(2) * estimate.difference  # both differences scatter
            shows += f", or between two levels of {key} one of {crossed:.3f}"
        put(f"{shows}, if they scatter as after 2,000 steps of study=fusion (docs/noise.csv)")
    elif estimate.seeds >= FEWEST:
        put("What these seeds can show is not known beforehand; ablate plan says it once some have run")
