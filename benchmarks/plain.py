"""A GPT in plain PyTorch with its training loop, as one would write it by hand.

    python benchmarks/plain.py --text book.txt --model nano --runs 8 --steps 100

It has one fused projection for queries, keys and values, loss.backward(), clip_grad_norm_, torch.optim.AdamW,
and uses all threads; runs come one after the other, each evaluated once at its end, on the last tenth of the
text. Nothing is stored. step.py and sweep.py compare ablate with it.
"""

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

import hydra
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.compose.composer import keys_of_a_run, to_run_config
from ablate.compose.configs import configs_dir
from ablate.config.schema import RunConfig
from ablate.model.sizing import resolve_spec
from ablate.model.spec import ModelSpec


class PlainBlock(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        d = spec.d_model
        self.heads = spec.attention.heads
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
        self.token = nn.Embedding(spec.vocab, spec.d_model)
        self.position = nn.Embedding(spec.context, spec.d_model)
        self.blocks = nn.Sequential(*[PlainBlock(spec) for _ in range(spec.layers)])
        self.norm = nn.LayerNorm(spec.d_model, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        logits = F.linear(self.norm(self.blocks(x)), self.token.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def plain_steps(config: RunConfig, spec: ModelSpec, tokens: np.ndarray) -> Iterator[PlainGPT]:
    """Train a model, one step at a time."""
    t = config.train
    model = PlainGPT(spec)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    norms = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": t.weight_decay}, {"params": norms, "weight_decay": 0.0}]
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
        yield model


@torch.no_grad()
def plain_evaluation(model: PlainGPT, tokens: np.ndarray, context: int, batch: int) -> float:
    """Mean loss over the whole windows of a split, `batch` at a time."""
    windows = torch.from_numpy(tokens[: (len(tokens) - 1) // context * context + 1].astype(np.int64))
    inputs, targets = windows[:-1].view(-1, context), windows[1:].view(-1, context)
    pairs = zip(inputs.split(batch), targets.split(batch), strict=True)
    return sum(model(x, y).item() * len(x) for x, y in pairs) / len(inputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--train", default="nanogpt")
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    text = arguments.text.read_text(encoding="utf-8")
    ids = {character: i for i, character in enumerate(sorted(set(text)))}
    tokens = np.array([ids[character] for character in text], np.uint16)
    train, validation = np.split(tokens, [len(tokens) * 9 // 10])
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        overrides = [f"model={arguments.model}", f"train={arguments.train}"]
        config = to_run_config(keys_of_a_run(hydra.compose("config", overrides=overrides)))
    spec = resolve_spec(config, len(ids))
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        torch.manual_seed(seed)
        *_, model = itertools.islice(plain_steps(config, spec, train), arguments.steps)
        loss = plain_evaluation(model, validation, spec.context, batch=64)
        print(f"run {seed}: validation loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
