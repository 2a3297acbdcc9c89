"""`ablate sample`: generate text with a trained run."""

from typing import Annotated

import typer

from ablate.cli import completion
from ablate.cli.options import PluginOption, use_plugins


def sample(
    run: Annotated[
        str,
        typer.Argument(
            help="A run, by a prefix of its id or of its directory's name.", autocompletion=completion.runs
        ),
    ],
    prompt: Annotated[
        str | None,
        typer.Option(
            help="The text to continue; by default a line end, or the start of an episode of a task.",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="How many tokens to add.")] = 300,
    temperature: Annotated[
        float, typer.Option(min=0.0, max=1000.0, help="Sampling temperature; 0 takes the likeliest token.")
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample from the k likeliest tokens only.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampling; for a task, which episode.")] = 0,
    plugin: PluginOption = None,
) -> None:
    """Generate text with a trained run."""
    from ablate.execution.sample import sample as draw

    use_plugins(plugin)
    typer.echo(draw(run, prompt, tokens=tokens, temperature=temperature, top_k=top_k, seed=seed))
