"""Probe the runs that a target names, and write files beside its results: values, and maps of attention."""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from ablate.analysis.frames import select, with_options
from ablate.analysis.load import load
from ablate.analysis.probes import COLUMNS, FILE, read
from ablate.analysis.variant import names_of_runs
from ablate.analysis.variants import USABLE, collect
from ablate.compute.limits import available_cores
from ablate.config.rules import ConfigError
from ablate.data.paired import Pair, batch_of
from ablate.data.splits import Batch
from ablate.data.tokenizers import Tokenizer
from ablate.execution.stored import reopened
from ablate.execution.trained import TrainedModel, answer, in_float64, load_model, require_weights, weights_of
from ablate.files.atomic import write_atomically
from ablate.launch.processes import map_in_workers
from ablate.model import scores
from ablate.model.models import EncoderDecoder
from ablate.probes.measure import Value, layer_names, measure
from ablate.probes.outputs import likeness
from ablate.probes.patterns import look
from ablate.store.run_files import read_started, weights_on_the_way
from ablate.store.store import Store

DIGITS = 4  # of the numbers in attention maps
MAPS = re.compile(rb'\{"[^"]*": \{"tokens"')  # how a file of them begins


@dataclass(frozen=True)
class Probed:
    """directories: of the finished runs, by run_id. variant: the names of their variants, by run_id. path:
    the default path of the CSV."""

    directories: Mapping[str, Path]
    variant: pd.Series
    path: Path

    def first_of_each(self) -> list[str]:
        """The first run of each variant."""
        finished = self.variant[self.variant.index.isin([*self.directories])]
        return finished[~finished.duplicated()].index.tolist()


def find(target: str, where: Sequence[str] = ()) -> Probed:
    """The runs of a target that meet `where`. target: a study by name or directory, a CSV file of one, or a
    run by a prefix of its id or name. Raises ConfigError."""
    results = load([target], runs=True)
    (source,) = results.sources
    path = source.directory / (f"{source.run.name}-{FILE}" if source.run else FILE)
    rows = select(with_options(results.rows), where)
    if len(rows) and not (rows["status"].isin(USABLE) & rows["val_loss"].notna()).any():
        how = " and ".join(dict.fromkeys(rows["status"]))
        raise ConfigError(f"{target}: {how}, so there is nothing to probe; take a run that is done")
    shown = collect(rows, "val_loss", mixed=True).shown
    rows = rows[rows["status"].isin(USABLE) & rows["val_loss"].notna()]
    variant = names_of_runs(rows, shown)
    directories = {run_id: at for run_id, at in results.directories.items() if run_id in variant.index}
    if not directories:
        raise ConfigError(f"{target}: no finished run of it lies here; probe where the runs were made")
    return Probed(directories, variant, path)


def probe_runs(directories: Mapping[str, Path], path: Path, *, report: Callable[[str], None]) -> pd.DataFrame:
    """Probe these runs, given by run_id, with one process per core: the trained model of each and its
    intermediate weights, if it kept any, with the values of the untrained model beside them. `path` is
    written after each run, and keeps the values of other runs.

    report: called with a line for each run, also for one that can't be probed: it is stale, kept no weights,
    or has too little text. Raises ConfigError if none can.
    """
    titles, run_ids, parts = Store().titles(), [*directories], list[pd.DataFrame]()
    probed = map_in_workers(
        _values_of_run,
        [*directories.values()],
        min(len(directories), available_cores()),
    )
    for number, (index, table) in enumerate(probed, 1):
        run_id, progress = run_ids[index], f"[{number}/{len(directories)}]"
        if isinstance(table, ConfigError):
            report(f"{progress} {table}")
            continue
        parts.append(table.assign(run_id=run_id)[[*COLUMNS]])
        directory = directories[run_id]
        report(f"{progress} {titles.get(directory.name, directory.name)}{_abstaining(directory)}")
        _write(path, pd.concat(parts, ignore_index=True))
    if not parts:
        raise ConfigError("none of the runs could be probed, for the reasons above")
    return pd.concat(parts, ignore_index=True)


def _values_of_run(directory: Path) -> pd.DataFrame | ConfigError:
    """The probes of a finished run after each step whose weights it kept, with those of the untrained model
    beside them; or the reason why there are none."""
    try:
        require_weights(directory)
        run = reopened(directory, code=True).prepared("cpu")
        model, last = in_float64(run), run.config.train.steps
        untrained = _table(measure(run, model, ranges=False))
        tables = []
        for step in [*weights_on_the_way(directory), last]:
            model.load_state_dict(weights_of(directory, None if step == last else step))
            tables.append(_table(measure(run, model)).assign(step=step))
    except ConfigError as error:
        return ConfigError(str(error))  # which can be sent between processes, whatever its class
    place = ["layer", "head", "probe"]
    twin = untrained[[*place, "value"]].rename(columns={"value": "untrained"})
    return pd.concat(tables, ignore_index=True).merge(twin, "left", on=place)


def _abstaining(directory: Path) -> str:
    """That probes of patterns say nothing of a run, as the end of a line; empty if they do."""
    rule = read_started(directory)["scores"]
    method = scores.methods().get(rule)
    more = method is not None and method.reads_more
    return f"; scores={rule} reads more than its patterns, so probes of these abstain" if more else ""


def _table(values: Iterable[Value]) -> pd.DataFrame:
    numbers = dict.fromkeys(("value", "null", "low", "high"), float)
    return pd.DataFrame([asdict(value) for value in values]).astype(numbers)


def _write(path: Path, table: pd.DataFrame) -> None:
    """Write these values, with those of other runs that are there by now: another command may add some."""
    if path.exists() and len(before := read(path)):
        others = before[~before["run_id"].isin(table["run_id"])]
        table = pd.concat([others, table], ignore_index=True) if len(others) else table
    write_atomically(Path(os.path.realpath(path)), table.to_csv(index=False, lineterminator="\n").encode())


# --- where heads look in a user's own text ---------------------------------------------------------


def write_maps(directories: Mapping[str, Path], text: Path, path: Path) -> None:
    """Write a JSON file about this text: for each run, by run_id, what `_maps` returns. Raises
    ConfigError."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        if not MAPS.match(file.read(40)):
            raise ConfigError(f"{path}: no file of ablate probe --text; move it away, or name another --out")
    try:
        content = text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--text {text}: can't be read ({error}); give a text file in UTF-8") from None
    runs = {run_id: _maps(directory, content) for run_id, directory in directories.items()}
    write_atomically(path, json.dumps(runs, ensure_ascii=False).encode())


def _maps(directory: Path, text: str) -> dict[str, object]:
    """The `tokens`, the names of `layers`, the `patterns` by layer, head, query and key, and for each pair of
    heads in a layer the `likeness` of their outputs. The text is cut at model.context.

    For a model with an encoder, the first line has a source and, after a tab, its target, by default the
    model's answer. The layers are those of cross-attention, `tokens` are the tokens it predicts, and
    `keys` those of the source.
    """
    model = load_model(directory, code=True).double()
    has_encoder = isinstance(model.network, EncoderDecoder)
    try:
        batch, tokens, keys = _two_texts(model, text) if has_encoder else _one_text(model, text)
    except ConfigError as error:
        raise ConfigError(f"--text: {error}") from None
    seen = zip(layer_names(model.network), look(model.network, batch), strict=True)
    shown = [(name, heads) for name, heads in seen if heads.site.kind == "cross" or not keys]
    return {
        "tokens": tokens,
        **({"keys": keys} if keys else {}),
        "layers": [str(name) for name, _ in shown],
        "patterns": [heads.patterns[0].numpy().round(DIGITS).tolist() for _, heads in shown],
        "likeness": [likeness(heads.written[0].numpy()).round(DIGITS).tolist() for _, heads in shown],
    }


def _one_text(model: TrainedModel, text: str) -> tuple[Batch, list[str], list[str]]:
    tokenizer = model.tokenizer
    ids = tokenizer.encode(text)[: model.config.model.context].astype(np.int64)
    if len(ids) < 4:
        raise ConfigError(f"{len(ids)} tokens are too few to look at; give more text")
    text_1T = torch.from_numpy(ids)[None]
    return Batch(text_1T, text_1T), _letters(tokenizer, ids), []


def _two_texts(model: TrainedModel, text: str) -> tuple[Batch, list[str], list[str]]:
    tokenizer, context = model.tokenizer, model.config.model.context
    source, _, target = (text.strip().splitlines() or [""])[0].partition("\t")
    read = tokenizer.encode(source.strip())[:context]
    if not len(read):
        raise ConfigError("its first line is empty; write a source there, and its target after a tab")
    if target.strip():
        written = tokenizer.encode(target.strip())[: context - 1]
    else:
        written = answer(model, torch.from_numpy(read.astype(np.int64))).numpy()
    if len(written) < 3:
        raise ConfigError(f"a target of {len(written)} tokens is too short to look at; give a longer one")
    batch = batch_of([Pair(read, written)], tokenizer.separator)
    return batch, [*_letters(tokenizer, written), "end"], _letters(tokenizer, read)


def _letters(tokenizer: Tokenizer, ids: np.ndarray) -> list[str]:
    return [tokenizer.decode(ids[at : at + 1]) for at in range(len(ids))]
