"""Measure ablate on a GPU, and write docs/gpu.md: three commands of ten minutes at most, without a network.

    python benchmarks/gpu.py tests      the tests marked gpu
    python benchmarks/gpu.py speed      steps of tiny, nano and small, by precision and compile; peak memory
    python benchmarks/gpu.py sharing    one worker against several on one device

What was measured lies in docs/gpu.json and is not measured again, so a command that was cut off goes on where
it was. Without a CUDA device, or with --smoke, all is tried on the CPU at small sizes, and only printed.
"""

import argparse
import itertools
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import hydra
import torch

from ablate.compose.composer import to_run_config
from ablate.compose.configs import configs_dir
from ablate.compute import device
from ablate.execution.run import prepare
from ablate.execution.timing import endless_steps
from ablate.files.atomic import write_atomically

ROOT = Path(__file__).parent.parent
KEPT, PAGE = ROOT / "docs" / "gpu.json", ROOT / "docs" / "gpu.md"
BEGIN, END = "<!-- measured -->\n", "<!-- end -->\n"
COMMAND_S, ONE_S = 540, 150  # no measurement begins when the command could take longer; the longest of one
TEXT = ("corpus=grammar", "corpus.characters=200000")
MODELS = {"tiny": "default", "nano": "nanogpt", "small": "default"}  # with the preset that trains each
WORKERS = (1, 2, 4, 8)
ROUNDS = 7
Result = dict[str, Any]
SMALL = ("train.batch=2", "model.context=16", "model.layers=1", "corpus.characters=5000")


def speeds(smoke: bool) -> dict[str, list[str]]:
    """The overrides of each measurement, by its name."""
    settings = itertools.product(MODELS, ("float32", "bfloat16"), (False,) if smoke else (False, True))
    return {
        f"{model} {precision}{' compiled' * compiled}": [
            *(f"model={model}", f"train={MODELS[model]}", f"train.precision={precision}", *TEXT),
            *(f"train.compile={str(compiled).lower()}", *(SMALL if smoke else ())),
        ]
        for model, precision, compiled in settings
    }


def speed(overrides: list[str], count: int = 50) -> Result:
    """Milliseconds of a training step, the median and range of rounds of `count` steps, and its memory."""
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        run = prepare(to_run_config(hydra.compose("config", overrides=overrides)))
    times = []
    with device.deterministic(run.device):
        steps = endless_steps(run)
        for round_ in range(ROUNDS + 1):
            began = time.perf_counter()
            for _ in range(count):
                next(steps)
            if run.device.type == "cuda":
                torch.cuda.synchronize()
            if round_:  # the first warms up, and compiles
                times.append((time.perf_counter() - began) / count)
    step_s = statistics.median(times)
    return {
        "step_ms": [1e3 * step_s, 1e3 * min(times), 1e3 * max(times)],
        "tokens_per_s": run.tokens_a_step / step_s,
        "peak_memory_mb": device.peak_memory_mb(run.device),
    }


def sharing(workers: int, smoke: bool) -> Result:
    """Seconds of a sweep of eight runs of nano, with everything from the start of the command on."""
    keys = ["model=nano", *TEXT, "train.save=none", f"train.steps={3 if smoke else 500}"]
    keys += [f"device={'cpu' if smoke else 'cuda'}", f"hydra.launcher.workers={workers}", *SMALL * smoke]
    runs = 2 if smoke else 8
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        call("-m", "ablate", "run", "-m", f"seed=range(0,{runs})", *keys, cwd=Path(directory))
        return {"runs": runs, "seconds": time.perf_counter() - began}


def tests(smoke: bool) -> Result:
    chosen = "gpu and not slow" if smoke else "gpu"
    pytest = ("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", chosen, "tests/test_gpu.py")
    done = call(*pytest, limit_s=COMMAND_S)
    return {"said": done.strip().splitlines()[-1].strip("= ")}


def call(*words: str, cwd: Path = ROOT, limit_s: float = ONE_S) -> str:
    """What a Python prints. Exits with its last words if it fails or takes longer than `limit_s`."""
    command = [sys.executable, *words]
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, encoding="utf-8", timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"{' '.join(words)}: took longer than {limit_s} s")
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


# --- what was measured ----------------------------------------------------------------------------


def machine() -> dict[str, str]:
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    cuda = torch.version.cuda or "none"
    return {"device": name, "torch": torch.__version__, "cuda": cuda, "python": platform.python_version()}


def opened(path: Path) -> dict[str, Any]:
    """What was measured on this machine. Exits if it was measured on another."""
    if not path.exists():
        return {"machine": machine(), "results": {}}
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept["machine"] != machine():
        sys.exit(f"{path}: measured on {kept['machine']}, and this is {machine()}; move it away")
    return kept


def measure(
    work: Mapping[str, Callable[[], Result]], kept: dict[str, Any], path: Path | None, limit_s: float
) -> int:
    """Do the work that has no result yet, and write each at once; returns how much of it is left. path: None
    to write nothing."""
    began = time.monotonic()
    for name, one in work.items():
        if name in kept["results"]:
            continue
        if time.monotonic() - began > limit_s - ONE_S:
            break
        kept["results"][name] = one()
        print(f"{name}: {json.dumps(kept['results'][name])}", flush=True)
        if path:
            write_atomically(path, json.dumps(kept, indent=1) + "\n")
    return sum(name not in kept["results"] for name in work)


def tables(kept: Mapping[str, Any]) -> str:
    """The results in Markdown."""
    results: Mapping[str, Result] = kept["results"]
    here = kept["machine"]
    lines = [f"{here['device']}, torch {here['torch']}, CUDA {here['cuda']}, Python {here['python']}."]
    if "tests" in results:
        lines += ["", f"`pytest -m gpu`: {results['tests']['said']}."]
    if steps := {name: one for name, one in results.items() if "step_ms" in one}:
        lines += [
            "",
            "| training | ms a step (range) | tokens/s | peak memory, MB |",
            "| --- | --- | --- | --- |",
        ]
        for name, one in steps.items():
            step, low, high = one["step_ms"]
            tokens, memory = f"{one['tokens_per_s']:,.0f}", f"{one['peak_memory_mb']:,.0f}"
            lines.append(f"| {name} | {step:.2f} ({low:.2f}–{high:.2f}) | {tokens} | {memory} |")
    if sweeps := {name: one for name, one in results.items() if "seconds" in one}:
        lines += ["", "| runs of nano | seconds, start included |", "| --- | --- |"]
        lines += [f"| {one['runs']}, {name} | {one['seconds']:.1f} |" for name, one in sweeps.items()]
    return "\n".join([*lines, ""])


def with_tables(page: str, text: str) -> str:
    """The page with this text between its marks."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{text}{END}{tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["tests", "speed", "sharing"])
    parser.add_argument("--smoke", action="store_true", help="on the CPU, at small sizes; writes nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # the overrides of a speed, in a process of its own
    arguments = parser.parse_args()
    if arguments.one:
        return print(json.dumps(speed(json.loads(arguments.one))))
    smoke = arguments.smoke or not torch.cuda.is_available()

    def stepped(overrides: list[str]) -> Result:
        if smoke:
            return speed([*overrides, "device=cpu"], count=2)
        given = json.dumps([*overrides, "device=cuda"])
        return json.loads(call(__file__, "speed", "--one", given).splitlines()[-1])

    work: dict[str, Callable[[], Result]]
    if arguments.what == "tests":
        work = {"tests": lambda: tests(smoke)}
    elif arguments.what == "speed":
        work = {name: lambda given=given: stepped(given) for name, given in speeds(smoke).items()}
    else:
        counts = WORKERS[:2] if smoke else WORKERS
        names = {n: f"{n} worker{'s' * (n > 1)}" for n in counts}
        work = {name: lambda n=n: sharing(n, smoke) for n, name in names.items()}
    kept = {"machine": machine(), "results": {}} if smoke else opened(KEPT)
    left = measure(work, kept, None if smoke else KEPT, COMMAND_S)
    if smoke:
        print(tables(kept))
    else:
        page = with_tables(PAGE.read_text(encoding="utf-8"), tables(kept))
        PAGE.write_text(page, encoding="utf-8", newline="\n")
    if left:
        sys.exit(f"{left} measurements are left; give the command again")


if __name__ == "__main__":
    main()
