"""The settings that the exact results of a study depend on: chosen once, and kept in study.json."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from ablate.compute.cores import threads_each
from ablate.compute.products import PRODUCTS
from ablate.config.overrides import as_value
from ablate.config.schema import RunConfig
from ablate.execution.run import Resolved, Run, step_flops
from ablate.store.record import Machine
from ablate.store.store import StoreError

# The key by which a command asks for each setting.
KEYS = {
    "threads": "hydra.launcher.threads",
    "linear": "train.linear",
    "attention": "train.attention",
    "compile": "train.compile",
}


def decided(before: Machine | None, runs: Iterable[Resolved], threads: int | None) -> dict[str, Any]:
    """The settings that are decided already: those that the study began with, or else those that the command
    asks for; None for each of the others. Raises StoreError if it asks for others than the study began with.

    threads: those that the command asks for, if it does.
    """
    trains = [run.config.train for run in runs]
    asked = {
        "threads": threads,
        "linear": _one(train.linear for train in trains),
        "attention": _one(train.attention for train in trains if train.precision == "bfloat16"),
        "compile": any(train.compile for train in trains) or None,
    }
    kept = asdict(before) if before else {}
    return {name: _keep(key, kept.get(name), asked[name]) for name, key in KEYS.items()}


def chosen(decided: Mapping[str, Any], runs: Collection[Run], threads: int) -> Machine:
    """All settings: of those not decided yet, what suits these runs on this machine. threads: what suits."""
    halves = {run.attention for run in runs if run.config.train.precision == "bfloat16"}
    return Machine(
        threads=decided["threads"] or threads,
        linear=decided["linear"] or min({run.linear for run in runs} & {*PRODUCTS}, default="auto"),
        attention=decided["attention"] or min(halves, default="auto"),
        compile=bool(decided["compile"]),
    )


def threads_of_helpers(count: int, runs: Collection[Resolved], helpers: int, cores: int | None) -> int:
    """Threads for each of `count` runs that helpers with so many cores share. runs: one of each kind at
    least."""
    return threads_each(-(-count // helpers), max(map(step_flops, runs)), cores)


def bound(config: RunConfig, machine: Machine) -> RunConfig:
    """The config with the study's settings."""
    return replace(config, train=replace(config.train, **_of_training(config, machine)))


def as_overrides(config: RunConfig, machine: Machine) -> list[str]:
    """The study's settings as overrides, which reach the processes of any launcher."""
    return [f"train.{key}={as_value(value)}" for key, value in _of_training(config, machine).items()]


def _of_training(config: RunConfig, machine: Machine) -> dict[str, Any]:
    keys = {"linear": machine.linear, "compile": machine.compile}
    return keys | ({"attention": machine.attention} if config.train.precision == "bfloat16" else {})


def _one(values: Iterable[str]) -> str | None:
    return min({*values} - {"auto"}, default=None)


def _keep(key: str, kept: Any, asked: Any) -> Any:
    """The kept setting, or else the one asked for. Raises StoreError if they differ."""
    if kept in (None, "auto"):
        return asked
    if asked is not None and kept != asked:
        raise StoreError(
            f"{key}={as_value(asked)}: this study was begun with {as_value(kept)}; leave it out, or give"
            " another name=NAME"
        )
    return kept
