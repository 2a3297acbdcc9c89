"""The settings that the exact results of a study depend on: chosen once, and kept in study.json."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ablate.compute.fastest import PRODUCTS, bfloat16_is_faster
from ablate.config.overrides import as_value
from ablate.config.schema import RunConfig
from ablate.execution.run import PlacedRun, place
from ablate.phrases import lines_if
from ablate.store.record import Machine
from ablate.store.store import StoreError

# The key by which a command asks for each setting.
KEYS = {
    "threads": "hydra.launcher.threads",
    "linear": "train.linear",
    "attention": "train.attention",
    "compile": "train.compile",
}

SLOWER = (
    "train.precision=bfloat16: slower here than float32, since this processor has no bfloat16 products, which"
    " are computed in float32; add train.precision=float32"
)
DOES_NOT_PAY = "on a CPU, runs that are trained as one take longer than one after the other"


def decided(before: Machine | None, runs: Iterable[PlacedRun], threads: int | None) -> dict[str, Any]:
    """The settings that are decided already: those that the study began with, or else those that the command
    asks for; None for each of the others. Raises StoreError if it asks for others than the study began with.

    threads: those that the command asks for, if it does.
    """
    trains = [run.config.train for run in runs]
    linear = {train.linear for train in trains} - {"auto"}
    attention = {train.attention for train in trains if train.precision == "bfloat16"} - {"auto"}
    given = {
        "threads": threads,
        "linear": min(linear, default=None),
        "attention": min(attention, default=None),
        "compile": any(train.compile for train in trains) or None,
    }
    kept = asdict(before) if before else {}
    return {name: _keep(key, kept.get(name), given[name]) for name, key in KEYS.items()}


def chosen(decided: Mapping[str, Any], runs: Collection[PlacedRun], threads: int) -> Machine:
    """All settings; those not decided yet as suits these runs on this machine. threads: what suits."""
    in_bfloat16 = {run.attention for run in runs if run.config.train.precision == "bfloat16"}
    return Machine(
        threads=decided["threads"] or threads,
        linear=decided["linear"] or min({run.linear for run in runs} & {*PRODUCTS}, default="auto"),
        attention=decided["attention"] or min(in_bfloat16, default="auto"),
        compile=bool(decided["compile"]),
    )


def bound(runs: Sequence[PlacedRun], machine: Machine) -> list[PlacedRun]:
    """The runs with the study's settings. Raises ConfigError for a run that can't begin with them."""
    variants: dict[int, PlacedRun] = {}  # runs that differ only in seeds share their spec object
    for run in runs:
        if id(run.spec) not in variants:
            keys = _of_training(run.config, machine)
            one = replace(run, config=replace(run.config, train=replace(run.config.train, **keys)))
            of_run = {"linear": run.linear, "attention": run.attention, "compile": run.config.train.compile}
            # To check anew what was chosen here takes a second.
            is_chosen_here = all(value in (of_run[key], "auto") for key, value in keys.items())
            variants[id(run.spec)] = one if is_chosen_here else place(one)
    return [variants[id(run.spec)].with_seeds(run.config) for run in runs]


def as_overrides(config: RunConfig, machine: Machine) -> list[str]:
    """The study's settings as overrides, which reach the processes of any launcher."""
    return [f"train.{key}={as_value(value)}" for key, value in _of_training(config, machine).items()]


def slower(runs: Iterable[PlacedRun], members: int | None) -> list[str]:
    """Lines on what makes these runs slower here than they could be; usually none. members: how many are
    trained as one, if the command says so."""
    here = [run for run in runs if run.device.type == "cpu"]
    in_bfloat16 = any(_is_of(run, "bfloat16") for run in here)
    return [
        *lines_if(in_bfloat16 and not bfloat16_is_faster(), SLOWER),
        *lines_if(here and (members or 1) > 1, f"hydra.launcher.members={members}: {DOES_NOT_PAY}"),
    ]


def _is_of(run: PlacedRun, precision: str) -> bool:
    """Whether the run computes in this precision on a CPU."""
    return run.device.type == "cpu" and run.config.train.precision == precision


def _of_training(config: RunConfig, machine: Machine) -> dict[str, Any]:
    keys = {"linear": machine.linear, "compile": machine.compile}
    return keys | ({"attention": machine.attention} if config.train.precision == "bfloat16" else {})


def _keep(key: str, kept: Any, given: Any) -> Any:
    """The kept setting, or else the given one. Raises StoreError if they differ."""
    if kept in (None, "auto"):
        return given
    if given is not None and kept != given:
        raise StoreError(
            f"{key}={as_value(given)}: this study was begun with {as_value(kept)}; leave it out, or give"
            " another name=NAME"
        )
    return kept
