"""Shell completion. It imports neither PyTorch nor Hydra, so that it answers at once."""

import contextlib
import io
import itertools
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from ablate.printing import put

ASKED = "_ABLATE_COMPLETE"  # the variable by which Typer's shell scripts ask for completions


def answer(program: Callable[..., Any]) -> None:
    """Print the completions of the words that the shell passes in; nothing if anything goes wrong."""
    offered, before = io.StringIO(), ""
    try:
        with (
            contextlib.suppress(Exception),
            contextlib.redirect_stdout(offered),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            before = _join_words() if os.environ[ASKED] == "complete_bash" else ""
            program(prog_name="ablate")
    finally:  # however it exits: some shells look at the exit code
        for line in offered.getvalue().splitlines():
            put(line.removeprefix(before))


def _join_words() -> str:
    """Rejoin the words that bash split at = and :, for Typer. Returns the part of the last word before the
    piece that bash completes."""
    words: list[str] = []
    pieces = os.environ["COMP_WORDS"].split("\n")[: int(os.environ["COMP_CWORD"]) + 1]
    for last, piece in itertools.pairwise(["", *pieces]):
        if any(re.fullmatch("[=:]+", part) for part in (last, piece)):
            words[-1] += piece
        else:
            words.append(piece)
    os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    return re.sub("[^=:]*$", "", words[-1])


# --- keys, and names that nobody knows by heart -------------------------------------------------------


def overrides(context: typer.Context, incomplete: str) -> list[str]:
    """What may stand at this place of a command."""
    return offers(incomplete, context.params.get("overrides") or [])


def offers(incomplete: str, before: Sequence[str] = ()) -> list[str]:
    """Completions as KEY= or KEY=VALUE, also after a comma. They come from the files and the types of keys;
    Hydra would take half a second. before: the words of the command so far."""
    own = [Path(name) for name in re.findall(r"(?:-cd|--config-dir)[= ](\S+)", " ".join(before))]
    key, equals, value = incomplete.partition("=")
    if not equals:
        names = [name for name in keys() if name.startswith(key) and "=" not in name]
        if len(names) != 1:
            return [f"{name}=" for name in names]
        # Offer the values as well: a shell puts a space after an only choice.
        return [f"{names[0]}={choice}" for choice in _choices(names[0], own) or ("", "null")]
    others = value.rpartition(",")[0] + "," * ("," in value)
    return [f"{key}={others}{choice}" for choice in _choices(key, own)]


def _choices(key: str, own: Sequence[Path]) -> list[str]:
    """The values of a key if they can be listed, else its default, if it has one. own: directories of the
    user's configs."""
    from ablate.compose.configs import SIZES, configs_dir
    from ablate.compose.keys import sections
    from ablate.config.read import dotted
    from ablate.config.schema import RunConfig

    types = {**dotted(RunConfig)}
    if key.startswith("corpus."):
        from ablate.data.corpora.base import option_types  # takes a tenth of a second

        types |= option_types()
    groups = [path.stem for folder in (configs_dir(), *own) for path in sorted((folder / key).glob("*.yaml"))]
    defaults = (one.default for section in sections() for one in section.keys if one.name == key)
    words = SIZES if key == "size" else _words(types.get(key))
    return groups or [*words] or [default for default in [*defaults][:1] if default not in ("", "null")]


def _words(hint: Any) -> list[str]:
    """The words among the values of a type, such as those of a Literal."""
    if hint is bool:
        return ["true", "false"]
    if get_origin(hint) is Literal:
        return [str(word) for word in get_args(hint)]
    parts = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    return [word for part in parts for word in _words(part)]


def keys() -> list[str]:
    from ablate.compose.keys import sections

    return [*dict.fromkeys(key.name for section in sections() for key in section.keys)]


def studies() -> list[str]:
    from ablate.store.store import Store

    return Store().study_names()


def runs() -> list[str]:
    """The names of the finished runs."""
    from ablate.store.store import Store

    store = Store()
    titles = store.titles()
    return sorted(titles.get(name, name) for name in store.finished())


def studies_and_runs() -> list[str]:
    return [*studies(), *runs()]
