"""Which runs can be trained as one, and why others are trained alone. Loads torch when models are tried."""

import dataclasses
import sys
from collections.abc import Iterator

from ablate.compute import device
from ablate.data.splits import Batch
from ablate.execution.run import Run
from ablate.files.atomic import digest
from ablate.lazy import torch

TRIED = 3  # steps that are held against plain ones
SHARE = 0.8  # of the memory of a card that a group may take
# What may differ between runs that are trained as one: with their seeds, what an update reads of each.
A_MEMBERS = {"lr": 1.0, "weight_decay": 0.0, "clip": None}
MOST = 1024  # runs that are trained as one, however many would fit


def kind(run: Run) -> str:
    """A digest of all but seeds and A_MEMBERS: runs of equal kinds may be trained as one."""
    train = dataclasses.replace(run.config.train, **A_MEMBERS)
    about = dataclasses.asdict(dataclasses.replace(run.config, train=train))
    about |= dict.fromkeys(("seed", "seeds", "name", "force"))
    return digest([about, repr(run.spec), run.corpus.sha256, str(run.device)])


def most_as_one(run: Run, members: int | None) -> int:
    """How many runs are trained as one with this one, at most, as far as its config says. members: what was
    asked for; None for as many as fit a GPU, and one elsewhere."""
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
    """The reason why a run can't be trained as one with others of its kind; empty if it can."""
    return why_alone_by_config(run) or ("" if run.is_simulated else _tried(kind(run), run) or "")


def that_fit(run: Run) -> int:
    """How many runs of this kind can be trained as one: as many as the memory of its card holds, by what the
    first step of two takes; never by what happens to be free. On a CPU, whose memory nobody can measure so,
    all."""
    if why_alone(run):
        return 1
    if run.device.type != "cuda":
        return sys.maxsize
    of = kind(run)
    if of not in _fit:
        try:
            of_one, of_all = _memory(run)
            _fit[of] = max(1, int((SHARE * device.memory_of(run.device) - of_all) / of_one))
        except torch.OutOfMemoryError:
            _fit[of] = 1
        device.release_memory(run.device)
    return _fit[of]


def _memory(run: Run) -> tuple[float, float]:
    """The bytes of a member: half of what a step of two takes at its peak, both moments, and the copy of its
    state that capturing keeps. And those of all as one: of the text, which lies on the card once."""
    _of_two(run)  # the first step in a process takes what stays, too, such as cuBLAS's workspace
    of_two, weights, of_all = _of_two(run)
    return of_two / 2 + 6 * weights, of_all


def _of_two(run: Run) -> tuple[int, int, int]:
    """The bytes that a step of two takes at its peak, those of the weights of one, and those of the text."""
    from ablate.execution.networks import build_group

    at_first = _now(run.device)
    batches = _first_batches(run, 1)
    batch = next(batches)
    with_text = _now(run.device)
    with device.deterministic(run.device):
        group = build_group([run, run])
        group.losses_and_gradients(batch)
    of_two = torch.cuda.max_memory_allocated(run.device) - with_text
    return of_two, group.weights.element_size() * group.weights.shape[1], with_text - at_first


def _now(where: "torch.device") -> int:
    """The bytes in use on the device, from which its peak is measured from now on."""
    torch.cuda.reset_peak_memory_stats(where)
    return torch.cuda.max_memory_allocated(where)


_fit: dict[str, int] = {}  # by kind
_reasons: dict[str, str | None] = {}  # by kind: a method is tried once in a process


def _tried(of: str, run: Run) -> str | None:
    if of not in _reasons:
        from ablate.execution.networks import build
        from ablate.model.models import draw_weights
        from ablate.training.mapping import why_not_mapped

        models = [build(run), build(run)]
        draw_weights(models[1], _other_seeds(run))
        with device.deterministic(run.device):
            _reasons[of] = why_not_mapped(models, _first_batches(run, TRIED))
    return _reasons[of]


def _first_batches(run: Run, steps: int) -> Iterator[Batch]:
    """For two members."""
    from ablate.training.batches import batches

    return batches(
        run.corpus.splits["train"],
        range(1, steps + 1),
        context=run.spec.context,
        batch=run.config.train.batch,
        seeds=[run.config.resolved_seeds()["data"], _other_seeds(run)["data"]],
        device=run.device,
    )


def _other_seeds(run: Run) -> dict[str, int]:
    return {stream: seed + 1 for stream, seed in run.config.resolved_seeds().items()}
