"""One odd use of the program, tried in a sandbox, and what is wrong with how it ended."""

import hashlib
import os
import re
import shutil
import stat
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter

from ablate.store.columns import csv_text
from tests.helpers import fork_cli
from tests.synthetic import synthetic_row

Maker = Callable[[Path], object]  # puts something at a path


@dataclass(frozen=True)
class Case:
    """argv: without the program's name. piped: what stands on standard input. files: of the user, by their
    paths from the working directory. finished: a sweep called PILOT stands in runs/."""

    argv: tuple[str, ...]
    piped: bytes = b""
    files: Mapping[str, Maker] = field(default_factory=dict)
    finished: bool = False


PILOT = "pilot"
# A run of milliseconds.
TEXT = ("corpus=grammar", "corpus.characters=5000")
SMALL = (
    *("model.d_model=8", "model.layers=1", "model.context=8"),
    *("train.steps=2", "train.batch=2", "train.eval_every=2"),
)


def holding(content: str | bytes) -> Maker:
    """A file with this content."""
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    return partial(Path.write_bytes, data=data)


_VARIANTS = [("concat", 2), ("concat", 4), ("sum", 2), ("sum", 4)]
RESULTS = csv_text(
    [
        synthetic_row(fusion, heads, True, 0.003, seed)
        | {"run_id": f"{fusion}{heads}{seed}".ljust(16, "0"), "study": "mine", "status": "done"}
        | {"val_loss": 2.0 + 0.1 * number + 0.01 * seed * (1 + number), "test_loss": 2.1, "val_acc": 0.4}
        for number, (fusion, heads) in enumerate(_VARIANTS)
        for seed in range(3)
    ]
)
# What lies in the directory where commands are typed.
STUDY: str = """# @package _global_
name: deep
study:
  kind: grid
  question: Does the fusion matter?
  factors: {fusion: [concat, sum], heads: [2, 4]}
  seeds: [0, 1]
  where: [heads<=4]
  primary:
    - {vary: fusion, baseline: concat, where: {heads: 4}}
  metric: val_loss
"""
FILES = {
    "book.txt": holding("The cat sat on the mat; the dog did not.\n" * 60),
    "notes (old)/a.md": holding("# Notes\nnothing much, but a few words all the same\n" * 40),
    "table.csv": holding(RESULTS),
    "own/study/deep.yaml": holding(STUDY),
    "own/mine.yaml": holding("defaults: [config, _self_]\nheads: 2\n"),
}


# --- tried in a sandbox ---------------------------------------------------------------------------

LONGEST_S = 120.0  # what a command takes depends on the machine and on its other work
EXIT_CODES = (0, 1, 2)
ONE_LINE = re.compile(r"ablate: .*\S.*\n")
WARNING = re.compile(r"^\S+\.py:\d+: \w*Warning: ", re.MULTILINE)  # as Python prints one


@dataclass(frozen=True)
class Ending:
    """How a command ended. code: None if it had to be killed. faults: what it should not have done."""

    code: int | None
    out: str
    err: str
    seconds: float
    faults: list[str]


class Sandbox:
    """A directory with a store to copy, a cache and a home, in which cases are tried one by one.

    call: runs a command, as fork_cli does.
    """

    def __init__(self, root: Path, call: Callable[..., subprocess.CompletedProcess] = fork_cli) -> None:
        self.call = call
        self.pilot, self.cases, self.cache = root / "pilot", root / "cases", str(root / "cache")
        self.pilot.mkdir(parents=True)
        self.cases.mkdir()
        words = (*TEXT, *SMALL, "fusion=concat,sum", "seed=0,1,2", f"name={PILOT}")
        made = call("run", "-m", *words, cwd=self.pilot, ABLATE_CACHE=self.cache)
        assert made.returncode == 0, made.stderr

    def trial(self, case: Case) -> Ending:
        """The working directory is below the case's own, so that what is written beside it is seen."""
        work, home = self.cases / "work", self.cases / "home"
        home.mkdir()
        shutil.copytree(self.pilot, work) if case.finished else work.mkdir()
        try:
            for name, make in case.files.items():
                for path in [*work.glob(name)] if name.startswith("runs/") else [work / name]:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    make(path)
            before, finished = snapshot(self.cases), contents(work / "runs" / "store")
            ending = self._run(case, work, home)
            faults = [*ending.faults, *changes(before, snapshot(self.cases), case, work)]
            lost = finished - contents(work / "runs")
            if lost and not any("force" in word for word in case.argv):
                faults.append(f"{lost.total()} files of finished runs are lost")
            return replace(ending, faults=faults)
        finally:
            for path in self.cases.iterdir():
                shutil.rmtree(path)

    def _run(self, case: Case, work: Path, home: Path) -> Ending:
        began = perf_counter()
        try:
            own = {"HOME": str(home), "ABLATE_CACHE": self.cache}
            done = self.call(*case.argv, cwd=work, piped=case.piped, timeout_s=LONGEST_S, **own)
        except subprocess.TimeoutExpired as late:
            err = (late.stderr or b"").decode(errors="replace")
            return Ending(None, "", err, LONGEST_S, [f"still running after {LONGEST_S:g} s"])
        seconds = perf_counter() - began
        faults = faults_of(done.returncode, done.stdout, done.stderr)
        return Ending(done.returncode, done.stdout, done.stderr, seconds, faults)


def faults_of(code: int, out: str, err: str) -> list[str]:
    """What is wrong with an exit code and the text on both streams."""
    faults = []
    if code not in EXIT_CODES:
        faults.append(f"exit code {code}")
    if "traceback" in (out + err).lower():  # or where one lies
        faults.append("a traceback")
    elif code == 2 and not ONE_LINE.fullmatch(err):
        faults.append(f"exit code 2 with {err.count(chr(10))} lines on stderr, not one that says why")
    if WARNING.search(err):
        faults.append("a warning of Python's")
    if not (out.strip() or err.strip()):
        faults.append(f"silence, with exit code {code}")
    return faults


# --- files --------------------------------------------------------------------------------------


def snapshot(root: Path) -> dict[Path, str]:
    """What stands at each path, links not followed; without the runs of the working directory."""
    return {path: _what(path) for path in _below(root) if not path.is_relative_to(root / "work" / "runs")}


def contents(root: Path) -> Counter[str]:
    """The files of finished runs, and of what was moved aside, by their contents."""
    files = (path for path in _below(root) if path.is_file() and not path.name.startswith("."))
    return Counter(_what(path) for path in files)


def changes(before: dict[Path, str], after: dict[Path, str], case: Case, work: Path) -> Iterator[str]:
    """A line for each file of the user's that is not as it was, and each new one that nobody asked for."""
    for path, what in before.items():
        if after.get(path) != what:
            yield f"{path.relative_to(work.parent)!s}: was {what}, is {after.get(path, 'gone')}"
    words = case.argv if case.argv[:1] == ("report",) else ()  # it writes where one of them says
    named = {Path(os.path.normpath(work / word.rpartition("=")[2])) for word in words}
    for path in after.keys() - before.keys():
        is_named = any(path.is_relative_to(name) or name.is_relative_to(path) for name in named)
        if not is_named and not (words and path.name.endswith("report.html")):
            yield f"{path.relative_to(work.parent)!s}: a new {after[path]}"


def _below(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        yield from (Path(folder, name) for name in (*folders, *names))


def _what(path: Path) -> str:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return f"link to {path.readlink()}"
    if not stat.S_ISREG(status.st_mode):
        return stat.filemode(status.st_mode)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return f"file of {status.st_size} bytes ({digest}, {stat.filemode(status.st_mode)})"
