"""Checks before any run is trained: which runs are possible and wanted, and what they can show."""

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import Any

from ablate.compose.variants import Composer, Mistake, NotComposed, Overrides
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.data.text import CorpusError
from ablate.execution.run import Resolved
from ablate.live.progress import checking
from ablate.phrases import some
from ablate.study.conditions import check, holds
from ablate.study.declared import Declared
from ablate.study.design import combinations
from ablate.study.growth import values_of
from ablate.study.primary import unshown
from ablate.study.replicates import Replicates, one_of_each

NO_TEST = "corpus.splits: this study reports on the test split, which is empty; use [0.8,0.1,0.1]"


class Unmet(ConfigError):
    """A condition of the study leaves the run out."""


class Checks:
    """Checks the runs of one command.

    configs: of the runs that can be trained, as asked for. left_out: lines about all others. reasons: by
    variant, why it can't be built. needs_test_split: whether the runs report on the test split. elsewhere:
    other machines will train them.
    """

    def __init__(
        self, compose: Composer, declared: Declared | None, *, needs_test_split: bool, elsewhere: bool
    ) -> None:
        self.declared = declared
        self.needs_test_split = needs_test_split
        self.replicates = Replicates(compose, elsewhere=elsewhere)
        self.conditions = declared.where if declared else []
        self.seen: dict[Overrides, dict[str, Any]] = {}  # the keys of each variant
        self.configs: dict[Overrides, RunConfig] = {}
        self.reasons: dict[str, str] = {}
        self.left_out: list[str] = []

    def ready(self, proposed: Sequence[Overrides]) -> dict[Overrides, Resolved]:
        """The proposed runs that can be trained. Raises ConfigError if one can't, but in a study only for
        mistakes that affect every run."""
        runs: dict[Overrides, Resolved] = {}
        reasons: defaultdict[str, list[str]] = defaultdict(list)
        shared = set(proposed[0]).intersection(*proposed) if len(proposed) > 1 else set()
        for overrides in checking(proposed):
            try:
                runs[overrides] = self.run(overrides)
            except Unmet as error:
                reasons[str(error)].append("")
            except ConfigError as error:
                if self.declared is None or isinstance(error, Mistake | CorpusError):
                    raise
                why = error.of_variant if isinstance(error, NotComposed) else str(error)
                name = _variant(overrides, shared)
                reasons[why].append(name)
                self.reasons[name] = why
        for condition in self.conditions if self.seen else []:
            check(condition, [*self.seen.values()])  # raises for a mistake in the condition itself
        whole = len(proposed)
        for why, names in reasons.items():
            variants = [name for name in dict.fromkeys(names) if name]
            which = f" ({some(variants)})" if variants else ""
            self.left_out.append(f"{len(names)} of {whole} runs left out: {why}{which}")
        return runs

    def run(self, overrides: Overrides) -> Resolved:
        """The run, ready to begin. Raises ConfigError if it is impossible, Unmet if a condition excludes
        it."""
        replicate = self.replicates.of(overrides)
        config, variant = self.replicates.config(replicate), replicate.variant
        if variant not in self.seen:
            self.seen[variant] = values_of(config)
        values = self.seen[variant] | replicate.seeds
        for condition in self.conditions:
            if not holds(condition, values):
                raise Unmet(f"not ({condition})")
        run = self.replicates.run(variant, config)
        if self.needs_test_split and not run.corpus.splits["test"].size:
            raise ConfigError(NO_TEST)
        self.configs[overrides] = config
        return run

    def primary(self, runs: Mapping[Overrides, Resolved], *levels: Mapping[str, Sequence[str]]) -> None:
        """Raises ConfigError for a primary contrast that no runs of the study can show.

        runs: those of this command. levels: mappings of override key to levels, of the command and of the
        study so far.
        """
        if self.declared is None:
            return
        every: dict[str, list[str]] = {}
        for part in (*levels, self.declared.factors):
            every |= {key: [*dict.fromkeys([*every.get(key, ()), *more])] for key, more in part.items()}
        found, all_built = [run for run, _ in one_of_each(runs.values())], True
        for overrides in combinations({**every, "seed": every["seed"][:1]}, self.declared.named_arms):
            try:
                found.append(self.run(overrides))
            except Unmet:
                pass
            except ConfigError:
                all_built = False
        self.left_out += unshown(self.declared.primary, found, every, all_built=all_built)


def _variant(overrides: Overrides, shared: Set[str]) -> str:
    """The overrides that distinguish a run from the others, without the seed. shared: those that all have."""
    return " ".join(o for o in overrides if o not in shared and not o.startswith("seed="))
