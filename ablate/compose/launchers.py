"""The settings of ablate's own launcher, the pool, as `hydra.launcher` gives them."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ablate.config.rules import AtLeast, AtMost, Rule

LAUNCHER, KEY = "hydra/launcher", "hydra.launcher"  # the choice, and the settings

Number = Annotated[
    Annotated[int, AtLeast(1), AtMost(1024)] | None,
    Rule(
        read=lambda value, path: None if value == "auto" else value,  # which leaves the choice to ablate
        text="use auto or a whole number from 1 to 1024",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Worker processes on this machine. workers: how many; threads: of each; members: how many runs of equal
    shapes are trained as one, at most; None for many on a GPU, and one elsewhere."""

    workers: Number = None
    threads: Number = None
    members: Number = None
    cores_each: ClassVar[None] = None  # runs share this machine's


TARGET = f"{Pool.__module__}.{Pool.__name__}"  # by which a YAML names it; Hydra does not instantiate it
