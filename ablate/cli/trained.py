"""`ablate probe` and `ablate sample`: what trained runs do, and what they write."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.shared import (
    FormatOption,
    PluginOption,
    RunsOption,
    WhereOption,
    print_table,
    say_loading,
    use_plugins,
)
from ablate.printing import put, say

if TYPE_CHECKING:
    import pandas as pd

LEGEND = (
    "The largest head of a layer (untrained). kept: what can be computed back from the fused vector, of 1;"
    " distance: how far back, 1 for even weights; previous, induction: weight on the token before, and on"
    " what followed it last time; jsd: how far patterns are apart, of 0.69; loss_added: nats without it."
    " docs/probes.md says more"
)


def probe(
    target: Annotated[
        str, typer.Argument(help="A study by name or directory, or a run by a prefix of its id or name.")
    ],
    where: WhereOption = None,
    all: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Print every probe of the largest, median and smallest head of a layer: means over seeds, in"
            " brackets the lowest and the highest seed.",
        ),
    ] = False,
    text: Annotated[
        str | None, typer.Option(metavar="FILE", help="Instead draw where heads look in a text of your own.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where to write the CSV; else beside the results.")
    ] = None,
    plugin: PluginOption = None,
    format: FormatOption = "table",
    runs_dir: RunsOption = None,
) -> None:
    """Measure what heads retain, where they look, what needs them.

    An untrained twin and chance stand beside. Writes a CSV with one row per run, layer, head and probe;
    prints a line per layer: of six probes the largest head, and in brackets that of the untrained twin, means
    over seeds. docs/probes.md says more.
    """
    say_loading()
    from ablate.analysis.probes import FIRST, over_seeds
    from ablate.probes.study import find, probe_runs
    from ablate.reporting.cells import by_layer

    is_brief = format == "table" and not all
    use_plugins(plugin)
    probed = find(target, where or ())
    path = Path(out) if out else probed.path
    if text is not None:
        return _draw(probed.first_of_each, Path(text), path.with_suffix(""))
    values = probe_runs(probed.directories, path, report=say)
    table = over_seeds(values[values["probe"].isin(FIRST)] if is_brief else values, probed.variant)
    if format == "table":
        table = by_layer(table) if is_brief else _for_reading(table)
    print_table(table, format)
    if is_brief:
        say(LEGEND)
    put(path) if format == "table" else say(str(path))
    if values.attrs["refused"]:
        say("some runs are left out, for the reasons above")
        raise typer.Exit(1)


def _draw(directories: Mapping[str, Path], text: Path, into: Path) -> None:
    """Draw where the heads of these runs, given by their variants, look in a text."""
    from ablate.config.rules import ConfigError
    from ablate.probes.study import looks
    from ablate.reporting.figures import on_text, write_chart
    from ablate.reporting.html import require_charts

    require_charts()
    try:
        content = text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"--text {text}: {why}; give a file of text in UTF-8") from error
    for variant, directory in directories.items():
        title = f"{variant}: {text.name}"
        write_chart(on_text(looks(directory, content), title), into / directory.name)
        put(into / f"{directory.name}.png")


def _for_reading(table: "pd.DataFrame") -> "pd.DataFrame":
    """One row per variant, probe and layer, with means and, of several seeds, their ends in one cell. table:
    as from over_seeds."""
    from ablate.analysis.probes import SORTED
    from ablate.reporting.cells import short

    if table.empty:
        return table
    shown = table[["variant", "probe", "layer", "n"]].copy()
    for name in SORTED:
        columns = table[["n", name, f"{name}_low", f"{name}_high"]].itertuples(index=False, name=None)
        shown[name] = [
            short(mean) + f" ({short(low)} to {short(high)})" * (n > 1) for n, mean, low, high in columns
        ]
    for name in ("untrained", "null"):
        shown[name] = [short(value) for value in table[name]]
    return shown


def sample(
    run: Annotated[str, typer.Argument(help="A run, by a prefix of its id or of its directory's name.")],
    prompt: Annotated[
        str | None, typer.Option(help="The text to continue; by default a line end, or an example of a task.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="How many tokens to add.")] = 300,
    temperature: Annotated[
        float, typer.Option(min=0.0, max=1000.0, help="Sampling temperature; 0 takes the likeliest token.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the sampling; for a task, which example.")] = 0,
    plugin: PluginOption = None,
    runs_dir: RunsOption = None,
) -> None:
    """Generate text with a trained run."""
    say_loading()
    from ablate.execution.trained import example, load_model
    from ablate.store.store import Store

    use_plugins(plugin)
    model = load_model(Store().find(run))
    shown = example(model, seed, prompt)
    if shown is None:
        shown = model.generate(prompt, tokens=tokens, temperature=temperature, seed=seed)
    put(shown)
