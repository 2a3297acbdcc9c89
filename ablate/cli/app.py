"""The command line: parse, call one function, print. Heavy imports stand inside the commands."""

import contextlib
import os
import signal
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd

    from ablate.compose.hydra_app import Request
    from ablate.execution.execute import Listener

app = typer.Typer(
    name="ablate",
    help="Head-fusion ablations: train tiny language models that differ in how attention heads are brought"
    " together, and compare them.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: half the time, and it reads the same in a pipe
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


SINGLE_RUN_COLUMNS = [
    *("fusion", "heads", "out_proj", "seed", "status", "params", "val_loss", "val_bpb", "val_acc"),
    *("test_loss", "tokens_per_s", "wall_s"),
]


INTERRUPTED = "ablate: interrupted; what is finished is kept, and the same command goes on from there"


class Format(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"
    md = "md"


class CompareFormat(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"
    md = "md"
    latex = "latex"


# Formats that a person reads: rounded, and without the columns that only programs want.
READ = (CompareFormat.table, CompareFormat.md, CompareFormat.latex)

FormatOption = Annotated[Format, typer.Option("--format", help="How to print the table.")]
# Of the commands that compare in passing.
BaselineOption = Annotated[
    str | None, typer.Option(metavar="K=V[,K=V]", help="As in compare; else fusion=concat.")
]
MetricOption = Annotated[
    str | None, typer.Option(help="The column to compare, as in compare.", show_default=False)
]
CompareFormatOption = Annotated[CompareFormat, typer.Option("--format", help="How to print the table.")]


def main() -> None:
    """The console script. Exit codes: 0 all well, 1 some runs failed, 2 wrong usage, 130 Ctrl-C, 143
    SIGTERM."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        app()
    except BrokenPipeError:  # `ablate runs | head`
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        _say(f"ablate: {error.filename or 'standard output'}: {error.strerror or error}")
        sys.exit(2)
    except Exception as error:
        from ablate.config.rules import ConfigError  # not before it is needed: --help is to be quick

        if not isinstance(error, ConfigError):
            raise
        _say(f"ablate: {error}")
        sys.exit(2)


def _complete(incomplete: str) -> list[str]:
    from ablate.compose.hydra_app import complete

    return complete(incomplete)


@app.command(
    context_settings={"ignore_unknown_options": True},
    epilog="\b\nExamples:\n  ablate run fusion=sum heads=8\n  ablate run -m fusion=concat,sum,mean heads=1,4"
    " seed=0,1,2\n  ablate run --cfg job",
)
def run(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="Hydra overrides, as KEY=VALUE, and Hydra's own options: -m sweeps over values separated by"
            " commas, --cfg job shows the configuration, --info what it is composed of,"
            " -cd DIR and -cn NAME take configs of your own, --hydra-help explains them all.",
            autocompletion=_complete,
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the grid, its size and the estimated time; train nothing."),
    ] = False,
) -> None:
    """Train one model, a grid of them with -m, or a study with study=NAME.

    It ends with a table and the path of a CSV. What is finished is not run again (force=true does); what was
    interrupted goes on where it was.
    """
    from ablate.compose.hydra_app import Request, compose
    from ablate.study.job import job

    request = Request(job, dry_run=dry_run)
    _end_at_once(lambda: request.study is None)
    try:
        config = compose(overrides or [], request)
        if config is not None:
            from ablate.study.single import run_single  # loads torch: not before the overrides are read

            run_single(config, request, _listener(None))
        if request.estimate is not None:
            _show_estimate(request)
    except BaseException as error:
        if request.study:  # no table, which takes a while; but the CSV files tell what is finished
            with contextlib.suppress(ValueError):
                _update_results(request.study)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            _say(INTERRUPTED)
        raise
    raise typer.Exit(1 if request.study and _show_results(request) else 0)


@app.command(
    epilog="\b\nExamples:\n  ablate compare sweep-1a2b3c4d\n  ablate compare fusion --baseline heads=1"
    " --where out_proj=true\n  ablate compare a.csv b.csv --metric val_bpb --format latex"
)
def compare(
    targets: Annotated[
        list[str] | None,
        typer.Argument(help="Studies by name or directory, or CSV files; without any, every run there is."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="The column to compare: val_loss, or what the study reports on.", show_default=False
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="COL[,COL]", help="The columns that make and name a variant.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="K=V[,K=V]",
            help="Compare each variant with the one where K is V and all else equal; else fusion=concat.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="Only these rows: K=V[,V], K!=V, K<V or K>V. May be repeated."),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="What is too small to matter, in the metric's unit: 0.01, or the study's."),
    ] = None,
    marginal: Annotated[
        bool, typer.Option("--marginal", help="Add intervals that hold one by one, not together.")
    ] = False,
    effects: Annotated[
        bool, typer.Option("--effects", help="Main effects and interactions of the factors instead.")
    ] = False,
    mixed: Annotated[bool, typer.Option("--mixed", help="Allow rows of several texts or programs.")] = False,
    cost: Annotated[
        bool,
        typer.Option("--cost", help="Time a training step of each variant, alone and against its baseline."),
    ] = False,
    format: CompareFormatOption = CompareFormat.table,
) -> None:
    """Compare variants with their baselines over paired seeds.

    A row a variant: n, mean, difference, simultaneous interval, Holm's p, and a verdict: better, worse (or so
    but within the margin), equivalent, undecided. docs/statistics.md says how it is decided.
    """
    from dataclasses import replace

    from ablate.analysis.compare import compare, effects_of
    from ablate.analysis.contrasts import parse_baseline
    from ablate.analysis.load import load, records, stores
    from ablate.analysis.notes import not_begun
    from ablate.reporting import words

    if cost and effects:
        raise typer.BadParameter(
            "times variants, and --effects shows none; leave one of them out", param_hint="--cost"
        )
    rows = load(targets or [])
    reference = parse_baseline(baseline) if baseline else None
    chosen: Any = {"metric": metric, "by": by.split(",") if by else (), "baseline": reference}
    chosen |= {"where": where or (), "records": records(targets or []), "mixed": mixed}
    if effects:
        table, notes = effects_of(rows, **chosen)
        _print(words.effects_for_reading(table) if format in READ else table, format)
    else:
        result = compare(rows, **chosen, margin=margin)
        notes = result.notes
        if cost:
            from ablate.execution.timing import with_cost  # loads torch

            table, line = with_cost(result.table, result.runs, stores(targets or []))
            result, notes = replace(result, table=table), [*notes, line]
        if format not in READ:
            _print(result.table, format)
        else:
            for family in result.families:
                _remark(words.caption(result, family), format)
                _print(words.for_reading(result, family, marginal=marginal), format)
                typer.echo()
            for sentence in words.sentences(result):
                _remark(sentence, format)
    for line in (*notes, *(line for record in chosen["records"] for line in not_begun(rows, record))):
        _say(line)


@app.command(epilog="Example: ablate report fusion --charts figures")
def report(
    target: Annotated[str, typer.Argument(help="A study by name or directory, or a CSV file of results.")],
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where to write it; else beside the results.")
    ] = None,
    charts: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write its charts there as well: PNG, SVG and PDF.")
    ] = None,
    baseline: BaselineOption = None,
    metric: MetricOption = None,
    margin: Annotated[
        float | None, typer.Option(help="What is too small to matter: 0.01, or the study's.")
    ] = None,
) -> None:
    """Write one HTML file that answers a study's question: verdicts, limits, charts, how to repeat it."""
    from ablate.reporting import report as write

    typer.echo(write(target, out=out, charts=charts, baseline=baseline, metric=metric, margin=margin))


@app.command(epilog="Example: ablate plan fusion --difference 0.01 --budget 60")
def plan(
    targets: Annotated[list[str], typer.Argument(help="The pilot: a study, or a CSV file of results.")],
    difference: Annotated[
        float, typer.Option(help="The difference to be seen, in the metric's unit.")
    ] = 0.01,
    power: Annotated[float, typer.Option(help="The probability of seeing it.")] = 0.8,
    alpha: Annotated[float, typer.Option(help="The family-wise error of compare.")] = 0.05,
    contrasts: Annotated[
        int | None, typer.Option(help="How many comparisons there will be; else those of the pilot.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="Say what this much time can see.")
    ] = None,
    metric: MetricOption = None,
    baseline: BaselineOption = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Only these rows, as in compare.")
    ] = None,
    format: FormatOption = Format.table,
) -> None:
    """How many seeds a difference needs, by the noise of a pilot study."""
    from ablate.analysis.contrasts import parse_baseline
    from ablate.analysis.load import load, records
    from ablate.analysis.power import seeds_needed
    from ablate.compute.cores import available

    reference = parse_baseline(baseline) if baseline else None
    chosen: Any = {"metric": metric, "where": where or (), "baseline": reference, "budget_min": budget}
    chosen |= {"power": power, "alpha": alpha, "contrasts": contrasts}
    chosen |= {"records": records(targets), "cores": available()}
    table, lines = seeds_needed(load(targets), difference=difference, **chosen)
    _print(table, format)
    for line in lines:
        _say(line)


@app.command(epilog="\b\nExamples:\n  ablate runs --format csv\n  ablate runs fusion --watch")
def runs(
    target: Annotated[str | None, typer.Argument(help="A study by name; without one, every run.")] = None,
    format: FormatOption = Format.table,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on showing what runs, and how far it is, until Ctrl-C.")
    ] = False,
) -> None:
    """List the runs and what became of them.

    Each is done, failed, diverged, interrupted, running, or stale (made by other code or another torch).
    """
    import pandas as pd

    from ablate.store.provenance import provenance
    from ablate.store.store import Store

    store = Store()
    if watch:
        from ablate.live.watch import watch as watch_store

        return watch_store(store, target)
    rows = store.rows(provenance()) if target is None else store.study_rows(target, provenance())
    if not rows:
        _say("no runs yet; ablate run makes one")
        if format in (Format.table, Format.md):
            return
    columns = ["run_id", "status", "study", "fusion", "heads", "out_proj", "seed", "corpus", "steps"]
    columns += ["val_loss", "wall_s", "error"]
    _print(pd.DataFrame(rows).reindex(columns=columns), format)


@app.command(epilog='Example: ablate sample concat-h4-d64x2-s0 --prompt "The import statement"')
def sample(
    run: Annotated[str, typer.Argument(help="A run: the beginning of its id or of its directory's name.")],
    prompt: Annotated[
        str | None, typer.Option(help="The text to go on from; without one, a new line.", show_default=False)
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="How many tokens to add.")] = 300,
    temperature: Annotated[
        float, typer.Option(min=0.0, max=1000.0, help="0 takes the likeliest token.")
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw from the k likeliest tokens only.")] = None,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
) -> None:
    """Text from a trained run."""
    from ablate.execution.sample import sample as draw

    typer.echo(draw(run, prompt, tokens=tokens, temperature=temperature, top_k=top_k, seed=seed))


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        from ablate import __version__

        typer.echo(__version__)
        raise typer.Exit


# --- what the commands share ----------------------------------------------------------------------


def _listener(total: int | None) -> "Listener":
    from ablate.live.progress import listener

    return listener(total)


def _update_results(study: str) -> "Path":
    from ablate.store.provenance import provenance
    from ablate.store.store import Store

    return Store().write_results(study, provenance())


def _show_results(request: "Request") -> int:
    """Bring the CSV files up to date and print what was asked for; returns how many runs failed."""
    import pandas as pd

    from ablate.analysis.load import frame
    from ablate.analysis.notes import stale, unusable
    from ablate.analysis.roles import at_own_value
    from ablate.analysis.variants import Incomparable, for_reading, summarize
    from ablate.reporting.tables import render_row
    from ablate.store.provenance import provenance
    from ablate.store.store import Store

    assert request.study is not None
    store, path = Store(), _update_results(request.study)
    asked = [row for row in store.study_rows(request.study, provenance()) if row["run_id"] in request.run_ids]
    rows = frame(asked)
    record = store.read_study(request.study)
    assert record is not None
    lines = [*request.left_out, *request.refused, *stale(rows), *unusable(rows)]
    try:
        if rows.empty:
            pass
        elif len(rows) == 1:
            typer.echo(render_row(rows.iloc[0][SINGLE_RUN_COLUMNS]), nl=False)
        else:
            reports = at_own_value(rows[rows["phase"] == "report"])  # of a tuned study
            shown = summarize(rows) if reports.empty else summarize(reports, record.metric or "val_loss")
            _print(for_reading(shown), Format.table)
    except Incomparable as error:
        _print(rows[SINGLE_RUN_COLUMNS], Format.table)
        lines.append(str(error))
    for line in lines:
        _say(line)
    missing = len(request.run_ids) - len(rows)
    if missing > len(request.refused):
        _say(f"{missing} of {len(request.run_ids)} runs have not begun; the same command goes on from there")
    if request.finished_before:
        _say(f"{request.finished_before} runs had finished before; force=true runs them again")
    if record.demonstration:
        _say("a demonstration: too few steps and seeds to conclude anything from")
    typer.echo(f"\n{len(rows)} run{'s' if len(rows) != 1 else ''} in {path}")
    return missing + int((~pd.Series(rows["status"]).isin(["done", "stale", "diverged"])).sum())


def _show_estimate(request: "Request") -> None:
    """What a dry run found out."""
    estimate = request.estimate
    for line in request.left_out:
        _say(line)
    for key, levels in estimate.record.factors.items():
        typer.echo(f"{key}: {', '.join(levels)}")
    typer.echo(f"seeds: {', '.join(map(str, estimate.record.seeds))}")
    finished = f", {estimate.finished} of them finished" if estimate.finished else ""
    size = f"{estimate.workers} at a time, {estimate.threads} thread{'s' * (estimate.threads > 1)} each"
    typer.echo(f"{estimate.runs} run{'s' * (estimate.runs != 1)}{finished}; {size}")
    typer.echo(f"about {_duration(estimate.seconds)} here, from timing a few steps")
    for line in estimate.forecast:
        typer.echo(line)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _print(frame: "pd.DataFrame", format: Format | CompareFormat) -> None:
    from ablate.reporting.tables import render

    typer.echo(render(frame, format.value, terminal=sys.stdout is not None and sys.stdout.isatty()), nl=False)


def _remark(text: str, format: CompareFormat) -> None:
    """Beside a table: a paragraph in Markdown, a comment in LaTeX."""
    if format is CompareFormat.latex:
        text = "\n".join(f"% {line}" for line in text.splitlines())
    typer.echo(f"{text}\n" if format is CompareFormat.md else text)


def _say(line: str) -> None:
    """One line, whatever line ends somebody's text brought into it."""
    print(" ".join(line.split("\n")), file=sys.stderr)


def _end_at_once(nothing_begun: "Callable[[], bool]") -> None:
    """Let Ctrl-C end the process itself before a run is begun. PyTorch, NumPy and OmegaConf swallow the
    exception or make others of it, when it reaches them in the middle of something."""

    def interrupted(*_: Any) -> None:
        if not nothing_begun():
            raise KeyboardInterrupt
        _say(INTERRUPTED)
        sys.stdout.flush()
        os._exit(130)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as after `&`
        signal.signal(signal.SIGINT, interrupted)


def _terminated(*_: Any) -> None:
    raise SystemExit(143)
