"""The contract of an exporter, which writes stored runs into a tracker, and what it is given. Loads no torch.

To add one: a subclass of Exporter, named in a package's entry point group `ablate.exporters`, or a file here
with a line in BUILT_IN.
"""

import importlib
import importlib.metadata
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ablate.config.gone import line_on
from ablate.config.rules import ConfigError, did_you_mean

GROUP = "ablate.exporters"
BUILT_IN = {
    "tensorboard": "ablate.export.tensorboard:TensorBoard",
    "mlflow": "ablate.export.mlflow:Mlflow",
    "trackio": "ablate.export.trackio:Trackio",
    "wandb": "ablate.export.wandb:Wandb",
}
HF = "hf"  # no tracker: one model, written by ablate.export.hf

UNFIT = re.compile(r"[^\w.+-]+|^\.+")

Plain = str | int | float | bool | None


def without_passwords(text: str) -> str:
    """A text with URIs, as it may be printed."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def safe(name: str) -> str:
    """A name as that of a file."""
    return UNFIT.sub("_", name)


@dataclass(frozen=True)
class Point:
    """One evaluation of a run. time: in seconds since 1970. values: by column of metrics.csv; a value that is
    missing there is missing here, and one that is not finite is NaN or infinite."""

    step: int
    time: float
    values: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class ExportedRun:
    """One run of a study, as plain data; or the study's report, which has artifacts only.

    id: the run_id; `report` for the report. name: as `ablate runs` shows it. status: done or diverged.
    config: what config.yaml holds, by key as typed (train.lr). curves: by step. metrics: every number in the
    run's row that is a result or follows from its settings. facts: about program and machine. started, ended:
    in seconds since 1970. artifacts: files to keep with the run. digest: of all of these but the times.
    """

    id: str
    name: str
    study: str
    status: str = "done"
    config: Mapping[str, Plain]
    curves: Sequence[Point] = ()
    metrics: Mapping[str, float]
    facts: Mapping[str, str]
    started: float
    ended: float
    artifacts: Sequence[Path] = ()
    digest: str

    @property
    def safe_name(self) -> str:
        """The name as that of a file. It ends in the first half of the id, as names of runs do."""
        name = safe(self.name)
        return name if name.endswith(self.id[:8]) else f"{name}-{self.id[:8]}"

    @property
    def is_report(self) -> bool:
        return self.id == "report"

    @property
    def last_step(self) -> int:
        return self.curves[-1].step if self.curves else 0

    @property
    def final(self) -> Mapping[str, float]:
        """The metrics in which no curve ends, for a tracker that has one list of values for both."""
        ends = self.curves[-1].values if self.curves else {}
        return {name: value for name, value in self.metrics.items() if ends.get(name) != value}


class Exporter(ABC):
    """Writes runs to one place of a tracker.

    place: what identifies the place; it is printed, so it holds no password. directory: if files are written,
    where all of them lie; ablate makes it, and refuses one that holds anything else.
    """

    place: str
    directory: Path | None = None

    @abstractmethod
    def __init__(self, out: str | None, default: Path) -> None:
        """out: the value of --out. default: the directory if there is none. Raises ConfigError if the place
        can't be used; writes nothing yet."""

    @abstractmethod
    def write(self, run: ExportedRun) -> None:
        """Make the place hold this run once, whole, instead of any earlier one of its study and id. What is
        left of an interrupted attempt goes, too. Returns when the tracker has it; raises any error if not."""

    def holds(self, run: ExportedRun) -> bool:
        """Whether a run that was written here, by its study and id, is still there."""
        return True

    def view(self, study: str) -> str:
        """The command that shows the study there; empty if there is none."""
        return ""

    def finish(self, runs: Sequence[ExportedRun]) -> None:
        """Called at the end with all runs of the study that the place holds."""
        return


def targets() -> dict[str, str]:
    """What --to accepts: the module and class of each exporter, by name; empty for `hf`."""
    points = importlib.metadata.entry_points(group=GROUP)
    return {**{point.name: point.value for point in points}, **BUILT_IN, HF: ""}


def exporter(target: str) -> type[Exporter]:
    """The exporter of this name. Raises ConfigError."""
    if not (at := targets().get(target)):
        near = did_you_mean(target, targets())
        raise ConfigError(line_on(f"export --to {target}") or f"--to {target}: no such target{near}")
    module, _, name = at.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"--to {target}: {at} can't be loaded ({error}); install what it needs") from error
