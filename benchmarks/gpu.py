"""Measure ablate on a GPU, and write docs/gpu.md: commands of four minutes at most, without a network.

    python benchmarks/gpu.py stack      training steps of runs as one, by model, members and precision
    python benchmarks/gpu.py tests      the tests marked gpu
    python benchmarks/gpu.py study      study=fusion, whole: 64 runs of 2,000 steps, by part
    python benchmarks/gpu.py stack --nanogpt DIR      the same, with nanoGPT (its clone in DIR) beside it

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
import importlib.util
import itertools
import json
import platform
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

from ablate.compose.composer import to_run_config
from ablate.compose.configs import configs_dir
from ablate.compute import device
from ablate.execution.run import PlacedRun, build, build_group, prepare, training
from ablate.files.atomic import write_atomically
from ablate.training.batches import batches
from ablate.training.events import Began, Step

ROOT = Path(__file__).parent.parent
KEPT, PAGE = ROOT / "docs" / "gpu.json", ROOT / "docs" / "gpu.md"
BEGIN, END = "<!-- measured -->\n", "<!-- end -->\n"
COMMAND_S, ONE_S = 240, 60  # no measurement begins when the command could take longer; the longest of one
STUDY_S = 200
TEXT = ("corpus=grammar", "corpus.characters=200000")
MODELS = {"tiny": "default", "nano": "nanogpt", "small": "default"}  # with the preset that trains each
MEMBERS = {"tiny": (1, 4, 16, 64, 256), "nano": (1, 4, 16, 64, 256), "small": (1, 4, 16)}
SMALL = ("train.batch=2", "model.context=16", "model.layers=1", "corpus.characters=5000")
NEVER = {"steps": 10**9, "eval_every": 10**9, "eval_tokens": 1, "checkpoint_every": None}
COMPARED, ROUNDS, ROUND_S = 10, 5, 0.3
SHARING = 4  # processes that share the card
Result = dict[str, Any]
Losses = Generator[torch.Tensor]  # of each step, (M,)


@dataclasses.dataclass(frozen=True)
class Case:
    """What is measured. way: members as one (`stack`), the loop of one model without capture and flat state
    (`loop`), the same compiled (`compiled`), or nanoGPT's (`nanogpt`, `nanogpt compiled`)."""

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


def cases(smoke: bool, nanogpt: bool) -> list[Case]:
    """The shortest first."""
    if smoke:
        return [Case("tiny", "float32"), Case("tiny", "float32", 2), Case("tiny", "float32", way="loop")]
    found = []
    for model, precision in itertools.product(MODELS, ("bfloat16", "float32")):
        found += [Case(model, precision, way="loop"), Case(model, precision, way="compiled")]
        found += [Case(model, precision, members) for members in MEMBERS[model]]
        found += [Case(model, precision, MEMBERS[model][-2], deterministic=False)]
    found += [Case("nano", "bfloat16", processes=SHARING)]
    ways = ("nanogpt", "nanogpt compiled") if nanogpt else ()
    found += [Case(model, "bfloat16", way=way) for model in ("nano", "small") for way in ways]
    work = {"tiny": 1, "nano": 3, "small": 400}
    return sorted(found, key=lambda case: work[case.model] * case.members)


def runs_of(case: Case, where: str, *, small: bool) -> list[PlacedRun]:
    keys = [f"model={case.model}", f"train={MODELS[case.model]}", f"train.precision={case.precision}", *TEXT]
    keys += [f"device={where}", f"train.compile={str(case.way == 'compiled').lower()}"]
    keys += SMALL if small else ()
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        run = prepare(to_run_config(hydra.compose("config", overrides=keys)))
    config = dataclasses.replace(run.config, train=dataclasses.replace(run.config.train, **NEVER))
    seeds = [dataclasses.replace(config, seed=seed) for seed in range(case.members)]
    return [dataclasses.replace(run, config=config) for config in seeds]


# --- steps of each way ----------------------------------------------------------------------------------


def stacked(runs: list[PlacedRun], how: list[str]) -> Losses:
    with training(runs, build_group(runs)) as trained:
        for event in trained.events():
            if isinstance(event, Began):
                how.append(event.how)
            if isinstance(event, Step):
                yield event.loss_M


def loop(run: PlacedRun) -> Losses:
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


def nanogpt(run: PlacedRun, directory: Path, *, compiled: bool) -> Losses:
    """nanoGPT at the same sizes, as its train.py trains it."""
    spec = importlib.util.spec_from_file_location("nanogpt", directory / "model.py")
    assert spec and spec.loader
    theirs: Any = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt"] = theirs
    spec.loader.exec_module(theirs)
    a, b = run.spec, run.config.train
    sizes = {"n_layer": a.layers, "n_embd": a.d_model, "n_head": run.config.heads, "vocab_size": a.vocab}
    model = theirs.GPT(theirs.GPTConfig(block_size=a.context, dropout=0.0, bias=False, **sizes)).to(
        run.device
    )
    update = model.configure_optimizers(b.weight_decay, b.lr, (b.beta1, b.beta2), run.device.type)
    called = torch.compile(model) if compiled else model
    x = torch.randint(a.vocab, (b.batch, a.context), device=run.device)
    while True:
        with torch.autocast(run.device.type, torch.bfloat16):
            _, loss = called(x, x)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()
        update.zero_grad(set_to_none=True)
        yield loss.detach()[None]


def measured(case: Case, where: str, directory: Path | None) -> Result:
    runs, how, times = runs_of(case, where, small=where == "cpu"), [], []
    device.reset_peak_memory(runs[0].device)

    def steps(count: int) -> Losses:
        if case.way.startswith("nanogpt"):
            assert directory
            return nanogpt(runs[0], directory, compiled="compiled" in case.way)
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
        memory_mb = device.peak_memory_mb(runs[0].device)
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


def in_a_process(case: Case, smoke: bool, directory: Path | None) -> Result:
    given = [json.dumps(dataclasses.asdict(case)), *(["--nanogpt", str(directory)] if directory else [])]
    command = [sys.executable, __file__, "stack", "--one", *given, *(["--smoke"] if smoke else [])]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(case.processes)]
    said = [process.communicate(timeout=ONE_S)[0] for process in processes]
    if any(process.returncode for process in processes):
        return {"failed": f"{case.name}: exit code {processes[0].returncode}"}
    results = [json.loads(text.splitlines()[-1]) for text in said]
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
    if "tests" in results:
        lines += ["", f"`pytest -m gpu`: {results['tests']['said']}."]
    if one := results.get("study"):
        lines += [
            "",
            f"`study=fusion`, {one['runs']} runs, at most {one['members']} as one: {one['seconds']:.1f} s, of"
            f" which steps, with the evaluations between them, {one['steps_s']:.1f} s; the rest is the start,"
            " whole splits at the end, and files.",
        ]
    if steps := {name: one for name, one in results.items() if "step_ms" in one}:
        loops = {
            name.partition(",")[0]: one["member_steps_s"] for name, one in steps.items() if "loop" in name
        }
        lines += [
            "",
            "| training | ms a step (range) | member-steps/s | times the loop | TFLOP/s | memory, MB | from a"
            " run alone | twice the same bytes | way |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        for name, one in steps.items():
            step, low, high = one["step_ms"]
            loop_s = loops.get(" ".join(name.replace(",", "").split()[:2]))
            ratio = f"{one['member_steps_s'] / loop_s:.1f}" if loop_s else ""
            apart = "" if one["apart"] is None else f"{one['apart']:.1e}"
            same = {None: "", True: "yes", False: "NO"}[one["same_bytes"]]
            lines.append(
                f"| {name} | {step:.2f} ({low:.2f}–{high:.2f}) | {one['member_steps_s']:,.0f} | {ratio} |"
                f" {one['tflops']:.2f} | {one['memory_mb']:,.0f} | {apart} | {same} | {one['how']} |"
            )
    lines += ["", *(one["failed"] for one in results.values() if "failed" in one)]
    return "\n".join([*lines, ""])


def with_tables(page: str, text: str) -> str:
    """The page with this text between its marks."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{text}{END}{tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["stack", "tests", "study"])
    parser.add_argument("--smoke", action="store_true", help="on the CPU, at small sizes; writes nothing")
    parser.add_argument("--nanogpt", type=Path, metavar="DIR")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a Case, in a process of its own
    arguments = parser.parse_args()
    smoke = arguments.smoke or not torch.cuda.is_available()
    if arguments.one:
        case = Case(**json.loads(arguments.one))
        return print(json.dumps(measured(case, "cpu" if smoke else "cuda", arguments.nanogpt)))
    kept = {"machine": machine(), "results": {}} if smoke else opened(KEPT)
    work: dict[str, Callable[[], Result]] = {
        "stack": {
            case.name: lambda case=case: in_a_process(case, smoke, arguments.nanogpt)
            for case in cases(smoke, arguments.nanogpt is not None)
        },
        "tests": {"tests": lambda: tests(smoke)},
        "study": {"study": lambda: study(smoke)},
    }[arguments.what]
    left = measure(work, kept, COMMAND_S, smoke=smoke)
    if smoke:
        print(tables(kept))
    if left:
        sys.exit(f"{left} measurements are left; give the command again")


if __name__ == "__main__":
    main()
