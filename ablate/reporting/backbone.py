"""Which backbone rows are of, in words: positions, norm, MLP. Loads no torch."""

import pandas as pd

PARTS: dict[str, dict[str, str]] = {
    "position": {"learned": "learned positions", "rope": "rotary positions", "none": "no positions"},
    "norm": {"layer": "layer norm", "rms": "RMS norm"},
    "mlp": {"gelu": "GELU", "relu2": "squared ReLU", "swiglu": "SwiGLU"},
}


def parts(rows: pd.DataFrame) -> str:
    """`learned positions, layer norm, GELU`, with `or` where rows differ; empty for rows that do not name
    them."""
    there = rows[[*PARTS]].dropna() if {*PARTS} <= {*rows.columns} else rows.iloc[:0]
    each = (
        [words.get(str(kind), str(kind)) for kind in there[of].unique()]
        for of, words in PARTS.items()
        if len(there)
    )
    return ", ".join(" or ".join(kinds) for kinds in each)
