"""Tasks of synthetic examples with one right answer each, listed in TASKS."""

from ablate.data.tasks.base import Task
from ablate.data.tasks.copying import Copy, Induction, Reverse
from ablate.data.tasks.mqar import MQAR

TASKS: dict[str, type[Task]] = {"copy": Copy, "induction": Induction, "mqar": MQAR, "reverse": Reverse}

__all__ = ["TASKS", "Task"]
