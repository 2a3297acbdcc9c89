"""What a run is: its configuration, the checks on it, and its identity.

Plain YAML comes in as nested mappings; `read` turns them into the frozen dataclasses below and
refuses, in one line, whatever does not fit. No default stands here: those live in configs/.
"""

import dataclasses
import difflib
import functools
import hashlib
import json
import math
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class ConfigError(ValueError):
    """What was asked for can't be done. The message is one line: the value, the reason, the way out."""


# --- what a key accepts: written into the type, beside the key ---------------------------------


@dataclass(frozen=True)
class AtLeast:
    minimum: float


@dataclass(frozen=True)
class AtMost:
    maximum: float


@dataclass(frozen=True)
class Above:
    bound: float


@dataclass(frozen=True)
class Below:
    bound: float


@dataclass(frozen=True)
class OutsideIdentity:
    """The key does not change what a run computes, so it stays out of the run's identity."""


@dataclass(frozen=True)
class IntroducedAt:
    """A key added after the first release: at this value it stays out of the identity, so that
    runs made before the key existed keep theirs."""

    value: Any


Count = Annotated[int, AtLeast(1), AtMost(2**31)]
Size = Annotated[int, AtLeast(1), AtMost(2**20)]
Positive = Annotated[float, Above(0)]
NonNegative = Annotated[float, AtLeast(0)]
Share = Annotated[float, AtLeast(0), Below(1)]


# --- the configuration ----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FusionConfig:
    """A fusion method by name; its options are checked by the method (ablate.model.fusion)."""

    name: str
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    name: Annotated[str, OutsideIdentity()]
    d_model: Size
    layers: Size
    context: Size
    mlp_hidden: Count | Literal["auto"]
    bias: bool
    dropout: Share


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    steps: Count
    batch: Count
    lr: Positive
    warmup: Annotated[float, AtLeast(0), Below(1)]  # share of the steps
    min_lr_ratio: Annotated[float, AtLeast(0)]
    weight_decay: NonNegative
    beta1: Share
    beta2: Share
    eps: Positive
    clip: Positive | None
    eval_every: Count
    precision: Literal["float32", "bfloat16"]
    save: Annotated[Literal["model", "none"], OutsideIdentity()]
    checkpoint_every: Annotated[Count | None, OutsideIdentity()]
    linear: Annotated[Literal["auto", "mkl", "onednn"], OutsideIdentity()]

    def __post_init__(self) -> None:
        if self.min_lr_ratio > 1:
            raise ConfigError(
                f"train.min_lr_ratio={self.min_lr_ratio:g}: the rate decays to this share of train.lr;"
                " use a number from 0 to 1"
            )


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """Which text, and how it becomes tokens. What a corpus does not use stays null.

    Outside the identity: what the fingerprint of the text already says.
    """

    name: Annotated[str, OutsideIdentity()]
    path: Annotated[str | None, OutsideIdentity()]
    encoding: Annotated[str, OutsideIdentity()]
    errors: Annotated[Literal["strict", "replace", "ignore"], OutsideIdentity()]
    seed: Annotated[int | None, OutsideIdentity()]
    characters: Annotated[Count | None, OutsideIdentity()]
    tokenizer: Literal["char", "byte", "bpe"]
    bpe_vocab: Annotated[int, AtLeast(257), OutsideIdentity()]  # the vocabulary it came to is in
    splits: tuple[NonNegative, NonNegative, NonNegative]

    def __post_init__(self) -> None:
        shown = f"corpus.splits=[{','.join(f'{share:g}' for share in self.splits)}]"
        if not math.isclose(sum(self.splits), 1, abs_tol=1e-9):
            raise ConfigError(
                f"{shown}: the shares add up to {sum(self.splits):g};"
                " give train, validation and test shares that add up to 1"
            )
        if not (self.splits[0] > 0 and self.splits[1] > 0):
            raise ConfigError(f"{shown}: training and validation need text; only the test share may be 0")
        if self.name == "file" and not self.path:
            raise ConfigError(
                "corpus=file: which text? add corpus.path=FILE (a file, a directory, a glob, or -)"
            )
        if self.name != "file" and self.path:
            raise ConfigError(f"corpus.path={self.path}: corpus={self.name} reads no file; add corpus=file")


@dataclass(frozen=True, kw_only=True)
class SeedsConfig:
    """One stream of randomness at a time; null follows the master seed."""

    backbone: int | None
    fusion: int | None
    data: int | None


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    fusion: FusionConfig
    heads: Size
    out_proj: bool
    value_width: Size | Literal["auto", "narrow", "wide"]
    key_width: Size | Literal["auto"]
    match: Literal["none", "params", "flops"]
    match_by: Literal["mlp", "value_width"]
    seed: int
    seeds: SeedsConfig
    model: ModelConfig
    train: TrainConfig
    corpus: CorpusConfig
    name: Annotated[str | None, OutsideIdentity()]
    device: Annotated[str, OutsideIdentity()]
    force: Annotated[bool | Literal["stale"], OutsideIdentity()]

    def __post_init__(self) -> None:
        if self.name is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{,99}", self.name):
            raise ConfigError(
                f"name={self.name}: it names a directory; use up to 100 letters, digits, '.', '_' and '-'"
            )
        if not re.fullmatch(r"auto|cpu|mps|cuda(:[0-9]{1,3})?", self.device):
            raise ConfigError(f"device={self.device}: use auto, cpu, cuda, cuda:N or mps")

    def resolved_seeds(self) -> dict[str, int]:
        """The seed of each stream, the master seed where none was given."""
        given = dataclasses.asdict(self.seeds)
        return {stream: self.seed if seed is None else seed for stream, seed in given.items()}


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Every size of one language model, as numbers: what `auto` and `match` came to."""

    vocab: int
    d_model: int
    layers: int
    context: int
    mlp_hidden: int
    bias: bool
    dropout: float
    heads: int
    key_width: int
    value_width: int
    out_proj: bool
    fusion: FusionConfig


# --- reading ---------------------------------------------------------------------------------


def read_run(mapping: Mapping[str, Any]) -> RunConfig:
    """The composed configuration as a RunConfig. Raises ConfigError."""
    if "fusion" not in mapping:
        return read(RunConfig, mapping)  # names the key that is missing
    fusion = mapping["fusion"]
    if not isinstance(fusion, Mapping):
        raise ConfigError(f"fusion={fusion}: name a method, as in fusion=sum")
    options = {key: value for key, value in fusion.items() if key != "name"}
    return read(RunConfig, {**mapping, "fusion": {"name": fusion.get("name"), "options": options}})


def read(cls: type[T], mapping: Mapping[str, Any], where: str = "") -> T:
    """`cls` from plain values, every one converted and checked. Raises ConfigError.

    where: the dotted path of the mapping, for messages.
    """
    hints = _hints(cls)
    for key in mapping:
        if key not in hints:
            raise ConfigError(f"{_path(where, key)}: no such key{did_you_mean(str(key), hints)}")
    require_keys(cls, mapping, where)
    return cls(**{key: _convert(hints[key], mapping[key], _path(where, key)) for key in hints})


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """The type of each key of `cls`, with its rules."""
    return get_type_hints(cls, include_extras=True)


def require_keys(cls: type, keys: Iterable[str], where: str = "") -> None:
    """Raises ConfigError for a key of `cls` that is not among `keys`."""
    present = set(keys)
    for key in _hints(cls):
        if key not in present:
            raise ConfigError(
                f"{_path(where, key)}: this key is missing; a config of your own has to begin with ablate's,"
                " as defaults: [config, _self_]"
            )


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """How a message goes on after an unknown word: a suggestion, if one is near, and the choices."""
    names = sorted(choices)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ";"
    return f"{hint} choices: {', '.join(names)}"


def _path(where: str, key: object) -> str:
    return f"{where}.{key}" if where else str(key)


def _convert(hint: Any, value: Any, path: str) -> Any:
    if get_origin(hint) is Annotated:
        base, *rules = get_args(hint)
        converted = _convert(base, value, path)
        for rule in rules:
            _check(rule, converted, path)
        return converted
    if get_origin(hint) in (Union, types.UnionType):
        return _convert_union(get_args(hint), value, path)
    if get_origin(hint) is Literal:
        if value in get_args(hint) and type(value) is type(get_args(hint)[0]):
            return value
        raise ConfigError(
            f"{path}={_show(value)}: not a choice{did_you_mean(str(value), map(str, get_args(hint)))}"
        )
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple) or len(value) != len(get_args(hint)):
            raise ConfigError(f"{path}={_show(value)}: expected a list of {len(get_args(hint))} numbers")
        return tuple(_convert(part, item, path) for part, item in zip(get_args(hint), value, strict=True))
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path}={_show(value)}: this is a group of keys; set one, as {path}.KEY=VALUE")
        return read(hint, value, path)  # pyright: ignore[reportArgumentType]
    return _convert_scalar(hint, value, path)


def _convert_union(hints: tuple[Any, ...], value: Any, path: str) -> Any:
    """The first member that takes the value; else one message that names them all."""
    if value is None and type(None) in hints:
        return None
    reasons = []
    for hint in hints:
        try:
            if hint is not type(None):
                return _convert(hint, value, path)
        except ConfigError as error:
            reasons.append(error)
    base = _expected(hints[0])
    if isinstance(value, int | float) and not isinstance(value, bool) and "number" in base:
        raise reasons[0]  # a number of the wrong size: say so, rather than list the words
    raise ConfigError(f"{path}={_show(value)}: expected {' or '.join(_expected(hint) for hint in hints)}")


def _convert_scalar(hint: Any, value: Any, path: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float and is_number and math.isfinite(value):
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint is bool and isinstance(value, bool):
        return value
    if hint is str and isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)  # `corpus.path=1984` is a path
    if get_origin(hint) is Mapping and isinstance(value, Mapping):
        return dict(value)
    way_out = ""
    if hint is int and isinstance(value, float) and value.is_integer():
        way_out = f"; write {int(value)}"
    raise ConfigError(f"{path}={_show(value)}: expected {_expected(hint)}{way_out}")


def _check(rule: Any, value: Any, path: str) -> None:
    if isinstance(rule, AtLeast) and value < rule.minimum:
        raise ConfigError(f"{path}={_show(value)}: must be at least {rule.minimum:g}")
    if isinstance(rule, AtMost) and value > rule.maximum:
        raise ConfigError(f"{path}={_show(value)}: must be at most {rule.maximum:,.0f}")
    if isinstance(rule, Above) and value <= rule.bound:
        raise ConfigError(f"{path}={_show(value)}: must be above {rule.bound:g}")
    if isinstance(rule, Below) and value >= rule.bound:
        raise ConfigError(f"{path}={_show(value)}: must be below {rule.bound:g}")


def _expected(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return _expected(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return " or ".join(map(str, get_args(hint)))
    names = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a word"}
    return "null" if hint is type(None) else names[hint]


def _show(value: Any) -> str:
    """The value as one would type it on the command line."""
    if isinstance(value, list | tuple):
        return "[" + ",".join(_show(item) for item in value) + "]"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- identity ----------------------------------------------------------------------------------


def resolve(config: RunConfig, spec: ModelSpec) -> RunConfig:
    """`config` with `auto` and `match` replaced by the numbers they came to."""
    model = dataclasses.replace(config.model, mlp_hidden=spec.mlp_hidden)
    match_by = config.match_by if config.match != "none" else "mlp"  # says nothing then, so says one thing
    return dataclasses.replace(
        config,
        model=model,
        value_width=spec.value_width,
        key_width=spec.key_width,
        fusion=spec.fusion,
        match_by=match_by,
    )


def run_id(config: RunConfig, spec: ModelSpec, corpus_sha256: str) -> str:
    """16 hex digits that two runs share only if they compute the same thing.

    corpus_sha256: the fingerprint of the text.
    """
    content = identity_keys(resolve(config, spec))
    content |= {"seeds": config.resolved_seeds(), "text": corpus_sha256, "vocab": spec.vocab}
    return digest(content)[:16]


def run_name(config: RunConfig, identity: str) -> str:
    """The name of a run's directory: readable, and unique by the first half of the identity."""
    readout = "" if config.out_proj else "-noproj"
    size = f"d{config.model.d_model}x{config.model.layers}"
    return f"{config.fusion.name}-h{config.heads}{readout}-{size}-s{config.seed}-{identity[:8]}"


def digest(content: Any) -> str:
    """SHA-256 of plain data, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def identity_keys(config: Any) -> dict[str, Any]:
    """The keys of a configuration that decide what a run computes, nested as they are."""
    content = {}
    for key, hint in _hints(type(config)).items():
        value = getattr(config, key)
        rules = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        if any(isinstance(rule, OutsideIdentity) for rule in rules):
            continue
        if any(isinstance(rule, IntroducedAt) and rule.value == value for rule in rules):
            continue
        content[key] = identity_keys(value) if dataclasses.is_dataclass(value) else value
    return content
