"""Models trained as one: each member against itself trained alone, and what ends one of them."""

import copy
import dataclasses
import math
import random
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ablate.config.schema import PartConfig
from ablate.data.splits import Batch, Stream
from ablate.execution import networks
from ablate.execution.execute import execute, execute_group
from ablate.execution.grouping import kind, why_alone
from ablate.execution.networks import build, build_group, training
from ablate.execution.run import Run, prepare
from ablate.execution.trained import load_model
from ablate.files.atomic import StoreError
from ablate.methods import Fusion
from ablate.model import fusion
from ablate.model.models import Model
from ablate.store.columns import Row
from ablate.store.run_files import Checkpoint, sealed
from ablate.training import train
from ablate.training.batches import _ahead, _gathered, batches
from ablate.training.events import Diverged, Evaluation, Event, Kept, Step
from ablate.training.group import Group, Mapped
from ablate.training.mapping import why_not_captured, why_not_mapped
from ablate.training.train import Training
from tests.helpers import ignore, make_config, stopping

SMALL = ("model.d_model=12", "model.context=8", "model.layers=1", "heads=2", "device=cpu")
SMALL += ("train.batch=2", "train.steps=20", "train.eval_every=10", "train.lr=1e-3", "train.warmup=0.1")
TEXT = ("corpus=grammar", "corpus.characters=4000")
TASK = ("corpus.held_out=20", "corpus.vocabulary=32", "model.context=32")
# What may differ between members.
MEMBERS = (
    ("seed=0", "train.weight_decay=0.1", "train.clip=0.5"),
    ("seed=1", "train.lr=2e-3", "train.weight_decay=0", "train.clip=null"),
    ("seed=2", "seeds.data=0"),
)
EVERY = (
    *("fusion=concat", "fusion=sum", "fusion=sum fusion.order=rotate", "fusion=mean", "fusion=weighted_sum"),
    *("fusion=weighted_sum fusion.weights=convex", "fusion=grouped fusion.groups=2 heads=4", "fusion=gated"),
    *("fusion=gated fusion.per=channel", "fusion=gated fusion.input=static", "fusion=gated fusion.reads=3"),
    *("fusion=head_norm", "fusion=head_scale", "fusion=exclusive fusion.drop=learned value_heads=1"),
    *("scores=talking", "scores=qk_norm", "scores=uniform", "scores=offsets", "scores=windows"),
    *("out_rank=5", "key_heads=1 value_heads=1", "out_proj=false", "tie_qk=true", "model.bias=true"),
    *("fusion=sum match=params", "fusion=sum value_width=wide out_proj=false", "model=modern"),
    "scores=differential fusion=head_norm fusion.gain=differential",
    "fusion=hadamard out_proj=false heads=4 model.d_model=16",
    *("model.position=rope scores=qk_norm key_heads=1", "model.position=none model.mlp=relu2"),
)
TASKS = ("copy", "reverse", "sort", "induction", "mqar", "votes")


def runs_of(*overrides: str, members: Sequence[Sequence[str]] = MEMBERS[:2]) -> list[Run]:
    text = () if overrides and overrides[0].startswith("corpus=") else TEXT
    return [prepare(make_config(*text, *SMALL, *overrides, *of_member)) for of_member in members]


def built(runs: Sequence[Run], *, double: bool) -> list[Model]:
    return [build(run).double() if double else build(run) for run in runs]


def group_of(runs: Sequence[Run], *, double: bool = False) -> Group:
    models, precision = built(runs, double=double), runs[0].config.train.precision
    return (Group if len(models) == 1 else Mapped)(models, precision)


def trained(
    runs: Sequence[Run], group: Group, starts: Sequence[Checkpoint | None] | None = None
) -> tuple[Tensor, list[Event]]:
    """The losses of every step, (steps, M), and all events."""
    with training(runs, group, starts) as begun:
        events = [*map(copy.deepcopy, begun.events())]
    return torch.stack([event.loss_M for event in events if isinstance(event, Step)]), events


def evaluations(events: Sequence[Event], member: int) -> list[Tensor]:
    return [
        torch.tensor(event.validation.loss)
        for event in events
        if isinstance(event, Evaluation) and event.member == member
    ]


def require_equal_to_runs_alone(runs: Sequence[Run], *, double: bool, most: float, first: int = 0) -> None:
    """Holds the members from `first` on against the same runs trained alone."""
    group = group_of(runs, double=double)
    losses_LM, events = trained(runs, group)
    assert losses_LM.isfinite().all()
    for member, run in [*enumerate(runs)][first:]:
        one = group_of([run], double=double)
        alone_L1, of_one = trained([run], one)
        torch.testing.assert_close(losses_LM[:, member], alone_L1[:, 0], rtol=0, atol=most)
        for mine, wanted in zip(evaluations(events, member), evaluations(of_one, 0), strict=True):
            torch.testing.assert_close(mine, wanted, rtol=0, atol=most)
        torch.testing.assert_close(group.weights[member], one.weights[0], rtol=0, atol=most)


@pytest.mark.slow
@pytest.mark.parametrize("method", EVERY)
def test_each_method_is_mapped_and_a_member_learns_what_it_learns_alone(method):
    runs = runs_of(*method.split(), "train.steps=4", "train.eval_every=4")
    assert why_parts(runs) is None
    require_equal_to_runs_alone(runs, double=True, most=1e-10, first=1)


@pytest.mark.slow
def test_in_float32_as_far_as_rounding_goes():
    runs = runs_of("scores=talking", members=MEMBERS)
    require_equal_to_runs_alone(runs, double=False, most=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_rows_that_a_task_draws(task):
    runs = runs_of(f"corpus={task}", *TASK)
    require_equal_to_runs_alone(runs, double=True, most=1e-10)


@pytest.mark.parametrize("method", ["fusion=concat", "fusion=weighted_sum", "scores=windows"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_steps_of_a_group_are_seen_to_be_the_same_each_time(method, precision):
    """Which is found out on a model alone, whose attention computes outside of vmap, too."""
    runs = runs_of(method, f"train.precision={precision}")
    batch = torch.randint(20, (2, 3, 8))
    assert why_not_captured(build_group(runs), Batch(batch, batch)) is None


def test_batches_are_the_same_however_they_are_drawn():
    """Gathered where the text lies, and drawn ahead in a thread."""
    run, place = runs_of()[0], torch.device("cpu")
    split, seeds, steps = run.corpus.splits["train"], [3, 5, 3], range(60, 130)
    assert isinstance(split, Stream)
    plain = [*batches(split, steps, context=8, batch=2, seeds=seeds, device=place)]
    gathered = [*_gathered(split, steps, 8, 2, [3, 5], [0, 1, 0], place)]
    ahead = [*_ahead(lambda step: plain[step - 60], steps)]
    for step, *others in zip(plain, gathered, ahead, strict=True):
        assert step.inputs.shape == (3, 2, 8)
        for other in others:
            assert torch.equal(step.inputs, other.inputs) and torch.equal(step.targets, other.targets)
    alone = split.batch(context=8, batch=2, seed=5, step=60)
    assert torch.equal(plain[0].inputs[1], alone.inputs)
    assert torch.equal(plain[0].inputs[0], plain[0].inputs[2])


class StandIn:
    """Of a captured step: its inputs and outputs stay where they are, and each call overwrites them."""

    def __init__(self, compute: Any, inputs: Sequence[Tensor | None]) -> None:
        self.compute, self.inputs = compute, copy.deepcopy(inputs)
        self.outputs: Sequence[Tensor] = ()

    def __call__(self, *inputs: Tensor | None) -> Sequence[Tensor]:
        for static, given in zip(self.inputs, inputs, strict=True):
            assert (static is None) == (given is None)
            if static is not None and given is not None:
                static.copy_(given)
        now = self.compute(*self.inputs)
        self.outputs = self.outputs or [output.clone() for output in now]
        for static, output in zip(self.outputs, now, strict=True):
            static.copy_(output)
        return self.outputs


@pytest.mark.slow
def test_around_a_captured_step_nothing_relies_on_new_tensors(monkeypatch):
    runs = runs_of("train.eval_every=5", "train.checkpoint_every=4", members=MEMBERS)
    groups = [group_of(runs) for _ in range(2)]
    plain_LM, events = trained(runs, groups[0])
    monkeypatch.setattr(
        Training, "_way", lambda training, inputs: (StandIn(training._compute, inputs), "a stand-in")
    )
    losses_LM, replayed = trained(runs, groups[1])
    assert torch.equal(losses_LM, plain_LM) and torch.equal(groups[1].weights, groups[0].weights)
    told = [
        [(e.member, e.step, e.validation, e.train_loss, e.grad_norm) for e in of if isinstance(e, Evaluation)]
        for of in (replayed, events)
    ]
    assert told[0] == told[1] and len(told[0]) == 15


# --- what ends one of them ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
def test_a_member_that_diverges_is_as_if_it_had_not_been_there(poison):
    runs = runs_of("train.eval_every=5", "train.checkpoint_every=2", members=MEMBERS)
    healthy, poisoned = group_of(runs), group_of(runs)
    poisoned.weights[1] = poison
    sound_LM, _ = trained(runs, healthy)
    losses_LM, events = trained(runs, poisoned)
    assert not losses_LM[-1, 1].isfinite()
    assert torch.equal(losses_LM[:, ::2], sound_LM[:, ::2])  # to the last bit
    assert torch.equal(poisoned.weights[::2], healthy.weights[::2])
    (ended,) = [event for event in events if isinstance(event, Diverged)]
    assert ended.member == 1 and ended.step <= 2
    after = events[events.index(ended) :]
    assert {event.member for event in after if isinstance(event, Evaluation | Kept)} == {0, 2}
    assert [event.step for event in events if isinstance(event, Evaluation)][-1] == 20


def test_where_all_diverge_training_ends():
    runs = runs_of("train.lr=1e30", "train.clip=null", "train.warmup=0", members=(("seed=0",), ("seed=1",)))
    losses_LM, events = trained(runs, group_of(runs))
    assert {event.member for event in events if isinstance(event, Diverged)} == {0, 1}
    assert len(losses_LM) < 20 and isinstance(events[-1], Diverged)


@pytest.mark.parametrize("goes_on", [[0, 1, 2], [2, 0], [1]])
def test_members_resume_in_any_group_or_alone(goes_on):
    """Each from the bytes of its checkpoint."""
    runs = runs_of("train.checkpoint_every=10", members=MEMBERS)
    group = group_of(runs, double=True)
    whole_LM, events = trained(runs, group)
    states = {
        event.member: copy.deepcopy(event.checkpoint)
        for event in events
        if isinstance(event, Kept) and event.checkpoint.step == 10
    }
    chosen, starts = [runs[member] for member in goes_on], [states[member] for member in goes_on]
    resumed = group_of(chosen, double=True)
    losses_LM, _ = trained(chosen, resumed, starts)
    torch.testing.assert_close(losses_LM, whole_LM[10:, goes_on], rtol=0, atol=1e-10)
    torch.testing.assert_close(resumed.weights, group.weights[goes_on], rtol=0, atol=1e-10)


@pytest.mark.slow
def test_the_same_group_gives_the_same_bytes_twice_and_interrupted():
    runs = runs_of("train.checkpoint_every=10", members=MEMBERS)
    once, again, resumed = (group_of(runs) for _ in range(3))
    losses_LM, events = trained(runs, once)
    starts = [copy.deepcopy(event.checkpoint) for event in events if isinstance(event, Kept)]
    assert torch.equal(losses_LM, trained(runs, again)[0]) and torch.equal(once.weights, again.weights)
    assert torch.equal(losses_LM[10:], trained(runs, resumed, starts)[0])
    assert torch.equal(once.weights, resumed.weights)


# --- methods of one's own -------------------------------------------------------------------------------


class Own(Fusion):
    """Concat times a parameter, plus a running count and mean, which are kept in a buffer written in place,
    or wrongly."""

    count: Tensor
    mean: Tensor
    fault = ""

    @classmethod
    def slots(cls, heads, options):
        return heads

    def __init__(self, shape, options):
        super().__init__(shape, options)
        self.factor = nn.Parameter(torch.ones(shape.heads, 1))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(shape.heads, shape.value_width))

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        factor: Any = self.factor
        match self.fault:
            case "assigned":
                self.count = self.count + 1
            case "item":
                factor = factor * z_BTHV.abs().mean().item()
            case "kept":
                self.last = z_BTHV.detach()
                factor = factor + self.last.mean()
            case "draws outside of torch":
                factor = factor + random.random()
            case "draws":
                factor = factor + torch.rand(())
            case _:
                self.count += 1
        if self.training:
            self.mean.mul_(0.9).add_(z_BTHV.detach().mean((0, 1)), alpha=0.1)
        return (factor * z_BTHV + self.mean + self.count / 100).flatten(-2)


@pytest.fixture
def own() -> Iterator[None]:
    fusion.register("own")(Own)
    yield
    fusion.forget({"own"})


def runs_of_own(*overrides: str) -> list[Run]:
    part = PartConfig(name="own", options={})
    return [
        prepare(dataclasses.replace(run.config, fusion=part)) for run in runs_of(*overrides, members=MEMBERS)
    ]


def why_parts(runs: Sequence[Run]) -> str | None:
    split, context = runs[0].corpus.splits["train"], runs[0].spec.context
    few = batches(split, range(1, 4), context=context, batch=2, seeds=[0, 1], device=torch.device("cpu"))
    return why_not_mapped(built(runs, double=False), few)


@pytest.mark.slow
def test_a_parameter_and_buffers_of_a_method_are_a_members(own):
    runs = runs_of_own("train.checkpoint_every=10")
    assert why_parts(runs) is None
    require_equal_to_runs_alone(runs, double=True, most=1e-10)
    group = group_of(runs)
    _, events = trained(runs, group)
    starts = [copy.deepcopy(event.checkpoint) for event in events if isinstance(event, Kept)]
    counts = [start.arrays["buffer/blocks.0.attention.fusion.count"].item() for start in starts]
    assert counts == [10, 10, 10]
    ended = [model.get_buffer("blocks.0.attention.fusion.mean") for model in group.models]
    assert [model.get_buffer("blocks.0.attention.fusion.count").item() for model in group.models] == [20] * 3
    assert not torch.equal(ended[0], ended[1])
    resumed = group_of(runs)
    trained(runs, resumed, starts)
    for model, mean in zip(resumed.models, ended, strict=True):
        assert torch.equal(model.get_buffer("blocks.0.attention.fusion.mean"), mean)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("assigned", "part from plain ones"),
        ("kept", "keeps Python state|can't be mapped|part from plain ones"),
        ("item", "can't be mapped: .*item"),
        ("draws", "can't be mapped: .*random"),
        ("draws outside of torch", "draws random numbers"),
    ],
)
def test_a_method_that_would_train_wrongly_trains_alone_and_is_told_so(own, monkeypatch, fault, reason):
    monkeypatch.setattr(Own, "fault", fault)
    said = why_parts(runs_of_own())
    assert said is not None and re.search(reason, said) and "\n" not in said


# --- as runs of a store ---------------------------------------------------------------------------------


def stored(root: Path, runs: Sequence[Run], *, together: bool) -> list[Row]:
    if not together:
        return [execute(run, ignore, root) for run in runs]
    try:
        rows = execute_group(runs, lambda _: ignore, root)
    except RuntimeError:  # as the pool does
        half = (len(runs) + 1) // 2
        return [row for part in (runs[:half], runs[half:]) for row in stored(root, part, together=True)]
    assert not any(isinstance(row, StoreError) for row in rows)
    return [row for row in rows if isinstance(row, dict)]


def files(root: Path, run: Run) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "store" / run.name).iterdir()}


@pytest.mark.slow
def test_each_member_is_a_run_like_any_other(tmp_path):
    runs = runs_of(members=MEMBERS)
    assert len({kind(run) for run in runs}) == 1
    rows, alone = (stored(tmp_path / str(at), runs, together=bool(at)) for at in (1, 0))
    for run, row, one in zip(runs, rows, alone, strict=True):
        assert (row["members"], one["members"]) == (3, 1) and row["status"] == "done"
        assert row.keys() == one.keys() and row["run_id"] == one["run_id"]
        for name in ("val_loss", "test_loss", "train_loss", "best_val_loss"):
            assert row[name] == pytest.approx(one[name], abs=1e-5)
        mine, wanted = files(tmp_path / "1", run), files(tmp_path / "0", run)
        assert mine.keys() == wanted.keys()
        assert mine["metrics.csv"].count(b"\n") == wanted["metrics.csv"].count(b"\n") > 1
        assert b"3 members mapped" in mine["log.txt"] and sealed(tmp_path / "1" / "store" / run.name)
        assert isinstance(load_model(tmp_path / "1" / "store" / run.name), nn.Module)


@pytest.mark.slow
def test_one_that_diverges_or_is_finished_leaves_the_others(tmp_path):
    members = (("seed=0",), ("seed=1", "train.lr=1e30", "train.clip=null"), ("seed=2",))
    runs = runs_of("train.warmup=0", members=members)
    before = execute(runs[2], ignore, tmp_path)
    rows = stored(tmp_path, runs, together=True)
    assert [row["status"] for row in rows] == ["done", "diverged", "done"]
    assert rows[2]["wall_s"] == before["wall_s"]
    assert [row["members"] for row in rows] == [2, 2, 1]


@pytest.mark.slow
def test_one_that_fails_is_found_by_halving(own, tmp_path, monkeypatch):
    """A method that fails in some member alone: the others are trained all the same."""
    runs, forward = runs_of_own("train.steps=4", "train.eval_every=2"), Own.forward
    broken = build(runs[1]).get_parameter("blocks.0.attention.value.weight")[0, 0].item()

    def failing(training: Training, *args: Any) -> Any:
        for model in training.group.models:
            if model.get_parameter("blocks.0.attention.value.weight")[0, 0].item() == broken:
                raise RuntimeError("not with this one")
        return forward_pass(training, *args)

    forward_pass = Training._compute
    monkeypatch.setattr(Training, "_compute", failing)
    rows = stored(tmp_path, runs, together=True)
    assert [row["status"] for row in rows] == ["done", "failed", "done"] and forward is Own.forward
    assert rows[1]["error"] == "RuntimeError: not with this one"
    assert files(tmp_path, runs[0])["metrics.csv"].count(b"\n") == 4  # a header, and after 0, 2 and 4 steps


@pytest.mark.slow
def test_what_cannot_be_mapped_is_trained_alone_and_told(own, tmp_path, monkeypatch):
    monkeypatch.setattr(Own, "fault", "assigned")
    runs, told = runs_of_own("train.steps=4"), []
    rows = execute_group(runs, lambda _: told.append, tmp_path)
    assert [row["members"] for row in rows if isinstance(row, dict)] == [1, 1, 1]
    lines = [event for event in told if isinstance(event, str)]
    assert lines == ["trained alone: its mapped steps part from plain ones"]
    assert b"trained alone: its mapped steps part" in files(tmp_path, runs[0])["log.txt"]


@pytest.mark.slow
def test_checkpoints_are_written_by_the_time_that_they_take():
    written = dict.fromkeys((1, 2), 0)
    for members in written:
        runs = runs_of("train.steps=100", "train.checkpoint_every=2", members=MEMBERS[:members])
        with training(runs, group_of(runs)) as begun:
            for event in begun.events():
                if isinstance(event, Kept):
                    written[members] += 1
                    time.sleep(0.02)
    assert 1 <= written[1] < 20 and 2 <= written[2] < 20


@pytest.mark.slow
def test_an_interrupted_group_goes_on_member_by_member(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "CHECKPOINTS", 1e9)
    runs = runs_of("train.eval_every=5", "train.checkpoint_every=4", members=MEMBERS)
    with pytest.raises(KeyboardInterrupt):
        execute_group(runs, lambda _: stopping(10), tmp_path / "cut")
    rows = [execute(runs[0], ignore, tmp_path / "cut"), *stored(tmp_path / "cut", runs[1:], together=True)]
    whole = stored(tmp_path / "whole", runs, together=True)
    for run, row, other in zip(runs, rows, whole, strict=True):
        assert "going on after step 8" in files(tmp_path / "cut", run)["log.txt"].decode()
        assert row["val_loss"] == pytest.approx(other["val_loss"], abs=1e-6) and row["members"] == 3


@pytest.mark.slow
def test_a_group_that_fails_late_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "CHECKPOINTS", 1e9)
    runs, seen = runs_of("train.eval_every=5", "train.checkpoint_every=4", members=MEMBERS), list[int]()
    whole = stored(tmp_path / "whole", runs, together=True)

    def failing(*given: Any) -> Any:
        for event in trained_by(*given):
            if isinstance(event, Step):
                seen.append(event.step)
                if event.step == 10 and len(given[0]) > 1:
                    raise torch.OutOfMemoryError("no room")
            yield event

    trained_by = networks.trained
    monkeypatch.setattr(networks, "trained", failing)
    rows = stored(tmp_path / "cut", runs, together=True)
    assert seen == [*range(1, 11), 9, 10, *range(9, 21), *range(9, 21), *range(9, 21)]
    for run, row, other in zip(runs, rows, whole, strict=True):
        assert row["val_loss"] == pytest.approx(other["val_loss"], abs=1e-6) and row["members"] == 3
        mine, its = files(tmp_path / "cut", run), files(tmp_path / "whole", run)
        assert "going on after step 8\nas one of 1, before of 3: sums are" in mine["log.txt"].decode()
        assert mine["metrics.csv"].count(b"\n") == its["metrics.csv"].count(b"\n")


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (("model.dropout=0.1",), "model.dropout"),
        (("corpus=copy", *TASK, "model=pair", "model.context=64"), "differ in shape"),
    ],
)
def test_what_is_trained_as_one_member_says_so(overrides, reason):
    why = why_alone(runs_of(*overrides)[0])
    assert reason in why


@pytest.mark.slow
def test_kinds_differ_by_all_but_what_is_a_members():
    base, *others = (
        kind(runs_of(*more, members=[()])[0])
        for more in ((), ("train.batch=3",), ("heads=1",), ("train.steps=5",), ("corpus.seed=3",))
    )
    assert base not in others and len({*others}) == 4
    assert base == kind(runs_of("seed=7", "train.lr=0.1", "train.clip=2", members=[()])[0])
