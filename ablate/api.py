"""The Python interface: the commands as functions that take keyword arguments and return tables."""

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import pandas as pd

from ablate.analysis.question import Asked, ask
from ablate.config.rules import ConfigError, as_value, flatten
from ablate.phrases import one_line, texts
from ablate.printing import left_out
from ablate.reporting.html import ShownComparison

Files = str | Path | Sequence[str | Path]
Value = str | int | float | PurePath | list | tuple | dict | None  # of a key

if TYPE_CHECKING:
    from ablate.execution.trained import TrainedModel

__all__ = ["ConfigError", "compare", "load", "load_model", "report", "run"]

Function = TypeVar("Function", bound=Callable[..., Any])


def _reporting(function: Function) -> Function:
    """The function, which raises ConfigError for what the system refuses, and warns of files that it left
    out."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            result = function(*args, **keywords)
        except OSError as error:
            raise ConfigError(f"{error.filename}: {error.strerror or error}") from error
        finally:
            lines = left_out()
        for line in lines:
            warnings.warn(line, stacklevel=2)
        return result

    return call  # pyright: ignore[reportReturnType]


@_reporting
def run(*, plugins: Files = (), config_dir: str | Path | None = None, **keys: Any) -> pd.DataFrame:
    """Train one model or a sweep and return one row per run: `ablate run` with the keys as keyword arguments.

    Give nested keys as mappings, train={"steps": 50}, or as **{"train.steps": 50}. A list makes a sweep, as
    -m does; a tuple is a single value that is a list. study="fusion" runs a study. Finished runs are not
    repeated. Rows come in the order asked: that of the sweep, whose last key varies fastest. Failed and
    diverged runs have rows too, with their status. plugins: Python files with methods of your own.
    config_dir: a directory of presets of your own, as -cd. Results lie where the environment variable
    ABLATE_RUNS says, else in runs/. Raises ConfigError.
    """
    from ablate.compose.sweep import compose, own_hydra
    from ablate.compute.ambient import undisturbed
    from ablate.store.frames import frame
    from ablate.study.run import run as run_sweep
    from ablate.study.run import use_plugins
    from ablate.verify.contract import BEFORE_A_RUN, require_sound

    arguments = [*([] if config_dir is None else ["-cd", str(config_dir)]), *as_overrides(keys)]
    with undisturbed(), own_hydra():
        require_sound(use_plugins(plugins), only=BEFORE_A_RUN)
        outcome = run_sweep(compose(arguments))
        rows = frame(outcome.rows())
    for line in (*outcome.remarks, *outcome.refused):
        warnings.warn(one_line(line), stacklevel=3)
    rows.attrs["target"] = outcome.study
    return rows


@_reporting
def load(path: str | Path | None = None) -> pd.DataFrame:
    """The rows of a study (by name or directory) or of a CSV file; without a path, of every run.

    One row per run, with the columns of results.csv. Raises ConfigError.
    """
    from ablate.analysis.load import load as load_results
    from ablate.analysis.measures import as_numbers, can_be_numbers
    from ablate.store.columns import COLUMNS, SEED_COLUMNS
    from ablate.store.frames import is_foreign
    from ablate.store.store import Store

    results = load_results([] if path is None else [str(path)])
    for line in texts(results.notes):
        warnings.warn(one_line(line), stacklevel=3)
    rows = results.rows
    words = rows.drop(columns=[] if is_foreign(rows) else [*COLUMNS]).select_dtypes(["object", "string"])
    given = [str(key) for key, of in words.items() if of.astype(str).str.contains(r"\d").any()]
    numbers = {key: as_numbers(rows, key) for key in given if can_be_numbers(rows[key])}
    rows = rows.assign(**numbers).astype(dict.fromkeys(numbers.keys() & {*SEED_COLUMNS}, "Int64"))
    rows.attrs["target"] = str(Store().root if path is None else path)
    return rows


@_reporting
def load_model(run: str | Path, *, plugins: Files = ()) -> "TrainedModel":
    """The model of a finished run: a torch module in eval mode, with its weights as kept and its tokenizer.

    run: a prefix of its id or of its directory's name, or the directory itself. plugins: Python files with
    the run's methods of your own. The model has encode, decode and generate; called with token ids (B, T),
    it returns logits (B, T, vocabulary). Raises ConfigError.
    """
    from ablate.compose.sweep import own_hydra
    from ablate.compute.ambient import undisturbed
    from ablate.execution.trained import load_model as load
    from ablate.store.store import Store
    from ablate.study.run import use_plugins

    with undisturbed(), own_hydra():
        use_plugins(plugins)
        return load(Path(run) if Path(run).is_dir() else Store().find(str(run)))


@_reporting
def compare(rows: pd.DataFrame | str | Path, **asked: Unpack[Asked]) -> ShownComparison:
    """Compare variants with their baselines over paired seeds, as `ablate compare` does. A notebook shows the
    result as tables; `.table` has every number.

    rows: what load or run returned, or a path that load accepts; all keep the comparisons that their study
    declared in advance. Or a frame of any origin, with a column that was varied (by), a metric, and a seed or
    other columns by which runs pair (pair_by). baseline: {"heads": 1} or "heads=1"; by default fusion=concat,
    then defaults of what else varies. where: a condition on the rows, as "heads=4", "heads<=4" or
    {"heads": [1, 4]}, or several. margin: the largest difference that does not matter, in the metric's unit.
    within: a column between whose levels differences are compared. higher_is_better: of a metric that ablate
    does not know. fixed: the variant whose one value is known, without scatter. finished: words for the
    status of runs that count, besides finished and its like. Raises ConfigError.
    """
    from ablate.analysis.compare import compare as compare_rows
    from ablate.analysis.load import read
    from ablate.reporting.answers import lines

    question = ask(**asked)
    results = read(rows, question.finished)
    result = compare_rows(results.rows, question, results.records)
    parts = {field.name: getattr(result, field.name) for field in fields(result)}
    parts["notes"] = [*results.notes, *result.notes]
    answer = lines(result, results.records, results.notes, "explained below")
    return ShownComparison(**parts, answer=answer, records=results.records)


@_reporting
def report(
    target: str | Path | pd.DataFrame,
    *,
    out: str | Path | None = None,
    charts: str | Path | None = None,
    **asked: Unpack[Asked],
) -> Path:
    """Write one HTML page about a study, a CSV file of results, or rows, as `ablate report` does; returns its
    path.

    out: an HTML file, by default beside the results. charts: a directory for the charts as PNG, SVG and PDF.
    The other arguments are those of compare. Raises ConfigError.
    """
    from ablate.reporting.html import write_report

    return write_report(target, ask(**asked), out=out, charts=charts)


def as_overrides(keys: Mapping[str, Any]) -> list[str]:
    """Keyword arguments as arguments of `ablate run`: {"heads": [1, 4]} -> ["-m", "heads=1,4"]."""
    words, is_sweep = [], False
    for key, value in flatten(_plain(keys)).items():
        if key.startswith("-") or "=" in key:
            raise ConfigError(f"{key}: no such key; ablate keys shows them all")
        if isinstance(value, list) and not value:
            raise ConfigError(f"{key}=[]: the sweep is empty; list values, or give one")
        is_sweep |= isinstance(value, list)
        values = value if isinstance(value, list) else [value]
        if wrong := [one for one in values if not isinstance(one, Value)]:
            raise TypeError(f"{key}: {type(wrong[0]).__name__} is no value of a key; give text or numbers")
        words.append(f"{key}={','.join(map(as_value, values))}")
    return ["-m", *words] if is_sweep else words


def _plain(value: Any) -> Any:
    """The value with Python's numbers, lists and dicts in place of those of other libraries."""
    if hasattr(value, "tolist"):  # of NumPy, pandas or PyTorch
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):  # also OmegaConf's
        return (tuple if isinstance(value, tuple) else list)(map(_plain, value))
    return value
