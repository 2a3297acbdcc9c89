"""A run: what a config means, and whether this machine can train it. Loads no torch, unless to look for a
GPU."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from ablate.compute import device
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig, identity_keys
from ablate.data.corpus import Corpus, open_corpus, require_usable
from ablate.files.atomic import StoreError, digest
from ablate.model.costs import flops_per_token, total_params
from ablate.model.sizing import resolve_spec, resolved
from ablate.model.spec import ModelSpec
from ablate.store.columns import Row, Status
from ablate.store.provenance import status_now
from ablate.store.run_files import Stamp

SIMULATED = "simulated-"  # begins the names of runs that are not trained
BYTES_A_LAYER = 30_000  # of the Python objects of a layer, without its tensors


@dataclass(frozen=True)
class Run:
    """What a config means: sizes are numbers, and the corpus is open. replaces: the stamp of the result that
    existed when the command began; None for whatever there is."""

    config: RunConfig
    spec: ModelSpec
    corpus: Corpus
    replaces: Stamp | None = None

    @cached_property
    def run_id(self) -> str:
        """16 hex digits that two runs share only if they compute the same thing."""
        content = identity_keys(self.config) | {"text": self.corpus.sha256, "vocab": self.spec.vocab}
        return digest(content | {"seeds": self.config.resolved_seeds()})[:16]

    @property
    def name(self) -> str:
        """The name of its directory: readable, and unique as it ends in the first half of the identity."""
        config, size = self.config, f"d{self.config.model.d_model}x{self.config.model.layers}"
        projected = "" if config.out_proj else "-noproj"
        kind = SIMULATED if config.train.simulated else ""
        end = f"s{config.seed}-{self.run_id[:8]}"
        return f"{kind}{config.fusion.name}-h{config.heads}{projected}-{size}-{end}"

    @cached_property
    def device(self) -> Any:
        """Where it is computed on this machine. Raises ConfigError if that lacks it."""
        return device.Simulated if self.is_simulated else device.pick(self.config.device)

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
    def tokens_a_step(self) -> float:
        """The tokens that a training step reads, on average."""
        return self.config.train.batch * self.corpus.splits["train"].read_per_row(self.spec.context)

    def with_seeds(self, config: RunConfig) -> Self:
        """The run with the seeds of `config`, which differs from its own in nothing else."""
        config = dataclasses.replace(self.config, seed=config.seed, seeds=config.seeds)
        return dataclasses.replace(self, config=config)

    def is_over(self, row: Row, stamp: Stamp) -> bool:
        """Whether this result of it, with its stamp, counts, so that it is not trained again: one that was
        made since the command began always does, even if it failed or force is true."""
        if row["run_id"] != self.run_id:
            raise StoreError(
                f"{self.name}: there lies another run, {row['run_id']}, whose id begins as that of"
                f" {self.run_id}; delete it by ablate runs --delete {row['run_id']}, or take another --runs"
            )
        if self.replaces not in (None, stamp):
            return True
        if row["status"] == Status.FAILED or self.config.force is True:
            return False
        return not (self.config.force == "stale" and status_now(row) == Status.STALE)


def resolve(config: RunConfig) -> Run:
    """The run that a config asks for. What no machine can train is refused here: raises ConfigError."""
    resolve_spec(dataclasses.replace(config, match="none"), vocab=1)  # only a match needs its vocabulary
    corpus = open_corpus(config.corpus, config.model.two_texts)
    require_usable(corpus, config.model.context)
    spec = resolve_spec(config, corpus.tokenizer.vocab_size)
    return Run(resolved(config, spec), spec, corpus)


def prepare(config: RunConfig) -> Run:
    """The run that a config asks for. Raises ConfigError if it can't be trained on this machine."""
    if config.train.simulated:
        return resolve(config)
    device.pick(config.device)  # a wrong device should not wait for a text to be read, nor a wrong size
    run = resolve(config)
    # Each parameter takes 16 bytes, with its gradient and Adam's two moments; a layer some, for its objects.
    spec, count, memory = run.spec, total_params(run.spec), device.memory_of(run.device)
    needed = 16 * count + BYTES_A_LAYER * (spec.layers + spec.encoder_layers)
    if needed > memory:
        machine = run.device if run.device.type == "cuda" else "this machine"
        raise ConfigError(
            f"model.d_model={spec.d_model} model.layers={spec.layers} model.mlp_hidden={spec.mlp_hidden}:"
            f" {count:,} parameters take {needed / 1e9:,.1f} GB to train, and {machine} has"
            f" {memory / 1e9:,.1f} GB; take a smaller model"
        )
    return run
