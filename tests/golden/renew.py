"""Train the golden runs and write their losses: python -m tests.golden.renew."""

import csv
from pathlib import Path

from ablate.data.corpus import open_corpus
from ablate.model.models import build_model
from ablate.model.sizing import resolve_spec
from ablate.training.train import Evaluation, Step, train
from tests.helpers import make_config

FILE = Path(__file__).with_name("losses.csv")
# Read off the default device's CPU: seeded text, every option of a method at something but its default. All
# that decides a loss stands here, so that a default may change.
RUNS = {
    "concat": ("fusion=concat",),
    "sum": ("fusion=sum", "fusion.normalize=variance", "out_proj=false"),
    "mean": ("fusion=mean", "value_width=wide"),
    "weighted_sum": ("fusion=weighted_sum", "fusion.weights=convex", "fusion.per=channel"),
    "grouped": ("fusion=grouped", "fusion.groups=2", "heads=8"),
    "rotate": ("fusion=sum", "fusion.order=rotate", "out_rank=5"),
    "gated": ("fusion=gated", "fusion.per=channel", "value_heads=2"),
    "head_scale": ("fusion=head_scale", "fusion.weights=convex", "out_proj=false", "value_scale=matched"),
    "head_norm": ("fusion=head_norm", "tie_qk=true"),
    "max": ("fusion=max", "fusion.normalize=variance", "scale=both"),
    "uniform": ("scores=uniform",),
    "talking": ("scores=talking", "query_heads=2", "key_heads=1"),
    "offsets": ("scores=offsets",),
    "windows": ("scores=windows", "key_heads=1"),
    "qk_norm": ("scores=qk_norm", "value_proj=false"),
}
COMMON = (
    *("corpus=grammar", "corpus.characters=30000", "model.d_model=32", "model.context=32"),
    *("train.steps=60", "train.batch=8", "train.lr=3e-3", "train.warmup=0.05", "train.min_lr_ratio=0.1"),
    *("train.weight_decay=0.1", "train.beta2=0.99", "train.clip=1.0", "train.eval_every=60"),
    "train.eval_tokens=null",
)


def losses(name: str) -> list[tuple[str, str, float]]:
    """(method, what, loss) for every tenth step, and the validation split at the end."""
    config = make_config(*COMMON, *RUNS[name])
    corpus = open_corpus(config.corpus)
    spec = resolve_spec(config, corpus.tokenizer.vocab_size)
    rows = []
    for event in train(
        build_model(spec, config.resolved_seeds()),
        config.train,
        train_split=corpus.splits["train"],
        validation_split=corpus.splits["validation"],
        context=spec.context,
        data_seed=config.seed,
    ):
        if isinstance(event, Evaluation) and event.step > 0:
            rows.append((name, "validation", event.validation.loss))
        elif isinstance(event, Step) and event.step % 10 == 1:
            rows.append((name, f"step {event.step}", event.loss.item()))
    return rows


if __name__ == "__main__":
    with FILE.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("method", "what", "loss"))
        table.writerows((m, what, f"{loss:.6f}") for name in RUNS for m, what, loss in losses(name))
