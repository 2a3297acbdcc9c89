"""`ablate race`: any commands, run by turns, and which of them is better."""

import re
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.shared import JsonOption, print_table, put_json, resumable
from ablate.config.rules import ConfigError
from ablate.phrases import counted, joined, lines_if
from ablate.printing import put, say

LOOKS, SEEDS = (6, 8, 12, 16, 24, 32, 48, 64, 96), 24
CODES = {"undecided": 12, "better": 0, "equivalent": 11, "worse": 10}  # the first that a command has


def race(
    commands: Annotated[list[str], typer.Argument(help="Two to eight, the baseline first.")],
    higher_is_better: Annotated[bool, typer.Option("--higher-is-better/--lower-is-better")],
    metric: Annotated[str, typer.Option(help="What each prints last, as METRIC=1.23.")] = "metric",
    margin: Annotated[float, typer.Option(min=0, max=1e9, help="What does not matter, at most.")] = 0,
    name: Annotated[list[str] | None, typer.Option("-n", "--name", help="Their names; else A, B, C")] = None,
    source: Annotated[str, typer.Option("--from", "--pattern", help="FILE.csv|json in {out}, or REGEX")] = "",
    seeds: Annotated[int, typer.Option(min=2, max=100_000, help="The most pairs.")] = SEEDS,
    time: Annotated[str, typer.Option(help="As 2h: begin no later pair.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Runs at once.")] = 1,
    prepare: Annotated[str, typer.Option(help="A command before each run.")] = "",
    warmup: Annotated[int, typer.Option(min=0, help="Runs of each that do not count.")] = 0,
    tries: Annotated[int, typer.Option(min=1, help="How many races share one level.")] = 1,
    null: Annotated[bool, typer.Option("--null", help="Race the baseline against itself.")] = False,
    no_seed: Annotated[bool, typer.Option("--no-seed", help="Take one without {seed} as exact.")] = False,
    format: JsonOption = "table",
) -> None:
    """Say which of your own commands is better, over paired seeds.

    They run by turns until that is decided. {seed}, {out} (a directory of the run) and {slot} (of --jobs) are
    replaced in them. The same command goes on where it was cut off. Exit codes: 0 better, 10 worse, 11
    equivalent, 12 undecided, 2 not carried out (docs/race.md).
    """
    from ablate.files.atomic import file_digest, locked
    from ablate.race.race import COLUMNS, Race
    from ablate.race.verdict import answer, doubts, raced
    from ablate.store.store import Store
    from ablate.tables import records

    commands = commands[:1] * 2 if null else commands
    names = [*(name or []), *"ABCDEFGH"[len(name or []) : len(commands)]]
    unseeded = [] if no_seed else [command for command in commands if "{seed}" not in command]
    apart = {name for name in names if name and "/" not in name}
    several = null or 2 <= len({*commands}) == len(commands) <= 8
    for is_wrong, why in (
        (not several, f"{counted(len(commands), 'command')}: give two to eight that differ, or --null"),
        (len(apart) != len(commands), f"{joined(names)}: name each with -n, without a /"),
        (unseeded, f"{joined(unseeded)}: put {{seed}} in, or give --no-seed"),
        (not re.fullmatch(r"(\d+\.?\d*[smhd])?", time), f"--time {time}: give a number and s, m, h or d"),
        (metric in COLUMNS, f"--metric {metric}: the table has such a column; print another name"),
    ):
        if is_wrong:
            raise ConfigError(why)
    try:
        re.compile("" if source.endswith((".csv", ".json")) else source)  # else it is a file
    except re.error as error:
        raise ConfigError(f"--from/--pattern {source}: no regular expression ({error})") from error
    limit_s = float(time[:-1] or "inf") * {"m": 60, "h": 3600, "d": 86400}.get(time[-1:], 1)
    directory = Store().root.absolute() / "races" / "-".join(names)
    files = {*map(Path, re.findall(r"[\w./-]+\.(?:py|sh)\b", " ".join(commands)))}
    plan = {"commands": dict(zip(names, commands, strict=True)), "metric": metric, "source": source}
    plan |= {"higher_is_better": higher_is_better, "margin": margin, "seeds": seeds, "tries": tries}
    plan |= {"prepare": prepare, "scripts": {str(one): file_digest(one) for one in files if one.is_file()}}
    plan["looks"] = [*(look for look in LOOKS if look < seeds), seeds]
    with resumable(), locked(directory / "lock"):
        contest = Race(directory, plan)
        say(f"{directory} has {counted(len(contest.runs), 'run')}")
        now = raced(contest, jobs, warmup, limit_s)
    said, notes = answer(contest, now, null), doubts(contest.by_seed(metric))
    notes += lines_if(jobs > 1, "--jobs: what runs side by side has no order")
    shown = now.drop(columns=["pairs", "more", "least", "going", "why"]).reset_index(names="method")
    if format == "json":
        put_json(answer=said, rows=records(shown), notes=notes, csv=str(contest.table))
    else:
        put("\n".join(said) + "\n")
        print_table(shown.map(lambda x: f"{x:.5g}" if x == x and type(x) is float else x), format)
        put(contest.table)
        for line in notes:
            say(line)
    raise typer.Exit(next(code for verdict, code in CODES.items() if verdict in {*now["verdict"]}))
