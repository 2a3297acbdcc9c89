"""Drawings of methods: NAME.svg beside the file of each, and in the runs of a plugin's. Loads no torch."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from ablate.files.svg import inline
from ablate.store.code import PACKAGE
from ablate.store.provenance import PART_FOLDERS

FOLDERS = {Path(folder).name: PACKAGE / folder for folder in PART_FOLDERS}  # by kind, which is a column too


def drawings(rows: pd.DataFrame, directories: Mapping[str, Path]) -> dict[tuple[str, str], Markup]:
    """By kind and name of a method: the drawing of each that has one.

    directories: of finished runs, by run_id; each keeps what its plugins have beside their files.
    """
    found = {}
    for kind in {*FOLDERS} & {*rows.columns}:
        for name, runs in rows.groupby(rows[kind].astype(str))["run_id"]:
            if str(name).isidentifier():  # so that no row leads to another directory
                places = [FOLDERS[kind], *(directories[run] for run in runs if run in directories)]
                shown = (inline(place / f"{name}.svg") for place in places)
                found[kind, str(name)] = Markup(next(filter(None, shown), ""))
    return {method: drawing for method, drawing in found.items() if drawing}
