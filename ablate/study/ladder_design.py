"""The design of a ladder: which runs come next, rung by rung, and what the rungs below predict of the top.

Each arm is tuned at the lower rungs, as in a tuned study. Above them its value follows from a line through
those below, in logarithms of the value and of the size; at some rungs it is checked half an octave to either
side, and an arm that is off is tuned there. The top is proposed once every other run has a row, together with
the prediction that these rows give (analysis/scaling.py).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ablate.analysis.rungs import Rungs
from ablate.analysis.scaling import forecast
from ablate.analysis.variants import USABLE
from ablate.compose.composer import Composer
from ablate.config.contrast import Contrast, Contrasts
from ablate.config.identity import digest
from ablate.config.rules import ConfigError
from ablate.execution.run import Run
from ablate.phrases import counted
from ablate.store.columns import Status
from ablate.store.record import LEVEL, Choice, Predicted, Prediction, Rung, frozen, name_at
from ablate.study.config import Overrides, Rows, seed_of
from ablate.study.contrasts import between
from ablate.study.tuned import TunedDesign
from ablate.study.tuning import HALF, SETTLED, at_value, minimum, tune

if TYPE_CHECKING:
    from ablate.study.ladder import Ladder

OFF = 0.25  # octaves by which a predicted value may miss the best one
DIGITS = 4  # decimals of a prediction in nats, so that it is the same on every machine


@dataclass(frozen=True)
class Progress:
    """How far a ladder is. runs: every run that follows from the rows so far, with its rung. reports: the arm
    of each run that reports. choices: the value of an arm at its rung, as far as it is known. best: the
    octave of the best value, by rung and arm, which a prediction may miss."""

    runs: dict[Overrides, int] = field(default_factory=dict)
    reports: dict[Overrides, Overrides] = field(default_factory=dict)
    choices: dict[Overrides, Choice] = field(default_factory=dict)
    best: dict[tuple[int, int], float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LadderDesign(TunedDesign):
    """The design of a ladder. arms: without a rung. search: where the lowest rungs look for values. configs:
    gives the config of a run."""

    study: "Ladder"
    configs: Composer

    @cached_property
    def names(self) -> list[str]:
        return [*self.study.named_arms.values()]

    def at(self, rung: Rung) -> list[Overrides]:
        """The arms at this rung. What an arm sets itself counts, rather than what the rung gives it."""
        own = [*self.study.named_arms]
        keys = [{override.partition("=")[0] for override in arm} for arm in own]
        return [
            (*mine, *(o for o in rung.overrides if o.partition("=")[0] not in taken), *arm[len(mine) :])
            for mine, taken, arm in zip(own, keys, self.arms, strict=True)
        ]

    @cached_property
    def compared(self) -> list[Overrides]:
        return [arm for rung in self.rungs for arm in self.at(rung)]

    @cached_property
    def _place(self) -> Mapping[Overrides, tuple[int, int]]:
        """The rung and the arm of each of `compared`, as indices."""
        count = len(self.arms)
        return {arm: divmod(at, count) for at, arm in enumerate(self.compared)}

    def name(self, arm: Overrides) -> str:
        rung, which = self._place[arm]
        return name_at(self.rungs[rung], self.names[which])

    @cached_property
    def primary(self) -> Contrasts:
        """Each arm against the baseline, at every rung."""
        base = self.names.index(self.study.baseline)
        return [
            self._contrast(arms[base], arm)
            for arms in map(self.at, self.rungs)
            for which, arm in enumerate(arms)
            if which != base
        ]

    def _contrast(self, base: Overrides, arm: Overrides) -> Contrast:
        model = self.configs(base).model
        size = {"d_model": [model.d_model], "layers": [model.layers]}
        return replace(between(base, arm, self.configs), where=size)

    def check(self, run_of: Callable[[Overrides], Run]) -> None:
        """Raises ConfigError if an arm does not exist at a rung, or the text is too small for one."""
        for at, rung in enumerate(self.rungs):
            size = None
            for name, arm in zip(self.names, self.at(rung), strict=True):
                try:
                    size = run_of(arm).corpus.splits["train"].size
                except ConfigError as error:
                    raise ConfigError(f"{name} at {rung.name}: {error}") from error
            epochs = rung.tokens / size if size else 0.0  # a task has no end
            if epochs > self.study.epochs:
                largest = f"the largest rung that it carries is {self.rungs[at - 1].name}"
                raise ConfigError(
                    f"study.rungs: {rung.name} reads {rung.tokens:,} tokens, {self.study.tokens:g} for each"
                    f" of its {rung.size:,} parameters, and this text has {size:,} to train on: that is"
                    f" {epochs:.2f} epochs, more than study.epochs={self.study.epochs:g};"
                    f" {largest if at else 'it carries no rung'}; lower study.tokens, or take a larger text"
                )

    # --- what follows from the rows -------------------------------------------------------------------

    def propose(self, rows: Rows) -> list[Overrides]:
        """The new runs of the lowest rung that has any, so that a ladder which is stopped has whole rungs."""
        new = {run: rung for run, rung in self.state(rows).runs.items() if run not in rows}
        lowest = min(new.values(), default=0)
        return [run for run, rung in new.items() if rung == lowest]

    def members(self, rows: Rows) -> dict[Overrides, dict[str, list[Overrides]]]:
        """Every run that follows from these rows, with the arm whose value it reports at, if it reports."""
        progress = self.state(rows)
        reports = {run: {"tuned": [arm]} for run, arm in progress.reports.items()}
        return {run: reports.get(run, {}) for run in progress.runs}

    def choices(self, rows: Rows) -> Mapping[Overrides, Choice]:
        return self.state(rows).choices

    def state(self, rows: Rows) -> Progress:
        """Rung by rung, as far as the rows go."""
        progress = Progress()
        for at, rung in enumerate(self.rungs):
            if len(progress.choices) < at * len(self.arms) and at >= self.study.tuned_rungs:
                break
            if at == len(self.rungs) - 1 and _without_result(progress.runs, rows):
                break
            for arm, choice, best in self._choices(at, progress, rows):
                progress.choices[arm] = choice
                progress.best[self._place[arm]] = best
                if choice.value is not None:
                    for run in at_value(arm, self.key, choice.value, [*map(str, rung.seeds)]):
                        progress.runs[run], progress.reports[run] = at, arm
        return progress

    def _choices(self, at: int, progress: Progress, rows: Rows) -> Iterator[tuple[Overrides, Choice, float]]:
        """The arms of a rung whose value is known: with it, and with the octave of the best one. The runs
        that tune or check it are added to `progress`."""
        arms = self.at(self.rungs[at])
        if at < self.study.tuned_rungs:
            yield from self._tuned(at, arms, self.levels[self.key], progress, rows)
            return
        for arm in arms:
            octave = self._line(at, self._place[arm][1], progress)
            if octave is None:
                yield arm, Choice(None, f"no value: none at {self.rungs[at - 1].name} either"), math.nan
                continue
            if not self._is_checked(at):
                yield arm, Choice(self._text(octave), how="predicted"), octave
                continue
            around = [self._text(octave + side) for side in (-HALF, 0.0, HALF)]
            if (curve := self._curve(at, arm, around, progress, rows)) is None:
                continue
            places = np.log2([*map(float, around)])
            best = minimum(places, np.array(curve))[0] if np.isfinite(curve).any() else math.inf
            if abs(best - octave) <= OFF:
                yield arm, Choice(around[1], how="checked"), best
            else:
                grid = [self._text(octave + side) for side in (-1.0, 0.0, 1.0)]
                yield from self._tuned(at, [arm], grid, progress, rows)

    def _tuned(
        self, at: int, arms: Sequence[Overrides], grid: Sequence[str], progress: Progress, rows: Rows
    ) -> Iterator[tuple[Overrides, Choice, float]]:
        """Tune these arms, as a tuned study does."""
        search = replace(self.search, grid=grid)
        found = tune(search, arms, rows)
        for arm, points in found.points.items():
            progress.runs.update(dict.fromkeys(search.runs(arm, points), at))
        for arm, choice in found.choices.items():
            yield arm, choice, math.log2(float(choice.value)) if choice.value else math.nan

    def _curve(
        self, at: int, arm: Overrides, values: Sequence[str], progress: Progress, rows: Rows
    ) -> list[float] | None:
        """The mean loss of an arm at these values; None until all of their runs have ended."""
        search = replace(self.search, grid=values)
        runs = search.runs(arm, values)
        progress.runs.update(dict.fromkeys(runs, at))
        return None if _without_result(runs, rows) else search.curve(rows, arm, values)

    def _line(self, at: int, which: int, progress: Progress) -> float | None:
        """The octave of an arm's value at a rung: on the line through the best ones below, in log2 of the
        value and of the size. None without two of them."""
        known = [(rung, octave) for (rung, arm), octave in progress.best.items() if arm == which]
        known = [(rung, octave) for rung, octave in known if rung < at and math.isfinite(octave)]
        if len(known) < 2:
            return None
        sizes = np.log2([self.rungs[rung].size for rung, _ in known])
        slope, offset = np.polyfit(sizes, [octave for _, octave in known], 1)
        return float(offset + slope * np.log2(self.rungs[at].size))

    def _text(self, octave: float) -> str:
        return self.search.text(2.0**octave)

    # --- the prediction -------------------------------------------------------------------------------

    def prediction(self, rows: Rows, ids: Mapping[Overrides, str]) -> Prediction | None:
        """The differences at the top, once every run below has ended."""
        progress, top = self.state(rows), self.rungs[-1]
        at_top = len(self.rungs) - 1
        if at_top not in progress.runs.values():
            return None
        reports = {run: arm for run, arm in progress.reports.items() if progress.runs[run] < at_top}
        losses = [np.full((len(self.arms), len(rung.seeds)), np.nan) for rung in self.rungs[:-1]]
        for run, arm in reports.items():
            rung, which = self._place[arm]
            loss = rows[run].get(self.study.metric)
            if rows[run]["status"] in USABLE and loss is not None and math.isfinite(loss):
                losses[rung][which, self.rungs[rung].seeds.index(int(seed_of(run)))] = loss
        below = Rungs(sizes=np.array([float(rung.size) for rung in self.rungs[:-1]]), losses=losses)
        rest = sorted([ids[run], rows[run].get(self.study.metric)] for run in reports if run in ids)
        return frozen(top.name, predicted(below, self.names, self.study.baseline, top), digest(rest))

    # --- what is said ---------------------------------------------------------------------------------

    def phase(self, rows: Rows) -> tuple[str, str]:
        progress = self.state(rows)
        new = [rung for run, rung in progress.runs.items() if run not in rows]
        at_work = [
            rung for run, rung in progress.runs.items() if rows.get(run, {}).get("status") == Status.RUNNING
        ]
        begun = Counter(progress.runs.values())
        now = max(at_work, default=min(new, default=max(begun)))
        runs = sum(max(count, begun[at]) for at, (_, _, count) in enumerate(self.stages()))
        where = "top rung" if now == len(self.rungs) - 1 else "rung"
        return f"{where} {self.rungs[now].name}", f"about {counted(runs, 'run')}"

    def closing(self, rows: Rows) -> list[str]:
        """The value of each arm at each rung and how it was chosen; or why the top waits."""
        progress = self.state(rows)
        missing = _without_result(progress.runs, rows)
        top = len(self.rungs) - 1
        if missing and top not in progress.runs.values():
            return [
                f"{counted(len(missing), 'run')} below {self.rungs[top].name} without a result, so it is not"
                " predicted yet; the same command runs them again"
            ]
        lines = []
        for which, name in enumerate(self.names):
            each = [(rung, progress.choices.get(self.at(rung)[which])) for rung in self.rungs]
            told = [f"{_told(choice)} at {rung.name}" for rung, choice in each if choice]
            lines.append(f"{name}: {self.key} {', '.join(told)}")
        return lines

    def forecast(self, rows: Rows) -> list[str]:
        return []  # `stages` says it

    def costs(self, rows: Rows) -> dict[str, dict[str, float]]:
        return {}  # likewise: a run's time differs from rung to rung

    def stages(self) -> list[tuple[str, list[Overrides], int]]:
        return [
            (
                f"{rung.name}: {rung.size:,} parameters, {rung.tokens:,} tokens a run",
                self.at(rung),
                len(self.arms) * (len(rung.seeds) + self._values(at) * len(self.search.seeds)),
            )
            for at, rung in enumerate(self.rungs)
        ]

    def _values(self, at: int) -> int:
        """The number of values at which a rung trains each arm to choose one, if no grid grows."""
        if at < self.study.tuned_rungs:
            return len(self.levels[self.key])
        return 3 if self._is_checked(at) else 0

    def _is_checked(self, at: int) -> bool:
        return at < min(self.study.tuned_rungs + self.study.checked_rungs, len(self.rungs) - 1)


def _without_result(runs: Iterable[Overrides], rows: Rows) -> list[Overrides]:
    return [run for run in runs if rows.get(run, {}).get("status") not in SETTLED]


def predicted(below: Rungs, names: Sequence[str], baseline: str, top: Rung) -> dict[str, Predicted]:
    """What the rungs below predict of each arm against the baseline, by arm; without those that have fewer
    than two paired seeds at a rung. names: of the arms."""
    base = names.index(baseline)
    kept = [
        which
        for which in range(len(names))
        if all(np.isfinite(loss[which] - loss[base]).sum() >= 2 for loss in below.losses)
    ]
    if len(kept) < 2:
        return {}
    below = Rungs(below.sizes, [loss[kept] for loss in below.losses])
    pairs = [(k, kept.index(base)) for k, which in enumerate(kept) if which != base]
    of = forecast(below, pairs, top.size, len(top.seeds), level=LEVEL)
    return {
        names[kept[one]]: Predicted(
            difference=round(float(of.value[k]), DIGITS),
            low=round(float(of.low[k]), DIGITS),
            high=round(float(of.high[k]), DIGITS),
        )
        for k, (one, _) in enumerate(pairs)
    }


def _told(choice: Choice) -> str:
    value = choice.value or choice.doubt
    return value if choice.how == "tuned" else f"{value} ({choice.how})"
