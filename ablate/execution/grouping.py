"""Which runs can be trained as one, and why others are trained alone. Loads torch when models are tried."""

import dataclasses

from ablate.compute import device
from ablate.config.schema import SeedsConfig
from ablate.execution.run import Run
from ablate.files.atomic import digest

TRIED = 3  # steps that are held against plain ones
# What may differ between runs that are trained as one: with their seeds, what an update reads of each.
A_MEMBERS = {"lr": 1.0, "weight_decay": 0.0, "clip": None}
MOST = 256  # runs that are trained as one on a GPU; steps of more take as much longer


def kind(run: Run) -> str:
    """A digest of all but seeds and A_MEMBERS: runs of equal kinds may be trained as one."""
    train = dataclasses.replace(run.config.train, **A_MEMBERS)
    about = dataclasses.asdict(dataclasses.replace(run.config, train=train))
    about |= dict.fromkeys(("seed", "seeds", "name", "force"))
    return digest([about, repr(run.spec), run.corpus.sha256, str(run.device)])


def most_as_one(run: Run, members: int | None) -> int:
    """How many runs are trained as one with this one, at most, as far as its config says. members: what was
    asked for; None for MOST on a GPU, and one elsewhere."""
    most = members or (MOST if run.device.type == "cuda" else 1)
    return 1 if most == 1 or why_alone_by_config(run) else most


def why_alone_by_config(run: Run) -> str:
    """The reason, as far as its config has one, why a run is trained alone; empty if it need not be."""
    if run.config.model.dropout:
        return "model.dropout is drawn for each run"
    if run.corpus.splits["train"].is_ragged:
        return "its batches differ in shape"
    return ""


def why_alone(run: Run) -> str:
    """The reason why a run can't be trained as one with others of its kind; empty if it can. A method is
    tried once in a process."""
    if (why := why_alone_by_config(run)) or run.is_simulated:
        return why
    if (of := kind(run)) not in _tried:
        _tried[of] = _try(run) or ""
    return _tried[of]


_tried: dict[str, str] = {}  # by kind


def _try(run: Run) -> str | None:
    """Hold first steps of two members as one, this run and one of other seeds, against plain ones."""
    from ablate.execution.networks import build
    from ablate.training.batches import batches
    from ablate.training.mapping import why_not_mapped

    other = {stream: seed + 1 for stream, seed in run.config.resolved_seeds().items()}
    runs = [run, run.with_seeds(dataclasses.replace(run.config, seeds=SeedsConfig(**other)))]
    drawn = batches(
        run.corpus.splits["train"],
        range(1, TRIED + 1),
        context=run.spec.context,
        batch=run.config.train.batch,
        seeds=[one.config.resolved_seeds()["data"] for one in runs],
        device=run.device,
    )
    with device.deterministic(run.device):
        return why_not_mapped([build(one) for one in runs], drawn)
