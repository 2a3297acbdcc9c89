"""The documentation as a site in build/site: python scripts/build_site.py

docs/ and the pages of site_pages are written to build/pages, from which Zensical makes HTML (zensical.toml).
Then every link of every page is followed: Zensical checks neither links to files nor those in HTML.
"""

import shutil
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from scripts.site_pages import pages  # noqa: E402

SITE = ROOT / "build" / "site"


def build() -> None:
    sources = ROOT / "build" / "pages"
    for old in (sources, SITE):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(ROOT / "docs", sources)
    for path, text in pages().items():
        (sources / path).parent.mkdir(parents=True, exist_ok=True)
        (sources / path).write_text(text, encoding="utf-8")
    # Without --clean a page of the reference stays as it was when only the code has changed.
    subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=ROOT, check=True)
    (SITE / "404.html").unlink()  # a server has its own, and this one's links hold at the root of a host only


def faults(site: Path) -> list[str]:
    """Links that lead nowhere, and what a page would fetch from elsewhere."""
    return [fault for page in sorted(site.rglob("*.html")) for fault in _faults_of(page, site)]


def _faults_of(page: Path, site: Path) -> list[str]:
    found = []
    for tag, address in _read(page).addresses:
        url = urlsplit(address)
        target = (page.parent / unquote(url.path)).resolve() if url.path else page
        if url.netloc:
            if tag != "a":
                found.append(f"fetches {address}")
        elif url.scheme:  # mailto:, data:
            continue
        elif not target.is_file():
            found.append(f"no file {address}")
        elif url.fragment and target.suffix == ".html" and unquote(url.fragment) not in _read(target).ids:
            found.append(f"no anchor {address}")
    return [f"{page.relative_to(site)}: {fault}" for fault in found]


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.addresses: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            elif name in ("href", "src", "srcset"):
                self.addresses.append((tag, value or ""))


@cache
def _read(page: Path) -> _Page:
    read = _Page()
    read.feed(page.read_text(encoding="utf-8"))
    return read


if __name__ == "__main__":
    build()
    if wrong := faults(SITE):
        sys.exit("\n".join(wrong))
