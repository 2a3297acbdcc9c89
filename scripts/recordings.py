"""Record what a terminal and a report show: commands are typed into a pseudo-terminal, rich draws what they
print, and Chromium takes a picture of the page that they write.

    python scripts/recordings.py [NAME …]

writes docs/NAME-light.* and -dark.* for each of RECORDINGS, or for those named. All commands run in one
directory, one after the other.
"""

import argparse
import io
import os
import re
import shlex
import subprocess
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
COLUMNS = 80
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
        shown = printed(shlex.split(command.removeprefix("#")), directory)
        if not command.startswith("#"):
            lines += [Text(f"$ {command}", "bold"), *map(Text.from_ansi, shown.splitlines())]
    text = Text("\n").join(lines)
    text.rstrip()
    return text


def printed(words: Sequence[str], directory: Path) -> str:
    """What a command writes to an 80-column terminal, escape codes included. Raises CalledProcessError."""
    env = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    command = ["script", "-qec", shlex.join(words), os.devnull]
    done = subprocess.run(command, cwd=directory, env=env, check=True, capture_output=True, text=True)
    return done.stdout


def drawn(shown: Text, theme: TerminalTheme) -> str:
    """An SVG of these lines, which fetches no font."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(shown, "", sep="\n")
    svg = console.export_svg(title="", theme=theme, unique_id="terminal")
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    main()
