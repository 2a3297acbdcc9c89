"""A run: what a config means on any machine, and on this one; its model, its training, and its state in a
checkpoint."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch

from ablate import rng
from ablate.compute import device
from ablate.compute.arithmetic import arithmetic
from ablate.config.identity import run_id, run_name
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.data.corpus import Corpus, open_corpus, require_usable
from ablate.model.attend import FORMULATIONS
from ablate.model.costs import flops_per_token, total_params
from ablate.model.models import Model, build_model
from ablate.model.sizing import resolve_spec, resolved
from ablate.model.spec import ModelSpec
from ablate.phrases import first_few
from ablate.store.columns import Row
from ablate.store.run_files import Checkpoint
from ablate.training.events import State
from ablate.training.group import Group, together
from ablate.training.train import Member, Training

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

    device: torch.device


def resolve(config: RunConfig) -> Run:
    """The run that a config asks for. What no machine can train is refused here: raises ConfigError."""
    resolve_spec(dataclasses.replace(config, match="none"), vocab=1)  # only a match needs its vocabulary
    corpus = open_corpus(config.corpus, config.model.two_texts)
    require_usable(corpus, config.model.context)
    spec = resolve_spec(config, corpus.tokenizer.vocab_size)
    return Run(resolved(config, spec), spec, corpus)


def prepare(config: RunConfig) -> PlacedRun:
    """The run that a config asks for, on this machine. Raises ConfigError if it can't begin."""
    device.pick(config.device)  # a wrong device should not wait for a text to be read, nor a wrong size
    return place(resolve(config))


def place(run: Run) -> PlacedRun:
    """The run on this machine. Raises ConfigError if it can't begin here."""
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


def _require_memory(spec: ModelSpec, where: torch.device) -> None:
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


# --- its model and its training -------------------------------------------------------------------


def build(run: PlacedRun) -> Model:
    """The model of a run before its first step, on its device, with its product and attention."""
    model = build_model(run.spec, run.config.resolved_seeds()).to(run.device)
    rule = arithmetic(run.config.train.precision, run.device)
    model.use(product=rule.product, attend=FORMULATIONS[rule.attention_at(run.spec.context)])
    return model


def build_group(runs: Sequence[PlacedRun]) -> Group:
    """The models of runs of one kind before their first step, to be computed as one."""
    return together([build(run) for run in runs], runs[0].config.train.precision)


@contextlib.contextmanager
def training(
    runs: Sequence[PlacedRun], group: Group, starts: Sequence[State | None] | None = None
) -> Iterator[Training]:
    """The training of a group on the corpus and batches of its runs, which are of one kind."""
    first, seeds = runs[0], [run.config.resolved_seeds()["data"] for run in runs]
    members = [
        Member(run.config.train, seed, start)
        for run, seed, start in zip(runs, seeds, starts or [None] * len(runs), strict=True)
    ]
    splits = {f"{name}_split": first.corpus.splits[name] for name in ("train", "validation")}
    with (
        rng.drawing(seeds[0], "data", ""),
        contextlib.closing(Training(group, members, **splits, context=first.spec.context)) as training,
    ):
        yield training


# --- the state of a run, in a checkpoint ----------------------------------------------------------------

ROWS = ("weights", "first", "second")  # of State
BUFFER = "buffer/"  # before the name of a buffer


def arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """The numbers of tensors; those of bfloat16, which NumPy lacks, in float32, which has them all."""
    here = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return {name: (t.float() if t.dtype == torch.bfloat16 else t).numpy() for name, t in here.items()}


def to_checkpoint(state: State, metrics: list[Row], members: int = 1) -> Checkpoint:
    """members: of the largest group that the run has been part of."""
    tensors = {name: getattr(state, name) for name in ROWS}
    tensors |= {f"{BUFFER}{name}": buffer for name, buffer in state.buffers.items()}
    seconds, of_evaluation = state.seconds, state.evaluation_seconds
    return Checkpoint(state.step, arrays(tensors), metrics, seconds, of_evaluation, members)


def to_state(checkpoint: Checkpoint) -> State:
    tensors = {name: torch.from_numpy(array) for name, array in checkpoint.arrays.items()}
    rows = {name: tensors.pop(name) for name in ROWS}
    return State(
        checkpoint.step,
        **rows,
        buffers={name.removeprefix(BUFFER): tensor for name, tensor in tensors.items()},
        seconds=checkpoint.seconds,
        evaluation_seconds=checkpoint.evaluation_seconds,
    )
