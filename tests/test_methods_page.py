"""docs/methods.md: every method is on it, as the code says."""

import csv
from xml.etree import ElementTree

import pytest

from ablate.execution.plugins import KINDS
from ablate.model.fusion.sum import Sum
from ablate.store.columns import COLUMNS
from ablate.store.provenance import PACKAGE
from scripts.columns_table import PATH, table
from scripts.methods_page import COSTS, PAGE, costs, page

SVG = "{http://www.w3.org/2000/svg}"
METHODS = [(kind, name) for kind, package in KINDS.items() for name in package.methods()]


def test_the_table_of_columns_is_what_the_code_says():
    written = PATH.read_text(encoding="utf-8")
    assert table() == written, "docs/columns.csv is old: run python scripts/columns_table.py"
    rows = {row["column"]: row for row in csv.DictReader(written.splitlines())}
    assert [*rows] == [*COLUMNS] and (rows["lr"]["from"], rows["seed"]["from"]) == ("train.lr", "seed")
    assert rows["wall_s"]["unit"] == "s" and rows["test_loss"]["from"] == "test split"


@pytest.mark.slow
def test_the_page_is_what_the_code_says(monkeypatch):
    written = PAGE.read_text(encoding="utf-8")
    assert page() == written, "docs/methods.md is old: run python scripts/methods_page.py"
    monkeypatch.setattr(Sum, "__doc__", f"{Sum.__doc__} Or so.")
    assert page() != written


@pytest.mark.slow
def test_the_table_of_costs_is_what_the_code_says():
    written = COSTS.read_text(encoding="utf-8")
    assert costs() == written, "docs/methods.csv is old: run python scripts/methods_page.py"
    rows = {row["settings"]: row for row in csv.DictReader(written.splitlines())}
    assert {f"{kind}={name}" for kind, name in METHODS} <= rows.keys()
    assert int(rows["fusion=sum"]["more_than_the_default"]) == 16 * 64 - 64 * 64  # W_O reads one narrow head


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_every_method_has_a_picture_an_equation_and_a_source(kind, name):
    (section,) = PAGE.read_text(encoding="utf-8").split(f"\n### `{kind}={name}`\n")[1:]
    drawing, about, *more = section.partition("\n#")[0].strip().split("\n\n")
    assert drawing.startswith("![") and drawing.endswith(f"/{name}.svg)")
    source = next(line for line in more if line.startswith("Source: "))
    assert any(sign in "".join([about, *more[: more.index(source)]]) for sign in (" = ", " ← "))
    assert len(source) > len("Source: ")


@pytest.mark.parametrize(
    "drawing", [*(PACKAGE / "model").glob("*/*.svg")], ids=lambda path: f"{path.parent.name} {path.stem}"
)
def test_every_drawing_is_small_has_a_title_and_one_size(drawing):
    root = ElementTree.parse(drawing).getroot()
    title = root.find(f"{SVG}title")
    assert title is not None and title.text
    assert [root.get(name) for name in ("viewBox", "width", "height")] == ["0 0 120 48", "120", "48"]
    assert drawing.stat().st_size < 1500
