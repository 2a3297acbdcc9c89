"""`ablate duel`: two methods on one text."""

import re
import shlex
from typing import Annotated

import typer

from ablate.cli.shared import JsonOption, RunsOption, put_json, resumable, say_loading, use_plugins
from ablate.cli.train import say_lines
from ablate.config.overrides import as_value
from ablate.phrases import advised, texts
from ablate.printing import put, say

UNITS = {"s": 1, "m": 60, "h": 3600}  # of a budget of time


def duel(
    one: Annotated[str, typer.Argument(help="A method by name, or a Python file with one.")],
    other: Annotated[str, typer.Argument(help="The method that it is compared with, likewise.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Overrides of every run, as heads=8 or train.precision=bfloat16."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The text; by default corpus=study."),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How long it should take, as 45m or 2h: it decides the number of seeds."
        ),
    ] = "90m",
    a: Annotated[
        list[str] | None,
        typer.Option(
            "--a",
            metavar="KEY=VALUE",
            help="An option of ONE alone, as fusion.per=channel; may be repeated.",
        ),
    ] = None,
    b: Annotated[
        list[str] | None,
        typer.Option(
            "--b", metavar="KEY=VALUE", help="An option of OTHER alone, likewise.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what the budget buys here; train nothing.")
    ] = False,
    format: JsonOption = "table",
    runs_dir: RunsOption = None,
) -> None:
    """Say which of two methods is better on a text, at equal parameters.

    Each has its own learning rate. The rates are found on development seeds and the validation split, the
    verdict is on fresh seeds and the test split. The same command goes on where it was interrupted; with
    another budget it is another duel, with other seeds.
    """
    from ablate.analysis.notes import unusable
    from ablate.duel import Duel, side
    from ablate.reporting import answers
    from ablate.reporting.html import require_charts, write_report
    from ablate.store.columns import RESULTS
    from ablate.verify.contract import require_sound

    budget_s = _seconds(budget)
    require_charts()
    say_loading()
    use_plugins([file for file in (one, other) if file.endswith(".py")])
    sides = side(one, a or ()), side(other, b or ())
    settings = [*(overrides or ())]
    if text is not None:
        settings += ["corpus=file", f"corpus.path={as_value(text)}"]
    words = ["ablate", "duel", one, other, *(overrides or ()), *(["--text", text] if text else [])]
    words += [word for flag, given in (("--a", a), ("--b", b)) for one in given or () for word in (flag, one)]
    command = shlex.join([*words, "--budget", budget])
    between = Duel(*sides, settings, command)
    for line in require_sound([between.one.method, between.other.method]):
        say(line)
    with resumable():
        plan = between.plan(budget_s, keep=not dry_run)
        say(str(plan))
        if dry_run:
            if format == "json":
                put_json(answer=[str(plan)])
            return
        outcome = between.train(plan)
    say_lines(outcome)
    if outcome.left_at_work:
        return
    rows = outcome.rows()
    if missing := len(outcome.run_ids) - int(rows["status"].isin(RESULTS).sum()):
        for line in texts(unusable(rows)):
            say(line)
        say(f"{missing} of {len(outcome.run_ids)} runs have no result; the same command goes on from there")
        raise typer.Exit(1)
    comparison, sentences = between.result()
    why = advised(["ablate", "compare", between.study, "--why"])
    if doubts := answers.doubts(comparison.notes, f"{why} explains"):
        say(f"{doubts}.")
    page = write_report(between.study)
    if format == "json":
        from ablate.reporting.tables import records

        put_json(answer=[sentences], rows=records(comparison.table, comparison.shown), report=str(page))
    else:
        put(sentences)
        put(page)


def _seconds(budget: str) -> float:
    """The seconds of a time such as 45m. Raises BadParameter."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
    if not match:
        raise typer.BadParameter(f"{budget}: write a time, as 45m or 2h", param_hint="--budget")
    return float(match[1]) * UNITS[match[2]]
