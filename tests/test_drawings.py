"""Drawings of methods: each has one, a report shows it, and what is more than a drawing is not shown."""

from xml.etree import ElementTree

import pytest

import ablate
from ablate.files.svg import LARGEST, SVG, inline
from ablate.model import fusion, readout, scores
from ablate.store.provenance import PACKAGE
from tests.synthetic import synthetic_study
from tests.test_plugins import QUICK, call_cli, write

DRAWING = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 120 48"{}>{}</svg>'
CIRCLE = '<circle r="3" fill="#808790"/>'
FOLDERS = {"fusion": fusion, "scores": scores, "readout": readout}
PAIRS = [(kind, name) for kind, folder in FOLDERS.items() for name in folder.methods()]


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_every_method_has_a_small_drawing_of_one_size(kind, name):
    path = PACKAGE / "model" / kind / f"{name}.svg"
    root = ElementTree.parse(path).getroot()
    title = root.find(f"{SVG}title")
    assert title is not None and title.text
    assert root.get("viewBox") == "0 0 120 48" and path.stat().st_size < 1500
    assert inline(path).startswith('<svg viewBox="0 0 120 48"')


def test_a_drawing_is_written_anew_for_a_line_of_text(tmp_path):
    path = tmp_path / "mine.svg"
    inside = f"<title>a</title><g><!--><b>-->{CIRCLE}</g><text>1 &lt; 2</text>"
    path.write_text(DRAWING.format(' width="120"', inside))
    assert inline(path) == (
        '<svg viewBox="0 0 120 48" height="1.5em" aria-hidden="true">'
        '<g><circle r="3" fill="#808790"></circle></g>'
        "<text>1 &lt; 2</text></svg>"
    )


@pytest.mark.parametrize(
    ("attributes", "inside"),
    [
        ("", "<script>alert(1)</script>"),
        ("", f"<g><a href='javascript:alert(1)'>{CIRCLE}</a></g>"),
        ("", "<image href='https://example.org/x.png'/>"),
        ("", "<use href='#a'/>"),
        ("", "<style>* { background: url(https://example.org) }</style>"),
        ("", "<foreignObject><p xmlns='http://www.w3.org/1999/xhtml'>a</p></foreignObject>"),
        ("", "<animate attributeName='href'/>"),
        ("", "<img xmlns='http://www.w3.org/1999/xhtml' src='x'/>"),
        ("", "<circle onclick='alert(1)'/>"),
        (" onload='alert(1)'", CIRCLE),
        (" style='position: fixed'", CIRCLE),
        (" xmlns:x='http://www.w3.org/1999/xlink' x:href='x'", CIRCLE),
        (" fill='URL(https://example.org)'", CIRCLE),
        (" fill='u\\72l(x)'", CIRCLE),
        ("", f"<title>{'a' * LARGEST}</title>"),
        ("", "<circle>"),
    ],
)
def test_what_is_more_than_a_drawing_is_not_shown(tmp_path, attributes, inside):
    path = tmp_path / "mine.svg"
    path.write_text(DRAWING.format("", CIRCLE))
    assert inline(path)
    path.write_text(DRAWING.format(attributes, inside))
    assert inline(path) == ""


def test_a_drawing_of_a_thousand_levels_is_shown_or_not(tmp_path):
    path = tmp_path / "deep.svg"
    path.write_text(DRAWING.format("", "<g>" * 1100 + "</g>" * 1100))
    assert inline(path).count("<g>") in (0, 1100)  # Python 3.13 writes deeper trees


def test_entities_and_other_files_are_no_drawings(tmp_path):
    path = tmp_path / "mine.svg"
    assert inline(path) == inline(tmp_path) == ""
    entity = "<!DOCTYPE svg [<!ENTITY a SYSTEM 'file:///etc/hostname'>]>"
    for content in (entity.encode() + DRAWING.format("", "<text>&a;</text>").encode(), b"\xff\xfe", b""):
        path.write_bytes(content)
        assert inline(path) == ""


@pytest.mark.slow
def test_a_report_shows_it_before_the_name_of_a_fusion_and_leads_nowhere_else(tmp_path):
    (tmp_path / "aside.svg").write_text(DRAWING.format("", CIRCLE))
    away = "../" * (len(PACKAGE.parts) + 2) + str(tmp_path / "aside").lstrip("/")
    store = synthetic_study(tmp_path / "runs", name="s", fusions=("concat", "sum", away), seeds=3)
    page = ablate.report(store.root / "studies" / "s").read_text(encoding="utf-8")
    for name in ("concat", "sum"):
        assert f">{inline(PACKAGE / 'model' / 'fusion' / f'{name}.svg')}{name}</td>" in page
    assert f'data-name="fusion">{away}</td>' in page


@pytest.mark.slow
def test_a_run_keeps_the_drawing_of_its_plugin_where_it_is_one(tmp_path):
    write(tmp_path)
    (tmp_path / "mine.svg").write_text(DRAWING.format("", CIRCLE))
    given = ("run", "--plugin", "mine.py", "fusion=mine", "name=s", *QUICK)
    assert call_cli(*given, cwd=tmp_path).returncode == 0
    (tmp_path / "mine.svg").write_text(DRAWING.format(" onload='alert(1)'", CIRCLE))
    assert call_cli(*given, "seed=1", cwd=tmp_path).returncode == 0
    (kept,) = (tmp_path / "runs" / "store").glob("*/mine.svg")
    assert call_cli("run", "fusion=concat", "name=s", *QUICK, cwd=tmp_path).returncode == 0
    assert call_cli("report", "s", cwd=tmp_path).returncode == 0
    page = (tmp_path / "runs" / "studies" / "s" / "report.html").read_text(encoding="utf-8")
    assert f">{inline(kept)}mine</td>" in page and "alert(1)" not in page
