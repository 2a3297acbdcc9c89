"""From what was asked for to a design: a study, its settings, and the runs that it proposes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ablate.compose.asked import Sweep
from ablate.compose.variants import Setting
from ablate.config.overrides import as_value
from ablate.config.rules import ConfigError
from ablate.store.columns import Row
from ablate.study.checks import Checks
from ablate.study.declared import Declared
from ablate.study.design import Absent, Design, Overrides
from ablate.study.kinds import read_declared
from ablate.study.kinds.grid import EveryCombination


class Designed(NamedTuple):
    """declared: what the study declares; None for a plain grid. given: the settings by key."""

    declared: Declared | None
    given: Mapping[str, Setting]
    design: Design


def designed(asked: Sweep) -> Designed:
    """Raises ConfigError."""
    declared = read_declared(asked.study) if asked.study else None
    given = _settings(asked, declared)
    if declared and (twice := sorted(declared.set_by_arms & given.keys())):
        raise ConfigError(
            f"{twice[0]}: the arms of this study set it; leave it out, or write a study of your own"
        )
    levels = {key: of.values for key, of in given.items()}
    return Designed(declared, given, declared.design(levels) if declared else EveryCombination(levels))


def proposed(asked: Sweep, rows: Mapping[str, Row]) -> Iterator[str]:
    """The ids of all runs that a study asks for, given the rows of those that have ended. rows: by run id.
    Raises ConfigError."""
    declared, _, design = designed(asked)
    checks = Checks(asked.configs, declared, needs_test_split=design.needs_test_split, elsewhere=True)
    found: dict[Overrides, Row] = {}
    while overrides := design.propose(found):
        runs = checks.ready(overrides)
        yield from (run.run_id for run in runs.values())
        left_out: Row = {"status": Absent.LEFT_OUT}
        missing: Row = {"status": Absent.MISSING}
        found |= {o: rows.get(runs[o].run_id, missing) if o in runs else left_out for o in overrides}


def _settings(asked: Sweep, declared: Declared | None) -> dict[str, Setting]:
    """The settings by key: those of the study, overridden by its demonstration, then by the command line."""
    texts: list[str] = []
    if declared:
        texts += [f"{key}={','.join(levels)}" for key, levels in declared.levels.items()]
        name = asked.name or Path(asked.chosen or "").name  # by default the name of its file
        if asked.is_demonstration:
            assert asked.study is not None
            if "demo" not in asked.study:
                raise ConfigError(
                    "size=demo: this study declares no demo, as demo: {train.steps: 60}; leave size out"
                )
            texts += [f"{key}={','.join(levels)}" for key, levels in declared.demo.items()]
            name = f"{name}-demo" if name else ""
        texts += [f"name={as_value(name)}"] if name and name != asked.name else []
    elif asked.is_demonstration:
        raise ConfigError("size=demo: only a study has a demonstration; add study=NAME, as study=fusion")
    return asked.configs.settings([*texts, *asked.arguments])
