"""The list of runs that helpers on other machines share: a file of plain values, with what it takes to train
them.

A helper needs no Hydra for it, and trains nothing if its program is not the one that wrote the list.
"""

import base64
import dataclasses
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ablate.config.read import read
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.execution import plugins
from ablate.execution.plugins import Plugin
from ablate.files.atomic import write_atomically
from ablate.launch.pool import Job
from ablate.store.code import PACKAGE
from ablate.store.provenance import PART_FOLDERS, core_code, parts_code, torch_version
from ablate.store.run_files import read_json
from ablate.store.store import Store

KEYS = {"study", "name", "asked", "program", "plugins", "runs"}


@dataclass(frozen=True)
class Asked:
    """What the command asks for each helper: its cores, workers and threads; None where the helper decides.
    helpers: how many there are to be."""

    helpers: int
    cores: int | None
    workers: int | None
    threads: int | None


@dataclass(frozen=True)
class Phase:
    """Runs to train, and what the command asks of each helper. name: the same for the same runs, also when
    some of them are finished and left out. plugins: with their source."""

    study: str
    name: str
    asked: Asked
    plugins: Sequence[Plugin]
    jobs: Sequence[Job]

    def left(self, store: Store) -> list[Job]:
        """The runs that have no result since the command began."""
        finished = store.finished()
        return [
            job
            for job in self.jobs
            if job.name not in finished or (job.known and store.run(job.name).stamp() == job.known)
        ]

    def write(self, path: Path) -> None:
        """Raises StoreError."""
        content = {
            "study": self.study,
            "name": self.name,
            "asked": dataclasses.asdict(self.asked),
            "program": program(),
            "plugins": [
                {**dataclasses.asdict(plugin), "source": base64.b64encode(plugin.source).decode()}
                for plugin in self.plugins
            ],
            "runs": [dataclasses.asdict(job) for job in self.jobs],
        }
        write_atomically(path, json.dumps(content) + "\n")


def open_phase(path: Path) -> Phase:
    """The phase in a file, with its plugins installed. Raises ConfigError, also if this program is not the
    one that wrote the file."""
    content = read_json(path, KEYS)
    _require_the_same(content["program"])
    own = [
        Plugin(**{**plugin, "source": base64.b64decode(plugin["source"])}) for plugin in content["plugins"]
    ]
    for plugin in own:
        _require_installed(plugin)
    plugins.install(own)  # before the configs are read, whose options they check
    jobs = [Job(**{**run, "config": read(RunConfig, run["config"])}) for run in content["runs"]]
    return Phase(content["study"], content["name"], Asked(**content["asked"]), own, jobs)


def program() -> dict[str, str]:
    """What has to be the same wherever the runs of a study are trained."""
    parts = [
        path.relative_to(PACKAGE).as_posix()
        for folder in PART_FOLDERS
        for path in sorted((PACKAGE / folder).glob("*.py"))
    ]
    return {
        "code": f"{core_code()} {parts_code(*parts)['parts']}",
        "torch": torch_version(),
        "Python": platform.python_version(),
    }


def _require_the_same(there: Mapping[str, str]) -> None:
    for what, here in program().items():
        if here != there.get(what) and what == "code":
            raise ConfigError(
                "its ablate is not that of the command (edited, or another copy); give the command again"
            )
        if here != there.get(what):
            raise ConfigError(f"it has {what} {here}, and the command {there.get(what)}; install the same")


def _require_installed(plugin: Plugin) -> None:
    """An installed plugin is imported, not executed from its source: raises ConfigError if it differs."""
    if plugin.module and (plugin.module, plugin.source) not in [
        (there.module, there.source) for there in plugins.installed()
    ]:
        raise ConfigError(f"its {plugin.module} is not that of the command; install the same")
