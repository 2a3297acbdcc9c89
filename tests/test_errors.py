"""What a user sees of an error: one line, and for a real fault the file with its traceback."""

import errno
import signal
import sys
from pathlib import Path

import pytest

from ablate.cli.app import main
from ablate.cli.faults import in_a_line
from ablate.cli.output import say
from ablate.store.store import Store
from tests.test_cli import one_line


@pytest.fixture
def told(tmp_path, monkeypatch, capsys):
    """Ends `ablate runs` with an error; returns the exit code and the line."""
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["ablate", "runs"])

    def told(error: Exception) -> tuple[object, str]:
        def broken(self: Store) -> None:
            raise error

        monkeypatch.setattr(Store, "rows", broken)
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, one_line(capsys.readouterr().err)

    yield told
    signal.signal(signal.SIGTERM, handler)


ERRORS = [
    (KeyError("a\nb"), r"ablate: KeyError: 'a\nb'; this is a fault of ablate's; its traceback is in "),
    (
        OSError(28, "No space left on device", "x.csv"),
        "ablate: x.csv: No space left on device; its traceback",
    ),
]


@pytest.mark.parametrize(("error", "line"), ERRORS)
def test_a_fault_is_a_line_that_names_the_file_of_its_traceback(error, line, told, tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    code, said = told(error)
    assert code == 2 and said.startswith(line)
    kept = Path(said.rpartition(" ")[2])
    assert kept.parent == tmp_path / "cache"
    text = kept.read_text(encoding="utf-8")
    assert text.startswith("ablate runs\n") and "in broken" in text and type(error).__name__ in text


def test_the_file_lies_elsewhere_where_the_cache_takes_none(told, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _, said = told(ZeroDivisionError("by hand"))
    kept = Path(said.rpartition(" ")[2])
    assert kept.parent == tmp_path and "by hand" in kept.read_text(encoding="utf-8")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    assert told(ZeroDivisionError("by hand"))[1].endswith("by hand; this is a fault of ablate's")


def test_a_name_that_is_too_long_is_no_fault():
    assert in_a_line(OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300)) == (
        f"{'x' * 300}: File name too long; give a shorter one"
    )


def test_what_is_said_is_one_line_that_can_be_read(capsys):
    say(f"ablate: {'x' * 20_000}: not\na\x1b[31m number\u2028 {'y' * 100}")
    assert capsys.readouterr().err == f"ablate: {'x' * 150}…{'x' * 49}: not a [31m number  {'y' * 100}\n"
