"""Which backbone rows are of, in words: positions, norm, MLP. Loads no torch."""

import pandas as pd

from ablate.config.schema import GPT2, LLAMA
from ablate.phrases import counted

PARTS: dict[str, dict[str, str]] = {
    "position": {"learned": "learned positions", "rope": "rotary positions", "none": "no positions"},
    "norm": {"layer": "layer norm", "rms": "RMS norm"},
    "mlp": {"gelu": "GELU", "relu2": "squared ReLU", "swiglu": "SwiGLU"},
}
NAMES = {tuple(GPT2.values()): "GPT-2's backbone", tuple(LLAMA.values()): "Llama's backbone"}


def kinds(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """The backbones of these rows, each once; none of rows that do not name them."""
    if not {*PARTS} <= {*rows.columns}:
        return []
    return [*rows[[*PARTS]].dropna().drop_duplicates().itertuples(index=False, name=None)]


def backbone(rows: pd.DataFrame) -> str:
    """`GPT-2's backbone`, or the parts; empty for rows that do not name them."""
    found = kinds(rows)
    if len(found) > 1:
        return counted(len(found), "backbone")
    return NAMES.get(found[0]) or parts(rows) if found else ""


def parts(rows: pd.DataFrame) -> str:
    """`learned positions, layer norm, GELU`, with `or` where rows differ; empty as `backbone` is."""
    found = kinds(rows)
    levels = [
        dict.fromkeys(words.get(kind[at], kind[at]) for kind in found)
        for at, words in enumerate(PARTS.values())
    ]
    return ", ".join(" or ".join(words) for words in levels if found)
