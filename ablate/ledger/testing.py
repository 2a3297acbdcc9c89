"""Run the study that tests a claim."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from ablate.analysis.frames import as_texts, frame, with_options
from ablate.analysis.variants import variant_columns
from ablate.compose.sweep import Sweep
from ablate.config.conditions import column_for
from ablate.config.overrides import as_value
from ablate.config.rules import ConfigError
from ablate.execution.formulas import before_training
from ablate.ledger.entry import TUNED, Entry
from ablate.store.columns import RESULTS as ENDED
from ablate.store.store import Store
from ablate.study.run import declared_here, run
from ablate.study.study import Study

TRIAL = ("train.steps=4", "train.eval_every=4", "train.batch=4", "corpus.splits=[0.996,0.002,0.002]")
# Its seeds are not those that report, so a trial shows nothing of the result.
OF_TRIAL = {"seeds": [1, 2], "looks": [], "extend": 0, "develop": [0]}


def sweep_of(entry: Entry, arguments: Sequence[str] = (), name: str = "") -> Sweep:
    """The sweep that tests the claim. arguments: further overrides, such as those of a launcher. name: of the
    study, by default that of the entry. Raises ConfigError."""
    of_trial = {word.partition("=")[0] for word in TRIAL if word in arguments}
    settings = [f"{key}={as_value(value)}" for key, value in entry.settings.items() if key not in of_trial]
    return declared_here(
        entry.study,
        [f"name={name or entry.name}", *settings, *arguments],
        command=f"ablate claims run {entry.number}",
        claim=entry.digest,
    )


def require_possible(entry: Entry) -> None:
    """Raises ConfigError unless all arms of the entry can be built and trained here. Trains nothing."""
    estimate = run(sweep_of(entry), dry_run=True).estimate
    if estimate and (left_out := estimate.record.left_out):
        arm, why = next(iter(left_out.items()))
        raise ConfigError(f"{entry.name}: {arm}: {why}")


def rows_before(entry: Entry) -> int:
    """How many development rows the store has of the entry's arms, at any value of the tuned key. Raises
    ConfigError if it has rows of other seeds, which may have shown how the test ends."""
    study = Study(sweep_of(entry))
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


def run_ids(entry: Entry, rows: pd.DataFrame) -> set[str]:
    """The ids of all runs that the entry asks for, given its rows so far. Raises ConfigError, as
    where this Python has another text."""
    kept = {str(row["run_id"]): {str(c): v for c, v in row.items()} for row in rows.to_dict("records")}
    return {*Study(sweep_of(entry), remote=True).run_ids(kept)}


def trial(entry: Entry, arguments: Sequence[str] = ()) -> Sweep:
    """The study with few steps and with other seeds: whether it runs, and nothing about its result.
    arguments: as of `sweep_of`."""
    sweep = sweep_of(entry, [*TRIAL, *arguments], name=f"trial-{entry.name}")
    return replace(sweep, study={**(sweep.study or {}), **OF_TRIAL}, claim="")
