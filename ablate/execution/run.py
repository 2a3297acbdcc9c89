"""A run that is resolved, one that can begin, and how to build and train its model."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ablate.compute.products import PRODUCTS
from ablate.config.schema import RunConfig, TrainConfig
from ablate.data.corpora import Corpus
from ablate.model.attend import FORMULATIONS
from ablate.model.blocks import Model
from ablate.model.build import build_model
from ablate.model.costs import flops_per_token
from ablate.model.spec import ModelSpec
from ablate.training.train import Event, State, train


@dataclass(frozen=True)
class Resolved:
    """A run whose corpus is open, whose sizes are numbers and whose identity is known. What computes it is
    not."""

    config: RunConfig
    spec: ModelSpec
    corpus: Corpus
    run_id: str
    name: str


@dataclass(frozen=True)
class Run(Resolved):
    """A run that can begin on this machine."""

    device: torch.device
    linear: str  # mkl or onednn; torch where PyTorch decides
    attention: str  # fused or unfused


def step_flops(run: Resolved) -> float:
    """FLOPs of a training step: the backward pass costs twice the forward pass."""
    asked_share = run.corpus.splits["train"].asked_share
    return 3.0 * flops_per_token(run.spec, asked_share) * run.config.train.batch * run.spec.context


def tokens_a_step(run: Resolved) -> float:
    """The tokens that a training step reads, on average."""
    return run.config.train.batch * run.corpus.splits["train"].read_per_row(run.spec.context)


def build(run: Run) -> Model:
    """The model of a run before its first step, on its device, with its product and attention."""
    model = build_model(run.spec, run.config.resolved_seeds()).to(run.device)
    model.use(product=PRODUCTS.get(run.linear), attend=FORMULATIONS[run.attention])
    return model


def training(run: Run, model: Model, config: TrainConfig, start: State | None = None) -> Iterator[Event]:
    """`train` on the corpus and batches of a run, with `config`, which may differ from the run's own."""
    return train(
        model,
        config,
        train_split=run.corpus.splits["train"],
        validation_split=run.corpus.splits["validation"],
        context=run.spec.context,
        data_seed=run.config.resolved_seeds()["data"],
        start=start,
    )
