"""What would make an answer surer, with the command to type and its time on this machine. Prints nothing."""

import math
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.finding import Finding
from ablate.analysis.frames import seconds_a_run
from ablate.analysis.variants import USABLE
from ablate.analysis.verdicts import NEVER
from ablate.compute.limits import available_cores
from ablate.config.overrides import as_value
from ablate.phrases import counted, duration, joined, lines_if
from ablate.reporting.commands import is_duel, whole_study, with_budget, with_seeds
from ablate.store.record import StudyRecord

if TYPE_CHECKING:
    from ablate.analysis.ladder import LadderResult
    from ablate.reporting.follow_ups import FollowUp

FIRST_SEEDS = 8  # how many seeds to advise for a grid of one seed
MANY_SEEDS = 64  # for more, no command lists them
A_DEMONSTRATION = "A demonstration: `{}` asks it properly, and --dry-run says how long that takes."


def seconds_here(runs: float, rows: pd.DataFrame) -> float:
    """How long so many runs like these take on this machine; NaN if the rows do not say."""
    seconds, at_once = seconds_a_run(rows, available_cores())
    return runs * seconds / at_once


def time_here(runs: float, rows: pd.DataFrame) -> str:
    """The time in words, as `about 5 min here`; empty if the rows do not say."""
    seconds = seconds_here(runs, rows)
    return "" if math.isnan(seconds) else f"about {duration(seconds)} here"


def of_one_seed(rows: pd.DataFrame, record: StudyRecord, variants: int) -> list[str]:
    """Advice for a grid with one seed. rows: of finished runs. variants: how many there are."""
    return _with_seeds(FIRST_SEEDS, "{} would show how large a difference has to be", rows, record, variants)


def to_decide(comparison: Comparison, rows: pd.DataFrame, record: StudyRecord) -> list[str]:
    """What would decide the tested contrasts, or narrow their intervals."""
    tested, variants = comparison.tested, len(comparison.variants)
    if record.demonstration:
        return [A_DEMONSTRATION.format(whole_study(record))]
    undecided = [one for one in tested if one.is_undecided]
    if record.looks:
        return _until_last_look(undecided, rows, record)
    seeds = max(one.seeds for one in tested)
    if not undecided:
        line = "{} would narrow the intervals by a third"
        return _with_seeds(2 * seeds, line, rows, record, variants)
    needed = [one.more_seeds for one in undecided if one.more_seeds is not None]
    if not needed and (whys := {one.why for one in undecided if one.why} - {NEVER}):
        return [f"No verdict: {'; '.join(sorted(whys))}."]
    if not needed:
        why = "about as large as the margin" if comparison.margin > 0 else "too small"
        return [f"No number of seeds would decide this: the difference is {why}."]
    which = "it" if len(undecided) == 1 else f"all {len(needed)}"
    if len(needed) < len(undecided):
        which = f"{len(needed)} of the {len(undecided)} undecided"
    line = f"About {counted(max(needed), 'more seed')} would decide {which}: {{}}"
    return _with_seeds(seeds + max(needed), line, rows, record, variants)


def _until_last_look(undecided: Sequence[Finding], rows: pd.DataFrame, record: StudyRecord) -> list[str]:
    """What a study with looks does about undecided contrasts, with the time to its next look."""
    assert record.looks
    if not undecided:
        return []
    if going_on := [one for one in undecided if (one.look or 0) < (one.last_look or 0)]:
        arms = {side.name for one in going_on for side in (one.variant, one.baseline)}
        look = min(one.look or 0 for one in going_on)
        more = min(at for at in record.looks.taken if at > look) - look
        time = _time(len(arms) * more, rows)
        return [
            f"{_again(record)} goes on with what is undecided{f'{time} to the next look' if time else ''}."
        ]
    stays = "It stays" if len(undecided) == 1 else "They stay"
    return [f"{stays} undecided: a study goes on beyond its last look only under another name."]


def _with_seeds(count: int, line: str, rows: pd.DataFrame, record: StudyRecord, variants: int) -> list[str]:
    """`line` with the command that gives every variant `count` seeds, and its time on this machine."""
    more = variants * max(0, count - rows["seed"].nunique())
    if is_duel(record):  # which begins anew with another budget
        command, time = with_budget(record, seconds_here(len(record.runs) + more, rows)), ""
    else:
        command, time = with_seeds(record, count), _time(more, rows)
    return [f"{line.format(f'`{command}`' if command else f'{count} seeds')}{time}."]


def _time(runs: int, rows: pd.DataFrame) -> str:
    """How long so many more runs take here, as the end of a line; empty if the rows do not say."""
    return f", {time}" if (time := time_here(runs, rows)) else ""


def _again(record: StudyRecord) -> str:
    """The command of a study, as the beginning of a line."""
    command = shlex.join(["ablate", "run", *record.typed]) if record.typed else record.command
    return f"`{command}`" if command else "The command of the study"


# --- of a ladder ------------------------------------------------------------------------------------------


def of_ladder(comparison: Comparison, ladder: "LadderResult") -> list[str]:
    """To go on, or to climb again with more seeds: a ladder itself takes no more of them."""
    from ablate.analysis.ladder import places_of
    from ablate.reporting.follow_ups import FollowUp

    if ladder.record.demonstration:
        return [A_DEMONSTRATION.format(whole_study(ladder.record))]
    record, is_at_top = ladder.record, any(ladder.has_top(arm) for arm in ladder.arms)
    if not is_at_top or {*places_of(record)} - {*comparison.rows["run_id"]}:
        return [f"{_again(record)} goes on with it."]
    steps = pd.concat([arm.steps for arm in ladder.arms], ignore_index=True)
    undecided = steps[steps["verdict"] == stats.UNDECIDED]
    needed = undecided.groupby("rung")["more_seeds"].max().dropna().astype(int)
    if needed.empty:
        return []
    counts = [len(rung.seeds) + int(needed.get(at, 0)) for at, rung in enumerate(ladder.rungs)]
    which = "what is" if undecided["more_seeds"].notna().all() else "some of what is"
    line = (
        f"A ladder takes no more seeds; another with about {joined([*map(str, counts)])} of them at its rungs"
        f" would decide {which} undecided"
    )
    again = _climb_again(comparison, ladder, counts) if max(counts) <= MANY_SEEDS else FollowUp()
    command = lines_if(again.command, f": `{again.command}`")
    return ["".join([line, *command, *lines_if(again.time, f", {again.time}"), "."])]


def _climb_again(comparison: Comparison, ladder: "LadderResult", counts: Sequence[int]) -> "FollowUp":
    """Another ladder with so many fresh seeds at its rungs: runs of the old ones' tops are there already, and
    nothing predicts them."""
    from ablate.reporting.follow_ups import FollowUps

    rows = comparison.rows[comparison.rows["status"].isin(USABLE)]
    first = max(ladder.record.seeds) + 1
    seeds = [*range(first, first + max(counts))]
    work = [rung.size * rung.tokens for rung in ladder.rungs]
    now = sum(each * len(rung.seeds) for each, rung in zip(work, ladder.rungs, strict=True))
    times = sum(each * count for each, count in zip(work, counts, strict=True)) / now
    given = (f"study.seeds_a_rung={as_value([*counts])}", f"study.seeds={as_value(seeds)}")
    return FollowUps(comparison, ladder.record, rows).changed("more", *given, times=times)
