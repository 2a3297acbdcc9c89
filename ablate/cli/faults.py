"""How an error is told: in one line. What no line explains keeps its traceback in a file."""

import contextlib
import errno
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from ablate.config.rules import ConfigError
from ablate.files import cache
from ablate.store.code import raised
from ablate.version import __version__


def in_a_line(error: Exception) -> str:
    """What a user is told. Where that does not say everything, it names the file where the traceback lies."""
    if isinstance(error, ConfigError):
        return str(error)
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"{error.filename}: {error.strerror}; give a shorter one"
    if isinstance(error, OSError):
        said = f"{error.filename or 'standard output'}: {error.strerror or error}"
    else:
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        own = raised(error)  # by a method of the user's?
        said = f"{said}; this is a fault of ablate's" if own == said else f"{own}; mend your method"
    kept = _keep(error)
    return f"{said}; its traceback is in {kept}" if kept else said


def _keep(error: Exception) -> Path | None:
    """The file with the command and the traceback; None where no disk takes one."""
    command = " ".join(["ablate", *sys.argv[1:]])
    text = (
        f"{command}\nablate {__version__}, Python {sys.version}\n{''.join(traceback.format_exception(error))}"
    )
    for directory in _places():
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w",
                prefix="fault-",
                suffix=".txt",
                dir=directory,
                delete=False,
                encoding="utf-8",
                errors="backslashreplace",
            ) as file:
                file.write(text)
            return Path(file.name)
    return None


def _places() -> Iterator[Path]:
    """runs/ may not exist, or be what is broken."""
    with contextlib.suppress(RuntimeError):  # a user without a home directory
        yield cache.directory()
    with contextlib.suppress(FileNotFoundError):
        yield Path(tempfile.gettempdir())
