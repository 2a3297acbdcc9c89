"""A run: what a config means on any machine, and on this one. Loads no torch, unless to look for a GPU."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from ablate.compute import device
from ablate.config.identity import identity_keys
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.data.corpus import Corpus, open_corpus, require_usable
from ablate.files.atomic import digest
from ablate.lazy import torch
from ablate.model.costs import flops_per_token, total_params
from ablate.model.sizing import resolve_spec, resolved
from ablate.model.spec import ModelSpec
from ablate.phrases import first_few

SIMULATED = "simulated-"  # begins the names of runs that are not trained
BYTES_A_LAYER = 30_000  # of the Python objects of a layer, without its tensors


@dataclass(frozen=True)
class Run:
    """What a config means on any machine: sizes are numbers, and the corpus is open."""

    config: RunConfig
    spec: ModelSpec
    corpus: Corpus

    @cached_property
    def run_id(self) -> str:
        return run_id(self.config, vocab=self.spec.vocab, corpus_sha256=self.corpus.sha256)

    @property
    def name(self) -> str:
        """The name of its directory."""
        return run_name(self.config, self.run_id)

    @property
    def is_simulated(self) -> bool:
        """Whether a formula takes the place of training."""
        return self.config.train.simulated is not None

    @cached_property
    def step_flops(self) -> float:
        """FLOPs of a training step: the backward pass costs twice the forward pass."""
        share = self.corpus.splits["train"].target_share
        return 3.0 * flops_per_token(self.spec, share) * self.config.train.batch * self.spec.context

    @property
    def cost(self) -> float:
        """Its expected time, in any unit."""
        return self.step_flops * self.config.train.steps

    @property
    def tokens_a_step(self) -> float:
        """The tokens that a training step reads, on average."""
        return self.config.train.batch * self.corpus.splits["train"].read_per_row(self.spec.context)

    def with_seeds(self, config: RunConfig) -> Self:
        """The run with the seeds of `config`, which differs from its own in nothing else."""
        config = dataclasses.replace(self.config, seed=config.seed, seeds=config.seeds)
        return dataclasses.replace(self, config=config)


@dataclass(frozen=True)
class PlacedRun(Run):
    """A run on this machine: where it is computed."""

    device: "torch.device"


def run_id(config: RunConfig, *, vocab: int, corpus_sha256: str) -> str:
    """16 hex digits that two runs share only if they compute the same thing.

    config: with `auto` and `match` resolved to numbers (ablate.model.sizing.resolved). vocab: the number of
    tokens. corpus_sha256: the fingerprint of the text.
    """
    content = identity_keys(config) | {"text": corpus_sha256, "vocab": vocab}
    return digest(content | {"seeds": config.resolved_seeds()})[:16]


def run_name(config: RunConfig, identity: str) -> str:
    """The name of a run's directory: readable, and unique as it ends in the first half of the identity."""
    projected = "" if config.out_proj else "-noproj"
    size = f"d{config.model.d_model}x{config.model.layers}"
    kind = SIMULATED if config.train.simulated else ""
    return f"{kind}{config.fusion.name}-h{config.heads}{projected}-{size}-s{config.seed}-{identity[:8]}"


def resolve(config: RunConfig) -> Run:
    """The run that a config asks for. What no machine can train is refused here: raises ConfigError."""
    resolve_spec(dataclasses.replace(config, match="none"), vocab=1)  # only a match needs its vocabulary
    corpus = open_corpus(config.corpus, config.model.two_texts)
    require_usable(corpus, config.model.context)
    spec = resolve_spec(config, corpus.tokenizer.vocab_size)
    return Run(resolved(config, spec), spec, corpus)


def prepare(config: RunConfig) -> PlacedRun:
    """The run that a config asks for, on this machine. Raises ConfigError if it can't begin."""
    if not config.train.simulated:
        device.pick(config.device)  # a wrong device should not wait for a text to be read, nor a wrong size
    return place(resolve(config))


def place(run: Run) -> PlacedRun:
    """The run on this machine. Raises ConfigError if it can't begin here."""
    if run.is_simulated:
        return PlacedRun(run.config, run.spec, run.corpus, device.SIMULATED)
    config, where = run.config, device.pick(run.config.device)
    _require_memory(run.spec, where)
    return PlacedRun(config, run.spec, run.corpus, where)


def require_planned(run: Run, planned: Mapping[str, str]) -> None:
    """Raises ConfigError if a run that was prepared anew is none of those that were planned. planned: the
    fingerprints of their texts, by name."""
    if run.name not in planned:
        raise ConfigError(
            f"{run.name}: not what was planned, which is {first_few([*planned])}: the fingerprint of its text"
            f" (corpus_sha256) was {first_few(sorted({sha256[:12] for sha256 in planned.values()}))} and is"
            f" {run.corpus.sha256[:12]}; give the command again"
        )


def _require_memory(spec: ModelSpec, where: "torch.device") -> None:
    """Raises ConfigError for parameters that can't fit: each takes 16 bytes, with its gradient and Adam's two
    moments; and a layer some for its Python objects."""
    count, memory = total_params(spec), device.memory_of(where)
    needed = 16 * count + BYTES_A_LAYER * (spec.layers + spec.encoder_layers)
    if needed > memory:
        machine = where if where.type == "cuda" else "this machine"
        raise ConfigError(
            f"model.d_model={spec.d_model} model.layers={spec.layers} model.mlp_hidden={spec.mlp_hidden}:"
            f" {count:,} parameters take {needed / 1e9:,.1f} GB to train, and {machine} has"
            f" {memory / 1e9:,.1f} GB; take a smaller model"
        )
