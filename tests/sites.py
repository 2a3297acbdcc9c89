"""A directory that the machines of a test cluster see, and the commands that are given there."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from benchmarks.kills import state
from tests.helpers import Command, but, fork_cli, present
from tests.machines import Cluster

SOON = {"ABLATE_LEASE_EXPIRES_S": "5", "ABLATE_LOOK_EVERY_S": "2"}  # instead of two minutes, and 15 s
QUICK = ("corpus=grammar", "corpus.characters=20000", "model.context=32", "train.batch=4", "train.steps=40")
QUICK += ("train.eval_every=20", "hydra.launcher.threads=1")
# Until it is ended.
LONG = but(QUICK, "train.steps=30000", "train.eval_every=100", "train.checkpoint_every=20")
REQUIRED = "ABLATE_REQUIRE_CLUSTERS" in os.environ  # then a skip is a failure


class Site:
    """A directory that all machines see, and the commands that are given there."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.begun: list[Command] = []

    def begin(self, *arguments: str, python: str | None = None, soon: bool = True) -> Command:
        """`ablate …`. python: that of its helpers, if not the one that is ready on the machines."""
        cluster, python = self.cluster, python or self.cluster.python
        env = {**(SOON if soon else {}), **cluster.environment}
        command = Command(*arguments, cwd=self.directory, net=cluster.net, python=python, **env)
        self.begun.append(command)
        return command

    def run(
        self, *arguments: str, timeout_s: float = 150, python: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        process = self.begin(*arguments, python=python)
        texts = process.communicate(timeout_s)
        return subprocess.CompletedProcess(arguments, process.returncode or 0, *texts)

    def hosts(self) -> set[str]:
        """The machines of all helpers."""
        answers = present(self.directory, "runs/studies/*/jobs/*/*.json")
        return {json.loads(path.read_text())["host"] for path in answers}

    def arrays(self) -> list[dict]:
        found = []
        for path in present(self.directory, "runs/studies/*/jobs.json"):
            found += json.loads(path.read_text())["arrays"]
        return found

    def under_way(self) -> dict[str, str]:
        """The node of each run under way, by name."""
        claims = present(self.directory, "runs/store/.*.part/*/*/lease.json")
        found = {}
        for path in claims:
            with contextlib.suppress(OSError, ValueError):
                found[path.parents[2].name] = json.loads(path.read_text())["host"]
        return found

    def finished(self) -> set[str]:
        return {path.parent.name for path in present(self.directory, "runs/store/[!.]*/result.json")}

    def checkpoints(self) -> list[Path]:
        return present(self.directory, "runs/store/.*.part/*/*/checkpoint-*")

    def result(self, name: str) -> Path:
        return self.directory / "runs/store" / name / "result.json"

    def until(self, what: Callable[[], object], within_s: float = 60) -> None:
        end = time.monotonic() + within_s
        while not what():
            if time.monotonic() > end:
                raise AssertionError([process.written() for process in self.begun])
            time.sleep(0.2)

    def tables(self) -> dict[str, list[list[str]]]:
        """Every metrics.csv and results.csv, without the measured columns."""
        return state(self.directory)[0]

    def close(self) -> None:
        """End the commands, and the helpers that they left at work."""
        for process in self.begun:
            process.close()
        for process in psutil.process_iter(["cwd"]):
            if process.info["cwd"] == str(self.directory):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


def hear(process: Command, words: str) -> None:
    ended = False
    while words not in process.written()[1]:
        assert not ended, f"it ended without saying {words!r}: {process.written()}"
        ended = process.returncode is not None
        time.sleep(0.05)


def come_to_the_bytes_of_a_pool(
    site: Site, directory: Path, grid: Sequence[str], *launcher: str, python: str | None = None
) -> None:
    """A study of six runs on both nodes, and by a pool in `directory`. python: that of the helpers."""
    done = site.run("run", *grid, *launcher, python=python)
    assert done.returncode == 0, done.stderr
    assert "2 jobs submitted" in done.stderr and "[6/6] " in done.stderr
    assert "6 runs in runs/studies/grid/results.csv" in done.stdout
    assert site.hosts() == {"n1", "n2"}
    pool = Site(site.cluster, directory)
    assert fork_cli("run", *grid, cwd=directory).returncode == 0
    assert pool.tables() == site.tables()


def lose_a_node(site: Site, *launcher: str) -> None:
    """A sweep of six runs loses n2 in the middle, and no run."""
    sweep = site.begin("run", "-m", "seed=range(0,6)", *but(QUICK, "train.steps=300"), *launcher)
    site.until(site.finished)
    before = {name: site.result(name).stat().st_mtime_ns for name in site.finished()}
    site.until(lambda: "n2" in site.under_way().values())
    site.cluster.kill_node("n2")
    out, err = sweep.communicate(timeout=120)
    assert sweep.returncode == 0, err
    assert "6 runs in" in out
    assert {name: site.result(name).stat().st_mtime_ns for name in before} == before
