"""The command that makes a study again, as it was typed, and those that make more of it. Loads no torch."""

import shlex
from collections.abc import Sequence

from ablate.analysis.variants import FACTORS
from ablate.config.rules import as_value
from ablate.config.schema import STANDARD_FUSION
from ablate.phrases import advised, lines_if
from ablate.store.record import StudyRecord

BESIDE_RATES = ("name", "seed", "study", "train.lr")  # what study=tuned has its own of
DEFAULTS = {"corpus": "docs", "train": "default"}  # of a plain grid, as in configs/config.yaml


def repeated(record: StudyRecord) -> str:
    """The command of a study, with all levels and seeds that it has grown to; empty if that is not known."""
    if record.command:
        return advised(shlex.split(record.command))
    if not any(word.startswith("seed=") for word in record.typed):  # the study has its own
        return _with_levels(record, "")
    seeds = record.looks.seeds if record.looks else record.reporting_seeds
    return _with_levels(record, f"seed={','.join(map(str, seeds))}")


# --- to go on from a study: each is empty if it did not come from a command ------------------------------


def again(record: StudyRecord) -> str:
    words = ["ablate", "run", *record.typed] if record.typed else shlex.split(record.command)
    return advised(words) if words else ""


def changed(record: StudyRecord, end: str, setting: str) -> str:
    """With another setting, under a name that ends so."""
    if not record.typed:
        return ""
    words = _without(record.typed, [setting.partition("=")[0], "name"])
    return advised(["ablate", "run", *words, setting, f"name={as_value(f'{record.name}-{end}')}"])


def with_seeds(record: StudyRecord, count: int) -> str:
    """With `count` seeds."""
    first = min(record.reporting_seeds, default=0)
    return _with_levels(record, f"seed=range({first},{first + count})")


def with_fresh_seeds(record: StudyRecord, count: int) -> str:
    """Another study, with so many seeds that this one has not seen."""
    if record.command.startswith("ablate duel "):  # each number of seeds makes a duel with seeds of its own
        return advised([*shlex.split(record.command.partition(" --seeds ")[0]), "--seeds", str(count)])
    first = max(record.seeds, default=0) + 1
    return changed(record, "again", f"seed=range({first},{first + count})")


def at_own_rates(record: StudyRecord) -> str:
    """The same grid as a study in which each variant has its own learning rate; also empty if it has named
    arms, configs of the user's own, or varies nothing but the text."""
    varied = [key for key in record.factors if key != "corpus"]
    if not record.typed or record.arms or record.config_dir or not varied:
        return ""
    vary = "fusion" if "fusion" in varied else varied[0]
    levels = record.factors[vary]
    baseline = STANDARD_FUSION if STANDARD_FUSION in levels else levels[0]
    own = [] if baseline == STANDARD_FUSION else [f"study.primary=[{{vary:{vary},baseline:{baseline}}}]"]
    given = {} if record.study else dict(DEFAULTS)  # study=tuned has a text and a training of its own
    given |= {key: as_value(record.fixed[key]) for key in FACTORS if key in record.fixed}
    given |= {key: ",".join(levels) for key, levels in record.factors.items()}
    typed = [word for word in _without(record.typed, BESIDE_RATES) if word != "-m"]
    keys = {word.partition("=")[0] for word in typed}
    words = [*(f"{key}={value}" for key, value in given.items() if key not in keys), *typed]
    name = f"name={as_value(f'{record.name}-tuned')}"
    return advised(["ablate", "run", "study=tuned", *own, *words, name])


def _with_levels(record: StudyRecord, seeds: str) -> str:
    """What was typed, with all levels of the factors; seeds: as an override, empty for those of the study."""
    if not record.typed:
        return ""
    levels = {key: f"{key}={','.join(levels)}" for key, levels in record.factors.items()}
    typed = [levels.get(word.partition("=")[0], word) for word in _without(record.typed, ["seed"])]
    return advised(["ablate", "run", *typed, *lines_if(seeds, seeds)])


def _without(words: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The words of a command without those that set these keys, or anything below them."""
    gone = tuple(f"{key}{end}" for key in keys for end in ("=", "."))
    return [word for word in words if not word.startswith(gone)]
