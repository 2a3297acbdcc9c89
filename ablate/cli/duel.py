"""`ablate duel`: two methods on one text."""

import shlex
from typing import Annotated

import typer

from ablate.cli.shared import JsonOption, RunsOption, put_json, remark, resumable, say_loading, use_plugins
from ablate.cli.train import show_estimate
from ablate.config.contrast import FEWEST
from ablate.config.rules import as_value
from ablate.phrases import advised, texts
from ablate.printing import put, say


def duel(
    one: Annotated[str, typer.Argument(help="A method by name, or a Python file with one.")],
    other: Annotated[str, typer.Argument(help="The method that it is compared with, likewise.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Overrides of every run, as heads=8 or train.precision=bfloat16."),
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="FILE", help="The text; by default corpus=study.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=FEWEST, max=100_000, help="The number of paired seeds.")] = 8,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how long it takes and what it can show; train nothing.")
    ] = False,
    format: JsonOption = "table",
    runs_dir: RunsOption = None,
) -> None:
    """Say which of two methods is better on a text, at equal parameters.

    Each has its own learning rate. The rates are found on development seeds and the validation split, the
    verdict is on fresh seeds and the test split. The same command goes on where it was interrupted; with
    another number of seeds, or a file that was changed, it is another duel, with seeds of its own.
    """
    from ablate.analysis.compare import compare
    from ablate.analysis.load import load
    from ablate.analysis.notes import of_rows
    from ablate.duel import duel, side
    from ablate.reporting import answers
    from ablate.reporting.html import require_charts, write_report
    from ablate.store.columns import RESULTS
    from ablate.store.frames import frame
    from ablate.study.run import run
    from ablate.verify.contract import require_sound

    require_charts()
    say_loading()
    own = use_plugins([file for file in (one, other) if file.endswith(".py")])
    settings = [*(overrides or ())]
    words = ["ablate", "duel", one, other, *settings, *(["--text", text] if text else [])]
    if text is not None:
        settings += ["corpus=file", f"corpus.path={as_value(text)}"]
    sweep = duel(side(one), side(other), settings, shlex.join([*words, "--seeds", str(seeds)]), seeds)
    for line in require_sound(own):
        say(line)
    with resumable():
        outcome = run(sweep, dry_run=dry_run)
    if outcome.estimate:
        if format == "json":
            put_json(**outcome.estimate.as_json)
        else:
            show_estimate(outcome.estimate, outcome.remarks)
        return
    for line in (*outcome.remarks, *outcome.refused):
        say(line)
    rows = outcome.rows()
    if missing := len(outcome.run_ids) - sum(row["status"] in RESULTS for row in rows):
        for line in texts(of_rows(frame(rows))):
            say(line)
        say(f"{missing} of {len(outcome.run_ids)} runs have no result; the same command goes on from there")
        raise typer.Exit(1)
    results = load([outcome.study])
    comparison = compare(results.rows, records=results.records)
    why = f"`{advised(['ablate', 'compare', outcome.study, '--why'])}` explains"
    answer = answers.lines(comparison, results.records, results.notes, why)
    page = write_report(outcome.study)
    if format == "json":
        from ablate.tables import records

        put_json(answer=answer, rows=records(comparison.table, comparison.shown), report=str(page))
    else:
        for line in answer:
            remark(line)
        put(page)
