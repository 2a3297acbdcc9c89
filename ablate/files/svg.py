"""SVG drawings from untrusted files, made safe to embed in an HTML page. Loads no torch."""

import re
from pathlib import Path
from xml.etree import ElementTree

LARGEST = 8 * 1024  # bytes
SVG = "{http://www.w3.org/2000/svg}"
SHAPE = re.compile("g|path|rect|circle|ellipse|line|polyline|polygon|text|tspan|title|desc")
SILENT = (f"{SVG}title", f"{SVG}desc")  # a browser reads their content as HTML
ATTRIBUTE = re.compile(
    "viewBox|width|height|[xy][12]?|c[xy]|r[xy]?|d[xy]?|points|transform|opacity|fill(-opacity|-rule)?"
    "|stroke(-opacity|-width|-linecap|-linejoin|-dasharray)?|font-(family|size|style|weight)|text-anchor"
)
# Refused in the value of an attribute: it could be a URL to fetch, or hide one.
REFERENCE = re.compile(r"url|[\\:]", re.IGNORECASE)


def inline(path: Path) -> str:
    """An SVG file as inline HTML, 1.5 em high and hidden from screen readers.

    Empty if there is no such file, if it is over 8 kB, or if it has anything but shapes and text: a script,
    a handler, a style or a reference. The parsed tree is written out anew, since XML and HTML parsers read
    the same bytes differently.
    """
    if not path.is_file():
        return ""
    try:
        with path.open("rb") as file:
            source = file.read(LARGEST + 1)
        root = ElementTree.fromstring(source.decode())
        if len(source) > LARGEST or not _is_plain(root):
            return ""
        for element in [*root.iter()]:
            for silent in [child for child in element if child.tag in SILENT]:
                element.remove(silent)
        for element in root.iter():
            element.tag = element.tag.removeprefix(SVG)
        root.attrib.pop("width", None)
        root.attrib |= {"height": "1.5em", "aria-hidden": "true"}
        return ElementTree.tostring(root, "unicode", method="html").strip()
    except (OSError, ElementTree.ParseError, ValueError, RecursionError):
        return ""


def _is_plain(root: ElementTree.Element) -> bool:
    inside = (element.tag for element in root.iter() if element is not root)
    attributes = (attribute for element in root.iter() for attribute in element.items())
    return (
        root.tag == f"{SVG}svg"
        and "viewBox" in root.attrib
        and all(tag.startswith(SVG) and SHAPE.fullmatch(tag.removeprefix(SVG)) for tag in inside)
        and all(ATTRIBUTE.fullmatch(name) and not REFERENCE.search(value) for name, value in attributes)
    )
