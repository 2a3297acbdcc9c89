"""`ablate claims`: the ledger of published claims."""

from typing import Annotated

import typer

from ablate.cli.shared import READ, FormatOption, RunsOption, WideOption, print_table, resumable
from ablate.cli.train import say_lines, show_estimate
from ablate.config.rules import ConfigError
from ablate.phrases import counted, texts
from ablate.printing import put, say

NumberArgument = Annotated[str, typer.Argument(metavar="NNN", help="The number of an entry, as 001.")]

claims = typer.Typer(
    help="List, freeze, run and check published claims about heads (claims/NNN-name.yaml).",
    invoke_without_command=True,
)


@claims.callback()
def listed(
    context: typer.Context,
    format: FormatOption = "table",
    wide: WideOption = False,
    runs_dir: RunsOption = None,
) -> None:
    if context.invoked_subcommand is not None:
        return
    import pandas as pd

    from ablate.ledger.entry import Entry, read_claims, read_frozen
    from ablate.ledger.judge import judged
    from ablate.ledger.page import state

    frozen, rows = read_frozen(), []
    for claim in read_claims():
        n = ""
        try:
            found = judged(claim) if isinstance(claim, Entry) else None
            verdict, n = state(claim, found, frozen), found.n if found else ""
        except ConfigError as error:
            verdict = "does not fit its rows"
            say(str(error))
        rows.append([claim.name, verdict, n, claim.digest[:12], claim.sentence])
    table = pd.DataFrame(rows, columns=["entry", "verdict", "n", "digest", "claim"])
    print_table(table, format, wide=wide or format not in READ)


@claims.command()
def show(number: NumberArgument) -> None:
    """Show an entry: its test, its digest, and the seeds that follow from it; of a withdrawn one what was
    published, and why it was withdrawn."""
    from ablate.config.overrides import as_line
    from ablate.ledger.entry import CLAIMS, Entry, find_claim, read_frozen
    from ablate.ledger.page import expectation

    entry, frozen = find_claim(number), read_frozen()
    put(f"{entry.name}: {entry.sentence}")
    put(f"{entry.source.cite}, {entry.source.url}; {entry.source.read}")
    put(f"published: {entry.published}")
    if not isinstance(entry, Entry):
        put(f"withdrawn: {frozen[entry.name].withdrawn}: {frozen[entry.name].reason}")
        put(f"frozen: {frozen[entry.name].date}, with the test in {CLAIMS / entry.name}.yaml")
        put(f"digest: {entry.digest}")
        return
    for name, arm in entry.arms.items():
        put(f"arm {name}: {as_line(arm)}")
    put(f"all arms: {as_line(entry.settings)}")
    for one in entry.predictions:
        put(f"- {expectation(one, entry.margin)}")
    put(f"looks: at {' and, if undecided, at '.join(map(str, entry.seeds))} seeds")
    put(f"digest: {entry.digest}")
    if entry.name in frozen:
        put(f"seeds: {', '.join(str(entry.seed(k)) for k in range(max(entry.seeds)))}")
    else:
        put("seeds: they follow from the batch in which it is frozen")


@claims.command()
def freeze(
    numbers: Annotated[list[str], typer.Argument(metavar="NNN", help="Numbers of entries, as 015 016.")],
    runs_dir: RunsOption = None,
) -> None:
    """Write down the digests of entries that can be run, and today's date, before their first runs.

    They are one batch: its digest gives the seeds that report, so entries share the runs of arms that they
    share.
    """
    from ablate.ledger.entry import find_entry, read_frozen
    from ablate.ledger.freeze import freeze
    from ablate.ledger.testing import require_possible, rows_before

    entries = [*{entry.name: entry for entry in map(find_entry, numbers)}.values()]
    developed = {}
    for entry in entries:
        if entry.name not in read_frozen():
            require_possible(entry)
            developed[entry.name] = rows_before(entry)
    batch = freeze(entries, developed)
    for entry in entries:
        older = counted(developed[entry.name], "development row")
        more = f"; {older} of its arms, older than the freeze" if developed[entry.name] else ""
        put(f"{entry.name}: frozen, digest {entry.digest[:12]}{more}")
    put(f"batch {batch[:12]}, which gives the seeds of {counted(len(entries), 'claim')}")


@claims.command(context_settings={"ignore_unknown_options": True})
def run(
    number: NumberArgument,
    launcher: Annotated[
        list[str] | None,
        typer.Argument(help="Overrides of the launcher, as hydra/launcher=slurm, or force=stale; no others."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many runs it takes, and how long; train nothing.")
    ] = False,
    trial: Annotated[
        bool, typer.Option("--trial", help="A few short runs with other seeds: whether it runs at all.")
    ] = False,
    runs_dir: RunsOption = None,
) -> None:
    """Train the runs of a frozen entry, keep their rows in docs/results, and judge."""
    from ablate.analysis.notes import unusable
    from ablate.ledger import testing
    from ablate.ledger.entry import find_entry, read_frozen
    from ablate.ledger.freeze import require_frozen
    from ablate.ledger.judge import keep
    from ablate.store.columns import RESULTS
    from ablate.store.store import Store
    from ablate.study.run import run

    entry = find_entry(number)
    for override in launcher or ():
        if override != "force=stale" and not override.startswith(("hydra/launcher=", "hydra.launcher.")):
            raise ConfigError(f"{override}: a claim is run as it was frozen; only launchers may be chosen")
    if dry_run or trial:
        chosen = launcher or ()
        sweep = testing.trial(entry, chosen) if trial else testing.sweep_of(entry, chosen)
        with resumable():
            outcome = run(sweep, dry_run=dry_run)
        if outcome.estimate:
            show_estimate(outcome.estimate, outcome.remarks)
            return
        say_lines(outcome)
        rows = outcome.rows()
        for line in texts(unusable(rows)):
            say(line)
        done = int(rows["status"].isin(RESULTS).sum())
        put(f"{counted(done, 'run')} of a trial, which shows nothing of the result")
        if done < len(outcome.run_ids) and not outcome.left_at_work:
            raise typer.Exit(1)
        return
    require_frozen(entry, read_frozen())
    with resumable():
        outcome = run(testing.sweep_of(entry, launcher or ()))
        say_lines(outcome)
        if outcome.left_at_work or outcome.refused:
            raise typer.Exit(1)
        judged = keep(entry, Store().study_directory(entry.name))
    for one in judged.predictions:
        put(f"{one.contrast}: {one.diff:+.4f} [{one.low:+.4f}, {one.high:+.4f}] nats, n = {one.n}")
    put(f"{entry.name}: {judged.verdict}")


@claims.command()
def check(
    ids: Annotated[
        bool, typer.Option("--ids", help="Also compute the ids of all runs again, which takes a while.")
    ] = False,
) -> None:
    """Check that entries are as frozen, that their rows are complete, and docs/ledger.md from both."""
    from ablate.ledger.page import faults, faults_of_runs

    wrong = faults()
    if ids and not wrong:
        wrong = faults_of_runs()
    for line in wrong:
        say(line)
    if wrong:
        raise typer.Exit(1)
    put("the ledger fits")


@claims.command()
def page() -> None:
    """Write docs/ledger.md, from its table on, from the entries and their results; nothing until an entry
    that was not withdrawn is frozen."""
    from ablate.files.atomic import write_atomically
    from ablate.ledger.page import PAGE, page

    if text := page():
        write_atomically(PAGE, text)
    put(
        str(PAGE) if text else f"nothing to write to {PAGE}: no entry is frozen but those that were withdrawn"
    )
