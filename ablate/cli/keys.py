"""`ablate keys`: every key with its default and its comment."""

from dataclasses import astuple
from typing import Annotated

import typer

from ablate.cli.shared import FormatOption, print_table, remark
from ablate.printing import put

COLUMNS = ["key", "default", "meaning"]


def keys(
    prefix: Annotated[
        str,
        typer.Argument(help="Only keys that begin so, as train or fusion.per; or a choice, as fusion=gated."),
    ] = "",
    format: FormatOption = "table",
) -> None:
    """Show every key with its default and what it means.

    Keys that only some choices of a group have are shown under each of these choices. The values of a run are
    those of ablate run --cfg job.
    """
    import pandas as pd

    from ablate.compose.configs import matching

    sections = matching(prefix)
    if format != "table":
        rows = [(section.choice, *astuple(key)) for section in sections for key in section.keys]
        print_table(pd.DataFrame(rows, columns=["choice", *COLUMNS]), format)
        return
    for section in sections:
        if section.choice:
            about = section.about or ("" if section.keys else "has no keys of its own")
            remark(f"{section.choice}: {about}" if about else section.choice)
        if section.keys:
            table = pd.DataFrame([astuple(key) for key in section.keys], columns=COLUMNS)
            print_table(table if table["default"].any() else table.drop(columns="default"), format)
        put()
