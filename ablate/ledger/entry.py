"""An entry of the ledger, claims/NNN-name.yaml: what was published, how it is tested, what would count."""

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml

from ablate.config.identity import digest
from ablate.config.read import read, unlike_defaults
from ablate.config.rules import Above, AtLeast, AtMost, ConfigError, Meaning, Rule, Spelled, typed
from ablate.study.declared import AnArm, InAList, KeysOfARun

CLAIMS = Path("claims")
FILE = re.compile(r"(\d{3})-([a-z0-9-]+)\.yaml")
EXAMPLE = "see the other files of claims/ for an example"
TUNED, METRIC, ALPHA = "train.lr", "test_loss", 0.05
LARGEST_SEED = 2**31
Expect = Literal["below", "above", "within", "at_most", "at_least"]


class Looks(Rule):
    """Numbers of seeds at which the verdict is looked at, each larger than the one before."""

    def check(self, value: Any, path: str) -> None:
        if not value or sorted({*value}) != value or value[0] < 2:
            raise ConfigError(f"{path}={typed(value)}: write growing numbers from 2, as [8] or [8, 16]")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a claim was published. read: what of it was read for this entry."""

    cite: str
    url: Annotated[str, Spelled(r"https?://\S+", "write the address of the source, as https://…")]
    read: str


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A contrast of arms and what the claim expects of it, in nats of METRIC.

    contrast: arms with signs, as in `gated - concat`. expect: below or above 0; or within ±bound, at_most the
    bound, at_least −bound. published: the published effect, of which at least `share` has to be seen. bound:
    in nats, by default the entry's margin; of_attention: the same as a share of the entry's yardstick.
    """

    contrast: str
    expect: Expect
    published: float | None = None
    share: Annotated[float, AtLeast(0), AtMost(1)] = 0.25
    bound: Annotated[float, Above(0)] | None = None
    of_attention: Annotated[float, Above(0), AtMost(1)] | None = None

    def __post_init__(self) -> None:
        claims_effect = self.expect in ("below", "above")
        if claims_effect and (self.bound is not None or self.of_attention is not None):
            raise ConfigError(f"{self.contrast}: expect={self.expect} has no bound; give published and share")
        if self.bound is not None and self.of_attention is not None:
            raise ConfigError(f"{self.contrast}: bound and of_attention are the same bound; leave one out")
        if not claims_effect and self.published is not None:
            raise ConfigError(f"{self.contrast}: expect={self.expect} takes a bound; leave published out")
        if self.published is not None and (self.published > 0) != (self.expect == "above"):
            raise ConfigError(f"{self.contrast}: published={self.published} is not {self.expect} 0")

    @cached_property
    def weights(self) -> dict[str, int]:
        """The weight of each arm. Raises ConfigError."""
        return weights_of(self.contrast)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The content of a file. sentence: the claim. fusion: whether it is about how heads are brought together.
    settings: overrides of every run; lr: the grid of learning rates, for every arm. yardstick: the contrast
    that is worth 1 in shares. seeds: at how many reporting seeds there is a verdict; the next number only if
    it was undecided. note: what the test leaves out."""

    sentence: str
    fusion: bool
    source: Source
    published: str
    settings: Annotated[Mapping[str, Any], KeysOfARun(), Meaning("write overrides, as {heads: 8}")]
    arms: Mapping[str, Annotated[Mapping[str, str], AnArm()]]
    lr: Annotated[list[str], InAList()]
    predictions: list[Prediction]
    margin: Annotated[float, Above(0)]
    seeds: Annotated[list[int], Looks()]
    yardstick: str = ""
    develop: Annotated[list[int], Meaning("write whole numbers, as [0, 1, 2]")] = field(
        default_factory=lambda: [0, 1, 2, 3, 4]
    )
    extend: Annotated[int, AtLeast(0)] = 3
    note: str = ""

    def __post_init__(self) -> None:
        if not self.predictions:
            raise ConfigError("predictions=[]: without one there is no rule for a verdict; add one")
        if any(not name.isidentifier() for name in self.arms):
            raise ConfigError(f"arms={typed(list(self.arms))}: name them by letters, digits and _")
        contrasts = {p.contrast: p.weights for p in self.predictions}
        if self.yardstick:
            contrasts[self.yardstick] = weights_of(self.yardstick)
        for contrast, weights in contrasts.items():
            if unknown := [name for name in weights if name not in self.arms]:
                raise ConfigError(f"{contrast}: {unknown[0]} is no arm; there is {', '.join(self.arms)}")
        if not self.yardstick and any(p.of_attention is not None for p in self.predictions):
            raise ConfigError("yardstick: of_attention needs it; write a contrast, as uniform - concat")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the parsed entry, without values that equal their defaults: comments and layout do not
        count, and keys added later leave it as it is."""
        return digest(_plain(self))

    def seed(self, k: int) -> int:
        """The k-th reporting seed, which all arms share: it follows from the digest, so nobody chose it."""
        drawn = hashlib.sha256(f"{self.digest}:{k}".encode()).digest()
        return int.from_bytes(drawn[:8], "big") % LARGEST_SEED

    def study(self, look: int) -> dict[str, Any]:
        """The block of a study that tests the claim with this many reporting seeds."""
        return {
            **{"kind": "tuned", "question": self.sentence, "tune": TUNED, "metric": METRIC},
            "factors": {TUNED: [_number(one) for one in self.lr]},
            "arms": {
                name: {key: _number(one) for key, one in arm.items()} for name, arm in self.arms.items()
            },
            **{"develop": self.develop, "extend": self.extend, "report_at": ["tuned"]},
            "seeds": [self.seed(k) for k in range(look)],
            **{"primary": [], "margin": self.margin},
        }


@dataclass(frozen=True)
class Filed:
    """An entry with the name of its file, such as 003-write-rank."""

    name: str
    entry: Entry

    @property
    def number(self) -> str:
        return self.name[:3]


def weights_of(contrast: str) -> dict[str, int]:
    """The weight of each arm in a contrast such as `a - b - c + d`. Raises ConfigError."""
    words = re.fullmatch(r"\s*\w+(\s*[+-]\s*\w+)*\s*", contrast)
    parts = re.findall(r"([+-]?)\s*(\w+)", contrast) if words else []
    weights: dict[str, int] = {}
    for sign, name in parts:
        weights[name] = weights.get(name, 0) + (-1 if sign == "-" else 1)
    weights = {name: weight for name, weight in weights.items() if weight}
    if not weights or sum(weights.values()):
        raise ConfigError(f"{contrast}: write arms with as many − as +, as in gated - concat")
    return weights


def read_entries(directory: Path = CLAIMS) -> list[Filed]:
    """All entries by number. Raises ConfigError for a file that is none, and for a number that two have."""
    if not directory.is_dir():
        raise ConfigError(f"{directory}/: no such directory here; run this in a checkout of ablate")
    filed: dict[str, Filed] = {}
    for path in sorted(directory.glob("*.yaml")):
        if not (named := FILE.fullmatch(path.name)):
            raise ConfigError(f"{path}: name it by a number and a word, as 003-write-rank.yaml")
        if before := filed.get(named[1]):
            raise ConfigError(f"{path}: {before.name} has this number; take the next one")
        filed[named[1]] = Filed(path.stem, read_entry(path))
    return list(filed.values())


def find_entry(number: str, directory: Path = CLAIMS) -> Filed:
    """The entry of this number (or name). Raises ConfigError."""
    entries = read_entries(directory)
    for filed in entries:
        if number in (filed.name, filed.number) or (number.isdigit() and int(number) == int(filed.number)):
            return filed
    raise ConfigError(f"{number}: no such entry; there is {', '.join(filed.number for filed in entries)}")


def read_entry(path: Path) -> Entry:
    """The entry in a file. Raises ConfigError."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not readable as YAML ({str(error).splitlines()[0]})") from error
    if not isinstance(content, Mapping):
        raise ConfigError(f"{path}: write the keys of an entry; {EXAMPLE}")
    try:
        return read(Entry, content, missing=EXAMPLE)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _number(text: str) -> Any:
    """A value in the syntax of overrides as the plain value that it stands for."""
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)  # YAML reads 1e-05 as text
        except ValueError:
            return yaml.safe_load(text)


def _plain(one: Any) -> Any:
    if dataclasses.is_dataclass(one):
        one = unlike_defaults(one)
    if isinstance(one, Mapping):
        return {str(key): _plain(value) for key, value in one.items()}
    if isinstance(one, list | tuple):
        return [_plain(value) for value in one]
    return one if isinstance(one, str | int | float | None) else str(one)  # YAML makes a date of 2024-01-01
