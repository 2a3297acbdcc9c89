"""`ablate duel`: which of two methods is better on one text, within a budget of time."""

import re
import shlex
from typing import Annotated

import typer

from ablate.cli.options import use_plugins
from ablate.cli.output import say
from ablate.config.overrides import as_value
from ablate.config.rules import ConfigError
from ablate.phrases import counted, duration, only_if

UNITS = {"s": 1, "m": 60, "h": 3600}


def duel(
    one: Annotated[str, typer.Argument(help="A method by name, or a Python file with one.")],
    other: Annotated[str, typer.Argument(help="The method that it is compared with, likewise.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Overrides of every run, as heads=8 or train.precision=bfloat16."),
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="FILE", help="The text; by default pydoc.", show_default=False)
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How long it should take, as 45m or 2h: it decides the number of seeds."
        ),
    ] = "30m",
) -> None:
    """Say which of two methods is better on a text, at equal parameters.

    Each has its own learning rate. The rates are found on development seeds and the validation split, the
    verdict is on fresh seeds and the test split. The same command goes on where it was interrupted; with
    another budget it is another duel, with other seeds.
    """
    from ablate.analysis.notes import unusable
    from ablate.duel import Duel, failed_check, side
    from ablate.reporting.html import write_report
    from ablate.store.status import RESULTS

    budget_s = _seconds(budget)
    use_plugins([file for file in (one, other) if file.endswith(".py")])
    sides = side(one), side(other)
    settings = [*(overrides or ())]
    if text is not None:
        settings += ["corpus=file", f"corpus.path={as_value(text)}"]
    words = ["ablate", "duel", one, other, *(overrides or ()), *(["--text", text] if text else [])]
    fight = Duel(*sides, settings, shlex.join([*words, "--budget", budget]))
    for method in sides:
        if broken := next(failed_check(method), ""):
            raise ConfigError(f"{method.name} fails its check, so its losses mean nothing: {broken}")
    plan = fight.plan(budget_s)
    say(
        f"{counted(plan.seeds, 'seed')} to report, about {duration(plan.seconds)} in all; they see"
        f" {plan.sees:.3f} nats with 80 % power, if differences scatter as on pydoc (docs/noise.csv)"
    )
    outcome = fight.train(plan)
    for line in (*outcome.remarks, *outcome.refused, *only_if(outcome.left_at_work, outcome.left_at_work)):
        say(line)
    if outcome.left_at_work:
        return
    rows = outcome.rows()
    if missing := len(outcome.run_ids) - int(rows["status"].isin(RESULTS).sum()):
        for line in unusable(rows):
            say(line)
        say(f"{missing} of {len(outcome.run_ids)} runs have no result; the same command goes on from there")
        raise typer.Exit(1)
    result = fight.result()
    for line in result.comparison.notes:
        say(line)
    time = f"at {fight.time_ratio(result)} × the time of a training step"
    typer.echo(f"{result.line}, {time}{result.parametrization}")
    typer.echo(write_report(fight.study))


def _seconds(budget: str) -> float:
    """The seconds of a time such as 45m. Raises BadParameter."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
    if not found:
        raise typer.BadParameter(f"{budget}: write a time, as 45m or 2h", param_hint="--budget")
    return float(found[1]) * UNITS[found[2]]
