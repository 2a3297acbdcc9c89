"""What to do next about an answer: at most three reasons, each with the command to type. Loads no torch."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from ablate.analysis.compare import Comparison
from ablate.analysis.notes import MOST_EPOCHS, WORSE, shared_rate
from ablate.analysis.variants import USABLE
from ablate.config.contrast import FEWEST
from ablate.phrases import counted
from ablate.reporting.commands import again, at_own_rates, changed, with_fresh_seeds, with_seeds
from ablate.store.columns import Status
from ablate.store.record import StudyRecord

MOST = 3
MOST_SEEDS = 1_000  # that anybody would add
AS_SEEN = "if it is as large as it looks"
LONGER = 4  # times the steps of a longer training


@dataclass(frozen=True)
class Next:
    """reason: why, without a full stop. command: empty if not known."""

    reason: str
    command: str = ""

    def __str__(self) -> str:
        return f"{self.reason}{f': `{self.command}`' if self.command else ''}."


def next_steps(rows: pd.DataFrame, record: StudyRecord, comparison: Comparison | None = None) -> list[Next]:
    """What matters first comes first. rows: of a study; without a comparison, a finished run of each
    variant."""
    rows = rows[rows["status"].isin(USABLE)]
    return [*itertools.islice(_steps(rows, record, comparison), MOST)]


def _steps(rows: pd.DataFrame, record: StudyRecord, comparison: Comparison | None) -> Iterator[Next]:
    rate = shared_rate(rows) if comparison is None or len(comparison.variants) > 1 else ""
    if rate:
        why = f"All variants share one learning rate, {rate}, which was tuned for none"
        yield Next(why, at_own_rates(record))
    if comparison is None:
        yield Next(f"{FEWEST} seeds would be enough for a verdict", with_seeds(record, FEWEST))
        return
    tested = comparison.tested
    undecided = [one for one in tested if one.is_undecided]
    if comparison.waits or any((one.look or 0) < (one.last_look or 0) for one in undecided):
        yield Next("The study goes on with what is undecided", again(record))
    elif undecided:
        yield from _to_decide(rows, record, comparison)
    params = comparison.summary.set_index("variant")["params"].astype(float)
    pairs = [sorted([params[one.variant.name], params[one.baseline.name]]) for one in tested]
    unequal = [size for small, large in pairs if large > 1.01 * small for size in (small, large)]
    if unequal and (rows["match"] == "none").any():
        sizes = f"Variants differ in size, {min(unequal):,.0f} to {max(unequal):,.0f} parameters"
        yield Next(f"{sizes}: a difference may be one of size", changed(record, "matched", "match=params"))
    is_lead = len(undecided) < len(tested) and not any(one.is_planned for one in comparison.findings)
    if is_lead and record.typed:
        fresh = with_fresh_seeds(record, len(record.reporting_seeds))
        yield Next("No contrast was named beforehand: ask again, with fresh seeds", fresh)


def _to_decide(rows: pd.DataFrame, record: StudyRecord, comparison: Comparison) -> Iterator[Next]:
    """What would decide the contrasts that are undecided, though no run is missing; nothing where runs that
    diverged are the reason. What would be blamed afterwards is not advised: a study, and a sweep that had
    enough seeds for a verdict, is asked again with fresh ones."""
    undecided = [one for one in comparison.tested if one.is_undecided]
    if record.is_copy or (rows["status"] == Status.STALE).any():
        why = "These runs are of another machine or version, and more take all of them anew"
        yield Next(why, again(record))
        return
    if any(note.brief == WORSE for note in comparison.notes):
        steps, epochs = rows["steps"].unique(), pd.to_numeric(rows["epochs"]).max()
        if len(steps) == 1 and not LONGER * epochs > MOST_EPOCHS:
            longer = changed(record, "longer", f"train.steps={LONGER * int(steps[0])}")
            yield Next("These models are worse than counting: train for longer before more seeds", longer)
    needed = max((one.more_seeds for one in undecided if one.more_seeds is not None), default=0)
    most = max(one.seeds for one in comparison.tested)
    seeds, unit = needed + most, comparison.tested[0].unit
    if record.looks:
        why = "Its last look left this undecided: ask again, with fresh seeds"
        yield Next(why, with_fresh_seeds(record, len(record.looks.seeds)))
    elif needed > MOST_SEEDS:
        yield Next(f"About {needed:,} more {unit}s would decide this, {AS_SEEN}: more than one trains")
    elif needed and (record.metric or most >= FEWEST) and (record.typed or record.command):
        yield Next(
            f"About {seeds:,} seeds would decide this, {AS_SEEN}: ask again with fresh ones",
            with_fresh_seeds(record, seeds),
        )
    elif needed:
        why = f"About {counted(needed, f'more {unit}')} would decide this, {AS_SEEN}"
        yield Next(why, with_seeds(record, seeds))
