"""ablate's own configs, the YAML of configs/: what they hold, and every key with its default and its comment.
Those comments are all that is written about such keys: `ablate keys` and the site show them."""

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import yaml

from ablate.config.read import OF_ABLATE, defaults, dotted
from ablate.config.rules import ConfigError, as_override, did_you_mean, line_on
from ablate.config.schema import Column, RunConfig

PRESETS = ("model", "train")  # groups whose choices all have the same keys
# Keys by which a file describes itself, rather than a run.
DESCRIPTIONS = ("defaults", "name", "recipe", "about", "licence", "files", "_target_")
EXAMPLES = ("fusion", "tuned", "sizes")  # the studies whose files explain the keys of a study
PACKAGE = Path(__file__).parent.parent
# A line of a YAML of ablate's with a key: its indent, name, value and comment.
LINE = re.compile(r"^( *(?:- )?)([^\s#:][^#:\n]*):(?: +([^#\n].*?))?(?: +# (.*))?$", re.MULTILINE)


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
    found = list[Section]()
    for section in sections():
        if section.choice.startswith(prefix):
            found.append(section)
        elif keys := [key for key in section.keys if key.name.startswith(prefix)]:
            found.append(replace(section, keys=keys))
    if not found:
        raise ConfigError(unknown_key(prefix))
    return found


def unknown_key(key: str) -> str:
    """The message on a key that there is not. Suggestions come from choices that have it, keys of its
    name, keys beside it, then all keys."""
    every = sections()
    names = [one.name for section in every for one in section.keys]
    names += [section.choice for section in every if "=" in key and section.choice]
    parent, _, last = key.rpartition(".")
    if having := [one.choice for one in every if one.choice and key in (of.name for of in one.keys)]:
        return f"{key}: a key of {' or '.join(having)}; choose that, or leave it out"
    if key in names:
        return f"{key}: not in this config; {'add study=NAME' if parent == 'study' else OF_ABLATE}"
    if line := line_on(key) or line_on(f".{last}"):
        return line
    of_its_name = [name for name in names if f".{name}".endswith(f".{last}")]
    beside = [name for name in names if name.rpartition(".")[0] == parent]
    near = of_its_name or beside or [name for name in names if name.isidentifier()]
    return f"{key}: no such key{did_you_mean(key, near)}"


def configs_dir() -> Path:
    """configs/ inside the installed package, or beside it in a checkout."""
    return PACKAGE / "configs" if (PACKAGE / "configs").is_dir() else PACKAGE.parent / "configs"


@functools.cache
def sections() -> list[Section]:
    """config.yaml with the groups, then each choice of each group, the default one first."""
    root = configs_dir()
    groups = [*_groups(root / "config.yaml")]
    own = [key for key in keys_in(root / "config.yaml") if not key.name.startswith("hydra.")]
    files = list[Section]()
    for group in groups:
        files += [_studies(root)] if group.name == "study" else _choices(root, group, own)
    listed = {key.name for section in files for key in section.keys}
    later = [key for key in _of_fields() if key.name not in listed]
    return [Section("", "", [*groups, *own, *later]), *files]


def _of_fields() -> Iterator[Key]:
    """The keys with a default on their field, as those that came later, and the label of their column."""
    for name, value in defaults(RunConfig).items():
        marks = get_args(dotted(RunConfig)[name])
        yield Key(name, as_override(value), "".join(of.label for of in marks if isinstance(of, Column)))


def _groups(path: Path) -> Iterator[Key]:
    """The groups of config.yaml's defaults, with their choices."""
    for key in _lines(path):
        group = key.name.removeprefix("defaults.").removeprefix("override ")
        if key.name != group and not group.endswith("_logging"):  # Hydra's own
            choices = ", ".join(_names(path.parent / group))
            yield Key(group, key.default, f"{key.about}; choices: {choices}")


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
        yield Section(
            f"{group.name}={name}", _head(path), [k for k in keys if (k.name, k.default) not in shown]
        )
        if group.name in PRESETS:
            shown = shown or {(key.name, key.default) for key in keys}


def _studies(root: Path) -> Section:
    """Each study with its question, and the keys that the examples have, each once, without defaults."""
    lines = {name: [*_lines(root / "study" / f"{name}.yaml")] for name in _names(root / "study")}
    questions = {
        f"study={name}": key.default for name in lines for key in lines[name] if key.name == "study.question"
    }
    about = dict[str, str]()
    for key in (key for name in EXAMPLES for key in lines[name] if re.fullmatch(r"study\.\w+", key.name)):
        about[key.name] = about.get(key.name) or key.about
    return Section("", "", [Key(name, "", words) for name, words in (questions | about).items()])


def _head(path: Path) -> str:
    """What a file says of itself: its key `about`, or the first sentence of the comment at its beginning."""
    about = [key.default for key in _lines(path) if key.name == "about"]
    text = path.read_text(encoding="utf-8")
    lines = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    return [*about, *re.split(r"(?<=\.) (?=[A-Z])", " ".join(line.lstrip("# ") for line in lines))][0]


def keys_in(path: Path, prefix: str = "") -> Iterator[Key]:
    """The keys of a file, dotted, without those by which it describes itself."""
    described = DESCRIPTIONS if prefix else ("defaults",)
    for key in _lines(path):
        if key.default and key.name.partition(".")[0] not in described:
            yield replace(key, name=prefix + key.name)


def _lines(path: Path) -> Iterator[Key]:
    """Each line with a key, dotted; of a block, or a value on the lines below, the default is empty."""
    above: list[tuple[int, str]] = []  # the blocks that the line is in, with their indents
    for indent, name, value, about in re.findall(LINE, path.read_text(encoding="utf-8")):
        above = [*(block for block in above if block[0] < len(indent)), (len(indent), name)]
        yield Key(".".join(of for _, of in above), value, about)


@functools.cache
def choices(group: str) -> Mapping[str, dict[str, Any]]:
    """The keys in the YAML of each choice of a group, by name; a preset has those of its defaults, too."""
    return {path.stem: _with_defaults(path) for path in sorted((configs_dir() / group).glob("*.yaml"))}


def _with_defaults(path: Path) -> dict[str, Any]:
    """The keys of a preset over those of the presets that it begins with."""
    own, inherited = yaml.safe_load(path.read_text(encoding="utf-8")), {"name": path.stem}
    for base in own.pop("defaults", []):
        inherited |= {} if base == "_self_" else _with_defaults(path.with_name(f"{base}.yaml"))
    return inherited | own


def defaults_of(kind: str, name: str, options: type) -> dict[str, Any]:
    """The options of a method with their defaults: from its YAML, or else from its options class."""
    given = choices(kind).get(name) or defaults(options)
    return {key: value for key, value in given.items() if key != "name"}
