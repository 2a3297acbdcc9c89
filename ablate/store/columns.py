"""The columns of results.csv and metrics.csv: one table with all that is known of each. Loads no torch.

Every list of columns derives from it; whoever needs a fact of a column looks it up (`column_named`).
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum, auto
from typing import Any, get_args

from ablate.config.conditions import column_for
from ablate.config.read import dotted
from ablate.config.schema import Column, Role, RunConfig

Row = dict[str, Any]


class Status(StrEnum):
    """The status of a run."""

    DONE = auto()
    FAILED = auto()
    DIVERGED = auto()
    INTERRUPTED = auto()  # the same command resumes it
    RUNNING = auto()
    STALE = auto()  # a result of other numerics, torch or plugin, which may differ from today's


# A diverged run is a result too.
RESULTS = (Status.DONE, Status.DIVERGED, Status.STALE)

DECLARED = [
    (key, column)
    for key, hint in dotted(RunConfig).items()
    for column in get_args(hint)[1:]
    if isinstance(column, Column)
]
# The key of each column that has the value of one.
KEYS = {column_for(key): key for key, column in DECLARED if not column.name}
CONFIG = [
    replace(column, name=column.name or column_for(key), group=key.partition(".")[0])
    for key, column in DECLARED
]
TABLE = (
    Column("run_id", "identity", "text", "digest of what decides the result"),
    Column("study", "identity", "text", "studies that asked for it"),
    Column("status", "identity", "word", "how it ended"),
    Column("error", "identity", "text", "why it has no result"),
    # The role of a run in a study that has runs of different roles, such as a tuned study.
    Column("phase", "identity", "word", "develop or report, in a tuned study"),
    Column("role", "identity", "word", "its roles in its study"),
    Column("tuned", "identity", "word", "arms at whose own value it is"),
    *CONFIG,
    Column("form", "derived", "word", "fusion and output projection as one method"),
    Column("function_class", "derived", "word", "functions that it can represent"),
    Column("model", "derived", "word", "preset"),
    Column("corpus", "derived", "word", "text"),
    Column("match_error", "derived", "number", "parameters beyond the reference (share of them)"),
    Column("params", "derived", "whole", "parameters"),
    Column("params_attention", "derived", "whole", "parameters of attention"),
    Column("flops_per_token", "derived", "whole", "floating-point operations per token"),
    Column("tokens", "derived", "whole", "tokens trained on"),
    Column("epochs", "derived", "number", "times the text is read"),
    Column("overlap", "derived", "number", "characters that another split has, too (share)"),
    Column("ngram_order", "derived", "whole", "tokens that counting looks at"),
    Column("ngram_val_loss", "derived", "number", "Validation loss of counting"),
    Column("ngram_loss", "derived", "number", "Test loss of counting"),
    Column("train_loss", "metric", "number", "Training loss (nats per token)", unit="nats"),
    Column("val_loss", "metric", "number", "Validation loss (nats per token)", unit="nats"),
    Column("val_bpb", "metric", "number", "Validation bits per byte", unit="bits per byte"),
    Column("val_acc", "metric", "number", "Validation accuracy", higher_is_better=True),
    Column("test_loss", "metric", "number", "Test loss (nats per token)", unit="nats"),
    Column("test_acc", "metric", "number", "Test accuracy", higher_is_better=True),
    # Of the best mixture of the model's and the counter's probabilities, its weight chosen on validation.
    Column("mix_loss", "metric", "number", "Test loss mixed with counting (nats per token)", unit="nats"),
    Column("mix_weight", "metric", "number", "Weight of the model in the mixture", higher_is_better=True),
    Column("val_exact", "metric", "number", "Validation rows without an error", higher_is_better=True),
    Column("test_exact", "metric", "number", "Test rows without an error", higher_is_better=True),
    Column("best_val_loss", "metric", "number", "Lowest validation loss", unit="nats"),
    Column("best_step", "metric", "whole", "Step of the lowest validation loss"),
    Column("fusion_weights", "metric", "json", "Weights of heads that the fusion learned"),
    Column("tokens_per_s", "resource", "number", "Tokens a second", unit="tokens/s", higher_is_better=True),
    Column("wall_s", "resource", "number", "Time, or its share of a group's", unit="s"),
    Column("device", "provenance", "word", "cpu or cuda"),
    Column("processor", "provenance", "text", "processor"),
    Column("threads", "provenance", "whole", "threads"),
    Column("members", "provenance", "whole", "runs trained as one"),
    Column("torch", "provenance", "text", "version of PyTorch"),
    Column("ablate", "provenance", "text", "version of ablate"),
    Column("numerics", "provenance", "whole", "version of the arithmetic"),
    Column("code", "provenance", "text", "digest of ablate's code"),
    Column("parts", "provenance", "text", "digests of plugins"),
)
_BY_NAME = {column.name: column for column in TABLE}


def column_named(name: str) -> Column:
    """What is known of a column; of a foreign one, nothing."""
    foreign = Column(name, "metric", "number", name, higher_is_better=None)
    return _BY_NAME.get(name, foreign)


SPLITS = {"train": "training", "val": "validation", "test": "test"}  # by what their metrics begin with
OF_TEST = {"mix_loss": "val_loss"}  # of the test split by another name, with the metric of validation


def split_of(metric: str) -> str:
    """The split that a metric is of; empty for any other column."""
    prefix = "test" if metric in OF_TEST else metric.partition("_")[0]
    return SPLITS.get(prefix, "") if column_named(metric).role == "metric" else ""


def on_validation(metric: str) -> str:
    """The metric of the validation split by which a study that reports `metric` chooses values; itself, if
    there is none."""
    twin = OF_TEST.get(metric) or metric.replace("test_", "val_", 1)
    return twin if split_of(metric) == "test" and twin in _BY_NAME else metric


def of_role(*roles: Role) -> tuple[str, ...]:
    """The names of the columns of these roles."""
    return tuple(column.name for column in TABLE if column.role in roles)


def of_group(*groups: str) -> tuple[str, ...]:
    """The names of the config columns of these groups of keys."""
    return tuple(column.name for column in TABLE if column.role == "config" and column.group in groups)


COLUMNS = tuple(_BY_NAME)
ROLE_COLUMNS = ("phase", "role", "tuned")
CONFIG_COLUMNS = of_role("config")
WIDTHS = tuple(column.name for column in TABLE if column.by_auto)
SEED_COLUMNS = of_role("seed")
OPTIONS_COLUMNS = tuple(name for name in COLUMNS if name.endswith("_options"))  # of the parts of attention
RESOURCE_COLUMNS = of_role("resource")
# The columns that hold one number per run, which can be compared.
METRICS = tuple(
    column.name
    for column in TABLE
    if column.role in ("metric", "derived", "resource") and column.kind in ("whole", "number")
)
METRICS_COLUMNS = ("step", "tokens", "lr", "train_loss", "val_loss", "grad_norm", "seconds")


def csv_text(rows: Iterable[Row], columns: Sequence[str] = COLUMNS, *, header: bool = True) -> str:
    """Rows as CSV with these columns; cells that do not apply are empty."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    if header:
        table.writerow(columns)
    for row in rows:
        values = map(row.get, columns)
        # For most values the csv module does the same as `csv_value` in a fraction of the time.
        table.writerow([v if type(v) in _AS_THEY_ARE else csv_value(v) for v in values])
    return text.getvalue()


def csv_value(value: Any) -> str:
    """A value as a cell. fusion_weights, the only nested list, gets one number per layer and head: the mean
    over channels, if the method has weights per channel."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and value and isinstance(value[0], list):
        means = [[sum(w) / len(w) if isinstance(w, list) else w for w in layer] for layer in value]
        value = [[float(f"{weight:.6g}") for weight in layer] for layer in means]
    if isinstance(value, list | dict):
        return json.dumps(value, sort_keys=True)
    return repr(value) if isinstance(value, float) else str(value)


def is_empty(value: Any) -> bool:
    """Whether a value of a table is missing: None, NaN or pandas.NA, for which pandas need not be loaded."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


_AS_THEY_ARE = (str, int, float, type(None))
