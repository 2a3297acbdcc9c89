"""Probe the runs that a target names, and write the values beside its results."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from ablate.analysis.load import load
from ablate.analysis.probes import COLUMNS, FILE, read
from ablate.analysis.projection import project
from ablate.analysis.variants import USABLE, names, varying
from ablate.compute.limits import available_cores
from ablate.config.rules import ConfigError
from ablate.data.splits import Batch
from ablate.execution.stored import reopened
from ablate.execution.trained import in_float64, load_model, require_weights, weights_of
from ablate.files.atomic import write_atomically
from ablate.launch.processes import map_in_workers
from ablate.model import scores
from ablate.phrases import counted, lines_if
from ablate.probes.measure import Value, layer_names, measure
from ablate.probes.patterns import patterns_of
from ablate.store.frames import is_simulated, select, with_options
from ablate.store.run_files import read_started

MOST_TOKENS = 32  # of a text in which heads look: as many as an axis names


@dataclass(frozen=True)
class Probed:
    """directories: of the finished runs, by run_id. variant: the names of their variants, by run_id. path:
    the default path of the CSV."""

    directories: Mapping[str, Path]
    variant: pd.Series
    path: Path

    @property
    def first_of_each(self) -> dict[str, Path]:
        """The directory of the first run of each variant, by the variant's name."""
        finished = self.variant[self.variant.index.isin([*self.directories])].drop_duplicates()
        return {name: self.directories[str(run_id)] for run_id, name in finished.items()}


def find(target: str, where: Sequence[str] = ()) -> Probed:
    """The runs of a target that meet `where`. target: a study by name or directory, a CSV file of one, or a
    run by a prefix of its id or name. Raises ConfigError."""
    results = load([target], runs=True)
    (source,) = results.sources
    path = source.directory / (f"{source.run.name}-{FILE}" if source.run else FILE)
    rows = select(with_options(results.rows), where)
    if is_simulated(rows):
        raise ConfigError(f"{target}: no model was trained (train=simulated); take other runs")
    if len(rows) and not (rows["status"].isin(USABLE) & rows["val_loss"].notna()).any():
        how = " and ".join(dict.fromkeys(rows["status"]))
        raise ConfigError(f"{target}: {how}, so there is nothing to probe; take a run that is done")
    variants = project(rows, "val_loss")
    shown = varying(variants.each) or variants.shown[:1]
    rows = rows[rows["status"].isin(USABLE) & rows["val_loss"].notna()]
    variant = names(rows, shown)
    directories = {run_id: at for run_id, at in results.directories.items() if run_id in variant.index}
    if not directories:
        raise ConfigError(f"{target}: no finished run of it lies here; probe where the runs were made")
    return Probed(directories, variant, path)


def probe_runs(directories: Mapping[str, Path], path: Path, *, report: Callable[[str], None]) -> pd.DataFrame:
    """Probe these runs, given by run_id, with one process per core: the trained model of each and its
    intermediate weights, if it kept any, with the values of the untrained model beside them. `path` is
    written after each run, and keeps the values of other runs.

    report: called with a line for each run, and at the end for each reason why some can't be probed: they are
    stale, kept no weights, lack a plugin or have too little text, which `attrs["refused"]` counts. Raises
    ConfigError if none can.
    """
    parts, refused = list[pd.DataFrame](), dict[str, list[str]]()  # the errors of runs, by what they share
    probed = map_in_workers(_values_of_run, [*directories.values()], min(len(directories), available_cores()))
    for number, (run_id, table) in enumerate(zip(directories, probed, strict=True), 1):
        directory = directories[run_id]
        if isinstance(table, ConfigError):
            refused.setdefault(str(table).replace(directory.name, ""), []).append(str(table))
            continue
        parts.append(table.assign(run_id=run_id)[[*COLUMNS]])
        report(f"[{number}/{len(directories)}] {directory.name}{_abstaining(directory, table)}")
        _write(path, pd.concat(parts, ignore_index=True))
    reasons = [
        first + (f"; the same holds for {counted(len(others), 'other run')}" if others else "")
        for first, *others in refused.values()
    ]
    for reason in reasons[: None if parts else -1]:
        report(reason)
    if not parts:
        raise ConfigError(reasons[-1])
    values = pd.concat(parts, ignore_index=True)
    values.attrs["refused"] = len(reasons)
    return values


def looks(directory: Path, text: str) -> pd.DataFrame:
    """Where the heads of a run look in the first tokens of a text: layer, head, the tokens `query` and `key`
    with their places, and the weight. Raises ConfigError."""
    model = load_model(directory, code=True).double()
    if model.config.model.two_texts:
        way_out = "in Python, ablate.probes.patterns.patterns_of shows where its heads look"
        raise ConfigError(f"--text: {directory.name} reads two texts; {way_out}")
    ids_T = model.encode(text)[: min(MOST_TOKENS, model.config.model.context)]
    if len(ids_T) < 2:
        raise ConfigError("--text: fewer than two tokens; give more text")
    seen = patterns_of(model.network, Batch(ids_T[None], ids_T[None]))
    signs = str.maketrans({" ": "·", "\n": "⏎", "\t": "→"})
    tokens = [f"{at} {model.decode(ids_T[at : at + 1]).translate(signs)}" for at in range(len(ids_T))]
    return pd.DataFrame(
        [
            (layer, head, tokens[query], tokens[key], pattern_HTT[head - 1, query, key].item())
            for layer, (pattern_HTT,) in zip(layer_names(model.network), seen, strict=True)
            for head in range(1, len(pattern_HTT) + 1)
            for query in range(len(tokens))
            for key in range(query + 1)
        ],
        columns=["layer", "head", "query", "key", "weight"],
    )


def _values_of_run(directory: Path) -> pd.DataFrame | ConfigError:
    """The probes of a finished run, with those of the untrained model beside them; or why there are none."""
    try:
        require_weights(directory)
        run = reopened(directory, code=True).prepared("cpu")
        model = in_float64(run)
        untrained = _table(measure(run, model))
        model.load_state_dict(weights_of(directory))
        trained = _table(measure(run, model))
    except ConfigError as error:
        return ConfigError(str(error))  # which can be sent between processes, whatever its class
    place = ["layer", "head", "probe"]
    twin = untrained[[*place, "value"]].rename(columns={"value": "untrained"})
    return trained.merge(twin, "left", on=place)


def _abstaining(directory: Path, table: pd.DataFrame) -> str:
    """Which probes say nothing of a run, as the end of a line; empty if all do."""
    row = read_started(directory)
    method = scores.methods().get(row["scores"])
    more = f"; scores={row['scores']} reads more than its patterns, so probes of these abstain"
    kept, written = ({*table.loc[table["probe"] == name, "layer"]} for name in ("kept", "write_rank"))
    layers = ", ".join(sorted(map(str, kept - written)))
    at_zero = f"; fusion={row['fusion']} has no value for a head at 0, so probes of what heads write abstain"
    reads_more = method is not None and method.reads_more
    return "".join([*lines_if(reads_more, more), *lines_if(layers, f"{at_zero} (layer {layers})")])


def _table(values: Iterable[Value]) -> pd.DataFrame:
    numbers = dict.fromkeys(("value", "null"), float)
    return pd.DataFrame([asdict(value) for value in values]).astype(numbers)


def _write(path: Path, table: pd.DataFrame) -> None:
    """Write these values, with those of other runs that are there by now: another command may add some."""
    if path.exists() and len(before := read(path)):
        others = before[~before["run_id"].isin(table["run_id"])]
        table = pd.concat([others, table], ignore_index=True) if len(others) else table
    write_atomically(Path(os.path.realpath(path)), table.to_csv(index=False, lineterminator="\n").encode())
