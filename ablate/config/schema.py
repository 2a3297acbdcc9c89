"""The keys of a run, as frozen dataclasses. The defaults are in configs/, none of them here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, Literal

from ablate.config.rules import (
    Above,
    AtLeast,
    AtMost,
    ConfigError,
    Count,
    IntroducedAt,
    NonNegative,
    OutsideIdentity,
    Positive,
    Ratio,
    Share,
    Size,
    Spelled,
)

# Standard multi-head attention: what models are matched to, and the default baseline.
STANDARD_FUSION = "concat"
STANDARD_SCORES = "softmax"
STANDARD_HEADS = 4
ENCODER_DECODER = "encoder-decoder"
# The entry point groups in which installed packages name their methods.
ENTRY_POINTS = ("ablate.fusions", "ablate.scores")


Average = Annotated[float, Above(0), AtMost(1)]  # a share of the steps; at least the last step counts


@dataclass(frozen=True, kw_only=True)
class PartConfig:
    """A part of attention, such as a fusion, by name. The part checks its options (ablate.model.parts)."""

    name: str
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    name: Annotated[str, OutsideIdentity()]
    d_model: Size
    layers: Size
    context: Size
    mlp_hidden: Annotated[int, AtLeast(0), AtMost(2**31)] | Literal["auto"]
    architecture: Annotated[Literal["decoder", "prefix", "encoder-decoder"], IntroducedAt("decoder")]
    encoder_layers: Annotated[Size | None, IntroducedAt(None)]
    bias: bool
    dropout: Share


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    steps: Count
    batch: Count
    lr: Positive
    warmup: Share  # of the steps
    min_lr_ratio: Ratio  # of lr: what the rate decays to
    weight_decay: NonNegative
    beta1: Share
    beta2: Share
    eps: Positive
    clip: Positive | None
    eval_every: Count
    eval_tokens: Annotated[Count | None, IntroducedAt(None)]
    average: Annotated[Average | None, IntroducedAt(None)]
    translate: Annotated[bool, IntroducedAt(False)]
    precision: Literal["float32", "bfloat16"]
    save: Annotated[Literal["model", "none"], OutsideIdentity()]
    checkpoint_every: Annotated[Count | None, OutsideIdentity()]
    probe_every: Annotated[Count | None, OutsideIdentity(), IntroducedAt(None)]
    linear: Annotated[Literal["auto", "mkl", "onednn"], OutsideIdentity()]
    attention: Annotated[Literal["auto", "fused", "unfused"], OutsideIdentity(), IntroducedAt("auto")]
    compile: Annotated[bool, OutsideIdentity(), IntroducedAt(False)]


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """Which text or task, and how it becomes tokens. Keys that a corpus does not use are null.

    Keys that the fingerprint of the text covers are outside the identity.
    """

    name: Annotated[str, OutsideIdentity()]
    path: Annotated[str | None, OutsideIdentity()]
    encoding: Annotated[str, OutsideIdentity()]
    errors: Annotated[Literal["strict", "replace", "ignore"], OutsideIdentity()]
    seed: Annotated[int | None, OutsideIdentity()]
    characters: Annotated[Count | None, OutsideIdentity()]
    lags: Annotated[tuple[int, ...] | None, OutsideIdentity(), IntroducedAt(None)]
    symbols: Annotated[int | None, OutsideIdentity(), IntroducedAt(None)]
    examples: Annotated[Count | None, OutsideIdentity(), IntroducedAt(None)]
    held_out: Annotated[Count | None, OutsideIdentity(), IntroducedAt(None)]
    length: Annotated[Size | None, OutsideIdentity(), IntroducedAt(None)]
    vocabulary: Annotated[Size | None, OutsideIdentity(), IntroducedAt(None)]
    pairs: Annotated[Count | None, OutsideIdentity(), IntroducedAt(None)]
    filler: Annotated[Literal["random", "blank"] | None, OutsideIdentity(), IntroducedAt(None)]
    direction: Annotated[Literal["de-en", "en-de"] | None, OutsideIdentity(), IntroducedAt(None)]
    target: Annotated[str | None, OutsideIdentity(), IntroducedAt(None)]
    long: Annotated[Literal["drop", "cut"] | None, IntroducedAt(None)]
    tokenizer: Literal["char", "byte", "bpe", "number"]
    bpe_vocab: Annotated[int, AtLeast(257), OutsideIdentity()]  # the resulting vocabulary size is inside
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
        if self.name == "pairs" and not self.path:
            raise ConfigError(
                "corpus=pairs: which texts? add corpus.path=SOURCES corpus.target=TARGETS, line by line, or"
                " corpus.path=FILE with a tab between source and target"
            )
        if self.name not in ("file", "pairs") and self.path:
            raise ConfigError(f"corpus.path={self.path}: corpus={self.name} reads no file; add corpus=file")

    @property
    def called(self) -> str:
        """The name of the text for readers: that of its file or pattern, else of the corpus."""
        if self.path is None:
            return self.name
        path = PurePath(self.path)
        parts = path.parts[-2:] if any(sign in path.name for sign in "*?[") else path.parts[-1:]
        return "standard input" if self.path == "-" else "/".join(parts) or self.path


@dataclass(frozen=True, kw_only=True)
class SeedsConfig:
    """A seed for each random stream; null means the master seed."""

    backbone: int | None
    fusion: int | None
    data: int | None


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    scores: Annotated[PartConfig, IntroducedAt(PartConfig(name=STANDARD_SCORES, options={}))]
    fusion: PartConfig
    heads: Size
    query_heads: Annotated[Size | Literal["auto"], IntroducedAt("auto")]
    key_heads: Annotated[Size | Literal["auto"], IntroducedAt("auto")]
    value_heads: Annotated[Size | Literal["auto"], IntroducedAt("auto")]
    tie_qk: Annotated[bool, IntroducedAt(False)]
    scale: Annotated[Literal["inside", "outside", "both", "none"], IntroducedAt("inside")]
    value_proj: Annotated[bool, IntroducedAt(True)]
    value_scale: Annotated[Literal[1] | Literal["matched"], IntroducedAt(1)]
    at: Annotated[Literal["all", "encoder", "decoder", "cross"], IntroducedAt("all")]
    wiring: Annotated[Literal["standard", "swapped"], OutsideIdentity(), IntroducedAt("standard")]
    out_proj: bool
    out_rank: Annotated[Size | None, IntroducedAt(None)]
    value_width: Size | Literal["auto", "narrow", "wide"]
    key_width: Size | Literal["auto"]
    match: Literal["none", "params", "flops"]
    match_by: Literal["mlp", "value_width"]
    seed: int
    seeds: SeedsConfig
    model: ModelConfig
    train: TrainConfig
    corpus: CorpusConfig
    name: Annotated[
        str | None,
        Spelled(
            r"[A-Za-z0-9_][A-Za-z0-9_.-]{,99}",
            "it names a directory; use up to 100 of A-Z, a-z, 0-9, '_', '.' and '-', the first no '.' or '-'",
        ),
        OutsideIdentity(),
    ]
    device: Annotated[
        str,
        Spelled(r"auto|cpu|mps|cuda(:[0-9]{1,3})?", "use auto, cpu, cuda, cuda:N or mps"),
        OutsideIdentity(),
    ]
    force: Annotated[bool | Literal["stale"], OutsideIdentity()]

    def resolved_seeds(self) -> dict[str, int]:
        """The seed of each stream: the master seed unless the stream has its own."""
        return {stream: self.seed if seed is None else seed for stream, seed in vars(self.seeds).items()}
