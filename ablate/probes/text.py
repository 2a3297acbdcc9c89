"""Record where heads look in a user's own text, for the attention maps of a report."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from ablate.config.rules import ConfigError
from ablate.execution.kept import in_float64, prepared, weights_of
from ablate.files.atomic import write_atomically
from ablate.probes.apart import likeness
from ablate.probes.look import look
from ablate.probes.patterns import divergence

DIGITS = 4


def write(directories: Mapping[str, Path], text: Path, path: Path) -> None:
    """Write a JSON file about this text: for each run, by run_id, the `tokens`, the `patterns` by layer,
    head, query and key, and for each pair of heads in a layer the `likeness` of their outputs and the
    `divergence` of their patterns. The text is cut at model.context. Raises ConfigError."""
    try:
        content = text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--text {text}: can't be read ({error}); give a text file in UTF-8") from None
    runs = {run_id: _of_run(directory, content) for run_id, directory in directories.items()}
    write_atomically(path, json.dumps(runs, ensure_ascii=False).encode())


def _of_run(directory: Path, text: str) -> dict[str, object]:
    weights, run = weights_of(directory), prepared(directory)
    try:
        ids = run.corpus.tokenizer.encode(text)[: run.spec.context].astype(np.int64)
    except ConfigError as error:
        raise ConfigError(f"--text: {error}") from None
    if len(ids) < 4:
        raise ConfigError(f"--text: {len(ids)} tokens are too few to look at; give more text")
    model = in_float64(run)
    model.load_state_dict(weights)
    seen = look(model, torch.from_numpy(ids)[None])
    return {
        "tokens": [run.corpus.tokenizer.decode(ids[i : i + 1]) for i in range(len(ids))],
        "patterns": [_rounded(layer.patterns[0].numpy()) for layer in seen],
        "likeness": [_rounded(likeness(layer.written[0].numpy())) for layer in seen],
        "divergence": [_rounded(divergence(layer.patterns)) for layer in seen],
    }


def _rounded(values: np.ndarray) -> list:
    return values.round(DIGITS).tolist()
