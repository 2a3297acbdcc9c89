"""`ablate sample`: text from a trained run."""

from typing import Annotated

import typer

from ablate.cli import completion
from ablate.cli.options import PluginOption, use_plugins


def sample(
    run: Annotated[
        str,
        typer.Argument(
            help="A run: the beginning of its id or of its directory's name.", autocompletion=completion.runs
        ),
    ],
    prompt: Annotated[
        str | None,
        typer.Option(
            help="The text to go on from; without one, a new line, or a row of a task.", show_default=False
        ),
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="How many tokens to add.")] = 300,
    temperature: Annotated[
        float, typer.Option(min=0.0, max=1000.0, help="0 takes the likeliest token.")
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw from the k likeliest tokens only.")] = None,
    seed: Annotated[int, typer.Option(help="Of the draws; of a task, which row.")] = 0,
    plugin: PluginOption = None,
) -> None:
    """Text from a trained run."""
    from ablate.execution.sample import sample as draw

    use_plugins(plugin)
    typer.echo(draw(run, prompt, tokens=tokens, temperature=temperature, top_k=top_k, seed=seed))
