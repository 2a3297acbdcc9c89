"""Text and pages from numbers; and, called, the report of a study: ablate.report("fusion").

`ablate.report` is this package, and a public function as well: so the package can be called.
"""

import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def report(
    target: "str | Path | pd.DataFrame",
    *,
    out: str | Path | None = None,
    charts: str | Path | None = None,
    baseline: Mapping[str, Any] | str | None = None,
    metric: str | None = None,
    margin: float | None = None,
) -> Path:
    """Write one HTML file about a study, a CSV file of results, or rows; returns its path.

    out: by default beside the results. charts: a directory for the charts as PNG, SVG and PDF. baseline:
    {"heads": 1} or "heads=1"; by default fusion=concat. margin: in the metric's unit. Raises ConfigError.
    """
    from ablate.analysis.contrasts import parse_baseline
    from ablate.reporting.html import write_report

    reference = parse_baseline(baseline) if isinstance(baseline, str) else baseline
    return write_report(target, out=out, charts=charts, baseline=reference, metric=metric, margin=margin)


class _Callable(types.ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Path:
        return report(*args, **options)


sys.modules[__name__].__class__ = _Callable
