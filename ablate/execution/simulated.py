"""Runs without training: their losses come from a formula, the same each time. Loads no torch.

After a share x of the steps the loss is l + (ln V − l) (e^(−6x) − e^(−6)) / (1 − e^(−6)): from that of
guessing among V tokens down to l. l is half of ln V, and more by the effects, by `octave` times the square of
the octaves between the rate and best_lr, and by sd times a standard normal draw, of whose variance the share
`correlation` is the seed's, the same for all arms. No draw depends on the effects.
"""

import math
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from ablate import rng
from ablate.config.conditions import Condition
from ablate.config.rules import ConfigError, flatten
from ablate.config.schema import RunConfig, identity_keys
from ablate.data.splits import Stream
from ablate.execution import formulas
from ablate.execution.run import Run
from ablate.files.atomic import digest
from ablate.store.columns import Row, Status
from ablate.store.run_files import Checkpoint
from ablate.training.events import Diverged, Evaluation, Event, Final, Kept, Score

DECAY = 6.0  # of the distance to the last loss, as a rate over all steps
LATE = 0.5  # of the steps: where a run that forms late is at the end


@dataclass(frozen=True)
class Losses:
    """The loss of a run after each step. first, last: without any training, and with all of it. pace: the
    share of the way that it goes. diverged: the step at which it diverges; None if it doesn't."""

    first: float
    last: float
    pace: float
    diverged: int | None

    def at(self, share: float) -> float:
        """The loss after a share of the steps."""
        left = (math.exp(-DECAY * self.pace * share) - math.exp(-DECAY)) / (1 - math.exp(-DECAY))
        return self.last + (self.first - self.last) * left


def losses_of(run: Run) -> Losses:
    config, guessing = run.config, math.log(run.spec.vocab)
    assumed, seeds = config.train.simulated, config.resolved_seeds()
    assert assumed, "it is simulated"
    unseeded = replace(config, seed=0, seeds=replace(config.seeds, **dict.fromkeys(vars(config.seeds))))
    variant = identity_keys(replace(unseeded, train=replace(config.train, simulated=None)))
    of_seed = rng.generator(seeds["data"], "simulated", f"{seeds['backbone']}").standard_normal()
    own = rng.generator(seeds["data"], "simulated", digest([variant, seeds, run.corpus.sha256]))
    of_run, late, diverged, when = own.standard_normal(), *own.random(3)
    shared = assumed.correlation
    octaves = math.log2(config.train.lr / assumed.best_lr)
    return Losses(
        first=guessing,
        last=guessing / 2
        + effect_on(config)
        + assumed.octave * octaves**2
        + assumed.sd * (shared**0.5 * of_seed + (1 - shared) ** 0.5 * of_run),
        pace=LATE if late < assumed.late else 1.0,
        diverged=1 + int(when * config.train.steps) if diverged < assumed.diverged else None,
    )


def _effects(config: RunConfig) -> list[tuple[str, float, bool]]:
    """The effects that are assumed, each with the runs that have it, in words, and whether this is one.
    Raises ConfigError for one that can't be read."""
    if not (config.train.simulated and config.train.simulated.effects):
        return []
    values, parts = flatten(asdict(config)), (one.rpartition(":") for one in config.train.simulated.effects)
    effects = [(Condition(where, "train.simulated.effects:"), float(nats)) for where, _, nats in parts]
    return [(condition.text, nats, condition.holds(values)) for condition, nats in effects]


def effect_on(config: RunConfig) -> float:
    """The sum of the effects that a run has, in nats."""
    return sum(nats for _, nats, holds in _effects(config) if holds)


def require_met(runs: Iterable[Run]) -> None:
    """Raises ConfigError for an effect that none of these runs has."""
    effects = [effect for run in runs for effect in _effects(run.config)]
    met = {text for text, _, holds in effects if holds}
    for text in (text for text, _, _ in effects if text not in met):
        way_out = "name what some arm sets, or several such keys, as fusion=sum heads=4:0.05"
        raise ConfigError(f"train.simulated.effects: {text}: no run meets it; {way_out}")


def simulated(runs: Sequence[Run], starts: Sequence[Checkpoint | None]) -> Generator[Event, None, None]:
    """What happens while these runs are simulated. Seconds are those that the steps are said to take, so that
    files have the same bytes each time."""
    train, losses, going = runs[0].config.train, [losses_of(run) for run in runs], [*range(len(runs))]
    assumed, before = train.simulated, starts[0].step if starts[0] else -1
    assert assumed, "they are simulated"
    a_step, kept_every = assumed.step_ms / 1e3, train.checkpoint_every or train.steps
    due = {train.steps, *range(0, train.steps, train.eval_every), *range(0, train.steps, kept_every)}
    for step in sorted(step for step in due if step > before):
        if a_step:
            time.sleep((step - max(before, 0)) * a_step)
        before = step
        for member in [*going]:
            diverged = losses[member].diverged
            if diverged and diverged <= step:
                going.remove(member)
                yield Diverged(member, diverged, diverged * a_step)
                continue
            if step % train.eval_every == 0 or step == train.steps:
                yield _evaluation(member, runs[member], losses[member], step, step * a_step)
            if a_step and 0 < step < train.steps and step % kept_every == 0:
                yield Kept(member, Checkpoint(step, {}, [], step * a_step, 0.0))
    for member in going:
        yield Final(member, None, _score(runs[member], "test", losses[member].at(1)))


def row_of(run: Run) -> Row:
    """The status and the metrics of a run that nothing keeps."""
    losses, steps = losses_of(run), run.config.train.steps
    if losses.diverged:
        return {"status": Status.DIVERGED}
    last, test = _evaluation(0, run, losses, steps, 0.0), _score(run, "test", losses.at(1))
    return {"status": Status.DONE, **formulas.at_end(run, last, [], Final(0, None, test))}


def _evaluation(member: int, run: Run, losses: Losses, step: int, seconds: float) -> Evaluation:
    train, loss = run.config.train, losses.at(step / run.config.train.steps)
    tokens = round(step * run.tokens_a_step)
    return Evaluation(
        member,
        step,
        tokens,
        lr=train.lr if step else None,
        train_loss=loss if step else None,
        grad_norm=1.0 if step else None,
        validation=_score(run, "validation", loss),
        seconds=seconds,
        evaluation_seconds=0.0,
        tokens_per_s=tokens / seconds if seconds else 0.0,
    )


def _score(run: Run, split: str, loss: float) -> Score:
    """The score on a split with this loss at each target: of the targets the share e^(−loss) is right, and of
    the rows of examples as many."""
    of = run.corpus.splits[split]
    targets, right = round((of.size or 0) * of.target_share), math.exp(-max(loss, 0.0))
    rows = 0 if isinstance(of, Stream) else targets
    return Score(loss * targets, round(right * targets), targets, rows, round(right * rows))
