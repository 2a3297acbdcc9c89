"""Odd stores: a small one with something wrong in it, and the commands that read it."""

import contextlib
import ctypes
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from ablate.store.columns import column_named
from ablate.store.store import Store
from benchmarks.odd.files import spoilt
from benchmarks.odd.trial import PILOT, SMALL, TEXT, Ending, faults_of, snapshot
from benchmarks.odd.words import apart
from tests.helpers import call_cli

LONGEST_S, HANGS_S = 10.0, 120.0  # of the processor; by the clock
SWEEP = ("-m", *TEXT, *SMALL, "fusion=concat,sum", "seed=0,1,2", f"name={PILOT}", "hydra/launcher=basic")
OF_A_STUDY = """# @package _global_
name: {name}
study:
  kind: {kind}
  question: Does the fusion matter?
  factors: {{fusion: [concat, sum]{rates}}}
  seeds: [2, 3, 4]
  primary: [{{vary: fusion, baseline: concat}}]
  metric: test_loss
  margin: 0.02
  {own}
"""
TUNED = "tune: train.lr\n  develop: [0]\n  extend: 0\n  looks: []"
STUDIES = {
    "looks": OF_A_STUDY.format(name="looks", kind="grid", rates="", own="looks: [2, 3]"),
    "rates": OF_A_STUDY.format(name="rates", kind="tuned", rates=", train.lr: [0.001, 0.002]", own=TUNED),
}
RUN = "mean-h4-d8x1-s0"
READING = apart(
    f"""
    runs  runs --format csv  runs {PILOT}  runs rates --wide  compare {PILOT}  compare looks
    compare rates --why  compare  plan {PILOT}  runs --delete  runs --delete {RUN}  compare runs/studies/looks
    """
)
SLOW = apart(  # some of these
    f"""
    report {PILOT}  report rates  sample {RUN} --tokens 3  export {PILOT} --to tensorboard
    export {RUN} --to hf
    """
)

Damage = Callable[[random.Random, Path], object]


@dataclass(frozen=True)
class OddStore:
    """seed: of the damages. commands: that read it then."""

    seed: str
    damages: int
    commands: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return f"{self.damages} damages of seed {self.seed}"


def odd_store(draw: random.Random) -> OddStore:
    commands = [command.split() for command in draw.sample(READING, 4)]
    commands += [command.split() for command in SLOW if draw.random() < 0.05]
    if draw.random() < 0.1:
        commands.append(["run", *SWEEP, "--dry-run"])
    if draw.random() < 0.05:
        commands.append(["run", *TEXT, *SMALL, "fusion=sum", f"seed={draw.choice((0, 9))}"])
    return OddStore(str(draw.random()), draw.choice((1, 1, 2, 4)), tuple(map(tuple, commands)))


# --- what may be wrong with it --------------------------------------------------------------------

DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]
VALUES = (
    *(None, True, False, 0, -1, 1.5, 2**70, 10**400, float("nan"), float("inf"), "", "x", "a\nb", "\x1b[31m"),
    *("\ud800", "1e400", "x" * 30_000, [], {}, [[]], [None], ["a"], {"a": 1}, [[[1.0]]], "{", "[1]", DEEP),
)


def another_value(draw: random.Random, path: Path) -> None:
    """In a JSON file, one value is another."""
    try:
        content = json.loads(path.read_text())
    except (ValueError, OSError, RecursionError):
        return
    at = content
    for _ in range(draw.choice((1, 1, 2, 3))):
        keys: list[Any] = [*at] if isinstance(at, dict) else [*range(len(at))]
        if not keys:
            break
        parent, key = at, draw.choice(keys)
        at = parent[key]
        if not isinstance(at, dict | list):
            break
    match draw.randrange(4):
        case 0:
            del parent[key]  # pyright: ignore[reportPossiblyUnboundVariable]
        case _:
            parent[key] = draw.choice(VALUES)  # pyright: ignore[reportPossiblyUnboundVariable]
    path.write_text(json.dumps(content), encoding="utf-8")


def another_line(draw: random.Random, path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    at, other = (draw.randrange(len(lines) or 1) for _ in range(2))
    match draw.randrange(3):
        case 0:
            del lines[at : at + 1]
        case 1:
            lines[at:at] = lines[other : other + 1]
        case 2 if lines:
            lines[at], lines[other] = lines[other], lines[at]
    path.write_bytes(b"".join(lines))


def another_name(draw: random.Random, path: Path) -> None:
    name = draw.choice(("a\nb", "\udcff", "\x1b[31mred", ".hidden", "x" * 200, "0", "99", "café", "a b"))
    path.rename(path.with_name(draw.choice((name, path.name + name, name + path.name))))


def another_mode(draw: random.Random, path: Path) -> None:
    path.chmod(draw.choice((0, 0o200, 0o400, 0o111)))


def one_more(draw: random.Random, path: Path) -> None:
    """What lies there that nobody has put there."""
    folder = path if path.is_dir() else path.parent
    name = draw.choice(("99", "1", "study.json", "x-12345678", ".x-12345678.part"))
    if not (new := folder / name).exists():
        draw.choice((Path.mkdir, Path.touch))(new)


def gone(draw: random.Random, path: Path) -> None:
    _take_away(path)


def bytes_changed(draw: random.Random, path: Path) -> None:
    path.write_bytes(spoilt(draw, path.read_bytes() or b"x"))


OF_FILES: tuple[Damage, ...] = (
    *[another_value] * 6,
    *(another_line, another_line, bytes_changed, bytes_changed),
)
OF_ANYTHING: tuple[Damage, ...] = (another_name, another_mode, one_more, gone)


def spoil(draw: random.Random, runs: Path) -> str:
    """Do one thing to one thing below `runs`; returns what it was, and to what."""
    paths = sorted(runs.rglob("*"))
    told = [path for path in paths if path.name in ("study.json", "result.json", ".rows.json")]
    path = draw.choice(told if told and draw.random() < 0.6 else paths)
    is_file = path.is_file() and not path.is_symlink()
    damage = draw.choice(OF_FILES if is_file and draw.random() < 0.7 else OF_ANYTHING)
    with contextlib.suppress(PermissionError):  # of what an earlier damage has locked
        damage(draw, path)
    return f"{damage.__name__} {path.relative_to(runs)}"


def _take_away(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# --- tried ------------------------------------------------------------------------------------------


class Stores:
    """A directory with a store to copy and to spoil."""

    def __init__(self, root: Path) -> None:
        self.whole, self.cases = root / "whole", root / "cases"
        self.own: dict[str, Any] = {"HOME": str(root / "home"), "ABLATE_CACHE": str(root / "cache")}
        for name, text in STUDIES.items():
            (self.whole / "own" / "study").mkdir(parents=True, exist_ok=True)
            (self.whole / "own" / "study" / f"{name}.yaml").write_text(text)
        (self.whole / "book.txt").write_text("The cat sat on the mat.\n" * 9)
        (self.whole / "elsewhere").mkdir()
        (self.whole / "elsewhere" / "a.txt").write_text("a")
        one = (*TEXT, *SMALL)
        of_studies = (("-cd", "own", f"study={name}", *one) for name in STUDIES)
        for words in (SWEEP, (*one, "fusion=mean"), *of_studies):
            made = call_cli("run", *words, cwd=self.whole, **self.own)
            assert made.returncode == 0, made.stderr
        store = Store(self.whole / "runs")
        finished = store.rows()[0]
        before = {name: value for name, value in finished.items() if column_named(name).role != "metric"}
        row = {**before, "run_id": "0123456789abcdef", "status": "running", "seed": 77}
        with contextlib.suppress(KeyboardInterrupt), store.run("sum-h4-01234567").attempt({}, row, {}, print):
            raise KeyboardInterrupt
        for place in (self.cases, *map(Path, self.own.values())):
            place.mkdir(exist_ok=True)

    def trial(self, case: OddStore) -> Ending:
        draw, work = random.Random(case.seed), self.cases / "work"
        with held_by_modes():
            return self._trial(case, draw, work)

    def _trial(self, case: OddStore, draw: random.Random, work: Path) -> Ending:
        shutil.copytree(self.whole, work, symlinks=True)
        began, faults, texts, codes = perf_counter(), list[str](), list[str](), list[int]()
        try:
            done = [spoil(draw, work / "runs") for _ in range(case.damages)]
            texts.append("; ".join(done))
            for command in case.commands:
                before = snapshot(self.cases)
                code, found, text = self._called(command, work)
                new = {path for path in snapshot(self.cases).items() ^ before.items()}
                touched = {path for path, _ in new if not _may_be_written(path, work, command)}
                found += [f"{path.relative_to(work)} touched" for path in sorted(touched)]
                faults += [f"{shlex.join(command)}: {fault}" for fault in found]
                texts.append(text)
                codes.append(code)
        finally:
            for path in (work, *work.rglob("*")):
                with contextlib.suppress(OSError):
                    if path.is_dir() and not path.is_symlink():
                        path.chmod(0o700)
            shutil.rmtree(work)
        what = [texts[0]] if faults else []
        return Ending(max(codes), "\n".join(texts), "", perf_counter() - began, [*what, *faults])

    def _called(self, command: tuple[str, ...], work: Path) -> tuple[int, list[str], str]:
        began = process_time()
        try:
            done = call_cli(*command, cwd=work, timeout_s=HANGS_S, **self.own)
        except subprocess.TimeoutExpired:
            return 2, [f"still running after {HANGS_S:g} s"], ""
        took = process_time() - began
        faults = faults_of(done.returncode, done.stdout, done.stderr)
        if done.returncode == 1 and command[0] != "run":
            faults.append("exit code 1")
        if took > LONGEST_S:
            faults.append(f"{took:.1f} s")
        text = f"$ {shlex.join(command)}\n{done.stdout}{done.stderr}exit code {done.returncode}"
        return done.returncode, faults, text


@contextlib.contextmanager
def held_by_modes() -> Iterator[None]:
    """Let modes of files hold for this thread inside the block, as they do for every user but root: without
    the capabilities CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH. See: capabilities(7), capset(2)."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        yield
        return
    libc, header = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint32 * 2)(0x20080522, 0)
    before = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; the same of those from 32 on
    assert libc.capget(header, before) == 0, os.strerror(ctypes.get_errno())
    less = type(before)(before[0] & ~0b110, *before[1:])
    assert libc.capset(header, less) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        assert libc.capset(header, before) == 0, os.strerror(ctypes.get_errno())


def _may_be_written(path: Path, work: Path, command: tuple[str, ...]) -> bool:
    return path.is_relative_to(work / "runs") or (
        command[0] == "run" and path.is_relative_to(work / "outputs")
    )
