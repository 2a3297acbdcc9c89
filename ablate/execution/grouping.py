"""Which runs can be trained as one, and why others are trained alone."""

import dataclasses
from collections.abc import Sequence

from ablate.config.identity import digest
from ablate.execution.run import PlacedRun, build
from ablate.model.models import draw_weights
from ablate.training.batches import batches
from ablate.training.mapping import why_not_mapped

TRIED = 3  # steps that are held against plain ones
# What may differ between runs that are trained as one: with their seeds, what an update reads of each.
A_MEMBERS = {"lr": 1.0, "weight_decay": 0.0, "clip": None}


def kind(run: PlacedRun) -> str:
    """A digest of all but seeds and A_MEMBERS: runs of equal kinds may be trained as one."""
    train = dataclasses.replace(run.config.train, **A_MEMBERS)
    about = dataclasses.asdict(dataclasses.replace(run.config, train=train))
    about |= dict.fromkeys(("seed", "seeds", "name", "force"))
    return digest([about, repr(run.spec), run.corpus.sha256, str(run.device), run.linear, run.attention])


def why_alone(runs: Sequence[PlacedRun]) -> str | None:
    """The reason why these runs, of one kind, can't be trained as one; None if they can."""
    train, split = runs[0].config.train, runs[0].corpus.splits["train"]
    if runs[0].config.model.dropout:
        return "model.dropout is drawn for each run"
    if split.is_ragged:
        return "its batches differ in shape"
    if train.compile:
        return "train.compile=true compiles one model"
    return _tried(kind(runs[0]), runs[0])


_reasons: dict[str, str | None] = {}  # by kind: a method is tried once in a process


def _tried(of: str, run: PlacedRun) -> str | None:
    if of not in _reasons:
        seeds = run.config.resolved_seeds()
        others = {stream: seed + 1 for stream, seed in seeds.items()}
        models = [build(run), build(run)]
        draw_weights(models[1], others)
        few = batches(
            run.corpus.splits["train"],
            range(1, TRIED + 1),
            context=run.spec.context,
            batch=run.config.train.batch,
            seeds=[seeds["data"], others["data"]],
            device=run.device,
        )
        _reasons[of] = why_not_mapped(models, few)
    return _reasons[of]
