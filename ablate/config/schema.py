"""The keys of a run, as frozen dataclasses, with what is declared of each on its field: what it accepts
(config.rules), its column of results.csv, whether it is in a run's identity. Defaults are in configs/."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any, Literal, get_args

from ablate.config.read import hints
from ablate.config.rules import (
    Above,
    AtLeast,
    AtMost,
    Count,
    NonNegative,
    Positive,
    Ratio,
    Required,
    Rule,
    Share,
    Size,
    Spelled,
)

# Standard multi-head attention: what models are matched to, and the default baseline.
STANDARD_FUSION = "concat"
STANDARD_SCORES = "softmax"
STANDARD_HEADS = 4
ENCODER_DECODER = "encoder-decoder"
EFFECT = r".*[^:]:\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,2})?"  # a condition, and nats
PARTS = ("fusion", "scores")  # of attention, which can be exchanged

Nats = Annotated[float, AtLeast(0), AtMost(100)]
Role = Literal["identity", "config", "seed", "derived", "metric", "resource", "provenance"]
Kind = Literal["text", "word", "json", "boolean", "choice", "whole", "number"]


@dataclass(frozen=True)
class Column:
    """A column of results.csv. name: empty for that of a key, which is named by it.

    role: identity (which run, of which study), config (defines a variant), seed (differs between the
    replicates of a variant), derived (follows from the config), metric (what was learned), resource (time and
    memory, which differ between two executions of a run), provenance (program and machine). kind: of its
    values; text is never a number, although a hash of digits looks like one; words may stand beside numbers
    (auto, 4); a choice is true or false, and rows of before may have a name. label: what it is, in words.
    group: that of the key of a config column. unit: of its numbers. higher_is_better: of a metric; None if
    that is not known. brings: other columns and options that may change with it. by_auto: whether it may
    change with any other, by `auto` and `match`.
    """

    name: str
    role: Role
    kind: Kind
    label: str = ""
    group: str = ""
    unit: str = ""
    higher_is_better: bool | None = False
    brings: tuple[str, ...] = ()
    by_auto: bool = False


config_column, seed_column = (partial(Column, "", role) for role in ("config", "seed"))


@dataclass(frozen=True)
class OutsideIdentity:
    """The key does not change what a run computes, so it stays out of the run's identity. at_default: that is
    so at the default of its field alone, which is what runs did before there was the key."""

    at_default: bool = False


def identity_keys(config: Any) -> dict[str, Any]:
    """The keys of a configuration that decide what a run computes, with their values, nested as in it."""
    kept = {}
    for field in dataclasses.fields(config):
        value, marks = getattr(config, field.name), get_args(hints(type(config))[field.name])[1:]
        if OutsideIdentity(at_default=value == field.default) not in marks and OutsideIdentity() not in marks:
            kept[field.name] = identity_keys(value) if dataclasses.is_dataclass(value) else value
    return kept


@dataclass(frozen=True, kw_only=True)
class PartConfig:
    """An exchangeable part, such as a fusion, by name. The part checks its options (config.registry)."""

    name: str
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    name: Annotated[str, OutsideIdentity()]
    d_model: Annotated[Size, config_column("whole", "model width")]
    layers: Annotated[Size, config_column("whole", "layers")]
    context: Annotated[Size, config_column("whole", "context (tokens)")]
    mlp_hidden: Annotated[
        Annotated[int, AtLeast(0), AtMost(2**31)] | Literal["auto"],
        config_column("whole", "MLP hidden width", by_auto=True),
    ]
    position: Annotated[
        Literal["learned", "rope", "none"], config_column("word", "positions", brings=("rope_base",))
    ]
    rope_base: Annotated[float, Above(1), config_column("number", "base of rotary positions")]
    norm: Annotated[Literal["layer", "rms"], config_column("word", "norm")]
    mlp: Annotated[Literal["gelu", "relu2", "swiglu"], config_column("word", "MLP")]
    bias: Annotated[bool, config_column("boolean", "biases")]
    dropout: Annotated[Share, config_column("number", "dropout")]
    architecture: Annotated[Literal["decoder", "encoder-decoder"], config_column("word", "architecture")]
    encoder_layers: Annotated[Size | None, config_column("whole", "layers of the encoder")]

    @property
    def two_texts(self) -> bool:
        """Whether an encoder reads one text, and a decoder another."""
        return self.architecture == ENCODER_DECODER


@dataclass(frozen=True, kw_only=True)
class SimulatedConfig:
    """What is assumed of a run whose losses come from a formula (ablate.execution.simulated)."""

    sd: Nats
    correlation: Ratio
    effects: Annotated[
        tuple[Annotated[str, Spelled(EFFECT, "write KEY=VALUE:NATS, as fusion=sum:0.05")], ...],
        Rule(text="write a list of KEY=VALUE:NATS, as [fusion=sum:0.05,fusion=sum heads=4:0.1]"),
    ]
    best_lr: Positive
    octave: Nats
    late: Ratio
    diverged: Ratio
    step_ms: Annotated[float, AtLeast(0), AtMost(1e6)]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    steps: Annotated[Count, config_column("whole", "steps")]
    batch: Annotated[Count, config_column("whole", "batch (windows)")]
    lr: Annotated[Positive, config_column("number", "peak learning rate")]
    warmup: Annotated[Share, config_column("number", "warm-up (share of steps)")]
    # What the rate decays to.
    min_lr_ratio: Annotated[Ratio, config_column("number", "last learning rate (share of peak)")]
    weight_decay: Annotated[NonNegative, config_column("number", "weight decay")]
    beta1: Annotated[Share, config_column("number", "AdamW β1")]
    beta2: Annotated[Share, config_column("number", "AdamW β2")]
    eps: Annotated[Positive, config_column("number", "AdamW ε")]
    clip: Annotated[Positive | None, config_column("number", "gradient norm clipped at")]
    eval_every: Annotated[Count, config_column("whole", "steps between evaluations")]
    eval_tokens: Annotated[Count | None, config_column("whole", "tokens of an evaluation in training")]
    precision: Annotated[Literal["float32", "bfloat16"], config_column("word", "precision")]
    save: Annotated[Literal["model", "none"], OutsideIdentity()]
    checkpoint_every: Annotated[Count | None, OutsideIdentity()]
    simulated: Annotated[SimulatedConfig | None, OutsideIdentity(at_default=True)] = None


@dataclass(frozen=True, kw_only=True)
class CorpusConfig(PartConfig):
    """Which text or task, and how it becomes tokens. options: the keys that this corpus has of its own, which
    the fingerprint of the text covers."""

    name: Annotated[str, OutsideIdentity()]
    options: Annotated[Mapping[str, Any], OutsideIdentity()]
    tokenizer: Annotated[
        Literal["char", "byte", "bpe", "number"],
        config_column("word", "tokenizer", brings=("vocab",)),
        Column("vocab", "config", "whole", "vocabulary"),
    ]
    bpe_vocab: Annotated[int, AtLeast(257), OutsideIdentity()]  # the resulting vocabulary size is inside
    splits: Annotated[
        tuple[NonNegative, NonNegative, NonNegative],
        Required(
            lambda shares: math.isclose(sum(shares), 1, abs_tol=1e-9) and min(shares[:2]) > 0,
            "give shares of training, validation and test that add up to 1; only that of test may be 0",
        ),
        config_column("json", "training, validation, test shares"),
    ]

    @property
    def recipe(self) -> str:
        """The name under which its kind is registered: its own, unless many texts share a kind."""
        return self.options.get("recipe", self.name)

    @property
    def called(self) -> str:
        """The name of the text for readers: that of its file or pattern, else of the corpus."""
        if not (given := self.options.get("path")):
            return self.name
        path = PurePath(str(given))
        parts = path.parts[-2:] if any(sign in path.name for sign in "*?[") else path.parts[-1:]
        return "standard input" if given == "-" else "/".join(parts) or str(given)


@dataclass(frozen=True, kw_only=True)
class SeedsConfig:
    """A seed for each random stream; null means the master seed."""

    backbone: Annotated[int | None, seed_column("whole", "seed of the weights around heads")]
    fusion: Annotated[int | None, seed_column("whole", "seed of the fusion's weights")]
    data: Annotated[int | None, seed_column("whole", "seed of the batches")]


@dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """Of the attention that a run asks about. Its module takes these in numbers (model.spec)."""

    fusion: Annotated[
        PartConfig,
        Column("fusion", "config", "word", "fusion of heads", brings=("normalize",)),
        Column("fusion_options", "config", "json", "options of the fusion"),
        Column("normalize", "config", "word", "normalization of the fused vector"),
    ]
    scores: Annotated[
        PartConfig,
        Column("scores", "config", "word", "rule on scores"),
        Column("scores_options", "config", "json", "options of the rule on scores"),
    ]
    heads: Annotated[Size, config_column("whole", "heads", brings=("groups",))]
    out_proj: Annotated[bool, config_column("choice", "output projection")]
    value_width: Annotated[
        Size | Literal["auto", "narrow", "wide"], config_column("whole", "value width per head", by_auto=True)
    ]
    key_width: Annotated[
        Size | Literal["auto"], config_column("whole", "query and key width per head", by_auto=True)
    ]
    key_heads: Annotated[Size | Literal["auto"], config_column("word", "heads with keys of their own")]
    value_heads: Annotated[Size | Literal["auto"], config_column("word", "heads with values of their own")]
    tie_qk: Annotated[bool, config_column("boolean", "keys with the weight of the queries")]
    scale: Annotated[
        Literal["inside", "outside", "both", "none"], config_column("word", "place of 1/√key_width")
    ]
    out_rank: Annotated[Size | None, config_column("whole", "rank of the output projection")]


@dataclass(frozen=True, kw_only=True)
class RunConfig(AttentionConfig):
    match: Annotated[Literal["none", "params", "flops"], config_column("word", "matched to concat in")]
    model: ModelConfig
    at: Annotated[
        Literal["all", "encoder", "decoder", "cross"],
        config_column("word", "attention that the factors apply to"),
    ]
    corpus: Annotated[
        CorpusConfig, Column("corpus_sha256", "config", "text", "digest of the text", brings=("vocab",))
    ]
    train: TrainConfig
    seed: Annotated[
        int,
        seed_column("whole", "seeds"),
        Rule(text="a seed is a whole number; -m 'seed=range(6)' is 0 to 5"),
    ]
    seeds: Annotated[SeedsConfig, Rule(text="type seed=0,1,2 with -m, or seeds.backbone, .fusion, .data")]
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
        Spelled(
            # Not mps: up to PyTorch 2.12 it ignores clipping there (pytorch#186360), and may mix up batches
            # (pytorch#139550).
            r"auto|cpu|cuda(:[0-9]{1,3})?",
            "use auto, cpu, cuda or cuda:N",
        ),
        OutsideIdentity(),
    ]
    force: Annotated[bool | Literal["stale"], OutsideIdentity()]

    def resolved_seeds(self) -> dict[str, int]:
        """The seed of each stream: the master seed unless the stream has its own."""
        return {stream: self.seed if seed is None else seed for stream, seed in vars(self.seeds).items()}
