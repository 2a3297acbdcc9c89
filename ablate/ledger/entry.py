"""An entry of the ledger, claims/NNN-name.yaml: what was published, and the tuned study that tests it.

The freeze, claims/frozen.json, holds the digest of each entry, and when and in which batch it was frozen. An
entry that was withdrawn there is a claim alone: its test is not read any more.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml

from ablate.config.identity import digest
from ablate.config.overrides import as_value
from ablate.config.read import read
from ablate.config.rules import Above, AtLeast, AtMost, ConfigError, ErrorText, Spelled, typed
from ablate.study.config import Ascending, KeysOfARun

CLAIMS = Path("claims")
FROZEN = CLAIMS / "frozen.json"
FILE = re.compile(r"(\d{3})-([a-z0-9-]+)\.yaml")
EXAMPLE = "see the other files of claims/ for an example"
TUNED, METRIC = "train.lr", "test_loss"
LARGEST_SEED = 2**31


@dataclass(frozen=True)
class Frozen:
    """The freeze of an entry: its digest, the date, and the digest of its batch. developed: how many
    development rows of its arms are older. withdrawn: with which edition it was, and for what reason; empty
    if it was not."""

    digest: str
    date: str
    batch: str = ""
    developed: int = 0
    withdrawn: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a claim was published. read: what of it was read for this entry."""

    cite: str
    url: Annotated[str, Spelled(r"https?://\S+", "write the address of the source, as https://…")]
    read: str


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A contrast of two arms and what the claim expects of it, in nats of METRIC.

    contrast: a variant and its baseline, as `gated - concat`. expect: below or above 0; or within ±bound,
    at_most the bound, at_least −bound. published: the published effect, of which at least `share` has to be
    seen. bound: by default the entry's margin.
    """

    contrast: Annotated[str, Spelled(r"\w+ - \w+", "name two arms, as gated - concat")]
    expect: Literal["below", "above", "within", "at_most", "at_least"]
    published: float | None = None
    share: Annotated[float, AtLeast(0), AtMost(1)] = 0.25
    bound: Annotated[float, Above(0)] | None = None

    def __post_init__(self) -> None:
        if self.is_of_effect and self.bound is not None:
            raise ConfigError(f"{self.contrast}: expect={self.expect} has no bound; give published and share")
        if not self.is_of_effect and self.published is not None:
            raise ConfigError(f"{self.contrast}: expect={self.expect} takes a bound; leave published out")
        if self.published is not None and (self.published > 0) != (self.expect == "above"):
            raise ConfigError(f"{self.contrast}: published={self.published} is not {self.expect} 0")

    @property
    def is_of_effect(self) -> bool:
        return self.expect in ("below", "above")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What was published. name: of its file, such as 003-write-rank. digest: of the file's content
    (digest_of). sentence: the claim."""

    name: str
    digest: str
    sentence: str
    source: Source
    published: str

    @property
    def number(self) -> str:
        return self.name[:3]


@dataclass(frozen=True, kw_only=True)
class Entry(Claim):
    """A claim and its test. batch: the digest of all entries frozen together, empty for one that is not
    frozen. settings: overrides of every run; lr: the grid of learning rates, for every arm. seeds: the looks
    of the study, the last of which is at all its reporting seeds. note: what the test leaves out."""

    settings: Annotated[Mapping[str, Any], KeysOfARun(), ErrorText("write overrides, as {heads: 8}")]
    arms: Mapping[
        str, Annotated[Mapping[str, Any], KeysOfARun(), ErrorText("write overrides, as {fusion: sum}")]
    ]
    lr: Annotated[list[float], ErrorText("write a list of rates, as [0.006, 0.012]")]
    predictions: list[Prediction]
    margin: Annotated[float, Above(0)]
    seeds: Annotated[list[int], Ascending()]
    develop: Annotated[list[int], ErrorText("write whole numbers, as [0, 1, 2]")] = field(
        default_factory=lambda: [0, 1, 2, 3, 4]
    )
    extend: Annotated[int, AtLeast(0)] = 3
    note: str = ""
    batch: str = ""

    def __post_init__(self) -> None:
        if not self.predictions:
            raise ConfigError("predictions=[]: without one there is no rule for a verdict; add one")
        if not self.seeds:
            raise ConfigError("seeds=[]: a claim has a last look; write numbers of seeds, as [8, 16]")
        if any(not name.isidentifier() for name in self.arms):
            raise ConfigError(f"arms={typed(list(self.arms))}: name them by letters, digits and _")
        for one in self.predictions:
            if unknown := [name for name in one.contrast.split(" - ") if name not in self.arms]:
                raise ConfigError(f"{one.contrast}: {unknown[0]} is no arm; there is {', '.join(self.arms)}")

    def seed(self, k: int) -> int:
        """The k-th reporting seed, which all arms of all entries of a batch share: it follows from the digest
        of the batch, so nobody chose it."""
        drawn = hashlib.sha256(f"{self.batch or self.digest}:{k}".encode()).digest()
        return int.from_bytes(drawn[:8], "big") % LARGEST_SEED

    @property
    def reporting_seeds(self) -> list[int]:
        return [self.seed(k) for k in range(self.seeds[-1])]

    @property
    def study(self) -> dict[str, Any]:
        """The block of the study that tests the claim."""
        return {
            **{"kind": "tuned", "question": self.sentence, "tune": TUNED, "metric": METRIC},
            **{"factors": {TUNED: self.lr}, "arms": self.arms},
            **{"develop": self.develop, "extend": self.extend, "report_at": ["tuned"]},
            **{"seeds": self.reporting_seeds, "looks": self.seeds, "margin": self.margin},
            "primary": [*dict.fromkeys(one.contrast for one in self.predictions)],
        }


def read_claims() -> list[Claim]:
    """All claims by number: entries, and those that were withdrawn. Raises ConfigError for a file that is
    none, and for a number that two have."""
    if not CLAIMS.is_dir():
        raise ConfigError(f"{CLAIMS}/: no such directory here; run this in a checkout of ablate")
    claims: dict[str, Claim] = {}
    for path in sorted(CLAIMS.glob("*.yaml")):
        if not (named := FILE.fullmatch(path.name)):
            raise ConfigError(f"{path}: name it by a number and a word, as 003-write-rank.yaml")
        if before := claims.get(named[1]):
            raise ConfigError(f"{path}: {before.name} has this number; take the next one")
        claims[named[1]] = read_claim(path)
    return list(claims.values())


def read_entries() -> list[Entry]:
    """All claims but the withdrawn ones. Raises ConfigError, as `read_claims`."""
    return [claim for claim in read_claims() if isinstance(claim, Entry)]


def find_claim(number: str) -> Claim:
    """The claim of this number (or name). Raises ConfigError."""
    claims = read_claims()
    for claim in claims:
        if number in (claim.name, claim.number) or (number.isdigit() and int(number) == int(claim.number)):
            return claim
    raise ConfigError(f"{number}: no such entry; choices: {', '.join(claim.number for claim in claims)}")


def find_entry(number: str) -> Entry:
    """The same, if it was not withdrawn. Raises ConfigError."""
    claim = find_claim(number)
    if not isinstance(claim, Entry):
        frozen = read_frozen()[claim.name]
        raise ConfigError(
            f"{claim.name}: withdrawn with the {frozen.withdrawn}, since {frozen.reason}; ask again in a new"
            " entry with the next number"
        )
    return claim


def read_claim(path: Path) -> Claim:
    """The entry in a file; of a withdrawn one only what was published. Raises ConfigError."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not readable as YAML ({str(error).splitlines()[0]})") from error
    if not isinstance(content, Mapping):
        raise ConfigError(f"{path}: write the keys of an entry; {EXAMPLE}")
    try:
        if own := [key for key in ("name", "digest", "batch") if key in content]:
            raise ConfigError(f"{own[0]}: it follows from the file; leave it out")
        frozen = read_frozen().get(path.stem)
        content = {**content, "name": path.stem, "digest": digest_of(content)}
        if frozen and frozen.withdrawn:
            published = {key.name for key in dataclasses.fields(Claim)}
            return read(Claim, {key: content[key] for key in content.keys() & published}, missing=EXAMPLE)
        return read(Entry, {**content, "batch": frozen.batch if frozen else ""}, missing=EXAMPLE)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def digest_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of the content of a file as YAML gives it: comments, layout and the order of keys do not count.
    Whatever reads it later leaves the digest as it is."""
    overrides = {key: _plain(content[key], as_typed=True) for key in ("lr", "arms") if key in content}
    return digest(_plain(content) | overrides)


def read_frozen() -> dict[str, Frozen]:
    """The freeze of each entry, by name. Raises ConfigError."""
    try:
        content = json.loads(FROZEN.read_text(encoding="utf-8")) if FROZEN.exists() else {}
        return {str(name): Frozen(**of) for name, of in content.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{FROZEN}: not readable ({error}); restore it from the repository") from error


def _plain(value: Any, *, as_typed: bool = False) -> Any:
    """A value of YAML as JSON can write it. as_typed: values as text in the syntax of overrides."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one, as_typed=as_typed) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one, as_typed=as_typed) for one in value]
    if as_typed and not isinstance(value, str):
        return as_value(value)
    return value if isinstance(value, str | int | float | None) else str(value)  # 2024-01-01 is a date
