"""The commands that make the runs of a report again, with every key that decides a result."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

import pandas as pd
import yaml

from ablate.analysis.select import as_texts
from ablate.config.overrides import as_value, flatten
from ablate.reporting.subject import Subject

SINGLE_RUNS = 10  # commands of runs that were asked for one by one, at most
# Where a run stands or how it is kept; what it computes is the same.
NOT_REPEATED = ("name", "device", "force", "seed", "train.save", "train.checkpoint_every")
# What a study holds to once it has begun. Its YAML may say otherwise: keys of it may have been overridden.
HELD = ("tune", "extend", "where", "primary", "metric", "margin")


def commands(subject: Subject) -> list[str]:
    """One command for a study; one a run for single runs. None for rows whose runs lie elsewhere."""
    plan, found = subject.plan, subject.directories
    if not plan or not found:
        return []
    own = ["-cd", plan["config_dir"]] if "config_dir" in plan else []
    if plan["kind"] == "single":
        configs = [_config(path) for path in list(found.values())[:SINGLE_RUNS]]
        return [_command(own, _kept(config) | {"seed": config["seed"]}) for config in configs]
    config = _config(next(iter(found.values())))
    factors, fixed = plan["factors"], plan["fixed"]
    # As it was asked for, where the study knows: `auto` is another number in each cell. What a factor chooses
    # has its own defaults, to which the study would not let one hold it now.
    kept = {
        key: fixed.get(key, value)
        for key, value in _kept(config).items()
        if key not in factors
        and (key in fixed or (key.partition(".")[0] not in factors and _same(key, value, subject.rows)))
    }
    swept = {key: ",".join(levels) for key, levels in factors.items()}
    develop = plan.get("develop", [])  # seeds that the study has beside those that it was asked for
    swept["seed"] = ",".join(seed for seed in map(str, plan["seeds"]) if seed not in develop)
    start = [f"name={as_value(plan['name'])}"]
    if plan.get("study"):  # it leaves out cells that -m would refuse
        start = [f"study={plan['study']}", *["size=demo"] * plan["demonstration"], *start]
        start += [f"study.{key}={_nested(plan[key])}" for key in HELD if key in plan]
        start += [f"study.develop=[{','.join(develop)}]"] * bool(develop)
    else:
        start = ["-m", *start]
    return [_command([*own, *start, *(f"{key}={levels}" for key, levels in swept.items())], kept)]


def _config(directory: Any) -> dict[str, Any]:
    return flatten(yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8")))


def _kept(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a command has to say: nothing that is null by default."""
    return {
        key: value
        for key, value in config.items()
        if key not in NOT_REPEATED and (value is not None or key.startswith("train."))
    }


def _same(key: str, value: Any, rows: pd.DataFrame) -> bool:
    """Whether all rows have this value. A key that varies and was not swept follows from another one."""
    column = key if key in ("fusion", "model", "corpus") else key.rpartition(".")[2]
    if key.startswith("fusion.") and column != "normalize":
        options = [json.loads(text) for text in rows["fusion_options"].dropna().unique()]
        return all(option.get(column) == value for option in options)
    if key.startswith("corpus.") and column not in ("tokenizer", "splits"):
        return True  # one text: the comparison refuses several
    return column not in rows or as_texts(rows[column]).nunique() <= 1


def _nested(value: Any) -> str:
    """A value that may be a mapping, or hold some, as an override writes it."""
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{_nested(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_nested, value))}]"
    return as_value(value)


def _command(start: list[str], keys: Mapping[str, Any]) -> str:
    words = [*start, *(f"{key}={as_value(value)}" for key, value in keys.items())]
    return " ".join(["ablate run", *map(shlex.quote, words)])
