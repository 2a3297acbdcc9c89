"""Member-steps a second of models trained as one, by their number, on whatever device is there.

    python benchmarks/stack.py --model nano --precision bfloat16 --members 1 4 16 64 256
    python benchmarks/stack.py --model tiny --members 1 4 --device cpu
    python benchmarks/stack.py --model tiny --members 16 --ways 500

Beside each speed stands how far the losses of its first steps are from those of a run trained alone on the
same device, and the way that steps are computed. The first number of members is measured again at the end:
its losses have to be the same bytes, which found a capture that disturbed another one (pytorch issue 193402).

With --ways STEPS: by how much validation losses of runs trained as one differ from those of the same runs
trained alone, after so many steps.
"""

import argparse
import dataclasses
import statistics
import time

import hydra
import torch

from ablate.compose.composer import to_run_config
from ablate.compose.configs import configs_dir
from ablate.compute import device
from ablate.execution.run import PlacedRun, build_group, prepare, training
from ablate.training.events import Began, Evaluation, Step

PRESETS = {"nano": "nanogpt"}
TEXT = ("corpus=grammar", "corpus.characters=200000")
NEVER = {"steps": 10**9, "eval_every": 10**9, "eval_tokens": 1, "checkpoint_every": None}
COMPARED, ROUNDS, ROUND_S = 20, 5, 0.5


def runs_of(model: str, precision: str, members: int, where: str) -> list[PlacedRun]:
    keys = [f"model={model}", f"train={PRESETS.get(model, 'default')}", f"train.precision={precision}", *TEXT]
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        run = prepare(to_run_config(hydra.compose("config", overrides=[*keys, f"device={where}"])))
    config = dataclasses.replace(run.config, train=dataclasses.replace(run.config.train, **NEVER))
    seeds = [dataclasses.replace(config, seed=seed) for seed in range(members)]
    return [dataclasses.replace(run, config=config) for config in seeds]


def measured(runs: list[PlacedRun]) -> tuple[torch.Tensor, float, str, float]:
    """The losses of the first steps, (COMPARED, M); seconds a step, the median of rounds; how steps are
    computed; and MB of memory."""
    losses, times, how, place = [], [], "alone", runs[0].device
    if place.type == "cuda":
        torch.cuda.reset_peak_memory_stats(place)
    with device.deterministic(place), training(runs, build_group(runs)) as trained:
        events = trained.events()

        def step() -> Step:
            nonlocal how
            for event in events:
                if isinstance(event, Began):
                    how = event.how
                if isinstance(event, Step):
                    return event
            raise AssertionError("it never ends")

        losses = [step().loss_M.float().cpu().clone() for _ in range(COMPARED)]
        began = time.perf_counter()
        step().loss_M.cpu()
        count = max(1, round(ROUND_S / (time.perf_counter() - began)))
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for _ in range(count):
                last = step()
            last.loss_M.cpu()  # waits for the device
            times.append((time.perf_counter() - began) / count)
        memory_mb = device.peak_memory_mb(place)
    return torch.stack(losses), statistics.median(times), how, memory_mb


def ways(runs: list[PlacedRun], steps: int) -> None:
    train = dataclasses.replace(runs[0].config.train, steps=steps, eval_every=steps, eval_tokens=None)
    runs = [dataclasses.replace(run, config=dataclasses.replace(run.config, train=train)) for run in runs]

    def losses(together: list[PlacedRun]) -> list[float]:
        with device.deterministic(runs[0].device), training(together, build_group(together)) as trained:
            ended = [event for event in trained.events() if isinstance(event, Evaluation) and event.step]
        return [event.validation.loss for event in ended]

    grouped, alone = losses(runs), [losses([run])[0] for run in runs]
    differences = [a - b for a, b in zip(grouped, alone, strict=True)]
    print(
        f"{len(runs)} runs of {steps} steps, validation loss as one minus alone: mean"
        f" {statistics.mean(differences):+.5f}, sd {statistics.stdev(differences):.5f}, at most"
        f" {max(map(abs, differences)):.5f}; sd over seeds {statistics.stdev(alone):.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="nano")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--members", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--ways", type=int, metavar="STEPS")
    arguments = parser.parse_args()
    every = runs_of(arguments.model, arguments.precision, max(arguments.members), arguments.device)
    if arguments.ways:
        return ways(every, arguments.ways)
    alone, *_ = measured(every[:1])
    first = None
    print(f"{arguments.model} {arguments.precision}, {device.processor(every[0].device)}")
    for members in [*arguments.members, arguments.members[0]]:
        losses, step_s, how, memory_mb = measured(every[:members])
        flops = every[0].step_flops * members / step_s
        print(
            f"{members:>4} members: {1e3 * step_s:8.2f} ms a step, {members / step_s:10,.0f} member-steps/s,"
            f" {flops / 1e12:7.2f} TFLOP/s, {memory_mb:,.0f} MB; from the run alone"
            f" {(losses[:, 0] - alone[:, 0]).abs().max():.1e}; {how}",
            flush=True,
        )
        same = first is None or torch.equal(losses, first)
        first = losses if first is None else first
    print(f"{arguments.members[0]} members again, at the end: {'the same bytes' if same else 'OTHER BYTES'}")


if __name__ == "__main__":
    main()
