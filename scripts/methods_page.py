"""Write docs/methods.md, all methods on one page, and docs/methods.csv, what settings cost, from the code.

    python scripts/methods_page.py

The text around what the code says is in methods_page.md beside this file.
"""

import csv
import inspect
import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from ablate.execution.plugins import KINDS  # noqa: E402
from ablate.model import attention  # noqa: E402
from ablate.model.costs import attention_params, flops_per_token, total_params  # noqa: E402
from ablate.model.spec import ModelSpec  # noqa: E402
from ablate.verify.identities import IDENTITIES  # noqa: E402
from scripts.markdown import filled, plain, prose, said  # noqa: E402
from scripts.settings import class_of, spec  # noqa: E402

PAGE, COSTS = ROOT / "docs" / "methods.md", ROOT / "docs" / "methods.csv"
SAME = "so both can learn the same functions."
RELATED = {  # a fusion: its baselines, the identity of `ablate verify` between the two, and what that means
    "sum": [("concat", "2", "All heads have the same rows of W_O: they write into the same directions.")],
    "mean": [("concat", "2 mean", "All heads have the same rows of W_O, divided by their number.")],
    "weighted_sum": [
        ("concat", "3", "Heads have rows of W_O that differ by a factor only."),
        ("sum", "19", f"Weights of heads fold into the values, {SAME}"),
    ],
    "head_scale": [("concat", "3 side", f"Weights of heads fold into W_O, {SAME}")],
}
SETTINGS = (  # of keys
    *("heads=1", "heads=1 out_proj=false", "heads=1 key_width=16", "heads=8"),
    *("key_heads=2 value_heads=2", "key_heads=1 value_heads=1", "tie_qk=true"),
    *("key_width=64", "value_width=wide", "scale=outside", "scale=both", "scale=none"),
    *("out_proj=false", "out_rank=16", "out_rank=32"),
)
EQUATIONS = {one.name: one.equation for one in IDENTITIES}
BACKBONES = (
    *("model.position=learned", "model.position=rope", "model.position=none", "model.norm=layer"),
    *("model.norm=rms", "model.mlp=gelu", "model.mlp=relu2", "model.mlp=swiglu"),
)


def page() -> str:
    """The page as Markdown."""
    parts = {kind: "\n\n".join(_methods(kind)) for kind in KINDS}
    parts |= {"sharing": prose(re.split(r"See:\s", said(attention))[1])}
    return Path(__file__).with_suffix(".md").read_text(encoding="utf-8").format(**parts)


def costs() -> str:
    """What each setting costs, as CSV."""
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    rows.writerow(("of", "settings", "parameters", "more_than_the_default", "flops_more_a_token", "class"))
    methods = [f"{kind}={name}" for kind, package in KINDS.items() for name in package.methods()]
    for settings in (*methods, *SETTINGS):
        params, flops = (_of_attention(cost, settings) for cost in (attention_params, flops_per_token))
        more = params - _of_attention(attention_params, "")
        flops_more = flops - _of_attention(flops_per_token, "")
        rows.writerow(("one attention", settings, params, more, flops_more, class_of(settings)))
    for settings in BACKBONES:
        params = total_params(spec(settings))
        rows.writerow(("the whole model", settings, params, params - total_params(spec("")), "", ""))
    return written.getvalue()


def _methods(kind: str) -> Iterator[str]:
    for name, method in KINDS[kind].methods().items():
        drawing = Path(inspect.getfile(method)).with_suffix(".svg")
        about, source = re.split(r"See:\s", said(method))
        related = RELATED.get(name, [])
        blocks = [
            f"### `{kind}={name}`",
            f"![{name}](../{drawing.relative_to(ROOT).as_posix()})",
            prose(about),
            *(
                filled(f"Against `{baseline}`: `{EQUATIONS[one]}` (identity {one}). {plain(meaning)}")
                for baseline, one, meaning in related
            ),
            f"Source: {prose(source)}",
            *_cost(f"{kind}={name}"),
        ]
        yield "\n\n".join(blocks)


# --- what is computed ------------------------------------------------------------------------------------


def _cost(settings: str) -> Iterator[str]:
    """What an attention costs more or less than the default, if it does."""
    differences = {
        "parameters": _of_attention(attention_params, settings) - _of_attention(attention_params, ""),
        "FLOPs": _of_attention(flops_per_token, settings) - _of_attention(flops_per_token, ""),
    }
    told = [f"{more:+,} {unit}".replace("-", "−") for unit, more in differences.items() if more]
    if told:
        yield f"Cost: {', '.join(told)}."


def _of_attention(cost: Callable[[ModelSpec], int], settings: str) -> int:
    return cost(spec(settings)) // spec(settings).layers


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    COSTS.write_text(costs(), encoding="utf-8", newline="\n")
