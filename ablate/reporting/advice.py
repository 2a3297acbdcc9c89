"""What would make an answer surer, with the command to type and its time on this machine. Prints nothing."""

import shlex
from collections.abc import Sequence

import pandas as pd

from ablate.analysis.compare import Comparison
from ablate.analysis.finding import Finding
from ablate.analysis.verdicts import NEVER
from ablate.config.contrast import FEWEST
from ablate.phrases import advised, counted
from ablate.reporting.commands import is_duel, whole_study, with_budget, with_seeds
from ablate.reporting.follow_ups import FollowUp, FollowUps, seconds_here, time_here
from ablate.store.columns import Status
from ablate.store.record import StudyRecord

MOST_SEEDS = 1_000  # that anybody would add
A_DEMONSTRATION = "A demonstration: `{}` asks it properly, and --dry-run says how long that takes."


def of_one_seed(rows: pd.DataFrame, record: StudyRecord, variants: int) -> list[str]:
    """Advice for a grid with one seed. rows: of finished runs. variants: how many there are."""
    return _with_seeds(FEWEST, "{} would be enough for a verdict", rows, record, variants)


def to_decide(comparison: Comparison, rows: pd.DataFrame, record: StudyRecord) -> list[str]:
    """What would decide the contrasts that are undecided; nothing if there are none. More seeds come last:
    they mend neither runs that are elsewhere nor models that are worse than counting."""
    tested, variants = comparison.tested, len(comparison.variants)
    undecided = [one for one in tested if one.is_undecided]
    if record.demonstration:
        return [A_DEMONSTRATION.format(whole_study(record))]
    if not undecided:
        return []
    if record.is_copy or (rows["status"] == Status.STALE).any():
        return _anew(record)
    if comparison.owed:
        return [f"{_again(record)} finishes the study first."]
    if record.looks and (line := _to_the_next_look(undecided, rows, record)):
        return [line]
    if longer := _longer(comparison, rows, record):
        return [longer]
    if record.looks:
        stays = "It stays" if len(undecided) == 1 else "They stay"
        return [f"{stays} undecided: a study goes on beyond its last look only under another name."]
    seeds = max(one.seeds for one in tested)
    if all(one.is_too_few for one in undecided):
        line = f"Too few seeds for a verdict, {seeds} of at least {FEWEST}"
        if not record.typed:
            return [f"{line}: add {FEWEST - seeds}."]
        return _with_seeds(FEWEST, f"{line}: {{}}", rows, record, variants)
    needed = [one.more_seeds for one in undecided if one.more_seeds is not None]
    if not needed and (whys := {one.why for one in undecided if one.why} - {NEVER}):
        return [f"No verdict: {'; '.join(sorted(whys))}."]
    if not needed:
        why = "about as large as the margin" if comparison.margin > 0 else "too small"
        return [f"No number of seeds would decide this: the difference is {why}."]
    which = "it" if len(undecided) == 1 else f"all {len(needed)}"
    if len(needed) < len(undecided):
        which = f"{len(needed)} of the {len(undecided)} undecided"
    if max(needed) > MOST_SEEDS:
        return [f"It would take about {max(needed):,} more seeds to decide {which}, more than one trains."]
    line = f"About {counted(max(needed), 'more seed')} would decide {which}: {{}}"
    return _with_seeds(seeds + max(needed), line, rows, record, variants)


def _anew(record: StudyRecord) -> list[str]:
    """How to make runs that are not in this store, or no longer count, and so take no more seeds."""
    if not (record.typed or record.command):
        return []
    return [
        f"These runs were made elsewhere, or by another version: {_again(record)} makes all of them anew."
    ]


def _to_the_next_look(undecided: Sequence[Finding], rows: pd.DataFrame, record: StudyRecord) -> str:
    """What a study with looks does about undecided contrasts, with the time to its next look; empty if all
    are beyond their last one."""
    going_on = [one for one in undecided if (one.look or 0) < (one.last_look or 0)]
    if not (record.looks and going_on):
        return ""
    arms = {side.name for one in going_on for side in (one.variant, one.baseline)}
    look = min(one.look or 0 for one in going_on)
    more = min(at for at in record.looks.taken if at > look) - look
    time = _time(len(arms) * more, rows)
    return f"{_again(record)} goes on with what is undecided{f'{time} to the next look' if time else ''}."


def _longer(comparison: Comparison, rows: pd.DataFrame, record: StudyRecord) -> str:
    """The command that trains for longer, if models are worse than counting; empty if they are not, or if
    there is no such command."""
    is_worse = any(one.about == "counting" and one.is_doubt for one in comparison.caveats)
    longer = FollowUps(comparison, record, rows).longer(FEWEST) if is_worse else FollowUp()
    if not longer.command:
        return ""
    return f"Train for longer before more seeds, as these models are worse than counting: {longer}."


def _with_seeds(count: int, line: str, rows: pd.DataFrame, record: StudyRecord, variants: int) -> list[str]:
    """`line` with the command that gives every variant `count` seeds, and its time on this machine."""
    more = variants * max(0, count - rows["seed"].nunique())
    if is_duel(record):  # which begins anew with another budget
        command, time = with_budget(record, seconds_here(len(record.runs) + more, rows)), ""
    else:
        command = with_seeds(record, count)
        time = _time(more, rows) if command else ""
    return [f"{line.format(f'`{command}`' if command else f'{count} seeds')}{time}."]


def _time(runs: int, rows: pd.DataFrame) -> str:
    """How long so many more runs take here, as the end of a line; empty if the rows do not say."""
    return f", {time}" if (time := time_here(runs, rows)) else ""


def _again(record: StudyRecord) -> str:
    """The command of a study, as the beginning of a line."""
    words = ["ablate", "run", *record.typed] if record.typed else shlex.split(record.command)
    return f"`{advised(words)}`" if words else "The command of the study"
