"""Write reports and charts so that nothing but an earlier report or chart is overwritten.

To be recognized, a page names its generator in its head, and a chart in a comment or text chunk of its
format.
"""

import json
import os
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ablate.config.rules import ConfigError
from ablate.files.atomic import explained, write_atomically

GENERATOR = '<meta name="generator" content="ablate">'
REMARK = "Made by ablate"
POINTS_AN_INCH, DOTS_AN_INCH = 72, 300
WIDTH = 3.3 * POINTS_AN_INCH  # of charts in files: a column of a paper; in a page it follows the window
LOWER = 0.7  # the height of a chart in a file, times that in a page, as its text is smaller


def _png_text(text: bytes) -> bytes:
    """A PNG chunk that names the software that made the image."""
    named = b"tEXtSoftware\0" + text
    return struct.pack(">I", len(named) - 4) + named + struct.pack(">I", zlib.crc32(named))


PAPER_SIZES = {  # of text in points; labelLimit: the longest label
    **dict.fromkeys(("labelFontSize", "titleFontSize", "fontSize"), 8),
    "labelLimit": 110,
}
STARTS = {"html": b"<!doctype html>", "png": b"\x89PNG", "svg": b"<svg ", "pdf": b"%PDF"}
MARKS = {
    "html": GENERATOR.encode(),
    "png": _png_text(REMARK.encode()),
    "svg": f"<!-- {REMARK} -->\n".encode(),
    "pdf": f"% {REMARK}\n".encode(),
}


def check_file(path: Path, format: str) -> None:
    """Raises ConfigError if the file can't be written, or if it would overwrite one that is not ablate's.
    format: a key of MARKS."""
    with explained(path):
        _check_parent(path)
        if path.is_dir():
            raise ConfigError(f"{path}: a directory; name a file in it")
        if os.path.lexists(path) and not _is_ours(path, format):
            raise ConfigError(
                f"{path}: a file that no report wrote, and none may overwrite; move it away, or name another"
            )


def check_directory(path: str | Path) -> None:
    """Raises ConfigError unless there is a directory, or one can be created."""
    with explained(Path(path)):
        _check_parent(Path(path))
        if not str(path) or (os.path.lexists(path) and not os.path.isdir(path)):
            raise ConfigError(f"{path or repr(path)}: no directory, which the charts need; name another")


def write(path: Path, content: bytes, format: str) -> None:
    """Write a file atomically, following a link. Raises ConfigError like check_file."""
    check_file(path, format)
    write_atomically(Path(os.path.realpath(path)), content)


def write_charts(specs: Mapping[str, Mapping[str, Any]], directory: Path) -> None:
    """Write each Vega-Lite chart, given by the stem of its file, as PNG, SVG and PDF, as wide as a column of
    a paper and with labels of 8 pt. Raises ConfigError before writing any if one can't be written."""
    import vl_convert

    formats: dict[str, Callable[[str], str | bytes]] = {
        "png": lambda spec: vl_convert.vegalite_to_png(spec, ppi=DOTS_AN_INCH),
        "svg": lambda spec: _in_points(vl_convert.vegalite_to_svg(spec)),
        "pdf": vl_convert.vegalite_to_pdf,
    }
    with explained(directory):
        directory.mkdir(exist_ok=True)
    files = [(directory / f"{stem}.{format}", stem, format) for stem in specs for format in formats]
    for path, _, format in files:
        check_file(path, format)
    for path, stem, format in files:
        content = formats[format](json.dumps(for_a_column(specs[stem])))
        write(path, marked(content.encode() if isinstance(content, str) else content, format), format)


def for_a_column(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A chart at the width of a column of a paper, its text in 8 pt."""
    config = {part: _smaller(values) for part, values in spec["config"].items()}
    height = round(LOWER * spec["height"], 1)
    return {**spec, "width": WIDTH, "height": height, "background": "white", "config": config}


def _smaller(values: Any) -> Any:
    """A part of Vega-Lite's config, with sizes of text for paper."""
    if not isinstance(values, dict):
        return values
    return {key: PAPER_SIZES.get(key, value) for key, value in values.items()}


def _in_points(svg: str) -> str:
    """An SVG whose size is in points, as a unit of it is one."""
    return re.sub(r'^(<svg [^>]*?width="[\d.]+)(" height="[\d.]+)"', r'\1pt\2pt"', svg)


def marked(chart: bytes, format: str) -> bytes:
    """A chart with the mark that ablate made it."""
    end = len(chart) - 12 if format == "png" else len(chart)  # before IEND, which must be a PNG's last chunk
    return chart[:end] + MARKS[format] + chart[end:]


def _check_parent(path: Path) -> None:
    parent = Path(os.path.realpath(path)).parent
    if not parent.is_dir():
        raise ConfigError(f"{path}: there is no directory {parent}; make it first")
    if not os.access(parent, os.W_OK):
        raise ConfigError(f"{path}: {parent} can't be written to; name another place")


def _is_ours(path: Path, format: str) -> bool:
    content = path.read_bytes() if path.is_file() else b""
    return content.startswith(STARTS[format]) and MARKS[format] in content
