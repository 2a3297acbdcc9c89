"""The Python interface: the commands as functions that take keyword arguments and return tables."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ablate.analysis.compare import Question
from ablate.config.overrides import as_value, flatten
from ablate.config.rules import ConfigError
from ablate.reporting.notebook import ShownComparison

__all__ = ["ConfigError", "compare", "load", "report", "run"]


def run(*, plugins: Sequence[str | Path] = (), **keys: Any) -> pd.DataFrame:
    """Train one model or a sweep and return one row per run: `ablate run` with the keys as keyword arguments.

    Give nested keys as mappings, train={"steps": 50}, or as **{"train.steps": 50}. A list makes a sweep, as
    -m does; a tuple is a single value that is a list. study="fusion" runs a study. Finished runs are not
    repeated. plugins: Python files with methods of your own. Failed and diverged runs have rows too, with
    their status. Raises ConfigError.
    """
    from ablate.compose.hydra_app import compose
    from ablate.study.plugins import use as use_plugins
    from ablate.study.run import run as run_asked
    from ablate.verify.contract import require_causal

    for method in use_plugins(plugins):
        require_causal(method.kind, method.name)
    asked = compose(as_overrides(keys))
    if asked is None:  # only Hydra's own options do this, and no keyword stands for them
        raise ConfigError("nothing to run: give keys of a run, such as fusion='sum'")
    outcome = run_asked(asked)
    for line in (*outcome.remarks, *outcome.refused):
        warnings.warn(line, stacklevel=2)
    rows = outcome.rows()
    rows.attrs["target"] = outcome.study
    return rows


def load(path: str | Path | None = None) -> pd.DataFrame:
    """The rows of a study (by name or directory) or of a CSV file; without a path, of every run.

    One row per run, with the columns of results.csv. Raises ConfigError.
    """
    from ablate.analysis.load import load as load_results

    results = load_results([] if path is None else [str(path)])
    for line in results.notes:
        warnings.warn(line, stacklevel=2)
    results.rows.attrs["target"] = "runs" if path is None else str(path)
    return results.rows


def compare(
    rows: pd.DataFrame | str | Path,
    *,
    baseline: Mapping[str, Any] | str | None = None,
    metric: str | None = None,
    by: Sequence[str] | str = (),
    where: Sequence[str] | str = (),
    margin: float | None = None,
    mixed: bool = False,
) -> ShownComparison:
    """Compare variants with their baselines over paired seeds, as `ablate compare` does. A notebook shows the
    result as tables; `.table` has every number.

    rows: what load or run returned, or a path that load accepts; all keep the comparisons that their study
    declared in advance. baseline: {"heads": 1} or "heads=1"; by default fusion=concat. where: "heads=4", or
    several conditions. margin: the largest difference that does not matter, in the metric's unit. Raises
    ConfigError.
    """
    from ablate.analysis.compare import compare as compare_rows
    from ablate.analysis.load import load as load_results
    from ablate.analysis.load import recall
    from ablate.reporting.answers import lines

    results = recall(rows) if isinstance(rows, pd.DataFrame) else load_results([str(rows)])
    asked = _question(baseline, metric, by, where, mixed)
    result = compare_rows(results.rows, margin=margin, records=results.records, **asked)
    answer = lines(result, results.rows, results.records, asked.get("where", ()))
    return ShownComparison(**{**vars(result), "notes": [*results.notes, *result.notes]}, answer=answer)


def report(
    target: str | Path | pd.DataFrame,
    *,
    out: str | Path | None = None,
    charts: str | Path | None = None,
    baseline: Mapping[str, Any] | str | None = None,
    metric: str | None = None,
    by: Sequence[str] | str = (),
    where: Sequence[str] | str = (),
    margin: float | None = None,
    mixed: bool = False,
) -> Path:
    """Write one HTML page about a study, a CSV file of results, or rows, as `ablate report` does; returns its
    path.

    out: by default beside the results; only an earlier report is ever overwritten. charts: a directory for
    the charts as PNG, SVG and PDF. The other arguments are those of compare. Raises ConfigError.
    """
    from ablate.reporting.html import write_report

    asked = _question(baseline, metric, by, where, mixed)
    return write_report(target, out=out, charts=charts, margin=margin, **asked)


def _question(
    baseline: Mapping[str, Any] | str | None,
    metric: str | None,
    by: Sequence[str] | str,
    where: Sequence[str] | str,
    mixed: bool,
) -> Question:
    """The arguments of compare, with single strings parsed or put into lists."""
    from ablate.analysis.contrasts import parse_baseline

    return {
        "baseline": parse_baseline(baseline) if isinstance(baseline, str) else baseline,
        "metric": metric,
        "by": [by] if isinstance(by, str) else by,
        "where": [where] if isinstance(where, str) else where,
        "mixed": mixed,
    }


def as_overrides(keys: Mapping[str, Any]) -> list[str]:
    """Keyword arguments as arguments of `ablate run`: {"heads": [1, 4]} -> ["-m", "heads=1,4"]."""
    flat = {key: _listed(value) for key, value in flatten(keys).items()}
    for key, value in flat.items():
        if isinstance(value, list) and not value:
            raise ConfigError(f"{key}=[]: the sweep is empty; list values, or give one")
    sweeping = any(isinstance(value, list) for value in flat.values())
    words = [
        f"{key}={','.join(map(as_value, value)) if isinstance(value, list) else as_value(value)}"
        for key, value in flat.items()
    ]
    return ["-m", *words] if sweeping else words


def _listed(value: Any) -> Any:
    """Ranges and arrays as lists, NumPy scalars as Python numbers."""
    if isinstance(value, range):
        return list(value)
    return value.tolist() if hasattr(value, "tolist") else value
