"""Measure ablate on a GPU, and write docs/gpu.md: commands of four minutes at most, without a network.

    python benchmarks/gpu.py stack      training steps of runs as one, by model, members and precision
    python benchmarks/gpu.py equal      each method trained as one, against its runs alone
    python benchmarks/gpu.py study      study=fusion, whole: 64 runs of 2,000 steps, by part

The shortest measurements come first. What was measured lies in docs/gpu.json and is not measured again, so a
command that was cut off goes on where it was. Without a CUDA device, or with --smoke, all is tried on the CPU
at small sizes, and only printed.

A measurement of `stack` is a process of its own. Beside its speed stands how far the losses of its first
steps are from those of a run trained alone; the group is trained once more at the end, and its losses have to
be the same bytes, which finds a capture that disturbs another one (pytorch issue 193402).
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import hydra
import torch

from ablate.compose.composer import keys_of_a_run, to_run_config
from ablate.compose.configs import configs_dir
from ablate.compute import device
from ablate.execution.networks import build, build_group, training
from ablate.execution.run import Run, prepare
from ablate.files.atomic import write_atomically
from ablate.phrases import lines_if
from ablate.training.batches import batches
from ablate.training.events import Began, Step

ROOT = Path(__file__).parent.parent
KEPT, PAGE = ROOT / "docs" / "gpu.json", ROOT / "docs" / "gpu.md"
BEGIN, END = "<!-- measured -->\n", "<!-- end -->\n"
COMMAND_S, ONE_S = 240, 60  # no measurement begins when the command could take longer; the longest of one
IMPORTED = ("hydra", "torch", "ablate.compose.composer", "ablate.execution.run")  # once for all measurements
STUDY_S = 200
TEXT = ("corpus=grammar", "corpus.characters=200000")
MODELS = {"tiny": "default", "nano": "nanogpt", "small": "default"}  # with the preset that trains each
MEMBERS = {"tiny": (1, 4, 16, 64, 256), "nano": (1, 4, 16, 64, 256), "small": (1, 4, 16)}
SMALL = ("train.batch=2", "model.context=16", "model.layers=1", "corpus.characters=5000")
# Weights move from the first step on, at a rate that doesn't amplify rounding.
NEVER = {
    "steps": 10**9,
    "warmup": 0.0,
    "lr": 3e-4,
    "eval_every": 10**9,
    "eval_tokens": 1,
    "checkpoint_every": None,
}
COMPARED, ROUNDS, ROUND_S = 10, 5, 0.2
SHARING = 4  # processes that share the card
METHODS = (
    *("fusion=concat", "fusion=sum", "fusion=mean", "fusion=weighted_sum", "fusion=gated"),
    *("fusion=gated fusion.per=channel", "fusion=head_scale", "fusion=head_norm", "scores=talking"),
    *("fusion=grouped fusion.groups=2", "scores=qk_norm", "scores=uniform", "scores=windows", "heads=1"),
    *("out_rank=16", "out_rank=64", "heads=8", "key_heads=1 value_heads=1", "out_proj=false", "tie_qk=true"),
    *("fusion=sum value_width=wide out_proj=false", "fusion=hadamard out_proj=false"),
)
Result = dict[str, Any]
Losses = Generator[torch.Tensor]  # of each step, (M,)


@dataclasses.dataclass(frozen=True)
class Case:
    """What is measured. way: members as one (`stack`), or the loop of one model without capture (`loop`)."""

    model: str
    precision: str
    members: int = 1
    way: str = "stack"
    deterministic: bool = True
    processes: int = 1

    @property
    def name(self) -> str:
        free = "" if self.deterministic else ", not deterministic"
        shared = f", {self.processes} processes" if self.processes > 1 else ""
        members = f" × {self.members}" if self.way == "stack" else f", {self.way}"
        return f"{self.model} {self.precision}{members}{free}{shared}"


def cases(smoke: bool) -> list[Case]:
    """The shortest first."""
    if smoke:
        return [Case("tiny", "float32"), Case("tiny", "float32", 2), Case("tiny", "float32", way="loop")]
    found = []
    for model, precision in itertools.product(MODELS, ("bfloat16", "float32")):
        found += [Case(model, precision, way="loop")]
        found += [Case(model, precision, members) for members in MEMBERS[model]]
        found += [Case(model, precision, MEMBERS[model][-2], deterministic=False)]
    found += [Case("nano", "bfloat16", processes=SHARING)]
    work = {"tiny": 1, "nano": 3, "small": 400}
    return sorted(found, key=lambda case: work[case.model] * case.members)


def runs_of(case: Case, where: str, *more: str, small: bool) -> list[Run]:
    keys = [f"model={case.model}", f"train={MODELS[case.model]}", f"train.precision={case.precision}", *TEXT]
    keys += [f"device={where}"]
    keys += (*(SMALL if small else ()), *more)
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        run = prepare(to_run_config(keys_of_a_run(hydra.compose("config", overrides=keys))))
    config = dataclasses.replace(run.config, train=dataclasses.replace(run.config.train, **NEVER))
    seeds = [dataclasses.replace(config, seed=seed) for seed in range(case.members)]
    return [dataclasses.replace(run, config=config) for config in seeds]


# --- steps of each way ----------------------------------------------------------------------------------


def stacked(runs: list[Run], how: list[str]) -> Losses:
    with training(runs, build_group(runs)) as trained:
        for event in trained.events():
            if isinstance(event, Began):
                how.append(event.how)
            if isinstance(event, Step):
                yield event.loss_M


def loop(run: Run) -> Losses:
    """A training loop as it is usually written: eager, with weights in float32 and products in autocast."""
    train, model = run.config.train, build(run)
    update = torch.optim.AdamW(model.parameters(), lr=train.lr, betas=(train.beta1, train.beta2))
    seeds = [run.config.resolved_seeds()["data"]]
    sizes = {"context": run.spec.context, "batch": train.batch}
    half = torch.autocast(run.device.type, torch.bfloat16, enabled=train.precision == "bfloat16")
    for batch in batches(
        run.corpus.splits["train"], range(1, 10**9), **sizes, seeds=seeds, device=run.device
    ):
        with half:
            loss = model.loss(*batch.each(lambda part: part[0]))
        update.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), train.clip or 1.0)
        update.step()
        yield loss.detach()[None]


def measured(case: Case, where: str) -> Result:
    runs, how, times = runs_of(case, where, small=where == "cpu"), [], []

    def steps(count: int) -> Losses:
        return loop(runs[0]) if case.way == "loop" else stacked(runs[:count], how)

    def first(count: int) -> torch.Tensor:
        return torch.stack([x.float().cpu() for x in itertools.islice(steps(count), COMPARED)])

    same = device.deterministic(runs[0].device) if case.deterministic else contextlib.nullcontext()
    with same:
        trained = steps(case.members)
        losses = torch.stack([next(trained).float().cpu() for _ in range(COMPARED)])
        began = time.perf_counter()
        next(trained).cpu()
        count = max(1, round(ROUND_S / (time.perf_counter() - began)))
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for _ in range(count):
                last = next(trained)
            last.cpu()  # waits for the device
            times.append((time.perf_counter() - began) / count)
        memory_mb = torch.cuda.max_memory_allocated() / 1e6
        trained.close()
        is_ours = case.way == "stack"
        again = torch.equal(first(case.members), losses) if is_ours and case.deterministic else None
        apart = (first(1)[:, 0] - losses[:, 0]).abs().max().item() if is_ours else None
    step_s = statistics.median(times)
    return {
        "step_ms": [1e3 * step_s, 1e3 * min(times), 1e3 * max(times)],
        "members": case.members,
        "member_steps_s": case.members / step_s,
        "tflops": runs[0].step_flops * case.members / step_s / 1e12,
        "memory_mb": memory_mb,
        "apart": apart,
        "same_bytes": again,
        "how": how[0] if how else case.way,
    }


def parted(precision: str, where: str) -> Result:
    """For each method, how far the losses of four runs as one are from those of the first and last alone, and
    how they were computed. same_bytes: whether the first method, once more at the end, gives the same."""
    methods: dict[str, tuple[float, str]] = {}
    first = None
    for method in (*METHODS, METHODS[0]):
        how: list[str] = []
        runs = runs_of(Case("tiny", precision, members=4), where, *method.split(), small=where == "cpu")
        with device.deterministic(runs[0].device):
            taken = [
                torch.stack([x.float().cpu() for x in itertools.islice(stacked(some, how), 2 * COMPARED)])
                for some in (runs, runs[:1], runs[-1:])
            ]
        methods[method] = (taken[0][:, [0, -1]] - torch.cat(taken[1:], 1)).abs().max().item(), how[0]
        first = taken[0] if first is None else first
    assert first is not None
    return {"methods": methods, "same_bytes": torch.equal(first, taken[0])}


def in_processes(
    what: Callable[..., Result], *given: Any, count: int = 1, limit_s: float = ONE_S
) -> list[Result]:
    """What each of `count` fresh processes returns."""
    fresh = multiprocessing.get_context("forkserver")
    fresh.set_forkserver_preload([*IMPORTED])
    with fresh.Pool(count, maxtasksperchild=1) as pool:
        try:
            return pool.starmap_async(what, [given] * count, chunksize=1).get(limit_s)
        except Exception as error:
            return [{"failed": f"{type(error).__name__}: {error}"}]


def timed(case: Case, where: str) -> Result:
    results = in_processes(measured, case, where, count=case.processes)
    if "failed" in results[0]:
        return {"failed": f"{case.name}: {results[0]['failed']}"}
    together = sum(result["member_steps_s"] for result in results)
    return {**results[0], "member_steps_s": together, "tflops": sum(one["tflops"] for one in results)}


# --- commands --------------------------------------------------------------------------------------------


def study(smoke: bool) -> Result:
    """Seconds of a whole study, with everything from the start of the command on; and what its rows say of
    steps with the evaluations between them: on one card, groups follow each other."""
    keys = ["study=fusion", "seed=range(0,16)", "study.looks=[]", "device=cuda"]
    if smoke:
        keys = [
            "-m",
            "seed=0,1",
            "train.steps=3",
            "device=cpu",
            "hydra.launcher.members=2",
            *TEXT[:1],
            *SMALL,
        ]
    with tempfile.TemporaryDirectory() as directory:
        call("-m", "ablate", "run", *keys, "--dry-run", cwd=Path(directory))  # the text is cached then
        began = time.perf_counter()
        call("-m", "ablate", "run", *keys, "name=it", cwd=Path(directory), limit_s=STUDY_S)
        seconds = time.perf_counter() - began
        import pandas as pd

        rows = pd.read_csv(Path(directory) / "runs" / "studies" / "it" / "results.csv")
        return {
            "seconds": seconds,
            "runs": len(rows),
            "members": rows["members"].max().item(),
            "steps_s": float(rows["wall_s"].sum()),
        }


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
    work: Mapping[str, Callable[[], Result]], kept: dict[str, Any], limit_s: float, *, smoke: bool = False
) -> int:
    """Do the work that has no result yet, and write each, with the page, at once; returns how much of it is
    left. smoke: write nothing."""
    began = time.monotonic()
    for name, one in work.items():
        if name in kept["results"]:
            continue
        if time.monotonic() - began > limit_s - ONE_S:
            break
        kept["results"][name] = one()
        print(f"{name}: {json.dumps(kept['results'][name])}", flush=True)
        if not smoke:
            write_atomically(KEPT, json.dumps(kept, indent=1) + "\n")
            page = with_tables(PAGE.read_text(encoding="utf-8"), tables(kept))
            PAGE.write_text(page, encoding="utf-8", newline="\n")
    return sum(name not in kept["results"] for name in work)


def tables(kept: Mapping[str, Any]) -> str:
    """The results in Markdown."""
    results: Mapping[str, Result] = kept["results"]
    here = kept["machine"]
    lines = [f"{here['device']}, torch {here['torch']}, CUDA {here['cuda']}, Python {here['python']}."]
    for name, one in results.items():
        if "methods" in one:
            methods: Mapping[str, tuple[float, str]] = one["methods"]
            apart, most = max((apart, method) for method, (apart, _) in methods.items())
            eager = {method: how for method, (_, how) in methods.items() if "not captured" in how}
            lines += [
                "",
                f"{len(methods)} methods {name}: losses of {2 * COMPARED} steps part from those of"
                f" runs alone by at most {apart:.1e} ({most}); the first, once more at the"
                f" end: {'the same' if one['same_bytes'] else 'OTHER'} bytes.",
                *(f"{method}: {how}." for method, how in eager.items()),
            ]
    if one := results.get("study"):
        lines += [
            "",
            f"`study=fusion`, {one['runs']} runs, at most {one['members']} as one: {one['seconds']:.1f} s, of"
            f" which steps, with the evaluations between them, {one['steps_s']:.1f} s; the rest is the start,"
            " whole splits at the end, and files.",
        ]
    steps = {name: one for name, one in results.items() if "step_ms" in one}
    lines += ["", *_of_steps(steps)] if steps else []
    lines += ["", *(one["failed"] for one in results.values() if "failed" in one)]
    return "\n".join([*lines, ""])


def _of_steps(steps: Mapping[str, Result]) -> list[str]:
    """A table of steps, with a column for each model and precision, and lines on whether they are right."""
    named = {name: tuple(re.split(r",? ", name, maxsplit=2)) for name in steps}  # model, precision, way
    columns = [*dict.fromkeys(f"{model} {precision}" for model, precision, _ in named.values())]
    rows = [*dict.fromkeys(way for *_, way in named.values())]
    cells = dict[tuple[str, str], str]()
    for name, (model, precision, way) in named.items():
        loop = steps.get(f"{model} {precision}, loop")
        times = f" ({steps[name]['member_steps_s'] / loop['member_steps_s']:.3g})" if loop else ""
        cells[way, f"{model} {precision}"] = f"{steps[name]['step_ms'][0]:.2f}{times}"
    tflops, memory_mb = (max(one[of] for one in steps.values()) for of in ("tflops", "memory_mb"))
    apart = [one["apart"] for one in steps.values() if one["apart"] is not None]
    other = [name for name, one in steps.items() if one["same_bytes"] is False]
    return [
        f"| ms a step (steps of members a second, over the loop's) | {' | '.join(columns)} |",
        f"| --- |{' --- |' * len(columns)}",
        *(f"| {way} | {' | '.join(cells.get((way, column), '') for column in columns)} |" for way in rows),
        "",
        *lines_if(apart, f"Losses of the first steps: at most {max(apart, default=0):.1e} from a run alone."),
        f"Trained again, groups give {f'OTHER bytes: {other}' if other else 'the same bytes'}."
        f" At most {tflops:.0f} TFLOP/s and {memory_mb / 1e3:.1f} GB.",
    ]


def with_tables(page: str, text: str) -> str:
    """The page with this text between its marks."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{text}{END}{tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["stack", "equal", "study"])
    parser.add_argument("--smoke", action="store_true", help="on the CPU, at small sizes; writes nothing")
    arguments = parser.parse_args()
    smoke = arguments.smoke or not torch.cuda.is_available()
    where = "cpu" if smoke else "cuda"
    kept = {"machine": machine(), "results": {}} if smoke else opened(KEPT)
    work: dict[str, Callable[[], Result]] = {
        "stack": {case.name: lambda case=case: timed(case, where) for case in cases(smoke)},
        "equal": {
            f"equal in {precision}": lambda precision=precision: in_processes(
                parted, precision, where, limit_s=COMMAND_S / 2
            )[0]
            for precision in ("float32", "bfloat16")
        },
        "study": {"study": lambda: study(smoke)},
    }[arguments.what]
    left = measure(work, kept, COMMAND_S, smoke=smoke)
    if smoke:
        print(tables(kept))
    if left:
        sys.exit(f"{left} measurements are left; give the command again")


if __name__ == "__main__":
    main()
