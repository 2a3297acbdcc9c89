"""Every key with its default and its comment, from the YAML of configs/, and the choices of each group. Those
comments are all that is written about keys: `ablate keys` and the site show them."""

import difflib
import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from ablate.config.column import declared
from ablate.config.read import dotted
from ablate.config.rules import ConfigError, as_override, line_on
from ablate.config.schema import RunConfig, later_keys

PRESETS = ("model", "train")  # groups whose choices all have the same keys
# Keys by which a file describes itself, rather than a run.
DESCRIPTIONS = ("defaults", "name", "recipe", "about", "licence", "files", "_target_")
EXAMPLES = ("fusion", "tuned")  # the studies whose files explain the keys of a study first
# What nanoGPT, or a config of transformers, calls a key.
NAMED_ELSEWHERE = {
    "heads": "n_head n_heads num_heads num_attention_heads",
    "model.d_model": "n_embd hidden_size dim",
    "model.layers": "n_layer n_layers num_layers num_hidden_layers",
    "model.mlp_hidden": "d_ff d_mlp d_inner n_inner dim_feedforward intermediate_size",
    "model.rope_base": "rope_theta",
    "model.mlp": "hidden_act activation_function",
    "model.context": "block_size n_positions max_seq_len",
    "train.steps": "max_iters max_steps epochs step",
    "train.batch": "batch_size",
    "train.lr": "learning_rate",
    "train.min_lr_ratio, a share of train.lr": "min_lr",
    "train.warmup, a share of the steps": "warmup_iters warmup_steps",
    "train.clip": "grad_clip",
    "train.eval_every": "eval_interval",
    "train.eval_tokens": "eval_iters",
    "train.precision": "dtype",
    "corpus": "dataset",
    "corpus.bpe_vocab": "vocab_size",
}
ELSEWHERE = {name: key for key, names in NAMED_ELSEWHERE.items() for name in names.split()}
PACKAGE = Path(__file__).parent.parent
COMMENT = re.compile(r"[ \t]*:?[ \t]*# (.*)")
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one takes a tenth of the other's time


@dataclass(frozen=True)
class Key:
    """name: dotted, as in overrides. default: as its YAML writes it; a key of a study has none. about: the
    comment behind it."""

    name: str
    default: str
    about: str


@dataclass(frozen=True)
class Section:
    """The keys of a YAML. choice: what chooses it, as fusion=gated; empty for keys that need none. about:
    what the file says of itself, in a sentence."""

    choice: str
    about: str
    keys: Sequence[Key]


def matching(prefix: str) -> list[Section]:
    """The sections with the keys that begin with the prefix. It may also be a choice, as fusion=gated, which
    shows all its keys. Raises ConfigError if there are none."""
    every, dotted, found = sections(), prefix.replace("/", "."), list[Section]()
    for section in every:
        choice = section.choice.replace("/", ".")
        keys = [key for key in section.keys if key.name.replace("/", ".").startswith(dotted)]
        if choice.startswith(dotted):
            found.append(section)
        elif keys:
            found.append(replace(section, keys=keys))
    if not found:
        names = [name for section in every for name in (section.choice, *(key.name for key in section.keys))]
        near = _nearest(prefix, [*dict.fromkeys(names)])
        raise ConfigError(line_on(prefix) or f"{prefix}: no key begins so; {near}")
    return found


def _nearest(prefix: str, names: Sequence[str]) -> str:
    """The names that are most like the prefix, those beside it first, or else how names begin."""
    parent, _, last = prefix.rpartition(".")
    if last in ELSEWHERE:
        return f"did you mean {ELSEWHERE[last]}?"
    beside = [name for name in names if name.rpartition(".")[0] == parent]
    near = difflib.get_close_matches(prefix, beside, n=3)
    near = near or [name for name in names if last and name.rpartition(".")[2].startswith(last)]
    if near := near or difflib.get_close_matches(prefix, names, n=3):
        return f"did you mean {', '.join(near[:3])}?"
    return f"they begin with {', '.join(sorted({re.split('[./=]', name)[0] for name in names if name}))}"


def configs_dir() -> Path:
    """configs/ inside the installed package, or beside it in a checkout."""
    return PACKAGE / "configs" if (PACKAGE / "configs").is_dir() else PACKAGE.parent / "configs"


@functools.cache
def sections() -> list[Section]:
    """config.yaml with the groups, then each choice of each group, the default one first."""
    root = configs_dir()
    groups = [*_groups(root / "config.yaml")]
    own = [key for key in keys_in(root / "config.yaml") if not key.name.startswith("hydra.")] + _later("")
    files = [Section("", "", [*groups, *own])]
    for group in groups:
        files += [_studies(root)] if group.name == "study" else _choices(root, group, own)
    return files


def _groups(path: Path) -> Iterator[Key]:
    """The groups of config.yaml's defaults, with their choices."""
    text = path.read_text(encoding="utf-8")
    (defaults,) = [value for key, value in _entries(_composed(text)) if key.value == "defaults"]
    for key, default in (entry for one in defaults.value for entry in _entries(one)):
        group = key.value.removeprefix("override ")
        if not group.endswith("_logging"):  # Hydra's own
            choices = ", ".join(_names(path.parent / group))
            yield Key(group, default.value, f"{_comment(text, key, default)}; choices: {choices}")


def _names(group: Path) -> list[str]:
    return sorted(path.stem for path in group.glob("*.yaml"))


def _choices(root: Path, group: Key, own: Sequence[Key]) -> Iterator[Section]:
    """The choices of a group. A key without a comment has that of config.yaml or of a choice before; a preset
    shows only the values that differ from the default one's. own: the keys of config.yaml."""
    about, shown = {key.name: key.about for key in own}, set[tuple[str, str]]()
    for name in sorted(_names(root / group.name), key=lambda name: name != group.default):
        path = root / group.name / f"{name}.yaml"
        keys = [*keys_in(path, f"{group.name.replace('/', '.')}.")]
        about = {**{key.name: key.about for key in keys if key.about}, **about}
        keys = [replace(key, about=key.about or about.get(key.name, "")) for key in keys]
        keys += _later(group.name) if name == group.default else []
        yield Section(
            f"{group.name}={name}", _head(path), [k for k in keys if (k.name, k.default) not in shown]
        )
        if group.name in PRESETS:
            shown = shown or {(key.name, key.default) for key in keys}


def _later(group: str) -> list[Key]:
    """The keys whose defaults stand on their fields, which the labels of their columns explain."""
    names = {f"{group}.{key}".lstrip("."): default for key, default in later_keys(group).items()}
    labels = {name: [column.label for column in declared(dotted(RunConfig)[name])] for name in names}
    return [Key(name, as_override(default), *labels[name]) for name, default in names.items()]


def _studies(root: Path) -> Section:
    """Each study with its question, and the keys that their files may have, each once, without defaults."""
    questions, about = {}, dict[str, str]()
    for name in sorted(_names(root / "study"), key=lambda name: name not in EXAMPLES):
        for key in keys_in(root / "study" / f"{name}.yaml", depth=2):
            if key.name == "study.question":
                questions[f"study={name}"] = key.default
            if key.name.startswith("study."):
                about[key.name] = about.get(key.name) or key.about
    listed = [*sorted(questions.items()), *about.items()]
    return Section("", "", [Key(name, "", words) for name, words in listed])


def _head(path: Path) -> str:
    """What a file says of itself: its key `about`, or the first sentence of the comment at its beginning."""
    text = path.read_text(encoding="utf-8")
    for key, value in _entries(_composed(text)):
        if key.value == "about":
            return value.value
    lines = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    return re.split(r"(?<=\.) (?=[A-Z])", " ".join(line.lstrip("# ") for line in lines))[0]


def keys_in(path: Path, prefix: str = "", depth: int = 3) -> Iterator[Key]:
    """The keys of a file, dotted, without those by which it describes itself. depth: most parts of a name."""
    text = path.read_text(encoding="utf-8-sig")
    described = DESCRIPTIONS if prefix else ("defaults",)
    for key, value in _entries(_composed(text)):
        if key.value not in described:
            yield from _within(text, prefix + key.value, key, value, depth)


def _within(text: str, name: str, key: yaml.Node, value: yaml.Node, depth: int) -> Iterator[Key]:
    """The key of this value or, if it is a block of keys, those in it."""
    if depth > 1 and isinstance(value, yaml.MappingNode) and not value.flow_style:
        for own, below in _entries(value):
            yield from _within(text, f"{name}.{own.value}", own, below, depth - 1)
    else:
        source = text[value.start_mark.index : value.end_mark.index]
        yield Key(name, " ".join(source.split()), _comment(text, key, value))


def _composed(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader)
    except yaml.YAMLError:  # libyaml refuses half a character, which is refused by its key elsewhere
        return yaml.compose(text)


def _entries(node: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]]:
    return node.value if isinstance(node, yaml.MappingNode) else []


def _comment(text: str, key: yaml.Node, value: yaml.Node) -> str:
    """The comment behind a value, or behind its key if the value begins on a line below."""
    found = COMMENT.match(text, value.end_mark.index) or COMMENT.match(text, key.end_mark.index)
    return found[1].strip() if found else ""
