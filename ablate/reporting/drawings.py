"""The drawings of methods: NAME.svg beside a method's file or, for plugins, in their runs. Loads no torch."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from ablate.files.svg import inline
from ablate.store.code import PACKAGE
from ablate.store.provenance import PART_FOLDERS

FOLDERS = {Path(folder).name: PACKAGE / folder for folder in PART_FOLDERS}  # by kind, also a column's name


def drawings(rows: pd.DataFrame, directories: Mapping[str, Path]) -> dict[tuple[str, str], Markup]:
    """The drawings of the methods in these rows that have one, by kind and name.

    directories: of finished runs, by run_id; each keeps a copy of the drawings of its plugins.
    """
    found = {}
    for kind in {*FOLDERS} & {*rows.columns}:
        for name, runs in rows.groupby(rows[kind].astype(str))["run_id"]:
            if str(name).isidentifier():  # so that no name can lead to another directory
                places = [FOLDERS[kind], *(directories[run] for run in runs if run in directories)]
                shown = (inline(place / f"{name}.svg") for place in places)
                found[kind, str(name)] = Markup(next(filter(None, shown), ""))
    return {method: drawing for method, drawing in found.items() if drawing}
