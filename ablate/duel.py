"""A duel: a tuned study of two methods at equal parameters on one text."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ablate.analysis.contrasts import equal_forms
from ablate.compose.configs import sections
from ablate.compose.refusals import makes_variants
from ablate.compose.sweep import Sweep
from ablate.config.conditions import key_in
from ablate.config.contrast import MARGIN
from ablate.config.rules import ConfigError, did_you_mean
from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES
from ablate.execution.plugins import KINDS, Method, methods, read
from ablate.execution.run import resolve
from ablate.files.atomic import digest
from ablate.phrases import counted
from ablate.store.provenance import hashed, plugins
from ablate.study.run import declared_here
from ablate.study.study import settings as variants_of

BUDGET = {"corpus": "study", "train": "study"}  # text and training, where nothing else is given
DEVELOP, RATES = [0, 1, 2, 3, 4], [0.006, 0.012, 0.024]
FIRST_SEED = 1000  # that reports
TAKEN = ("name", "seed", "seeds", "study", "force", "fusion", "scores", "train.lr", "match")


def duel(one: Method, other: Method, settings: Sequence[str], command: str, seeds: int) -> Sweep:
    """The study of `one` against `other`, the baseline, with so many reporting seeds. settings: overrides of
    every run. command: what was typed; another one, as with more seeds, or another version of a plugin is
    another duel with fresh seeds. Raises ConfigError, also if the two are one function."""
    keys = [setting.lstrip("+~").partition("=")[0] for setting in settings]
    for setting, key in zip(settings, keys, strict=True):
        if key in TAKEN or key.startswith("study."):
            raise ConfigError(f"{setting}: a duel sets {key} itself; leave it out")
    arms = {method.name: _arm(method) for method in (other, one)}
    versions = [hashed(plugin.source) for plugin in plugins.values()]
    named = digest([_arm(one), _arm(other), sorted(settings), command, *versions])[:6]
    name, first = f"duel-{one.name}-{other.name}-{named}", FIRST_SEED + int(named, 16)
    budget = [f"{key}={value}" for key, value in BUDGET.items() if key not in keys]
    sweep = declared_here({}, [f"name={name}", *budget, *settings], command=command)
    for key, levels in (given := sweep.configs.levels(sweep.arguments)).items():
        if len(levels) > 1:
            raise ConfigError(f"{key}={','.join(levels)}: both sides of a duel have one value; give one")
    both = {key: level for key, (level,) in given.items()}
    alone = [tuple(f"{key}={value}" for key, value in (both | arm).items()) for arm in arms.values()]
    if len({*equal_forms(variants_of(resolve(sweep.configs(arguments)) for arguments in alone))}) == 1:
        raise ConfigError(
            f"{one.name} and {other.name} are the same function here, so there is nothing to compare; name"
            " another method, or change a setting such as heads"
        )
    study = {
        **{"kind": "tuned", "question": f"Is {one.name} better than {other.name}?", "arms": arms},
        **{"tune": "train.lr", "factors": {"train.lr": RATES}},
        **{"develop": DEVELOP, "extend": 3, "metric": "test_loss", "margin": MARGIN, "looks": []},
        **{"seeds": [*range(first, first + seeds)], "primary": [f"{one.name} - {other.name}"]},
    }
    return replace(sweep, study=study)


def _arm(method: Method) -> dict[str, str]:
    """The method with the standard part of the other kind, at equal parameters."""
    return {"fusion": STANDARD_FUSION, "scores": STANDARD_SCORES, method.kind: method.name, "match": "params"}


def side(given: str) -> Method:
    """The method of this name, or of this plugin file, which has to be in use. Raises ConfigError."""
    if given.endswith(".py"):
        own = methods([read(Path(given))])
        if len(own) != 1:
            raise ConfigError(f"{given}: {counted(len(own), 'method')} in it; a duel takes a file with one")
        return own[0]
    known = [Method(kind, name) for kind, folder in KINDS.items() for name in folder.methods()]
    for method in known:
        if method.name == given:
            return method
    name, _, level = given.partition("=")
    defaults = {one.name: one.default for section in reversed(sections()) for one in section.keys}
    key = key_in(name, defaults)
    if key and (usual := defaults[key]) and key not in TAKEN and makes_variants(key):
        quote = "`" * (level not in ("", usual))  # what can be pasted as it is
        levels = f"{key}={usual},{level if quote else 'ANOTHER'}"
        primary = f"study.primary=[{{vary:{key},baseline:{usual}}}]"
        words = shlex.join(["ablate", "run", "study=tuned", f"fusion={STANDARD_FUSION}", levels, primary])
        raise ConfigError(
            f"{given}: a key is no method; {quote}{words}{quote} compares levels, each at its own rate"
        )
    choices = [*(one.name for one in known), *(file.name for file in Path().glob("*.py"))]
    raise ConfigError(f"{given}: no such method{did_you_mean(given.rpartition('=')[2], choices)}")
