"""Write docs/methods.md, all methods on one page, from the code: python scripts/methods_page.py

The text around what the code says is in methods_page.md beside this file.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from ablate.compose.keys import sections  # noqa: E402
from ablate.execution.plugins import KINDS  # noqa: E402
from ablate.files.svg import SVG  # noqa: E402
from ablate.model import attention, latent, mlp, norm, position  # noqa: E402
from ablate.model.costs import attention_params, flops_per_token, total_params  # noqa: E402
from ablate.model.spec import ModelSpec  # noqa: E402
from ablate.reporting.relations import RELATIONS, Relation  # noqa: E402
from scripts.markdown import plain, prose, said, table  # noqa: E402
from scripts.settings import alike, class_of, spec  # noqa: E402

PAGE = ROOT / "docs" / "methods.md"
KEYS = (  # that shape an attention besides the choice of a method
    *("heads", "query_heads", "key_heads", "value_heads", "key_width", "value_width", "tie_qk", "query_proj"),
    *("value_proj", "kv_rank", "kv_norm", "rope_width", "scale", "value_scale", "out_proj", "out_rank"),
)
SETTINGS = (  # of these keys
    *("heads=1", "heads=1 out_proj=false", "heads=1 query_proj=false", "heads=8", "query_heads=1"),
    *("key_heads=2 value_heads=2", "key_heads=1 value_heads=1", "tie_qk=true", "query_proj=false"),
    *("key_width=64", "key_width=64 query_proj=false query_heads=1", "value_width=wide", "value_proj=false"),
    *("kv_rank=16", "kv_rank=64 kv_norm=false", "scale=outside", "scale=both", "scale=none"),
    *("out_proj=false", "out_proj=false value_scale=matched", "out_rank=16", "out_rank=32"),
)
SPECIAL = (
    "fusion=grouped fusion.groups=1",
    "fusion=grouped fusion.groups=4",
    "fusion=exclusive fusion.drop=0",
)
BACKBONES = (
    *("model.position=learned", "model.position=rope", "model.position=none", "model.norm=layer"),
    *("model.norm=rms", "model.mlp=gelu", "model.mlp=relu2", "model.mlp=swiglu"),
)


def page() -> str:
    """The page as Markdown."""
    same = alike([settings for settings in (*SETTINGS, *SPECIAL) if settings != "out_proj=false"])  # concat's
    parts = {kind: "\n\n".join([_costs(_links(kind), same), *_methods(kind)]) for kind in KINDS}
    parts |= {"keys": "\n".join(_keys()), "sharing": prose(re.split(r"See:\s", said(attention))[1])}
    parts |= {"settings": _costs({settings: f"`{settings}`" for settings in SETTINGS}, same)}
    modules = {"latent": latent, "position": position, "norm": norm, "mlp": mlp}
    parts |= {name: prose(said(module)) for name, module in modules.items()}
    parts["turn"] = prose(said(position.Rotary).partition("\n\n")[0].partition(": ")[2])
    parts["mlps"] = "\n".join(prose(f"- {name}: {said(kind)}") for name, kind in mlp.MLPS.items())
    parts |= {"backbones": "\n".join(map(_whole, BACKBONES)), "classes": "\n".join(_rows(same))}
    return Path(__file__).with_suffix(".md").read_text(encoding="utf-8").format(**parts)


def _methods(kind: str) -> Iterator[str]:
    for name, method in KINDS[kind].methods().items():
        drawing = Path(inspect.getfile(method)).with_suffix(".svg")
        title = ElementTree.parse(drawing).findtext(f"{SVG}title")
        about, source = re.split(r"See:\s", said(method))
        related = [one for one in RELATIONS if (one.column, one.pair[1]) == (kind, name)]
        options = [
            key for section in sections() if section.choice == f"{kind}={name}" for key in section.keys
        ]
        blocks = [
            f"### {name}",
            f"![{title}](../{drawing.relative_to(ROOT).as_posix()})",
            prose(f"{kind}={name}: {about}"),
            f"Source: {prose(source)}",
            *(f"Against `{kind}={one.pair[0]}`: {_equation(one)}" for one in related),
            f"Class: `{class_of(f'{kind}={name}')}`",
        ]
        yield "\n".join(["\n\n".join(blocks), *table("option", options)])


def _equation(relation: Relation) -> str:
    return f'`{relation.equation}` (`ablate verify --only "{relation.name}"`). {plain(relation.words)}'


def _keys() -> Iterator[str]:
    """The plain keys, and the equations that concern them, those of readouts aside."""
    about = {key.name: key for key in sections()[0].keys}
    yield from table("key", [about[key] for key in KEYS])
    yield ""
    told = {
        one.words: one
        for one in RELATIONS
        if one.column in KEYS and one.pair[1] not in KINDS["out_proj"].methods()
    }
    yield from (f"- `{one.column}`: {_equation(one)}" for one in told.values())


# --- what is computed ------------------------------------------------------------------------------------


def _links(kind: str) -> dict[str, str]:
    """The methods of a kind, as settings, with links to their sections."""
    return {f"{kind}={name}": f"[{name}](#{name})" for name in KINDS[kind].methods()}


def _costs(shown: Mapping[str, str], same: Iterable[str]) -> str:
    """What one attention costs with each of these settings, and its class. shown: how to write each."""
    numbers = {of: number for number, of in enumerate(same, 1)}
    lines = ["| | parameters | more than concat | FLOPs more | class |", "| --- | --: | --: | --: | --: |"]
    for settings, text in shown.items():
        params, flops = (_of_attention(cost, settings) for cost in (attention_params, flops_per_token))
        more, flops_more = (
            params - _of_attention(attention_params, ""),
            flops - _of_attention(flops_per_token, ""),
        )
        number = numbers.get(class_of(settings), "")
        lines.append(f"| {text} | {params:,} | {_signed(more)} | {_signed(flops_more)} | {number} |")
    return "\n".join(lines)


def _of_attention(cost: Callable[[ModelSpec], int], settings: str) -> int:
    return cost(spec(settings)) // spec(settings).layers


def _whole(settings: str) -> str:
    params = total_params(spec(settings))
    return f"| `{settings}` | {params:,} | {_signed(params - total_params(spec('')))} |"


def _signed(number: int) -> str:
    return f"{number:+,}".replace("-", "−") if number else "0"


def _rows(same: Mapping[str, Iterable[str]]) -> Iterator[str]:
    for number, (of, several) in enumerate(same.items(), 1):
        yield f"| {number} | {', '.join(f'`{settings}`' for settings in several)} | `{of}` |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
