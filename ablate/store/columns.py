"""The columns of results.csv and metrics.csv, and the format of their cells. Loads no torch."""

import csv
import io
import json
from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]

# The role of a run in a study that has runs of different roles, such as a tuned study.
ROLE_COLUMNS = ("phase", "role", "tuned")
IDENTITY_COLUMNS = ("run_id", "study", "status", "error", *ROLE_COLUMNS)
# The columns that define a variant; its replicates differ in the seeds.
CONFIG_COLUMNS = (
    *("fusion", "fusion_options", "normalize", "scores", "scores_options", "heads", "out_proj"),
    *("value_width", "key_width", "query_heads", "key_heads", "value_heads", "tie_qk", "scale", "value_proj"),
    *("value_scale", "out_rank"),
    *("match", "match_by", "d_model", "layers", "context", "mlp_hidden", "bias", "dropout"),
    *("architecture", "encoder_layers", "at", "long"),
    *("corpus_sha256", "tokenizer", "vocab", "splits", "steps", "batch", "lr", "warmup", "min_lr_ratio"),
    *("weight_decay", "beta1", "beta2", "eps", "clip", "eval_every", "eval_tokens", "average", "translate"),
    "precision",
)
SEED_COLUMNS = ("seed", "seed_backbone", "seed_fusion", "seed_data")
DERIVED_COLUMNS = (
    "form",
    "function_class",
    "model",
    "corpus",
    "match_error",
    "params",
    "params_attention",
    "flops_per_token",
    "tokens",
)
# Losses of the targets in each third of the context: predicted from little of it, and from much.
THIRD_COLUMNS = ("val_first_third_loss", "val_middle_third_loss", "val_last_third_loss")
METRIC_COLUMNS = (
    *("train_loss", "val_loss", "val_bpb", "val_acc", "test_loss", "test_acc", "val_exact", "test_exact"),
    *("avg_val_loss", "avg_test_loss", "test_bleu", "test_chrf"),
    *THIRD_COLUMNS,
    *("best_val_loss", "best_step", "fusion_weights"),
)
HIGHER_IS_BETTER = (
    "val_acc",
    "test_acc",
    "val_exact",
    "test_exact",
    "test_bleu",
    "test_chrf",
    "tokens_per_s",
)
# Only these columns differ between two executions of the same run.
MEASURED_COLUMNS = ("tokens_per_s", "wall_s", "peak_memory_mb")
PROVENANCE_COLUMNS = (
    *("device", "engine", "linear", "attention", "compile", "threads"),
    *("torch", "ablate", "code", "parts", "git"),
)
COLUMNS = (
    *IDENTITY_COLUMNS,
    *CONFIG_COLUMNS,
    *SEED_COLUMNS,
    *DERIVED_COLUMNS,
    *METRIC_COLUMNS,
    *MEASURED_COLUMNS,
    *PROVENANCE_COLUMNS,
)
METRICS_COLUMNS = ("step", "tokens", "lr", "train_loss", "val_loss", "grad_norm", "seconds")


def csv_text(rows: Iterable[Row]) -> str:
    """Rows as CSV with all columns; cells that do not apply are empty."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for row in rows:
        values = map(row.get, COLUMNS)
        # For most values the csv module does the same as `csv_value` in a fraction of the time.
        table.writerow([v if type(v) in _AS_THEY_ARE else csv_value(_for_table(v)) for v in values])
    return text.getvalue()


def csv_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return json.dumps(value, sort_keys=True)
    return repr(value) if isinstance(value, float) else str(value)


_AS_THEY_ARE = (str, int, float, type(None))


def _for_table(value: Any) -> Any:
    """The value for results.csv. fusion_weights, the only nested list, gets one number per layer and head:
    the mean over channels, if the method has weights per channel."""
    if not (isinstance(value, list) and value and isinstance(value[0], list)):
        return value
    means = [[sum(w) / len(w) if isinstance(w, list) else w for w in layer] for layer in value]
    return [[float(f"{weight:.6g}") for weight in layer] for layer in means]
