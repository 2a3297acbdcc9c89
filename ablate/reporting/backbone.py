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


def backbone(rows: pd.DataFrame) -> str:
    """`GPT-2's backbone`, or the parts; empty for rows that do not name them."""
    kinds = _kinds(rows)
    if len(kinds) > 1:
        return counted(len(kinds), "backbone")
    return NAMES.get(kinds[0]) or parts(rows) if kinds else ""


def parts(rows: pd.DataFrame) -> str:
    """`learned positions, layer norm, GELU`, with `or` where rows differ; empty as `backbone` is."""
    kinds, levels = _kinds(rows), list[str]()
    for at, words in enumerate(PARTS.values() if kinds else ()):
        levels.append(" or ".join(dict.fromkeys(words.get(kind[at], kind[at]) for kind in kinds)))
    return ", ".join(levels)


def _kinds(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """The backbones of these rows, each once; none of rows that do not name them."""
    there = rows[[*PARTS]] if {*PARTS} <= {*rows.columns} else rows.iloc[:0]
    return [*there.dropna().drop_duplicates().itertuples(index=False, name=None)]
