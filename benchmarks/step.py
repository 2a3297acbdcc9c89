"""Time a training step of ablate and of a plain PyTorch loop with the same model, alternating in one process.

    python benchmarks/step.py --model nano --rounds 15 --steps 20

The plain loop is that of plain.py; neither evaluates or stores anything.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator

import hydra
import numpy as np
import torch
from plain import plain_steps

from ablate.compose.composer import keys_of_a_run, to_run_config
from ablate.compose.configs import configs_dir
from ablate.config.schema import RunConfig
from ablate.data.splits import Stream
from ablate.model.models import build_model
from ablate.model.sizing import resolve_spec
from ablate.model.spec import ModelSpec
from ablate.training.events import Step
from ablate.training.group import Group
from ablate.training.train import Member, Training

VOCAB = 65


def our_steps(config: RunConfig, spec: ModelSpec, tokens: np.ndarray) -> Iterator[None]:
    group = Group([build_model(spec, config.resolved_seeds())], config.train.precision)
    splits = {"train_split": Stream(tokens), "validation_split": Stream(tokens[: spec.context + 1])}
    training = Training(group, [Member(config.train, data_seed=0)], **splits, context=spec.context)
    for event in training.events():
        if isinstance(event, Step):
            yield


def seconds(step: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - began) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--train", default="nanogpt")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=20, help="steps of each in a round")
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        overrides = [f"model={arguments.model}", f"train={arguments.train}", "train.steps=100000000"]
        overrides += ["train.eval_every=100000000"]
        config = to_run_config(keys_of_a_run(hydra.compose("config", overrides=overrides)))
    spec = resolve_spec(config, VOCAB)
    tokens = np.random.default_rng(0).integers(VOCAB, size=1_000_000).astype(np.uint16)
    ours, plain = our_steps(config, spec, tokens), plain_steps(config, spec, tokens)
    times: list[tuple[float, float]] = []
    for round_, order in zip(range(arguments.rounds + 1), itertools.cycle([(0, 1), (1, 0)]), strict=False):
        pair = [0.0, 0.0]
        for which in order:
            steps = (ours, plain)[which]
            pair[which] = seconds(lambda steps=steps: next(steps), arguments.steps)
        if round_:  # the first warms up
            times.append((pair[0], pair[1]))
    ratios = sorted(a / b for a, b in times)
    threads = torch.get_num_threads()
    print(f"{arguments.model}, {threads} threads, {arguments.rounds} rounds of {arguments.steps} steps each")
    for name, column in (("ablate", 0), ("plain", 1)):
        print(f"{name:>8}: {1000 * statistics.median(t[column] for t in times):.2f} ms a step (median)")
    print(f"   ratio: {statistics.median(ratios):.3f} (median), {ratios[0]:.3f} to {ratios[-1]:.3f}")


if __name__ == "__main__":
    main()
