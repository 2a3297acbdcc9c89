"""Small helpers for the text of messages and tables."""

import json
import re
import shlex
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Note:
    """A line on results. kind: a doubt speaks against the answer; what something was taken for, and what was
    left out of a table of another program, is said with every answer. brief: a doubt in a few words, if its
    text is longer."""

    text: str
    kind: Literal["remark", "doubt", "taken", "left out"] = "remark"
    brief: str = ""

    @property
    def is_doubt(self) -> bool:
        return self.kind == "doubt"


def doubt(text: str, brief: str) -> Note:
    return Note(text, "doubt", brief)


def texts(notes: Iterable[Note]) -> list[str]:
    """A line each; but what was taken for what makes one line, and what was left out another."""
    every = [*notes]
    return [*(note.text for note in every if note.kind in ("remark", "doubt")), *described(every)]


def described(notes: Iterable[Note]) -> list[str]:
    """What was taken for what, and what was left out, in a line each."""
    by: dict[str, dict[str, None]] = {"taken": {}, "left out": {}}
    for note in notes:
        by.get(note.kind, {})[note.text] = None
    return [f"{kind}: {'; '.join(of)}" for kind, of in by.items() if of]


def counted(count: int, noun: str) -> str:
    """1 seed, 3 seeds, 1,200 seeds."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def counted_between(low: int, high: int, noun: str) -> str:
    """8 seeds, or 2 to 8 seeds."""
    return f"{low} to {counted(high, noun)}" if low < high else counted(high, noun)


def duration(seconds: float) -> str:
    """8 s, 4 min, 2.5 h, 3 days."""
    unit_s, digits, unit = _unit(seconds)
    return f"{seconds / unit_s:.{digits}f} {unit}"


def _unit(seconds: float) -> tuple[int, int, str]:
    """The seconds of the unit in which this time is told, its digits behind the point, and its name."""
    if seconds < 90:
        return 1, 0, "s"
    if seconds < 90 * 60:
        return 60, 0, "min"
    return (3600, 1, "h") if seconds < 48 * 3600 else (86400, 0, "days")


NEAR = 1.25  # times too long or too short, as an estimated time may be (benchmarks/estimates.py)


def about(seconds: float) -> str:
    """about 2 to 3 min, of a time that is estimated."""
    unit_s, digits, unit = _unit(high := seconds * NEAR)
    ends = (f"{max(1, of) / unit_s:.{digits}f}" for of in (seconds / NEAR, high))
    return f"about {' to '.join(dict.fromkeys(ends))} {unit}"


def first_few(items: Sequence[object], most: int = 3) -> str:
    """The first `most` items, followed by … if there are more."""
    return ", ".join([*map(str, items[:most]), *lines_if(len(items) > most, "…")])


def joined(words: Sequence[str], last: str = "and") -> str:
    """a; a and b; a, b and c."""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def lines_if(condition: object, line: T) -> list[T]:
    """A list with the line if the condition holds, else an empty list."""
    return [line] if condition else []


def option(name: str, *values: str) -> str:
    """An option with its values, as they are typed in a shell."""
    return f"{name} {shlex.quote(','.join(values))}"


PLACE: list[str] = []  # `--runs DIR`, if the command at work was given it


def advised(words: Sequence[str]) -> str:
    """A command to type, from its words, with the directory of results that this command was given; empty
    without words."""
    return shlex.join([*words, *([] if "--runs" in words else PLACE)]) if words else ""


def capital(text: str) -> str:
    """The text with a capital letter, unless it begins with a name as in heads=4."""
    return text if "=" in text.partition(" ")[0] else text[:1].upper() + text[1:]


LONG_WORD = re.compile(r"(\S{150})\S{150,}(\S{50})")  # the groups are the ends, which are shown
LONGEST = 2000  # characters of a line
SEEN = "\xa0\u202f\u200c\u200d"  # spaces that do not break, and the joiners of some scripts


def cleaned(text: str) -> str:
    """The text with what a terminal would obey, or no reader sees, written as in JSON: \\u001b. JSON that has
    it stays the same JSON."""
    return re.sub(r"[^\t\n -~]", _written_out, text)


def visible(text: str) -> str:
    """The text cleaned, as one line in which other white space than single spaces is written out, too."""
    return re.sub(r"[^ -~]|(?<= ) ", _written_out, text)


def one_line(text: str) -> str:
    """The text cleaned, as one line without the middle of overlong words, and of what exceeds LONGEST."""
    line = cleaned(LONG_WORD.sub(r"\1…\2", re.sub(r"\s", " ", text)))
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"


def _written_out(found: re.Match[str]) -> str:
    one = found[0]
    if one in SEEN or (one.isprintable() and one != " "):
        return one
    return json.dumps(one)[1:-1] if one > "\uffff" else f"\\u{ord(one):04x}"


# How PyTorch and the system say that there was no memory left, on a GPU, on a Mac or on a CPU.
NO_MEMORY = re.compile(
    r"out of memory|can(no|')t allocate memory|not enough memory|CUBLAS_STATUS_ALLOC_FAILED", re.IGNORECASE
)


def lacks_memory(error: BaseException) -> bool:
    """Whether the error means that there was no memory left."""
    says_so = isinstance(error, RuntimeError | OSError) and NO_MEMORY.search(said_by(error))
    return isinstance(error, MemoryError) or bool(says_so)


def out_of_memory(error: BaseException) -> str:
    """A line with the ways out, if there was no memory left; else empty."""
    if not lacks_memory(error):
        return ""
    said = said_by(error)
    wanted = re.search(r"tried to allocate ([\d.]+ \w+)", said, re.IGNORECASE)
    return (
        f"out of memory{f' at {wanted[1]} more' if wanted else ''}; take a smaller train.batch or"
        " model.context, a smaller model, or fewer hydra.launcher.workers"
    )


def error_line(error: BaseException, plugins: Mapping[str, str]) -> str:
    """The type and message of an error, with the line of the plugin that raised it, if one did. plugins:
    the name of each, by the path of its file."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename in plugins]
    line = [f" (line {frame.lineno} of {plugins[frame.filename]})" for frame in frames[-1:]]
    said = f"{type(error).__name__}: {said_by(error)}"
    return one_line(said.splitlines()[0]) + "".join(line)


def said_by(error: BaseException) -> str:
    """The message of an error in characters that every file holds, whatever a method has put into it."""
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except Exception:
        return "its message can't be shown"
