"""The documentation as a site: every page arrives, every link holds, nothing comes from elsewhere."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts.build_site import ROOT, SITE, faults

pytest.importorskip("zensical", reason="needs the extra docs")


@pytest.fixture(scope="module")
def site() -> Path:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/build_site.py"], capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return SITE


@pytest.mark.slow
def test_every_page_of_the_navigation_is_built_and_the_reverse(site):
    entries = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    named = [path.removesuffix(".md") for entry in entries for path in entry.values()]
    built = [path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")]
    assert sorted(built) == sorted(named)


@pytest.mark.slow
def test_the_reference_holds_every_public_name(site):
    page = (site / "reference.html").read_text(encoding="utf-8")
    for name in ("ablate.api.run", "ablate.api.load_model", "ablate.methods.Fusion", "ablate.methods.Linear"):
        assert f'id="{name}"' in page
    assert "<code>:::" not in page and "<p>:::" not in page


def test_a_link_to_nothing_and_a_fetch_are_named(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/b.html").write_text(
        '<h1 id="here">b</h1><a href="../a.html#top">a</a><a href="#here">b</a>'
    )
    (tmp_path / "a.html").write_text(
        '<p id="top"><a href="https://a.org">out</a><a href="mailto:a@b.c">m</a><img src="data:image/png;,">'
        '<a href="sub/b.html#here">b</a><a href="sub/b.html#gone">b</a><a href="c.html">c</a>'
        '<img src="no.svg"><source srcset="no-dark.svg"><a href="/a.html">a</a><a href="sub/">b</a>'
        '<script src="https://a.org/x.js"></script><link href="//a.org/x.css"><a href="#none">n</a>'
    )
    assert faults(tmp_path) == [
        "a.html: no anchor sub/b.html#gone",
        "a.html: no file c.html",
        "a.html: no file no.svg",
        "a.html: no file no-dark.svg",
        "a.html: no file /a.html",
        "a.html: no file sub/",
        "a.html: fetches https://a.org/x.js",
        "a.html: fetches //a.org/x.css",
        "a.html: no anchor #none",
    ]
