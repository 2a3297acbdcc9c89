"""`ablate race`: any commands, run by turns, and which of them is better."""

import math
import re
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.shared import JsonOption, print_table, put_json, resumable
from ablate.config.rules import ConfigError
from ablate.phrases import counted, joined, lines_if
from ablate.printing import put, say

LOOKS, SEEDS = (6, 8, 12, 16, 24, 32, 48, 64, 96), 24
CODES = {"undecided": 12, "better": 0, "equivalent": 11, "worse": 10}  # the first that a command has
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
TIME = re.compile(r"\d+\.?\d*[smhd]")
WAYS = "--higher-is-better/--lower-is-better"


def race(
    commands: Annotated[list[str], typer.Argument(help="Two to eight, the baseline first.")],
    metric: Annotated[str, typer.Option(help="What each prints last, as METRIC=1.23.")] = "",
    higher_is_better: Annotated[bool | None, typer.Option(WAYS, help="Which way is better.")] = None,
    margin: Annotated[float, typer.Option(min=0, help="The largest difference that does not matter.")] = 0,
    name: Annotated[list[str] | None, typer.Option("-n", "--name", help="Their names; else A, B, C")] = None,
    source: Annotated[
        list[str] | None, typer.Option("--from", "--pattern", help="FILE in {out}; REGEX")
    ] = None,
    seeds: Annotated[int, typer.Option(min=2, help="The most pairs.")] = SEEDS,
    limit: Annotated[str, typer.Option("--time", metavar="2h", help="Begin no pair that ends later.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Runs at once.")] = 1,
    prepare: Annotated[str, typer.Option(help="A command before each run.")] = "",
    warmup: Annotated[int, typer.Option(min=0, help="Runs of each that do not count.")] = 0,
    tries: Annotated[int, typer.Option(min=1, help="How many races share one level.")] = 1,
    null: Annotated[bool, typer.Option("--null", help="Race the baseline against itself.")] = False,
    no_seed: Annotated[bool, typer.Option("--no-seed", help="Allow commands without {seed}.")] = False,
    format: JsonOption = "table",
) -> None:
    """Say which of your own commands is better, over paired seeds.

    They run by turns until that is decided. {seed}, {out} (a directory of the run) and {slot} (of --jobs) are
    replaced in them. The same command goes on where it was cut off. Exit codes: 0 better, 10 worse, 11
    equivalent, 12 undecided, 2 not carried out (docs/race.md).
    """
    from ablate.files.atomic import file_digest
    from ablate.race.metric import FILES
    from ablate.race.race import COLUMNS, Race, locked, slug
    from ablate.race.verdict import answer, doubts, raced, standing
    from ablate.store.store import Store
    from ablate.tables import records

    commands = commands * 2 if null and len(commands) == 1 else commands
    where, names = "".join(source or []), [*(name or []), *"ABCDEFGH"[len(name or []) : len(commands)]]
    metric = metric or ("metric" if where and not where.endswith(FILES) else "")
    programs = [re.match(r"\s*(?:\w+=\S*\s+)*([\w./+-]+)\s", f"{one} ") for one in commands]
    unseeded, homeless = ([one for one in commands if word not in one] for word in ("{seed}", "{out}"))
    wrong = [
        *lines_if(not 2 <= len(commands) <= 8, f"{len(commands)} commands; give two to eight"),
        *lines_if(null and len({*commands}) > 1, "--null races one command against itself; give one"),
        *lines_if(not null and len({*commands}) < len(commands), "equal commands; --null races one alone"),
        *lines_if(len({*map(slug, names)} - {""}) != len(commands), f"{joined(names)}: name each with -n"),
        *lines_if(not no_seed and unseeded, f"{joined(unseeded)}: put {{seed}} in, or give --no-seed"),
        *lines_if(where.endswith(FILES) and homeless, f"{joined(homeless)}: put {{out}} in, for {where}"),
        *lines_if(len(source or []) > 1, "--from and --pattern: give one of them"),
        *lines_if(higher_is_better is None, f"which way is better? give {WAYS.replace('/', ' or ')}"),
        *lines_if(metric in ("", *COLUMNS), f"--metric {metric}: name what the commands print"),
        *lines_if(not math.isfinite(margin), f"--margin {margin}: give a number"),
        *lines_if(limit and not TIME.fullmatch(limit), f"--time {limit}: give a number and s, m, h or d"),
        *(f"{one[1]}: no such command" for one in programs if one and not _is_there(one[1])),
    ]
    try:
        re.compile(where)
    except re.error as error:
        wrong.append(f"--pattern {where}: {error}")
    if wrong:
        raise ConfigError(wrong[0])
    files = {Path(one) for command in commands for one in re.findall(r"[\w./-]+\.(?:py|sh)\b", command)}
    plan = {"commands": dict(zip(names, commands, strict=True)), "metric": metric, "source": where}
    plan |= {"higher_is_better": higher_is_better, "margin": margin, "seeds": seeds, "tries": tries}
    plan |= {"prepare": prepare, "scripts": {str(one): file_digest(one) for one in files if one.is_file()}}
    directory = Store().root.absolute() / "races" / slug(" ".join(names))
    with resumable(), locked(directory):
        contest = Race(directory, plan, [*(n for n in LOOKS if n < seeds), seeds])
        say(f"{directory} has {counted(len(contest.rows), 'run')}")
        for line in raced(
            contest, jobs, warmup, float(limit[:-1]) * SECONDS[limit[-1]] if limit else math.inf
        ):
            say(line)
    now = standing(contest)
    notes = [
        *doubts(contest.by_seed(metric)),
        *lines_if(jobs > 1, "--jobs: what runs side by side has no order"),
    ]
    shown = now.drop(columns=["more", "least", "going", "why"]).reset_index()
    if format == "json":
        put_json(answer=answer(contest, now, null), rows=records(shown), notes=notes, csv=str(contest.table))
    else:
        put("\n".join(answer(contest, now, null)) + "\n")
        print_table(shown.map(lambda x: f"{x:.5g}" if x == x and type(x) is float else x), format)
        put(contest.table)
        for line in notes:
            say(line)
    raise typer.Exit(next(code for verdict, code in CODES.items() if verdict in {*now["verdict"]}))


def _is_there(program: str) -> bool:
    """Whether a shell knows this word."""
    return not subprocess.run(["sh", "-c", 'command -v "$0"', program], capture_output=True).returncode
