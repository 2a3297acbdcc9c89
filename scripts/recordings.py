"""Record what a terminal and a report show: commands are typed into a pseudo-terminal, rich draws what they
print, and Chromium takes a picture of the page that they write.

    python scripts/recordings.py [NAME …]

writes docs/NAME-light.* and -dark.* for each of RECORDINGS, or for those named. All commands run in one
directory, one after the other.
"""

import argparse
import io
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

STUDY = "# ablate run -m fusion=concat,sum 'seed=range(6)' train.steps=200 name=first"
# The commands of each picture. Of a command that begins with # only the results are kept.
RECORDINGS = {"compare": [STUDY, "ablate compare first"], "report": [STUDY, "# ablate report first"]}
PAGES = {"report": "runs/studies/first/report.html"}  # recordings of a page, not of the terminal
DOCS = Path(__file__).parent.parent / "docs"
COLUMNS, LINES = 80, 50
ANSI = [(207, 34, 46), (26, 127, 55), (154, 103, 0), (9, 105, 218), (130, 80, 223), (27, 124, 131)]
BRIGHT = [(255, 123, 114), (63, 185, 80), (210, 153, 34), (88, 166, 255), (188, 140, 255), (57, 197, 207)]
THEMES = {
    "light": TerminalTheme((255, 255, 255), (31, 35, 40), [(31, 35, 40), *ANSI, (89, 99, 110)]),
    "dark": TerminalTheme((13, 17, 23), (230, 237, 243), [(72, 79, 88), *BRIGHT, (177, 186, 196)]),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RECORDINGS))
    parser.add_argument("--out", type=Path, default=DOCS, help="directory for the pictures; by default docs/")
    arguments = parser.parse_args()
    if unknown := {*arguments.names} - {*RECORDINGS}:
        parser.error(f"no recording {', '.join(sorted(unknown))}; choices: {', '.join(RECORDINGS)}")
    with tempfile.TemporaryDirectory() as directory:
        for name in arguments.names or RECORDINGS:
            shown = session(RECORDINGS[name], Path(directory))
            for scheme, theme in THEMES.items():
                path = arguments.out.resolve() / f"{name}-{scheme}"
                if name in PAGES:
                    photograph(Path(directory, PAGES[name]), path.with_suffix(".png"), scheme)
                else:
                    path.with_suffix(".svg").write_text(drawn(shown, theme), encoding="utf-8")


def photograph(page: Path, picture: Path, scheme: str) -> None:
    """Write the first screen of a page as PNG. Raises CalledProcessError, and OSError without Chromium."""
    settings = [f"--blink-settings=preferredColorScheme={1 if scheme == 'light' else 0}"]
    settings += ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1400,900"]
    command = ["chromium", *settings, f"--screenshot={picture}", page.resolve().as_uri()]
    subprocess.run(command, check=True, capture_output=True)


def session(commands: Sequence[str], directory: Path) -> Text:
    """What the terminal shows once these commands have been typed in this directory.

    Raises CalledProcessError for a command that fails.
    """
    lines = []
    for command in commands:
        printed = screen(as_override(shlex.split(command.removeprefix("#")), directory))
        if not command.startswith("#"):
            lines += [Text(f"$ {command}", "bold"), *printed]
    shown = Text("\n").join(lines)
    shown.rstrip()
    return shown


def as_override(words: Sequence[str], directory: Path) -> str:
    """All that a command writes to an 80-column terminal, escape codes included."""
    program = shutil.which(words[0]) or words[0]
    size = {"COLUMNS": str(COLUMNS), "LINES": str(LINES), "TERM": "xterm-256color"}
    master, slave = pty.openpty()
    with subprocess.Popen(
        [program, *words[1:]],
        cwd=directory,
        env={**os.environ, **size},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    ) as process:
        os.close(slave)
        chunks = []
        while chunk := _read(master):
            chunks.append(chunk)
    os.close(master)
    if process.returncode:
        sys.stderr.write(b"".join(chunks).decode())
        raise subprocess.CalledProcessError(process.returncode, [*words])
    return b"".join(chunks).decode()


def screen(written: str) -> list[Text]:
    """The lines that stay on the screen, in color; a progress bar, for example, is drawn and erased again.

    Of a terminal's codes it knows those that rich writes: returns, the cursor up or down, and erased lines.
    """
    lines, row, overwrites = [""], 0, False
    hidden = re.sub(r"\x1b(?:\[\?\d+[hl]|\][^\x07]*\x07)", "", written)  # whether there is a cursor; titles
    for piece in re.split(r"(\r*\n|\r|\x1b\[\d*[ABJK])", hidden):
        if piece.endswith("\n"):
            row, overwrites = row + 1, True
        elif piece == "\r":
            overwrites = True
        elif moved := re.fullmatch(r"\x1b\[(\d*)([ABJK])", piece):
            count = int(moved[1] or 1)
            if moved[2] in "AB":
                row = max(row - count, 0) if moved[2] == "A" else row + count
            else:
                lines[row:] = ["", *(lines[row + 1 :] if moved[2] == "K" else [])]
        elif piece:
            lines += [""] * (row + 1 - len(lines))
            lines[row] = piece if overwrites else lines[row] + piece
            overwrites = False
        lines += [""] * (row + 1 - len(lines))
    return [Text.from_ansi(line) for line in lines]


def drawn(shown: Text, theme: TerminalTheme) -> str:
    """An SVG of these lines, which fetches no font."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(shown, "", sep="\n")
    svg = console.export_svg(title="", theme=theme, unique_id="terminal")
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # on Linux, what the end of a terminal is
        return b""


if __name__ == "__main__":
    main()
