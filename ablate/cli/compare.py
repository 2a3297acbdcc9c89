"""`ablate compare`, `ablate report` and `ablate plan`: variants and their baselines over paired seeds."""

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.shared import (
    READ,
    BaselineOption,
    BetterOption,
    ByOption,
    FinishedOption,
    FixedOption,
    Format,
    FormatOption,
    MarginOption,
    MetricOption,
    MixedOption,
    PairByOption,
    PluginOption,
    RunsOption,
    WhereOption,
    WideOption,
    known_studies,
    print_table,
    put_json,
    remark,
    separated,
    use_plugins,
)
from ablate.config.contrast import MARGIN
from ablate.phrases import described, texts
from ablate.printing import put, say

if TYPE_CHECKING:
    from ablate.analysis.compare import Comparison


def compare(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Studies by name or directory, or CSV files; by default every run.",
            autocompletion=known_studies,
        ),
    ] = None,
    metric: MetricOption = None,
    by: ByOption = None,
    pair_by: PairByOption = None,
    baseline: BaselineOption = None,
    where: WhereOption = None,
    margin: MarginOption = None,
    within: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Whether a difference is the same at all levels of this key, two by two."
        ),
    ] = None,
    why: Annotated[
        bool,
        typer.Option("--why", help="Show all comparisons, with corrections and notes."),
    ] = False,
    higher_is_better: BetterOption = None,
    fixed: FixedOption = None,
    finished: FinishedOption = None,
    mixed: MixedOption = False,
    pivot: Annotated[
        str | None,
        typer.Option(
            metavar="KEY,KEY",
            help="Show the means as a table for a paper: columns by the last key, rows by the others.",
            hidden=True,
        ),
    ] = None,
    cost: Annotated[
        bool,
        typer.Option(
            "--cost", help="Time a training step of each variant, also relative to its baseline.", hidden=True
        ),
    ] = False,
    plugin: PluginOption = None,
    format: FormatOption = "table",
    wide: WideOption = False,
    runs_dir: RunsOption = None,
) -> None:
    """Compare variants with their baselines over paired seeds.

    Prints doubts, the answer, a row per variant (n, mean, difference with its interval,
    and a verdict: better, worse, equivalent or undecided), and the next command (docs/statistics.md). A
    table of another program needs columns as method,seed,loss, and --lower-is-better (docs/elsewhere.md).
    """
    from ablate.analysis.compare import compare
    from ablate.analysis.load import load
    from ablate.analysis.question import ask, listed
    from ablate.reporting import answers, cells

    if pivot is not None and cost:
        raise typer.BadParameter("shows means alone; leave --cost out", param_hint="--pivot")
    results = load(targets or [], listed(finished))
    question = ask(
        metric=metric,
        by=by,
        pair_by=pair_by,
        baseline=baseline,
        where=where,
        margin=margin,
        higher_is_better=higher_is_better,
        fixed=fixed,
        mixed=mixed,
        within=within or "",
        shown=separated(pivot),
    )
    result, records = compare(results.rows, question, results.records), results.records
    table, steps, asked = result.table, None, list[str]()  # lines on what an option adds
    if cost:
        from ablate.analysis.speed import step_times
        from ablate.execution.timing import StepTimer  # loads torch

        use_plugins(plugin)
        timer = StepTimer(result.runs, results.stores)
        steps = step_times(table, timer)
        table = table.join(steps)
        asked.append(timer.line)
    notes = [*results.notes, *result.notes]
    is_short = format in READ and not why
    said = texts(notes)
    if pivot is not None or format == "latex":
        _for_a_paper(result, pivot, format, wide=wide)
        if is_short:
            said = [*filter(None, [answers.health(answers.doubts(notes))]), *described(notes)]
    elif format == "json":
        from ablate.tables import records as as_json

        answer = answers.lines(result, records, results.notes)
        put_json(answer=answer, rows=as_json(table, result.shown), notes=texts(notes))
    elif format not in READ:
        print_table(table, format, wide=wide)
    elif is_short:
        above, below = answers.around(result, records, results.notes)
        for line in above:
            remark(line, format)
        put()
        print_table(cells.short_table(result, steps), format, wide=wide)
        for line in below:
            remark(line, format)
        said = []
    else:
        for line in answers.lines(result, records, results.notes):
            remark(line, format)
        put()
        for family in result.families:
            remark(cells.caption(result, family), format)
            print_table(cells.full_table(result, family, steps), format, wide=wide)
            put()
    for line in (*asked, *said):
        say(line)


def _for_a_paper(result: "Comparison", pivot: str | None, format: Format, *, wide: bool) -> None:
    """Print the means with their intervals; with a pivot, as a grid."""
    from ablate.reporting import paper

    keys = separated(pivot)
    table = paper.pivot(result, keys) if pivot is not None else paper.by_variant(result)
    if format == "latex":
        put(paper.latex(table), end="")
    elif format not in READ:
        print_table(paper.tidy(result, keys), format)
    else:
        remark(table.caption, format)
        print_table(paper.plain(table), format, wide=wide)


def report(
    targets: Annotated[
        list[str],
        typer.Argument(
            help="A study by name or directory, or a CSV file of results.",
            autocompletion=known_studies,
        ),
    ],
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where to write it; else beside the results.")
    ] = None,
    charts: Annotated[
        str | None, typer.Option(metavar="DIR", help="Also write the charts to DIR, as PNG, SVG and PDF.")
    ] = None,
    metric: MetricOption = None,
    by: ByOption = None,
    pair_by: PairByOption = None,
    baseline: BaselineOption = None,
    where: WhereOption = None,
    margin: MarginOption = None,
    higher_is_better: BetterOption = None,
    fixed: FixedOption = None,
    finished: FinishedOption = None,
    mixed: MixedOption = False,
    runs_dir: RunsOption = None,
) -> None:
    """Write one HTML page on a study: verdicts, charts, how to repeat it."""
    from ablate.analysis.question import ask, listed
    from ablate.config.rules import ConfigError
    from ablate.reporting.html import write_report

    if len(targets) > 1:
        several = " ".join(map(shlex.quote, targets))
        raise ConfigError(f"a report is about one study; ablate compare {several} compares several")
    question = ask(
        metric=metric,
        by=by,
        pair_by=pair_by,
        baseline=baseline,
        where=where,
        margin=margin,
        higher_is_better=higher_is_better,
        fixed=fixed,
        mixed=mixed,
    )
    put(write_report(targets[0], question, finished=listed(finished), out=out, charts=charts))


def _between(low: float, high: float) -> Callable[[float | None], float | None]:
    """A Typer callback that accepts numbers strictly between the two, so neither nan nor infinity."""

    def check(value: float | None) -> float | None:
        if value is not None and not low < value < high:
            raise typer.BadParameter(f"{value:g} is not between {low:g} and {high:g}")
        return value

    return check


def plan(
    targets: Annotated[
        list[str],
        typer.Argument(help="The pilot: a study, or a CSV file of results.", autocompletion=known_studies),
    ],
    difference: Annotated[
        float | None,
        typer.Option(
            help=f"The difference to detect, in the metric's unit; by default {MARGIN} of what is in nats.",
            callback=_between(0, 1e9),
        ),
    ] = None,
    power: Annotated[
        float, typer.Option(help="The probability of detecting it.", callback=_between(0, 1))
    ] = 0.8,
    contrasts: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_000_000, help="The number of comparisons planned; by default those of the pilot."
        ),
    ] = None,
    metric: MetricOption = None,
    by: ByOption = None,
    pair_by: PairByOption = None,
    baseline: BaselineOption = None,
    where: WhereOption = None,
    higher_is_better: BetterOption = None,
    mixed: MixedOption = False,
    format: FormatOption = "table",
    runs_dir: RunsOption = None,
) -> None:
    """Say how many seeds show a difference, given the noise of a pilot."""
    from ablate.analysis.load import load
    from ablate.analysis.power import seeds_needed
    from ablate.analysis.question import ask
    from ablate.compute.limits import available_cores
    from ablate.reporting.commands import with_seeds

    results = load(targets)
    question = ask(
        metric=metric,
        by=by,
        pair_by=pair_by,
        baseline=baseline,
        where=where,
        higher_is_better=higher_is_better,
        mixed=mixed,
    )
    table, lines = seeds_needed(
        results.rows,
        question,
        results.records,
        difference=difference,
        power=power,
        contrasts=contrasts,
        cores=available_cores(),
    )
    print_table(table, format)
    for line in (*texts(results.notes), *lines):
        say(line)
    record = results.record
    fixed = not (record.looks or record.is_copy)
    if fixed and (command := with_seeds(record, int(table["seeds"].iloc[0]))):
        say(f"with the noise as measured: `{command}`")
