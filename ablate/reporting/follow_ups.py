"""The commands of studies that would go on from one: the same with other settings, and each method at its own
learning rate. Loads no torch."""

import shlex
from collections.abc import Mapping
from typing import Any

from ablate.analysis.compare import Comparison
from ablate.analysis.variants import levels_of
from ablate.config.overrides import as_value
from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES
from ablate.reporting.compared import compared, method_of
from ablate.store.record import StudyRecord

DUEL = "ablate duel "
OF_A_STUDY = (
    "name",
    "seed",
    "study",
    "size",
    "force",
    "train.lr",
    "match",
)  # what a duel or study=tuned sets
STANDARD = {"fusion": STANDARD_FUSION, "scores": STANDARD_SCORES}


def is_duel(record: StudyRecord) -> bool:
    return record.command.startswith(DUEL)


def changed(record: StudyRecord, name: str, **settings: Any) -> str:
    """The command of a study with other settings (`__` for a dot in a key), under a name that ends in `name`;
    empty if the study did not come from a command that takes settings."""
    given = {key.replace("__", "."): as_value(value) for key, value in settings.items()}
    words = [f"{key}={value}" for key, value in given.items()]
    if is_duel(record):  # it names itself after its settings
        return shlex.join([*_without(shlex.split(record.command), given), *words])
    if not record.typed:
        return ""
    typed = _without(record.typed, {**given, "name": ""})
    return shlex.join(["ablate", "run", *typed, *words, f"name={as_value(f'{record.name}-{name}')}"])


def with_budget(record: StudyRecord, seconds: float) -> str:
    """The command of a duel that takes longer; empty for any other study."""
    if not is_duel(record):
        return ""
    words = shlex.split(record.command)
    at = words.index("--budget") if "--budget" in words else len(words)
    minutes = 5 * (int(seconds / 300) + 1)
    return shlex.join([*words[:at], *words[at + 2 :], "--budget", f"{minutes}m"])


def each_its_own_rate(comparison: Comparison, record: StudyRecord) -> str:
    """The command that compares the same methods, each at its own learning rate: a duel of two, study=tuned
    of more; empty if what is compared is not a method, or has options of its own."""
    arms = compared(comparison)
    methods = [method_of(arm, comparison) for arm in arms]
    shared, typed = _shared(arms), _without(record.typed, dict.fromkeys(OF_A_STUDY, ""))
    kinds = {kind for kind, name in methods if name != STANDARD[kind]}
    if (
        len({*methods}) < len(methods)
        or len(arms) < 2
        or any(word.startswith(f"{kind}.") for kind in kinds for word in typed)
    ):
        return ""
    settings = [word for word in typed if "=" in word and word.partition("=")[0] not in (*shared, *kinds)]
    settings = [*(f"{key}={level}" for key, level in shared.items()), *settings]
    if any("," in word and "[" not in word for word in settings):  # swept beside the methods
        return ""
    if len(arms) == 2:
        first, second = (name for _, name in methods)
        return shlex.join(["ablate", "duel", second, first, *settings])
    fusions = [name for kind, name in methods if kind == "fusion"]
    if len(fusions) < len(arms) or STANDARD_FUSION not in fusions:
        return ""
    own = [
        "study=tuned",
        f"fusion={','.join(fusions)}",
        *settings,
        f"name={as_value(f'{record.name}-tuned')}",
    ]
    return shlex.join(["ablate", "run", *own])


def _shared(arms: list[str]) -> dict[str, str]:
    """The heads and the output projection that all arms have, where variants are named by them."""
    levels = [levels_of(arm) for arm in arms]
    return {
        key: levels[0][key]
        for key in ("heads", "out_proj")
        if key in levels[0] and len({level.get(key) for level in levels}) == 1
    }


def _without(words: list[str], keys: Mapping[str, str]) -> list[str]:
    """The words of a command without those that set these keys, or anything below them; and without -m, which
    only a sweep takes."""
    return [word for word in words if not any(word.startswith((f"{key}=", f"{key}.")) for key in keys)]
