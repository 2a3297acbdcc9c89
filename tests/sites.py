"""A directory that the machines of a test cluster see, and the commands that are given there."""

import contextlib
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import psutil

from ablate.store.columns import MEASURED_COLUMNS

SOON = {"ABLATE_CLAIM_EXPIRES_S": "5", "ABLATE_LOOK_EVERY_S": "2"}  # instead of two minutes, and 15 s
QUICK = ("corpus=grammar", "corpus.characters=20000", "model.context=32", "train.batch=4", "train.steps=40")
QUICK += ("train.eval_every=20", "hydra.launcher.threads=1")
LONG = (
    *QUICK,
    "train.steps=30000",
    "train.eval_every=100",
    "train.checkpoint_every=20",
)  # until it is ended
REQUIRED = "ABLATE_REQUIRE_CLUSTERS" in os.environ  # then a skip is a failure


class Cluster(Protocol):
    @property
    def environment(self) -> Mapping[str, str]: ...

    def command(self, words: Sequence[str], /) -> list[str]:
        """The same command, to be run where it reaches the cluster."""
        ...

    def kill_node(self, name: str, /) -> None: ...


class Site:
    """A directory that all machines see, and the commands that are given there."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.begun: list[subprocess.Popen[str]] = []

    def begin(self, *arguments: str, without: Sequence[str] = ()) -> subprocess.Popen[str]:
        """`ablate …`. without: those of SOON to leave out."""
        soon = {name: value for name, value in SOON.items() if name not in without}
        process = subprocess.Popen(
            self.cluster.command([sys.executable, "-m", "ablate", *arguments]),
            cwd=self.directory,
            env={**os.environ, **self.cluster.environment, **soon},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.begun.append(process)
        return process

    def run(self, *arguments: str, timeout_s: float = 150) -> subprocess.CompletedProcess[str]:
        process = self.begin(*arguments)
        out, err = process.communicate(timeout=timeout_s)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def hosts(self) -> set[str]:
        """The machines of all helpers."""
        answers = self.directory.glob("runs/studies/*/jobs/*/*.json")
        return {json.loads(path.read_text())["host"] for path in answers}

    def arrays(self) -> list[dict]:
        found = []
        for path in self.directory.glob("runs/studies/*/jobs.json"):
            found += json.loads(path.read_text())["arrays"]
        return found

    def under_way(self) -> dict[str, str]:
        """The node of each run under way, by name."""
        claims = self.directory.glob("runs/store/.*.part/*/*/claim.json")
        found = {}
        for path in claims:
            with contextlib.suppress(OSError, ValueError):
                found[path.parents[2].name] = json.loads(path.read_text())["host"]
        return found

    def finished(self) -> set[str]:
        return {path.parent.name for path in self.directory.glob("runs/store/[!.]*/result.json")}

    def checkpoints(self) -> list[Path]:
        return [*self.directory.glob("runs/store/.*.part/*/*/checkpoint-*")]

    def result(self, name: str) -> Path:
        return self.directory / "runs/store" / name / "result.json"

    def until(self, what: Callable[[], object], within_s: float = 60) -> None:
        end = time.monotonic() + within_s
        while not what():
            if time.monotonic() > end:
                for process in self.begun:
                    process.kill()
                raise AssertionError([process.communicate() for process in self.begun])
            time.sleep(0.2)

    def tables(self) -> dict[str, list[list[str]]]:
        """Every metrics.csv and results.csv, without the measured columns."""
        runs = self.directory / "runs"
        return {
            str(path.relative_to(runs)): _unmeasured(path)
            for path in (*runs.glob("store/[!.]*/metrics.csv"), *runs.glob("**/results.csv"))
        }

    def close(self) -> None:
        """End the commands, and the helpers that they left at work."""
        for process in self.begun:
            with process:  # closes its pipes
                process.kill()
        for process in psutil.process_iter(["cwd"]):
            if process.info["cwd"] == str(self.directory):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


def _unmeasured(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        names, *rows = csv.reader(file)
    kept = [i for i, name in enumerate(names) if name not in (*MEASURED_COLUMNS, "seconds")]
    return [[row[i] for i in kept] for row in (names, *rows)]


def hear(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        if words in line:
            return
        said.append(line)
    raise AssertionError(f"it ended without saying {words!r}: {said}")


def lose_a_node(site: Site, *launcher: str) -> None:
    """A sweep of six runs loses n2 in the middle, and no run."""
    sweep = site.begin("run", "-m", "seed=range(0,6)", *QUICK, "train.steps=300", *launcher)
    site.until(site.finished)
    before = {name: site.result(name).stat().st_mtime_ns for name in site.finished()}
    site.until(lambda: "n2" in site.under_way().values())
    site.cluster.kill_node("n2")
    out, err = sweep.communicate(timeout=120)
    assert sweep.returncode == 0, err
    assert "6 runs in" in out
    assert {name: site.result(name).stat().st_mtime_ns for name in before} == before
