"""Run the study that tests a claim."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd

from ablate.analysis.frames import frame
from ablate.analysis.select import as_texts, with_options
from ablate.analysis.variants import variant_columns
from ablate.compose.sweep import Sweep
from ablate.config.conditions import column_for
from ablate.config.overrides import as_value
from ablate.config.rules import ConfigError
from ablate.execution.formulas import before_training
from ablate.ledger.entry import TUNED, Entry
from ablate.ledger.judge import Judged, Verdict, keep
from ablate.store.columns import RESULTS as ENDED
from ablate.store.store import Store
from ablate.study.run import Outcome, declared_here, run
from ablate.study.study import Study

TRIAL = ("train.steps=4", "train.eval_every=4", "train.batch=4", "corpus.splits=[0.996,0.002,0.002]")
TRIAL_DEVELOP, TRIAL_SEEDS = (0,), (1, 2)  # not those that report, so a trial shows nothing of the result


def sweep_of(entry: Entry, look: int, arguments: Sequence[str] = (), name: str = "") -> Sweep:
    """The sweep that tests the claim with this many reporting seeds. arguments: further overrides, such as
    those of a launcher. name: of the study, by default that of the entry. Raises ConfigError."""
    of_trial = {word.partition("=")[0] for word in TRIAL if word in arguments}
    settings = [f"{key}={as_value(value)}" for key, value in entry.settings.items() if key not in of_trial]
    return declared_here(
        entry.study(look),
        [f"name={name or entry.name}", *settings, *arguments],
        command=f"ablate claims run {entry.number}",
        claim=entry.digest,
    )


def require_possible(entry: Entry) -> None:
    """Raises ConfigError unless all arms of the entry can be built and trained here. Trains nothing."""
    estimate = run(sweep_of(entry, entry.seeds[0]), dry_run=True).estimate
    if estimate and (left_out := estimate.record.left_out):
        arm, why = next(iter(left_out.items()))
        raise ConfigError(f"{entry.name}: {arm}: {why}")


def rows_before(entry: Entry) -> int:
    """How many development rows the store has of the entry's arms, at any value of the tuned key. Raises
    ConfigError if it has rows of other seeds, which may have shown how the test ends."""
    study = Study(sweep_of(entry, entry.seeds[0]))
    runs = [*map(study.run_of, study.design.compared)]
    arms = [json.loads(json.dumps(before_training(run))) for run in runs]  # values as a row has them
    results = [row for row in Store().rows() if row["status"] in ENDED]
    rows = with_options(frame([*arms, *results]))
    columns = [column for column in variant_columns(rows) if column != column_for(TUNED)]
    keys = [*rows[columns].apply(as_texts).itertuples(index=False, name=None)]
    of_arms, develop = {*keys[: len(arms)]}, 0
    for row, key in zip(results, keys[len(arms) :], strict=True):
        if key in of_arms and row["seed"] not in entry.develop:
            raise ConfigError(
                f"{entry.name}: {row['run_id']} in {Store().root} is a run of one of its arms at seed"
                f" {row['seed']},"
                " which is none that develops, so the outcome may have been known before the freeze; change"
                " the arms"
            )
        develop += key in of_arms
    return develop


def test(entry: Entry, arguments: Sequence[str], *, report: Callable[[Outcome], None]) -> Judged | None:
    """Train what is missing, keep the rows, and judge; at the next number of seeds if that leaves the claim
    undecided. None if runs are left at work or could not begin. report: called with the outcome of each look.
    Raises ConfigError."""
    judged = None
    record = Store().read_study(entry.name)
    seeds = {*record.seeds} if record else set()
    last = max((look for look in entry.seeds if entry.seed(look - 1) in seeds), default=entry.seeds[0])
    for look in [look for look in entry.seeds if look >= last]:  # an interrupted look goes on
        outcome = run(sweep_of(entry, look, arguments))
        report(outcome)
        if outcome.left_at_work or outcome.refused:
            return None
        judged = keep(entry, Store().study_directory(entry.name))
        if judged.verdict is not Verdict.UNDECIDED or judged.diverged:
            break
    return judged


def run_ids(entry: Entry, rows: pd.DataFrame) -> set[str]:
    """The ids of all runs that the entry asks for, given its rows so far. Raises ConfigError, as
    where this Python has another text."""
    kept = {str(row["run_id"]): {str(c): v for c, v in row.items()} for row in rows.to_dict("records")}
    look = max((look for look in entry.seeds if entry.seed(look - 1) in {*rows["seed"]}), default=0)
    if not look:
        raise ConfigError("its rows are of other seeds than the entry's")
    return {*Study(sweep_of(entry, look), remote=True).run_ids(kept)}


def trial(entry: Entry, arguments: Sequence[str] = ()) -> Sweep:
    """The study with few steps and with other seeds: whether it runs, and nothing about its result.
    arguments: as of `sweep_of`."""
    sweep = sweep_of(entry, entry.seeds[0], [*TRIAL, *arguments], name=f"trial-{entry.name}")
    own = {"seeds": [*TRIAL_SEEDS], "extend": 0, "develop": [*TRIAL_DEVELOP]}
    return replace(sweep, study={**(sweep.study or {}), **own}, claim="")
