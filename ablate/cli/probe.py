"""`ablate probe`: measure what the heads of trained runs do."""

from pathlib import Path
from typing import Annotated

import typer

from ablate.cli import completion
from ablate.cli.options import PluginOption, WhereOption, use_plugins
from ablate.cli.output import READ, Format, FormatOption, WideOption, print_table, say


def probe(
    target: Annotated[
        str,
        typer.Argument(
            help="A study by name or directory, or a run by a prefix of its id or name.",
            autocompletion=completion.studies,
        ),
    ],
    where: WhereOption = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="PROBE[,PROBE]", help="Print only these probes; the CSV has all of them."),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Also remove heads one after the other, the least needed first."),
    ] = False,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where to write the CSV; else beside the results.")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A text of your own; the report then shows where heads look in it."
        ),
    ] = None,
    plugin: PluginOption = None,
    format: FormatOption = Format.table,
    wide: WideOption = False,
) -> None:
    """Measure what each head retains, where it looks and how much it is needed, compared with an untrained
    twin and with chance.

    Writes a CSV with one row per run, layer, head and probe; prints the largest, median and smallest head of
    each layer, over seeds. docs/probes.md defines the probes.
    """
    from ablate.analysis.probes import at_the_end, over_seeds, silent, text_file
    from ablate.probes.runs import find
    from ablate.probes.study import probe_runs
    from ablate.probes.text import write
    from ablate.reporting.heads import for_reading

    chosen = _chosen(only)
    use_plugins(plugin)
    found = find(target, where or ())
    path = Path(out) if out else found.path
    maps = text_file(path)
    if text:
        write({run: found.directories[run] for run in found.first_of_each()}, Path(text), maps)
    values = probe_runs(found.directories, path, prune=prune, told=say)
    quiet = silent(values, found.variant) if format in READ else {}
    values = at_the_end(values)
    shown = values[values["probe"].isin(chosen) & ~values["probe"].isin(quiet)]
    table = over_seeds(shown, found.variant)
    print_table(for_reading(table) if format in READ else table, format, wide=wide)
    for name, (beyond, runs) in quiet.items():
        if name in chosen:
            say(f"{name}: as by chance, but for {beyond} of {runs} runs")
    for written in (path, *([maps] if text else [])):
        typer.echo(written) if format is Format.table else say(str(written))


def _chosen(only: str | None) -> list[str]:
    from ablate.analysis.probes import PROBES
    from ablate.config.rules import ConfigError, did_you_mean

    chosen = [*PROBES] if only is None else [name.strip() for name in only.split(",") if name.strip()]
    for name in chosen:
        if name not in PROBES:
            raise ConfigError(f"--only {name}: no such probe{did_you_mean(name, PROBES)}")
    return chosen
