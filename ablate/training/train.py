"""Train models of equal shapes as one, as a generator of events that writes no files and prints nothing.

Step t of a member is a pure function of its state after step t − 1 and of (config, t): neither the frequency
of evaluations nor stopping and resuming changes what is learned, nor, but for rounding, do other members.

legend: M members, P numbers in all parameters of one.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ablate import rng
from ablate.config.schema import TrainConfig
from ablate.data.splits import Batch, Split
from ablate.phrases import error_line
from ablate.store.run_files import Checkpoint
from ablate.training import optim
from ablate.training.batches import batches
from ablate.training.evaluate import restore, scores
from ablate.training.events import Began, Diverged, Evaluation, Event, Kept, Step
from ablate.training.group import Group

if TYPE_CHECKING:
    from ablate.training.capture import Compute

# After so many steps or seconds at most it is checked that losses are finite, which waits for the device.
CHECK_EVERY, CHECK_EVERY_S = 100, 0.2
CHECKPOINTS = 0.05  # of the time that may go into writing checkpoints, one for each member
Told = tuple[float | None, float | None, float | None]  # rate, loss and gradient norm of a member


@dataclass(frozen=True)
class Member:
    """What is a member's: of their configs lr, weight_decay and clip may differ. start: the checkpoint that
    it resumes from, of the same step as the others'."""

    config: TrainConfig
    data_seed: int
    start: Checkpoint | None = None


class Training:
    """The training of the models of `group`, in place, on their device. Close it after use."""

    def __init__(
        self,
        group: Group,
        members: Sequence[Member],
        *,
        train_split: Split,
        validation_split: Split,
        context: int,
    ) -> None:
        self.group, self.members, self._config = group, members, members[0].config
        self._train_split, self._validation_split, self._context = train_split, validation_split, context
        self._device = group.weights.device
        self._sizes = {
            "context": context,
            "batch": self._config.batch,
            "seeds": [m.data_seed for m in members],
        }
        self._moments = optim.Moments.zeros(group.weights)
        self._after = members[0].start.step if members[0].start else 0
        for row, member in enumerate(members):
            if member.start:
                self._resume(row, member.start)
        group.follow()
        self._counted = [*range(len(members))]  # those that have not diverged
        self._most_M = group.weights.new_tensor([m.config.clip or math.inf for m in members])
        rates = [(member.config.lr, member.config.weight_decay) for member in members]
        self._alike = [
            ([row for row, one in enumerate(rates) if one == rate], rate[1]) for rate in dict.fromkeys(rates)
        ]
        self._steps: Compute | None = None
        self.close: Callable[[], None] = lambda: None
        self._began, self._evaluating = time.perf_counter(), 0.0

    @torch.no_grad()
    def _resume(self, row: int, start: Checkpoint) -> None:
        assert start.step == self._after, "members of a group are at the same step"
        restore({name: torch.from_numpy(array) for name, array in start.arrays.items()}, self._state(row))
        self._moments.updates[row].fill_(start.step)

    def events(self) -> Iterator[Event]:
        """Trains. Yields Evaluations at step 0, a Step for every step, and Evaluations and checkpoints when
        they are due.

        A member has Diverged at most CHECK_EVERY steps after a loss is not finite, and before any state that
        it affects. Whatever is drawn at random in step t is a function of (data_seed, t).
        """
        config = self._config
        self.group.model.train()
        if not self.members[0].start:
            yield from self._evaluations(0, [(None, None, None)] * len(self.members))
        todo = range(self._after + 1, config.steps + 1 if self._counted else 0)
        drawn = batches(self._train_split, todo, **self._sizes, device=self._device)
        unread: list[Tensor] = []
        checked, next_checkpoint = time.perf_counter(), 0.0
        for step, batch, (lr_M, rates_M) in zip(todo, drawn, self._rates(todo), strict=True):
            rng.reseed(self.members[0].data_seed, "data", f"dropout/{step}")
            inputs = (rates_M, *batch)
            if self._steps is None:
                self._steps, how = self._way(inputs)
                if how:
                    yield Began(how)
            loss_M, norm_M = self._steps(*inputs)
            unread.append(loss_M.clone())
            yield Step(step, loss_M)
            last = step == config.steps
            due = last or step % config.eval_every == 0
            checkpoint = not last and config.checkpoint_every and step % config.checkpoint_every == 0
            checkpoint = checkpoint and time.perf_counter() >= next_checkpoint
            late = len(unread) == CHECK_EVERY or time.perf_counter() - checked > CHECK_EVERY_S
            if due or checkpoint or late:
                yield from self._check(step, torch.stack(unread))
                unread, checked = [], time.perf_counter()
            if due:
                told = zip(lr_M, loss_M.tolist(), norm_M.tolist(), strict=True)
                yield from self._evaluations(step, [*told])
            if not self._counted:
                return
            if checkpoint:
                began = time.perf_counter()
                for member in self._counted:
                    yield Kept(
                        member, Checkpoint(step, arrays(self._state(member)), [], *self._spent(member))
                    )
                ended = time.perf_counter()
                next_checkpoint = ended + (ended - began) / CHECKPOINTS

    def _rates(self, steps: range) -> Iterator[tuple[list[float], Tensor]]:
        """The learning rates of each step, (M,), as numbers and on the device."""
        config, peaks = self._config, [member.config.lr for member in self.members]
        # As the kernel of AdamW reads them.
        dtype = torch.float64 if self._device.type == "cpu" else torch.float32
        for at in range(0, len(steps), CHECK_EVERY):
            some = steps[at : at + CHECK_EVERY]
            rates = [[optim.learning_rate(step, config, peak) for peak in peaks] for step in some]
            yield from zip(rates, torch.tensor(rates, dtype=dtype).to(self._device), strict=True)

    def _compute(self, rates_M: Tensor, *batch: Tensor | None) -> tuple[Tensor, Tensor]:
        """One update: the losses before it, and the norms of the gradients."""
        group = self.group
        loss_M, grads_MP = group.losses_and_gradients(Batch._make(batch))
        norm_M = torch.linalg.vector_norm(grads_MP, dim=1)
        optim.update_(
            group.weights,
            grads_MP,
            self._moments,
            self._config,
            lr_M=rates_M,
            alike=self._alike,
            decayed=group.decayed,
            divisor_M=optim.clipping_divisor(norm_M, self._most_M),
        )
        group.follow()
        return loss_M, norm_M

    def _way(self, inputs: Sequence[Tensor | None]) -> "tuple[Compute, str]":
        """How steps are computed, and a line about it; empty where there is no other way."""
        count = len(self.members)
        mapped = f"{count} members mapped" if count > 1 else "alone"
        if self._device.type != "cuda":
            return self._compute, mapped if count > 1 else ""
        from ablate.training.capture import Captured
        from ablate.training.mapping import why_not_captured

        group, ragged = self.group, self._train_split.is_ragged
        moments = (self._moments.first, self._moments.second, self._moments.updates)
        written = [buffer for buffer in group.buffers.values() if 0 not in buffer.stride()]
        state = (group.weights, group.computed, *moments, *written)
        why = "its batches differ in shape" if ragged else why_not_captured(group, Batch._make(inputs[1:]))
        if not why:
            try:
                captured = Captured(self._compute, inputs, state)
                self.close = captured.close
                return captured, f"{mapped}, captured"
            except RuntimeError as error:
                if count > 1 and isinstance(error, torch.OutOfMemoryError):
                    raise  # half as many may fit
                why = error_line(error, {})
        return self._compute, f"{mapped}, not captured: {why}"

    def _check(self, step: int, losses_LM: Tensor) -> Iterator[Event]:
        """Requires finite losses of the last L steps."""
        losses = losses_LM.tolist()
        for member in [*self._counted]:
            for at, loss_M in enumerate(losses, step - len(losses) + 1):
                if not math.isfinite(loss_M[member]):
                    yield self._diverged(member, at)
                    break

    def _diverged(self, member: int, step: int) -> Diverged:
        self._counted.remove(member)
        return Diverged(member, step, self._spent(member)[0])

    def _evaluations(self, step: int, told: Sequence[Told]) -> Iterator[Event]:
        """told: of this step, for each member."""
        if not self._counted:
            return
        config, began = self._config, time.perf_counter()
        each = scores(self.group, self._validation_split, context=self._context, most=config.eval_tokens)
        self._evaluating += time.perf_counter() - began
        read_per_row = self._train_split.read_per_row(self._context)
        trained_s = time.perf_counter() - self._began - self._evaluating
        tokens_per_s = (step - self._after) * config.batch * read_per_row / trained_s
        for member in [*self._counted]:
            if not math.isfinite(each[member].nats):
                yield self._diverged(member, step)
                continue
            tokens = round(step * config.batch * read_per_row)
            yield Evaluation(
                member, step, tokens, *told[member], each[member], *self._spent(member), tokens_per_s
            )

    def _state(self, member: int) -> dict[str, Tensor]:
        """What a member goes on from, but for its step, by the names in checkpoints."""
        group, moments = self.group, self._moments
        rows = {"weights": group.weights, "first": moments.first, "second": moments.second}
        buffers = group.models[member].named_buffers()
        return {
            **{name: of_all[member] for name, of_all in rows.items()},
            **{f"buffer/{name}": buffer for name, buffer in buffers},
        }

    def _spent(self, member: int) -> tuple[float, float]:
        """The member's share of the seconds since training began, and of those spent on evaluations."""
        start, count = self.members[member].start, len(self.members)
        before = (start.seconds, start.evaluation_seconds) if start else (0.0, 0.0)
        elapsed = time.perf_counter() - self._began
        return before[0] + elapsed / count, before[1] + self._evaluating / count


def arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """The numbers of tensors; those of bfloat16, which NumPy lacks, in float32, which has them all."""
    here = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return {name: (t.float() if t.dtype == torch.bfloat16 else t).numpy() for name, t in here.items()}
