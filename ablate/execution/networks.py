"""The models of runs of one kind: built, and trained by gradient descent as one."""

import contextlib
from collections.abc import Generator, Iterator, Sequence

from ablate import rng
from ablate.compute.arithmetic import arithmetic
from ablate.execution.run import Run
from ablate.model.attend import FORMULATIONS
from ablate.model.models import Model, build_model
from ablate.store.run_files import Checkpoint
from ablate.training.evaluate import scores
from ablate.training.events import Event, Final, Score
from ablate.training.group import Group, Mapped
from ablate.training.train import Member, Training, arrays


def build(run: Run) -> Model:
    """The model of a run before its first step, on its device, with its product and attention."""
    model = build_model(run.spec, run.config.resolved_seeds()).to(run.device)
    product, attention = arithmetic(run.config.train.precision, run.device, run.spec.context)
    model.use(product=product, attend=FORMULATIONS[attention])
    return model


def build_group(runs: Sequence[Run]) -> Group:
    """The models of runs of one kind before their first step, to be computed as one."""
    kind = Group if len(runs) == 1 else Mapped
    return kind([build(run) for run in runs], runs[0].config.train.precision)


@contextlib.contextmanager
def training(
    runs: Sequence[Run], group: Group, starts: Sequence[Checkpoint | None] | None = None
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


def trained(runs: Sequence[Run], starts: Sequence[Checkpoint | None]) -> Generator[Event, None, None]:
    """What happens while the models of these runs are trained by gradient descent."""
    with training(runs, build_group(runs), starts) as steps:
        yield from steps.events()
        yield from finals(runs, steps)


def finals(runs: Sequence[Run], steps: Training) -> Iterator[Final]:
    """What each member is after its last step, with the column that is read from a model: the learned weights
    of the heads, None if the method has none."""
    group, config, splits = steps.group, runs[0].config.train, runs[0].corpus.splits

    def of(split: str) -> list[Score]:
        return scores(group, splits[split], context=runs[0].spec.context)

    seen_whole = config.eval_tokens is None or config.eval_tokens >= (splits["validation"].size or 0)
    validation, test = [None] * len(runs) if seen_whole else of("validation"), of("test")
    for member, (run, model) in enumerate(zip(runs, group.models, strict=True)):
        kept = arrays(model.state_dict()) if config.save == "model" else {}
        sites = [site for site in model.sites() if run.spec.at in ("all", site.kind)]
        learned = [site.attention.fusion.head_weights() for site in sites]
        # Layers × heads (× channels), with one kind of attention after the other.
        columns = {"fusion_weights": [one.tolist() for one in learned if one is not None] or None}
        yield Final(member, validation[member], test[member], columns, kept)
