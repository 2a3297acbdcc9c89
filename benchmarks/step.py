"""A training step of ablate against a plain PyTorch loop of the same model, alternating in one run.

    python benchmarks/step.py --model nano --rounds 15 --steps 20

The plain loop is what one would write by hand: one fused projection for queries, keys and values,
loss.backward(), clip_grad_norm_, torch.optim.AdamW; nothing is measured or stored in either.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator

import hydra
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.compose import configs_dir, to_run_config
from ablate.config import ModelSpec, RunConfig
from ablate.model.lm import build_model
from ablate.model.sizing import resolve_spec
from ablate.train import Step, train

VOCAB = 65


class PlainBlock(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        d = spec.d_model
        self.heads = spec.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(d, bias=False), nn.LayerNorm(d, bias=False)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        B, T, d = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, d))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class PlainGPT(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.token, self.position = (
            nn.Embedding(VOCAB, spec.d_model),
            nn.Embedding(spec.context, spec.d_model),
        )
        self.blocks = nn.Sequential(*[PlainBlock(spec) for _ in range(spec.layers)])
        self.norm = nn.LayerNorm(spec.d_model, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        logits = F.linear(self.norm(self.blocks(x)), self.token.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def plain_steps(config: RunConfig, spec: ModelSpec, tokens: np.ndarray) -> Iterator[None]:
    t = config.train
    model = PlainGPT(spec)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    norms = [p for p in model.parameters() if p.dim() == 1]
    groups = [
        {"params": matrices, "weight_decay": t.weight_decay},
        {"params": norms, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=t.lr, betas=(t.beta1, t.beta2))
    while True:
        starts = torch.randint(len(tokens) - spec.context, (t.batch,)).tolist()
        windows = [torch.from_numpy(tokens[i : i + spec.context + 1].astype(np.int64)) for i in starts]
        block = torch.stack(windows)
        loss = model(block[:, :-1], block[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), t.clip or 1.0)
        optimizer.step()
        loss.item()
        yield


def our_steps(config: RunConfig, spec: ModelSpec, tokens: np.ndarray) -> Iterator[None]:
    model = build_model(spec, config.resolved_seeds())
    events = train(
        model,
        config.train,
        train_tokens=tokens,
        validation_tokens=tokens[: spec.context + 1],
        context=spec.context,
        data_seed=0,
    )
    for event in events:
        if isinstance(event, Step):
            yield


def seconds(step: Callable[[], None], count: int) -> float:
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
        config = to_run_config(hydra.compose("config", overrides=overrides))
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
