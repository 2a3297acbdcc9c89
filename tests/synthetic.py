"""A finished study whose losses are drawn, not trained; its files are those of real runs."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis.probes import COLUMNS, FILE
from ablate.files.atomic import digest
from ablate.store.columns import Row
from ablate.store.frames import frame
from ablate.store.provenance import parts_code, provenance
from ablate.store.record import StudyRecord
from ablate.store.store import Store
from tests.helpers import ignore, read_contrast, with_contrasts

FUSIONS = ("concat", "sum", "weighted_sum", "mean")
HEADS = (1, 2, 4, 8)
STEPS = (100, 200, 300, 400, 500)
WIDTH = 64
PRIMARY = {"vary": "fusion", "baseline": "concat", "where": {"heads": 4, "out_proj": True}}


WRITTEN = dict[str, dict[str, bytes]]()


def synthetic_study(root: Path, **given: Any) -> Store:
    """As `write_grid`, whose files are written again where the same was asked for before."""
    if (key := repr((contents(root), given))) not in WRITTEN:
        write_grid(root, **given)
        WRITTEN[key] = contents(root)
    for name, content in WRITTEN[key].items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return Store(root)


def contents(root: Path) -> dict[str, bytes]:
    """Of each file below a directory."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def write_grid(
    root: Path,
    *,
    name: str = "synthetic",
    question: str = "Does it matter how heads are brought together?",
    fusions: Sequence[str] = FUSIONS,
    heads: Sequence[int] = HEADS,
    out_proj: Sequence[bool] = (True, False),
    rates: Sequence[float] = (0.003,),
    seeds: int = 8,
    diverging: Sequence[int] = (),
    typed: Sequence[str] = (),
    **columns: Any,
) -> None:
    """Write a finished grid below `root` (runs/). diverging: indices of runs that diverge. typed: the
    command. columns: of every row, over what stands here."""
    store, generator = Store(root), np.random.default_rng(0)
    luck = generator.normal(0, 0.008, seeds)  # that all variants share, as seeds are paired
    runs = list(product(fusions, heads, out_proj, rates, range(seeds)))
    ids = []
    for index, (fusion, h, projected, rate, seed) in enumerate(runs):
        effect = 0.03 * fusions.index(fusion) * (h > 1) + 0.15 * (not projected) + 0.02 * abs(h - 4)
        effect += 0.1 * np.log2(rate / 0.004) ** 2
        loss = float(2.0 + effect + luck[seed] + generator.normal(0, 0.004))
        row = synthetic_row(fusion, h, projected, rate, seed) | columns
        row["run_id"] = digest([name, index])[:16]
        ids.append(row["run_id"])
        label = f"run-{row['run_id'][:8]}"
        with store.run(label).attempt(_config(row), row, {}, ignore) as writer:
            writer.write("environment.json", '{"python": "3.11.7"}')
            for step in STEPS:
                now = loss + 1.2 * (1 - step / STEPS[-1]) ** 2
                point = {"step": step, "tokens": step * 2048, "lr": rate, "train_loss": now - 0.05}
                writer.metrics({**point, "val_loss": now, "grad_norm": 0.4, "seconds": step / 50})
            end: Row = {"status": "done", "train_loss": loss - 0.05, "val_loss": loss, "val_bpb": loss * 1.4}
            end |= {"best_val_loss": loss, "best_step": STEPS[-1], "test_loss": loss - 0.1}
            if index in diverging:
                end = {"status": "diverged", "error": "the loss is not finite at step 37"}
            elif fusion == "weighted_sum":
                end["fusion_weights"] = generator.normal(1, 0.2, (2, h)).tolist()
            writer.finish(row | end)
    levels = {"fusion": fusions, "heads": heads, "out_proj": out_proj, "train.lr": rates}
    record = StudyRecord(
        name=name,
        kind="grid",
        question=question,
        factors={key: [str(v).lower() for v in values] for key, values in levels.items()},
        fixed={},
        seeds=list(range(seeds)),
        runs=sorted(ids),
        primary=[read_contrast(PRIMARY)] if 4 in heads else [],
        metric="val_loss",
        margin=0.01,
        typed=[*typed],
    )
    store.change_study(
        name, lambda _: with_contrasts(record, frame([row for row in store.rows() if row["run_id"] in ids]))
    )


def small_study(root: Path, seeds: int = 2, **given: Any) -> Store:
    """Of concat and sum, with nothing else varied."""
    one: dict[str, Any] = {"fusions": ("concat", "sum"), "heads": (4,), "out_proj": (True,)}
    return synthetic_study(root, seeds=seeds, **{**one, **given})


def synthetic_probes(store: Store) -> pd.DataFrame:
    """Write beside the results of its one study what `ablate probe` would: heads of layer 1 look back; those
    of layer 2 do as untrained ones; no head does induction."""
    generator, rows = np.random.default_rng(0), []
    (name,) = store.study_names()
    study = store.root / "studies" / name
    for row in (row for row in store.rows() if row["status"] == "done"):
        run_id, H = row["run_id"], int(row["heads"])
        places = list(product((1, 2), range(1, H + 1)))
        for layer, head in places:
            noise = generator.normal(0, 0.01)
            looks_back = 0.9 / head if layer == 1 else 0.1
            for probe, value, untrained, null in (
                ("kept", 1 / H + 0.1, 1 / H, 1 / H),
                ("previous", looks_back, 0.1, None),
                ("induction", 0.02, 0.02, None),
                ("loss_added", 0.1 / head, 0.0, None),
            ):
                rows.append((run_id, layer, head, probe, value + noise, untrained, null, True))
    table = pd.DataFrame(rows, columns=[*COLUMNS])
    table.to_csv(study / FILE, index=False)
    return table


def synthetic_row(fusion: str, heads: int, out_proj: bool, lr: float, seed: int) -> Row:
    """A row of results.csv as far as it stands before training."""
    narrow = WIDTH // heads
    value = narrow if out_proj or fusion == "concat" else WIDTH
    params = 101_000 + 8_192 * out_proj + 128 * heads * (value - narrow)
    return {
        **{"status": "running", "fusion": fusion, "fusion_options": '{"normalize": "none"}'},
        **{"normalize": "none", "heads": heads, "out_proj": out_proj, "value_width": value},
        **{"key_width": narrow, "match": "none", "d_model": WIDTH, "layers": 2},
        **{"context": 64, "mlp_hidden": 256, "bias": False, "dropout": 0.0, "corpus_sha256": "0" * 64},
        **{"position": "learned", "norm": "layer", "mlp": "gelu"},
        **{"tokenizer": "char", "vocab": 97, "splits": [0.8, 0.1, 0.1], "steps": STEPS[-1], "batch": 32},
        **{"lr": lr, "warmup": 0.05, "min_lr_ratio": 0.1, "weight_decay": 0.1, "beta1": 0.9},
        **{"beta2": 0.99, "eps": 1e-8, "clip": 1.0, "eval_every": 100, "precision": "float32"},
        **{"seed": seed, "seed_backbone": seed, "seed_fusion": seed, "seed_data": seed, "model": "tiny"},
        **{"corpus": "pydoc", "params": params, "flops_per_token": 2 * params, "tokens": 1_024_000},
        **{"epochs": 0.6, "overlap": 0.0, "ngram_order": 5, "ngram_val_loss": 9.0, "ngram_loss": 9.0},
        **{"device": "cpu", "threads": 1, **provenance()},
        **parts_code(),
    }


def _config(row: Row) -> dict[str, Any]:
    return {
        "fusion": {"name": row["fusion"], "options": {"normalize": "none"}},
        **{key: row[key] for key in ("heads", "out_proj", "value_width", "key_width", "seed")},
        "model": {"name": "tiny", "d_model": WIDTH, "layers": 2, "context": 64},
        "train": {"steps": row["steps"], "lr": row["lr"], "clip": 1.0},
        "corpus": {"name": "pydoc", "path": None, "tokenizer": "char"},
    }
