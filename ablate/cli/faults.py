"""Errors as one line. The traceback of an unexpected one goes into a file that the line names."""

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
    """The message for the user; unless that explains everything, it names the file with the traceback."""
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
    """Write the command and the traceback to a file and return its path; None if nothing can be written."""
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
    """The directories to try in turn. Not runs/, which may be missing, or be the broken part."""
    with contextlib.suppress(RuntimeError):  # a user without a home directory
        yield cache.directory()
    with contextlib.suppress(FileNotFoundError):
        yield Path(tempfile.gettempdir())
