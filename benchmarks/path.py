"""How far a config travels between argv and the first training step, and which calls climb to a higher layer.

    python benchmarks/path.py                       # three runs by the pool
    python benchmarks/path.py run heads=2           # one run

It starts `ablate run` in an empty directory with sys.setprofile in every process, the workers included, each
until it makes its first training step. It prints the files of ablate with a function whose arguments hold a
config of a run (themselves, or up to two levels inside), and every call from a lower layer to a higher one,
with the layers of the import contract in pyproject.toml. Between two calls of ablate, frames of other
libraries are skipped; resuming a generator counts as calling it.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
STUDY = ("run", "-m", "fusion=concat,sum", "heads=2,4", "hydra.launcher.workers=2", "name=path")
SMALL = ("corpus=grammar", "corpus.characters=7001", "train.steps=1", "train.eval_every=1", "train.batch=2")
TRACED = "ABLATE_TRACED_TO"  # the directory for the findings of each process
FIRST_STEP = ("training/train.py", "train")
CONFIGS = "ablate.config.schema"


class Trace:
    """What one process does until its first step. layers: by package, 0 for the highest."""

    def __init__(self, package: Path, layers: dict[str, int], to: Path) -> None:
        self.package, self.layers, self.to = f"{package}{os.sep}", layers, to
        self.files: set[str] = set()
        self.climbs: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        file = self.file(frame)
        if event != "call" or file is None:
            return
        code = frame.f_code
        if file not in self.files:
            count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04)
            if any(holds_config(frame.f_locals.get(name)) for name in code.co_varnames[:count]):
                self.files.add(file)
        if caller := self.caller(frame):
            low, high = (self.layers.get(layer_of(name), -1) for name in (caller, file))
            if 0 <= high < low:
                self.climbs[f"{caller} -> {file} {code.co_qualname}"] += 1
        if (file, code.co_name) == FIRST_STEP:
            self.end()

    def file(self, frame: FrameType) -> str | None:
        """The file of a frame, if it is one of ablate's."""
        name = frame.f_code.co_filename
        return name.removeprefix(self.package) if name.startswith(self.package) else None

    def caller(self, frame: FrameType) -> str | None:
        above = frame.f_back
        while above and self.file(above) is None:
            above = above.f_back
        return above and self.file(above)

    def end(self) -> None:
        sys.setprofile(None)
        found = {"files": sorted(self.files), "climbs": self.climbs}
        (self.to / f"{os.getpid()}.json").write_text(json.dumps(found))


def holds_config(value: Any, levels: int = 2) -> bool:
    """Whether a value is a config of a run, or holds one up to so many levels inside."""
    if type(value).__module__ == CONFIGS and type(value).__name__ == "RunConfig":
        return True
    return levels > 0 and any(holds_config(inside, levels - 1) for inside in parts(value))


def parts(value: Any) -> Iterator[Any]:
    """The first values inside of a collection or of an object of ablate's, without running its code."""
    if isinstance(value, dict):
        yield from [*value.values()][:3]
    elif isinstance(value, list | tuple):
        yield from value[:3]
    elif type(value).__module__.startswith("ablate."):
        yield from getattr(value, "__dict__", {}).values()


def layer_of(file: str) -> str:
    return file.partition("/")[0].removesuffix(".py")


def layers(root: Path) -> dict[str, int]:
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rows,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return {name.strip(): number for number, row in enumerate(rows) for name in row.split("|")}


def begin() -> None:
    """Trace this process; its workers are forked from processes that began so too."""
    trace = Trace(ROOT / "ablate", layers(ROOT), Path(os.environ[TRACED]))
    atexit.register(trace.end)
    sys.setprofile(trace)


def main() -> None:
    arguments = tuple(sys.argv[1:]) or STUDY
    with tempfile.TemporaryDirectory() as directory:
        work, start, found = (Path(directory, name) for name in ("work", "start", "found"))
        for path in (work, start, found):
            path.mkdir()
        (start / "sitecustomize.py").write_text("import path\npath.begin()\n")
        paths = os.pathsep.join([str(start), str(Path(__file__).parent), str(ROOT)])
        env = {**os.environ, "PYTHONPATH": paths, TRACED: str(found)}
        command = [sys.executable, "-m", "ablate", *arguments, *SMALL, "device=cpu"]
        done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        traces = [json.loads(file.read_text()) for file in found.iterdir()]
    files = sorted({file for trace in traces for file in trace["files"]})
    climbs = sum((Counter(trace["climbs"]) for trace in traces), Counter())
    print(f"{len(files)} files that a config passes:", *files, sep="\n  ")
    print(f"{sum(climbs.values())} calls to a higher layer, at {len(climbs)} places:")
    for place, count in climbs.most_common():
        print(f"  {count:>4} {place}")


if __name__ == "__main__":
    main()
