"""Time a sweep of ablate and other ways to make the same runs, alternating.

    python benchmarks/sweep.py --model nano --runs 8 --ours float32,bfloat16 --against plain
    python benchmarks/sweep.py --model nano --runs 8 --against nanogpt --nanogpt PATH --text input.txt

plain: plain.py, a plain PyTorch loop, run after run, with all threads. nanogpt: a clone of
github.com/karpathy/nanoGPT, trained on a CPU as its README says, one process per run (its
data/shakespeare_char/prepare.py reads the text). ablate and nanoGPT evaluate before the first step and after
the last one: nanoGPT 15,360 tokens of each split, ablate 16,384 of the validation split, and all of it at the
end.

Each contestant makes its runs at two lengths. The ratio of whole times at the longer one includes start-up
and evaluation; the slope between the two lengths is training alone.
"""

import argparse
import itertools
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import hydra

from ablate.compose.composer import to_run_config
from ablate.compose.configs import configs_dir
from ablate.compute.device import processor
from ablate.compute.limits import available_cores
from ablate.data.corpus import open_corpus

HERE = Path(__file__).parent
OURS = ("float32", "bfloat16")
TRAIN = {"tiny": "default", "nano": "nanogpt", "small": "default"}
Contestant = Callable[[int], None]


def call(command: list[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")


def ablate(model: str, runs: int, text: Path, *more: str) -> Contestant:
    def make(steps: int) -> None:
        with tempfile.TemporaryDirectory() as directory:
            seeds = ",".join(map(str, range(runs)))
            overrides = [*of_characters(model, text), "corpus.splits=[0.9,0.1,0]", f"seed={seeds}", *more]
            overrides += [f"train.steps={steps}", f"train.eval_every={steps}", "train.eval_tokens=16384"]
            call([sys.executable, "-m", "ablate", "run", "-m", *overrides], Path(directory))

    return make


def plain(model: str, runs: int, text: Path) -> Contestant:
    def make(steps: int) -> None:
        command = [sys.executable, str(HERE / "plain.py"), "--text", str(text), "--model", model]
        command += ["--train", TRAIN[model], "--runs", str(runs), "--steps", str(steps)]
        call(command, HERE)

    return make


def of_characters(model: str, text: Path) -> list[str]:
    """The overrides of runs as nanoGPT makes them: of characters."""
    own = ["corpus=file", f'corpus.path="{text}"', "corpus.tokenizer=char"]
    return [f"model={model}", f"train={TRAIN[model]}", *own]


def nanogpt(clone: Path, model: str, runs: int, text: Path) -> Contestant:
    """Its CPU command, at the sizes of `model`."""
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        config = to_run_config(hydra.compose("config", overrides=[f"model={model}", f"train={TRAIN[model]}"]))
    data = clone / "data" / "shakespeare_char"
    shutil.copy(text, data / "input.txt")
    call([sys.executable, "prepare.py"], data)
    sizes = {
        "n_layer": config.model.layers,
        "n_head": config.heads,
        "n_embd": config.model.d_model,
        "block_size": config.model.context,
        "batch_size": config.train.batch,
    }

    def make(steps: int) -> None:
        command = [sys.executable, "train.py", "config/train_shakespeare_char.py", "--device=cpu"]
        command += ["--compile=False", "--eval_iters=20", "--log_interval=1000000", "--dropout=0.0"]
        command += [f"--{key}={value}" for key, value in sizes.items()]
        command += [f"--max_iters={steps}", f"--lr_decay_iters={steps}", f"--eval_interval={steps}"]
        for _ in range(runs):
            call(command, clone)

    return make


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="nano", choices=TRAIN)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--steps", default="50,200", help="the two lengths of a run; 0 leaves out the first")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ours", default="float32,bfloat16", help=f"of {', '.join(OURS)}")
    parser.add_argument("--against", default="plain", help="plain, nanogpt; several by commas")
    parser.add_argument("--nanogpt", type=Path, help="a clone of nanoGPT")
    parser.add_argument("--text", type=Path, help="default: what corpus=docs reads")
    arguments = parser.parse_args()
    short, long = map(int, arguments.steps.split(","))
    with tempfile.TemporaryDirectory() as directory:
        text = Path(directory) / "text.txt"
        if arguments.text:
            shutil.copy(arguments.text, text)
        else:
            text.write_text(default_text(), encoding="utf-8")
        model, runs = arguments.model, arguments.runs
        ours = arguments.ours.split(",")
        contestants = {name: ablate(model, runs, text, f"train.precision={name}") for name in ours}
        for name in filter(None, arguments.against.split(",")):
            if name == "plain":
                contestants[name] = plain(model, runs, text)
            else:
                clone = Path(directory) / "nanoGPT"
                shutil.copytree(arguments.nanogpt, clone)
                contestants[name] = nanogpt(clone, model, runs, text)
        totals, slopes = race(contestants, short, long, arguments.rounds)
        print(
            f"{processor()}, {available_cores()} cores; {model}, {runs} runs;"
            f" medians (range) of {arguments.rounds}"
        )
        report(totals, slopes, long)


def race(
    contestants: dict[str, Contestant], short: int, long: int, rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """By contestant, a number a round: seconds of the longer runs, and seconds a step between the two."""
    totals: dict[str, list[float]] = {name: [] for name in contestants}
    slopes: dict[str, list[float]] = {name: [] for name in contestants}
    for _, order in zip(range(rounds), itertools.cycle([1, -1]), strict=False):
        for name in list(contestants)[::order]:
            times = {steps: seconds(contestants[name], steps) for steps in (short, long) if steps}
            totals[name].append(times[long])
            slopes[name].append((times[long] - times[short]) / (long - short) if short else float("nan"))
    return totals, slopes


def seconds(make: Contestant, steps: int) -> float:
    began = time.perf_counter()
    make(steps)
    return time.perf_counter() - began


def report(totals: dict[str, list[float]], slopes: dict[str, list[float]], long: int) -> None:
    """A line a contestant, then one for each of ours against each other."""
    for name, times in totals.items():
        steps = f", {spread([1000 * s for s in slopes[name]])} ms a step of all" if has_slope(slopes) else ""
        print(f"{name:>18} {dtype_of(name):>8}: {spread(times)} s for {long} steps, all included{steps}")
    for ours, other in pairs(totals):
        ratio = f"{ratios(totals[other], totals[ours])} with start-up and evaluation"
        if has_slope(slopes):
            ratio = f"{ratios(slopes[other], slopes[ours])} steps alone, {ratio}"
        print(f"{ours} ({dtype_of(ours)}) is {ratio} as fast as {other} ({dtype_of(other)})")


def pairs(names: Iterable[str]) -> list[tuple[str, str]]:
    """Each of ours against what is not ours, and against our float32."""
    ours = [name for name in names if name in OURS]
    others = [name for name in names if name not in OURS]
    against = [*others, *(["float32"] if "float32" in ours else [])]
    return [(one, other) for other in against for one in ours if one != other]


def has_slope(slopes: dict[str, list[float]]) -> bool:
    return all(math.isfinite(value) for values in slopes.values() for value in values)


def dtype_of(name: str) -> str:
    return "bfloat16" if "bfloat16" in name else "float32"


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f}–{max(values):.1f})"


def ratios(theirs: list[float], ours: list[float]) -> str:
    each = [a / b for a, b in zip(theirs, ours, strict=True)]
    return f"{statistics.median(each):.2f} ({min(each):.2f}–{max(each):.2f})"


def default_text() -> str:
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        corpus = open_corpus(to_run_config(hydra.compose("config")).corpus)
    return "".join(corpus.tokenizer.decode(corpus.tokens(split)) for split in corpus.splits)


if __name__ == "__main__":
    os.environ.pop("OMP_NUM_THREADS", None)  # the others use all threads; the pool gives its own
    main()
