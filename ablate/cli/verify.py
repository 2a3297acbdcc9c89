"""`ablate verify`: check numerically what is equal in multi-head attention, and what is not."""

import dataclasses
import json
from enum import StrEnum
from typing import Annotated

import typer

from ablate.cli import completion
from ablate.cli.options import PluginOption, use_plugins
from ablate.cli.output import Format, print_table, say
from ablate.phrases import counted


class VerifyFormat(StrEnum):
    table = "table"
    json = "json"


def verify(
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="K=N[,K=N]",
            help="Use these sizes (T, heads, key_width, value_width, d_model, batch) and print every shape.",
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            help="Also measure a trained run: how far its heads are from a single head with the same weights,"
            " and how many outputs lie outside the range of the values.",
            autocompletion=completion.runs,
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="N[,N]", help="Check only these equations, by number or name.")
    ] = None,
    plugin: PluginOption = None,
    format: Annotated[VerifyFormat, typer.Option(help="How to print it.")] = VerifyFormat.table,
) -> None:
    """Check the equations that say which ways of combining heads are the same, on ablate's own modules.

    Errors are relative to the largest entry, in float64. An equation passes up to 1e-10; two things that are
    claimed to differ have to differ by 1e-2 or more. Exit code 1 if a check fails.
    """
    import pandas as pd

    from ablate.verify.bench import Sizes, read_sizes
    from ablate.verify.first_steps import first_steps
    from ablate.verify.identities import QUESTIONS
    from ablate.verify.table import FAIL, shapes
    from ablate.verify.table import verify as verified

    use_plugins(plugin)
    given = Sizes() if sizes is None else read_sizes(sizes)
    found = verified(given, [name.strip() for name in (only or "").split(",") if name.strip()])
    tables = {"identities": [dataclasses.asdict(verdict) for verdict in found]}
    if sizes is not None:
        tables["shapes"] = [{"tensor": name, "shape": shape} for name, shape in shapes(given)]
    if sizes is None and only is None:
        tables["first_steps"] = [dataclasses.asdict(step) for step in first_steps()]
    if run is not None:
        from ablate.verify.trained import of_run

        tables["run"] = [dataclasses.asdict(layer) for layer in of_run(run)]
    failed = [verdict for verdict in found if verdict.verdict == FAIL]
    if format is VerifyFormat.json:
        typer.echo(json.dumps(tables, indent=2, ensure_ascii=False))
    else:
        for name, rows in tables.items():
            say(CAPTIONS[name])
            table = pd.DataFrame(rows)
            if name == "identities":
                table["error"] = ["" if e is None or e != e else f"{e:.1e}" for e in table["error"]]
            print_table(table, Format.table)
            typer.echo()
        for question, words in QUESTIONS.items():
            if any(verdict.question == question for verdict in found):
                say(f"{question}: {words}")
    if failed:
        say(f"{counted(len(failed), 'equation')} failed: {', '.join(verdict.name for verdict in failed)}")
        raise typer.Exit(1)


CAPTIONS = {
    "identities": "equations, in float64: the error relative to the largest entry",
    "shapes": "shapes at these sizes",
    "first_steps": "the size of the branch without out_proj relative to that with it, at the start and of the"
    " first step",
    "run": "the relative change if the same weights make one head, and the share of outputs outside the range"
    " of the values",
}
