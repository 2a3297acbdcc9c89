"""Check, before any run, that a study can show its primary contrasts, with the code that later finds them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ablate.analysis.contrasts import column_in, primary_pairs
from ablate.analysis.load import frame
from ablate.analysis.select import as_text
from ablate.analysis.variants import Variants, collect
from ablate.config.rules import ConfigError
from ablate.execution.formulas import before_training
from ablate.execution.run import Resolved
from ablate.store.status import Status

Entry = Mapping[str, Any]


def unshown(
    primary: Sequence[Entry],
    runs: Collection[Resolved],
    levels: Mapping[str, Sequence[str]],
    *,
    all_built: bool,
) -> list[str]:
    """A line for each contrast that can't be shown because some runs can't be built. Raises ConfigError for a
    contrast that the study could not show in any case.

    runs: one of each variant. all_built: whether no variant is missing. levels: by override key.
    """
    variants = as_variants(runs)
    lines = []
    for entry in primary:
        try:
            pairs, _ = primary_pairs(variants, [entry])
            columns = {key: column_in(variants, key) for key, _ in _values(entry)}
        except ConfigError as error:
            raise ConfigError(f"study.primary: {entry}: {error}") from error
        if not pairs:
            there = "; ".join(f"{c}={','.join(variants.table[c].unique())}" for c in columns.values())
            lines.append(f"study.primary: {entry}: no two runs of this study differ so; there is {there}")
            if all_built or not all(
                as_text(value) in {*variants.table[columns[key]], *_levels(key, levels)}
                for key, value in _values(entry)
            ):
                raise ConfigError(lines[-1])
    return lines


def as_variants(runs: Collection[Resolved]) -> Variants:
    """The variants of these runs, as if each run were done."""
    unique = {run.run_id: run for run in runs}.values()
    rows = [{**before_training(run), "status": Status.DONE, "val_loss": 0.0} for run in unique]
    return collect(frame(rows), "val_loss", mixed=True)


def _levels(key: str, levels: Mapping[str, Sequence[str]]) -> list[str]:
    """The levels of the factor that a key refers to by its last part."""
    last = key.rpartition(".")[2]
    return [
        as_text(one) for factor, those in levels.items() if factor.rpartition(".")[2] == last for one in those
    ]


def _values(entry: Entry) -> Iterator[tuple[str, Any]]:
    """Every key that a contrast names, with each of its values."""
    for named in (entry["baseline"], *entry.get("variants", []), entry.get("where", {})):
        for key, value in (named if isinstance(named, Mapping) else {entry["vary"]: named}).items():
            yield from ((key, one) for one in (value if isinstance(value, list) else [value]))
