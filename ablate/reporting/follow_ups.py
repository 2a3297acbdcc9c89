"""The commands of studies that would go on from one, with how long they take here. Loads no torch."""

import math
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from ablate.analysis.caveats import MOST_EPOCHS
from ablate.analysis.compare import Comparison
from ablate.analysis.frames import as_texts, seconds_a_run
from ablate.compute.limits import available_cores
from ablate.config.overrides import as_value
from ablate.phrases import advised, duration
from ablate.reporting.commands import is_duel
from ablate.reporting.compared import compared, method_of
from ablate.reporting.relations import STANDARD
from ablate.store.record import StudyRecord

OF_A_STUDY = ("name", "seed", "study", "size", "force", "train.lr", "match", "corpus.long")  # not of a duel
DEVELOPMENT = 20  # runs of each method of study=tuned before its reporting ones
DUEL_TAKES = "90 min, or what --budget says"
LONGER = 4  # times the steps of a longer training


@dataclass(frozen=True)
class FollowUp:
    """command: empty if none is known. time: how long it takes, empty if that is not known."""

    command: str = ""
    time: str = ""

    def __str__(self) -> str:
        return f"`{self.command}`{f', {self.time}' if self.time else ''}"


def seconds_here(runs: float, rows: pd.DataFrame) -> float:
    """How long so many runs like these take on this machine; NaN if the rows do not say."""
    seconds, at_once = seconds_a_run(rows, available_cores())
    return runs * seconds / at_once


def time_here(runs: float, rows: pd.DataFrame) -> str:
    """The time in words, as `about 5 min here`; empty if the rows do not say."""
    seconds = seconds_here(runs, rows)
    return "" if math.isnan(seconds) else f"about {duration(seconds)} here"


@dataclass(frozen=True)
class FollowUps:
    """The follow-ups of a study with these usable rows."""

    comparison: Comparison
    record: StudyRecord
    rows: pd.DataFrame

    def taking(self, command: str, times: float = 1) -> FollowUp:
        """A command that takes `times` as long as the study did."""
        if self.record.is_copy:  # its times are of another machine
            return FollowUp(command)
        return FollowUp(command, time_here(times * max(len(self.record.runs), len(self.rows)), self.rows))

    def changed(self, name: str, *settings: str, times: float = 1) -> FollowUp:
        """The study with other settings, under a name that ends in `name`; without a command that takes
        settings, a duel of its methods."""
        keys = [setting.partition("=")[0] for setting in settings]
        own = _without(settings, OF_A_STUDY)  # a duel matches parameters, and takes fresh seeds, by itself
        if is_duel(self.record):  # it names itself after its settings
            words = _without(shlex.split(self.record.command), keys)
            return FollowUp(advised([*words, *own]), DUEL_TAKES) if own else FollowUp()
        if not self.record.typed:
            return FollowUp(advised([*self._duel, *own]), DUEL_TAKES) if self._duel else FollowUp()
        words = [*_without(self.record.typed, [*keys, "name"]), *settings]
        named = f"name={as_value(f'{self.record.name}-{name}')}"
        return self.taking(advised(["ablate", "run", *words, named]), times)

    def longer(self, fewest: int = 0) -> FollowUp:
        """The study with LONGER times the steps, and with at least so many seeds; without a command if its
        runs differ in steps, or if it would read its text too often."""
        steps, epochs = self.rows["steps"].unique(), pd.to_numeric(self.rows["epochs"]).max()
        if len(steps) != 1 or LONGER * epochs > MOST_EPOCHS:
            return FollowUp()
        seeds = self.rows["seed"].nunique()
        more = [f"seed=range({fewest})"] if seeds < fewest and not self.record.primary else []
        times = LONGER * (fewest / max(1, seeds) if more else 1)
        return self.changed("longer", f"train.steps={LONGER * int(steps[0])}", *more, times=times)

    def beside_fixed_places(self) -> FollowUp:
        """The study with heads that read fixed places, and the two compared; without a command if
        none was typed."""
        if not self.record.typed:
            return FollowUp()
        fixed = self.changed("fixed", "scores=offsets")
        both = advised(["ablate", "compare", self.record.name, f"{self.record.name}-fixed"])
        return replace(fixed, command=f"{fixed.command} && {both}")

    def at_own_rates(self) -> FollowUp:
        """The same methods, each at its own learning rate: a duel of two, study=tuned of more."""
        fusions = [name for kind, name in self._methods if kind == "fusion"]
        if self._duel:
            return FollowUp(advised(self._duel), DUEL_TAKES)
        if self._settings is None or len(fusions) < 2 or STANDARD["fusion"] not in fusions:
            return FollowUp()
        own = ["study=tuned", f"fusion={','.join(fusions)}", *self._settings]
        named = f"name={as_value(f'{self.record.name}-tuned')}"
        seeds = max(1, self.rows["seed"].nunique())
        return self.taking(advised(["ablate", "run", *own, named]), 1 + DEVELOPMENT / seeds)

    @cached_property
    def _methods(self) -> list[tuple[str, str]]:
        return [method_of(arm, self.comparison) for arm in compared(self.comparison)]

    @cached_property
    def _duel(self) -> list[str]:
        """The words of a duel of the compared methods; empty if they are not two, or if one has options."""
        if self._settings is None or len(self._methods) != 2:
            return []
        (_, other), (_, one) = self._methods
        return ["ablate", "duel", one, other, *self._settings]

    @cached_property
    def _settings(self) -> list[str] | None:
        """The settings that the compared methods share; None if more than the methods varies, and if the
        command had options such as --plugin."""
        if not self.record.name:  # of several studies, or of none: nothing says on which text
            return None
        varying = {*self.comparison.varying}
        words = [word for word in self.record.typed if word != "-m"]
        if len({*self._methods}) < max(2, len(self._methods)) or any("=" not in word for word in words):
            return None
        if varying - {*STANDARD, "lr", self.record.tuned_column}:
            return None
        shared = {
            key: next(iter(as_texts(self.rows[key])), "") for key in ("heads", "out_proj") if key in self.rows
        }
        typed = _without(words, [*OF_A_STUDY, *STANDARD, *shared])
        return [*(f"{key}={level}" for key, level in shared.items() if level), *typed]


def _without(words: Sequence[str], keys: Collection[str]) -> list[str]:
    """The words of a command without those that set these keys, or anything below them."""
    gone = tuple(f"{key}{end}" for key in keys for end in ("=", "."))
    return [word for word in words if not word.startswith(gone)]
