"""Train one model, as a generator of events that writes no files and prints nothing.

Step t is a pure function of the state after step t − 1 and of (config, t): neither the frequency of
evaluations nor stopping and resuming changes what is learned.
"""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ablate import rng
from ablate.config.schema import TrainConfig
from ablate.data.splits import Split
from ablate.model.models import Model, decayed
from ablate.training import optim
from ablate.training.optim import Computing

# Size of the widest activation of an evaluation pass, in numbers: a CPU is fastest while it fits the cache of
# a core (2 MiB; a fifth slower at four times that), a GPU needs many.
EVALUATION_NUMBERS = {"cpu": 2**19, "cuda": 2**26, "mps": 2**24}

CHECK_EVERY = 100  # steps between checks for a finite loss, each of which waits for the device


@dataclass(frozen=True)
class Step:
    """One update. loss: of this step's batch before the update, 0-dimensional, on the device."""

    step: int
    loss: Tensor
    grad_norm: Tensor
    lr: float


@dataclass(frozen=True)
class Score:
    """The score on a split or a part of it. nats: cross-entropy summed over the targets. rows: for examples,
    the number of rows with targets; exact: how many of them are right at every target. loss_by_third: mean
    loss in nats of the targets in the first, middle and last third of their rows; None without targets there.
    nats_J: the cross-entropy of each target, in order, float32.
    """

    nats: float
    correct: int
    targets: int
    rows: int = 0
    exact: int = 0
    loss_by_third: tuple[float | None, ...] = (None, None, None)
    nats_J: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32), repr=False, compare=False)

    @property
    def loss(self) -> float:
        return self.nats / self.targets

    @property
    def accuracy(self) -> float:
        return self.correct / self.targets

    @property
    def exact_match(self) -> float | None:
        return self.exact / self.rows if self.rows else None


@dataclass(frozen=True)
class Evaluation:
    """An evaluation on the validation split, or train.eval_tokens of it, after update `step`.

    lr, train_loss and grad_norm are None at step 0, before the first update. seconds: since training began;
    evaluation_seconds: the part of them spent on evaluations.
    """

    step: int
    tokens: int
    lr: float | None
    train_loss: float | None
    grad_norm: float | None
    validation: Score
    seconds: float
    evaluation_seconds: float

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of training, without evaluations."""
        return self.tokens / (self.seconds - self.evaluation_seconds)


@dataclass(frozen=True)
class State:
    """Everything needed to resume training after update `step`. average: the running mean of the weights, if
    train.average is set. buffers: all of them, also those that model.safetensors leaves out.

    The tensors are those in use: copy or write them before asking for the next event.
    """

    step: int
    params: Mapping[str, Tensor]
    moments: optim.Moments
    average: Mapping[str, Tensor] = field(default_factory=dict)
    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    seconds: float = 0.0
    evaluation_seconds: float = 0.0


@dataclass(frozen=True)
class Averaged:
    """The mean of the weights over the last steps, by name; yielded at the end if train.average is set. It
    has no buffers, which stay as they are after the last step: the mean of a counter or a mask means
    nothing."""

    params: Mapping[str, Tensor]


@dataclass(frozen=True)
class Kept:
    """The state_dict after update `step`, to be kept for probes (train.probe_every). The tensors are those in
    use, as in State."""

    step: int
    weights: Mapping[str, Tensor]


class Diverged(ArithmeticError):
    """The loss was not finite at `step`, `seconds` after training began: a result that ends the run."""

    def __init__(self, step: int, seconds: float) -> None:
        super().__init__(f"the loss was not finite at step {step}")
        self.step = step
        self.seconds = seconds


Event = Step | Evaluation | State | Averaged | Kept


def train(
    model: Model,
    config: TrainConfig,
    *,
    train_split: Split,
    validation_split: Split,
    context: int,
    data_seed: int,
    start: State | None = None,
) -> Iterator[Event]:
    """Train `model` in place on its own device. Yields an Evaluation at step 0, a Step for every step, an
    Evaluation, a State and Kept weights when they are due, and Averaged weights at the end.

    start: resume from a State that an earlier call yielded. Raises Diverged at most CHECK_EVERY steps after a
    loss is not finite, and before any State that it affects. Whatever is drawn at random in step t is a
    function of (data_seed, t).
    """
    device = next(model.parameters()).device
    params = dict(model.named_parameters())
    decay_mask = decayed(model)
    moments = optim.Moments.zeros(params)
    average = {name: torch.zeros_like(param) for name, param in params.items()} if config.average else {}
    begins_at_0, start = start is None, start or State(0, {}, optim.Moments())
    _restore(start.params, params)
    _restore(start.moments.first, moments.first)
    _restore(start.moments.second, moments.second)
    _restore(start.average, average)
    _restore(start.buffers, dict(model.named_buffers()))
    model.train()
    computing = Computing(model, config.precision, compiled=config.compile)
    losses: list[Tensor] = []
    read_per_row = train_split.read_per_row(context)
    began, evaluating = time.perf_counter() - start.seconds, start.evaluation_seconds

    def evaluation(step: int, lr: float | None, loss: Tensor | None, norm: Tensor | None) -> Evaluation:
        nonlocal evaluating
        evaluation_began = time.perf_counter()
        score = evaluate(computing.model, validation_split, context=context, most=config.eval_tokens)
        if not math.isfinite(score.nats):
            raise Diverged(step, time.perf_counter() - began)
        now = time.perf_counter()
        evaluating += now - evaluation_began
        return Evaluation(
            step=step,
            tokens=round(step * config.batch * read_per_row),
            lr=lr,
            train_loss=None if loss is None else loss.item(),
            grad_norm=None if norm is None else norm.item(),
            validation=score,
            seconds=now - began,
            evaluation_seconds=evaluating,
        )

    if begins_at_0:
        yield evaluation(0, None, None, None)
    for step in range(start.step + 1, config.steps + 1):
        batch = train_split.batch(context=context, batch=config.batch, seed=data_seed, step=step)
        rng.reseed(data_seed, "data", f"dropout/{step}")
        loss, grads = computing.loss_and_gradients(batch.to(device))
        norm = optim.global_norm(grads)
        divisor = None if config.clip is None else optim.clipping_divisor(norm, config.clip)
        lr = optim.learning_rate(
            step, steps=config.steps, peak=config.lr, warmup=config.warmup, min_ratio=config.min_lr_ratio
        )
        optim.adamw_(
            params,
            grads,
            moments,
            step,
            lr=lr,
            weight_decay=config.weight_decay,
            decayed=decay_mask,
            beta1=config.beta1,
            beta2=config.beta2,
            eps=config.eps,
            divisor=divisor,
        )
        computing.follow()
        if config.average:
            _average(average, params, step - config.steps + max(1, round(config.average * config.steps)))
        losses.append(loss)
        yield Step(step, loss, norm, lr)
        last = step == config.steps
        due = last or step % config.eval_every == 0
        checkpoint = not last and config.checkpoint_every is not None and step % config.checkpoint_every == 0
        if due or checkpoint or len(losses) == CHECK_EVERY:
            _require_finite(losses, last_step=step, began=began)
            losses.clear()
        if due:
            yield evaluation(step, lr, loss, norm)
        if config.probe_every and step % config.probe_every == 0 and not last:
            yield Kept(step, model.state_dict())
        if checkpoint:
            buffers, seconds = dict(model.named_buffers()), time.perf_counter() - began
            yield State(step, params, moments, average, buffers, seconds, evaluating)
    if config.average:
        yield Averaged(average)


@torch.no_grad()
def evaluate(model: Model, split: Split, *, context: int, most: int | None = None) -> Score:
    """Evaluate the model without dropout on a whole split or on `most` of its positions (Split.windows). What
    a method draws or keeps meanwhile leaves no trace.

    Position p of a row of length T is in third ⌊3p/T⌋; in a shorter window, T is that window's length. If
    rows differ in length, there are no losses by third.
    """
    device = next(model.parameters()).device
    widest = max(len(weight) for weight in model.parameters() if weight.dim() == 2)
    windows = max(1, EVALUATION_NUMBERS[device.type] // (context * widest))
    nats_3, count_3, correct, rows, exact = np.zeros(3), np.zeros(3, int), 0, 0, 0
    nats = [np.empty(0, np.float32)]
    wide = torch.promote_types(next(model.parameters()).dtype, torch.float32)
    with _evaluating(model):
        for batch in split.windows(context=context, windows=windows, most=most):
            inputs, targets, positions, source = batch.to(device)
            logits, wanted = model(inputs, positions, source).flatten(0, -2), targets.flatten()
            if positions is not None:
                wanted = wanted[positions]
            width = inputs.shape[1]
            place = torch.arange(len(wanted), device=device) if positions is None else positions
            in_third_3K = _in_thirds(place, width)
            right = logits.argmax(-1) == wanted
            nats_K = torch.nn.functional.cross_entropy(logits.to(wide), wanted, reduction="none")
            nats.append(nats_K.cpu().numpy())
            nats_3 += torch.where(in_third_3K, nats_K, 0).sum(1).cpu().numpy()
            count_3 += in_third_3K.sum(1).cpu().numpy()
            correct += int(right.sum().item())
            if positions is not None:
                row = positions // width
                rows += len(row.unique())
                exact += len(row.unique()) - len(row[~right].unique())
    by_third = tuple(
        float(nats / n) if n and not split.is_ragged else None
        for nats, n in zip(nats_3, count_3, strict=True)
    )
    total = float(nats_3.sum())
    return Score(total, correct, int(count_3.sum()), rows, exact, by_third, np.concatenate(nats))


def _in_thirds(place_K: Tensor, width: int) -> Tensor:
    """(3, K) booleans: whether each of these flattened positions is in the first, middle, last third of its
    row."""
    return place_K % width * 3 // width == torch.arange(3, device=place_K.device)[:, None]


@torch.no_grad()
def _average(average: Mapping[str, Tensor], params: Mapping[str, Tensor], count: int) -> None:
    """Update the mean with the `count`-th weights; for count ≤ 0 averaging has not begun: do nothing."""
    if count > 0:
        for name, param in params.items():
            average[name].lerp_(param, 1 / count)


@contextlib.contextmanager
def _evaluating(model: Model) -> Iterator[None]:
    """The model in eval mode; afterwards its mode, its buffers and all random generators are as before."""
    was_training, buffers = model.training, {name: now.clone() for name, now in model.named_buffers()}
    model.eval()
    try:
        with rng.drawing(0, "eval", ""):
            yield
    finally:
        model.train(was_training)
        _restore(buffers, dict(model.named_buffers()))


@torch.no_grad()
def _restore(kept: Mapping[str, Tensor], current: Mapping[str, Tensor]) -> None:
    for name, tensor in kept.items():
        if 0 not in current[name].stride():  # an expanded view, which a method can't write into either
            current[name].copy_(tensor)


def _require_finite(losses: list[Tensor], last_step: int, began: float) -> None:
    finite = torch.isfinite(torch.stack(losses))
    if not finite.all():
        first = last_step - len(losses) + 1 + int((~finite).int().argmax())
        raise Diverged(first, time.perf_counter() - began)
