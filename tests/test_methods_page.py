"""docs/methods.md: every method is on it, as the code says."""

import pytest

from ablate.execution.plugins import KINDS
from ablate.model.fusion.sum import Sum
from scripts.methods_page import PAGE, page

METHODS = [(kind, name) for kind, package in KINDS.items() for name in package.methods()]


def test_the_page_is_what_the_code_says(monkeypatch):
    written = PAGE.read_text(encoding="utf-8")
    assert page() == written, "docs/methods.md is old: run python scripts/methods_page.py"
    monkeypatch.setattr(Sum, "__doc__", f"{Sum.__doc__} Or so.")
    assert page() != written


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_every_method_has_a_picture_an_equation_a_class_and_a_source(kind, name):
    (section,) = PAGE.read_text(encoding="utf-8").split(f"\n### {name}\n")[1:]
    drawing, about, *more = section.partition("\n#")[0].strip().split("\n\n")
    assert drawing.startswith("![") and drawing.endswith(f"/{name}.svg)")
    assert about.startswith(f"`{kind}={name}`: ")
    source = next(line for line in more if line.startswith("Source: "))
    assert any(sign in "".join([about, *more[: more.index(source)]]) for sign in (" = ", " ← "))
    assert len(source) > len("Source: ")
    assert any(line.startswith("Class: `") for line in more)
