"""Record where heads look in a user's own text, for the attention maps of a report."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from ablate.config.rules import ConfigError
from ablate.data.paired import Paired
from ablate.data.pairs import Pair
from ablate.data.splits import Batch
from ablate.data.tokenizers import Tokenizer
from ablate.execution.kept import in_float64, prepared, weights_of
from ablate.execution.run import Run
from ablate.execution.translate import translated
from ablate.files.atomic import write_atomically
from ablate.model.blocks import Model
from ablate.probes.apart import likeness
from ablate.probes.look import look
from ablate.probes.measure import layer_names
from ablate.probes.patterns import divergence

DIGITS = 4


def write(directories: Mapping[str, Path], text: Path, path: Path) -> None:
    """Write a JSON file about this text: for each run, by run_id, what `_of_run` returns. Raises
    ConfigError."""
    try:
        content = text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--text {text}: can't be read ({error}); give a text file in UTF-8") from None
    runs = {run_id: _of_run(directory, content) for run_id, directory in directories.items()}
    write_atomically(path, json.dumps(runs, ensure_ascii=False).encode())


def _of_run(directory: Path, text: str) -> dict[str, object]:
    """The `tokens`, the names of `layers`, the `patterns` by layer, head, query and key, and for each pair of
    heads in a layer the `likeness` of their outputs and the `divergence` of their patterns. The text is cut
    at model.context.

    For a model with an encoder, the first line has a source and, after a tab, its target, by default the
    model's translation. The layers are those of cross-attention, `tokens` are the tokens it predicts, and
    `keys` those of the source.
    """
    weights, run = weights_of(directory), prepared(directory)
    model = in_float64(run)
    model.load_state_dict(weights)
    try:
        batch, tokens, keys = _two_texts(run, model, text) if run.spec.encoder else _one_text(run, text)
    except ConfigError as error:
        raise ConfigError(f"--text: {error}") from None
    seen = zip(layer_names(model), look(model, batch), strict=True)
    shown = [(name, heads) for name, heads in seen if heads.site.kind == "cross" or not keys]
    return {
        "tokens": tokens,
        **({"keys": keys} if keys else {}),
        "layers": [str(name) for name, _ in shown],
        "patterns": [_rounded(heads.patterns[0].numpy()) for _, heads in shown],
        "likeness": [_rounded(likeness(heads.written[0].numpy())) for _, heads in shown],
        "divergence": [_rounded(divergence(heads.patterns)) for _, heads in shown],
    }


def _one_text(run: Run, text: str) -> tuple[Batch, list[str], list[str]]:
    tokenizer = run.corpus.tokenizer
    ids = tokenizer.encode(text)[: run.spec.context].astype(np.int64)
    if len(ids) < 4:
        raise ConfigError(f"{len(ids)} tokens are too few to look at; give more text")
    text_1T = torch.from_numpy(ids)[None]
    return Batch(text_1T, text_1T), _letters(tokenizer, ids), []


def _two_texts(run: Run, model: Model, text: str) -> tuple[Batch, list[str], list[str]]:
    tokenizer, split = run.corpus.tokenizer, run.corpus.splits["validation"]
    assert isinstance(split, Paired)
    source, _, target = (text.strip().splitlines() or [""])[0].partition("\t")
    read = tokenizer.encode(source.strip())[: run.spec.context]
    if not len(read):
        raise ConfigError("its first line is empty; write a source there, and its target after a tab")
    if target.strip():
        said = tokenizer.encode(target.strip())[: run.spec.context - 1]
    else:
        (said,) = translated(model, split, [read], run.spec.context)
    batch = split.layout.batch([Pair(read, said)])
    return batch, [*_letters(tokenizer, said), "end"], _letters(tokenizer, read)


def _letters(tokenizer: Tokenizer, ids: np.ndarray) -> list[str]:
    return [tokenizer.decode(ids[at : at + 1]) for at in range(len(ids))]


def _rounded(values: np.ndarray) -> list:
    return values.round(DIGITS).tolist()
