"""`ablate questions`: the five questions that people come with, and their answers, from docs/questions.md."""

import re
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.shared import JsonOption, put_json
from ablate.printing import put

# Inside the installed package, or in docs/ of a checkout.
PAGES = [Path(__file__).parents[1] / "questions.md", Path(__file__).parents[2] / "docs" / "questions.md"]
PICTURE = re.compile(r"<picture>.*?</picture>\n*", re.S)
LINK = re.compile(r"\[([^]]+)]\([^)]+\)")


def _number(text: str) -> int:
    if found := re.fullmatch(r"[Qq]?([0-4])", text):
        return int(found[1])
    raise typer.BadParameter(f"{text}: no such question; use 0 to 4")


def questions(
    number: Annotated[
        int | None,
        typer.Argument(parser=_number, metavar="[0-4]", help="Show all of one answer: 0 to 4, or Q0 to Q4."),
    ] = None,
    format: JsonOption = "table",
) -> None:
    """Show five questions about attention heads, with their answers."""
    page = next(path for path in PAGES if path.is_file()).read_text(encoding="utf-8")
    reading, *sections, table = re.split(r"^## ", LINK.sub(r"\1", page), flags=re.M)
    chosen = sections if number is None else [sections[number]]
    if format == "json":
        parts = [section.strip().split("\n\n", 2) for section in chosen]
        put_json(rows=[dict(zip(("question", "answer", "evidence"), part, strict=True)) for part in parts])
        return
    if number is not None:
        _, _, words = reading.partition("\n\n")  # after the title
        limits = table.rpartition("\n\n")[2]
        put(PICTURE.sub("", "\n\n".join(map(str.strip, (chosen[0], words, limits)))))
        return
    for section in chosen:
        heading, answer, *_ = section.split("\n\n")
        put(f"{heading}\n{answer}\n")
    put("ablate questions N shows what is proved, what was seen, what is open, and how to see it.")
