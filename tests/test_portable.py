"""macOS, as far as Linux can stand for it, and other encodings than UTF-8."""

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import pytest

from ablate.cli.app import main
from ablate.config.rules import ConfigError
from ablate.execution import plugins
from ablate.execution.plugins import Plugin
from ablate.files import cache
from ablate.launch import processes
from ablate.store.store import Store
from tests.helpers import CONCAT, QUICK, call_cli, make_record, write_study


def test_a_user_without_a_home_has_a_cache_for_the_time(monkeypatch):
    monkeypatch.delenv("ABLATE_CACHE", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda _: str(Path("~nobody-at-all", "cache")))
    place, about = cache.publish("key", lambda part: (part / "file").write_bytes(b"whole"))
    assert about == 5 and place.parent.parent == Path(tempfile.gettempdir())


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_new_study_differs_from_others_in_more_than_case(tmp_path, more):
    write_study(Store(tmp_path / "runs"), make_record(name="Heads"))
    done = call_cli("run", "-m", "seed=0,1", *QUICK, "name=heads", *more, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("ablate: name=heads: there is a study Heads, and some systems take both")


def test_two_studies_that_a_store_has_in_both_spellings_go_on(tmp_path):
    store = Store(tmp_path)
    for name in ("Heads", "heads"):
        write_study(store, make_record(name=name))
    store.require_place("heads")
    store.require_place("Heads")


def test_plugins_that_differ_in_case_can_not_both_be_copied_into_a_run(tmp_path):
    mine, other = (CONCAT.format(name=name, line="pass").encode() for name in ("mine", "other"))
    plugins.install([Plugin(str(tmp_path / "a" / "mine.py"), mine)])
    with pytest.raises(ConfigError, match=r"another plugin is called mine\.py; rename one of them"):
        plugins.install([Plugin(str(tmp_path / "b" / "Mine.py"), other)])


# --- encodings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "cp437"])
def test_what_an_encoding_lacks_is_printed_as_its_escape(tmp_path, monkeypatch, encoding):
    monkeypatch.chdir(tmp_path)
    printed = io.BytesIO()
    out = io.TextIOWrapper(printed, encoding, write_through=True)
    with mock.patch.multiple(sys, argv=["ablate", "keys", "scale"], stdout=out), pytest.raises(SystemExit):
        main()
    whole = call_cli("keys", "scale", cwd=tmp_path).stdout
    assert "√" in whole
    text = printed.getvalue().decode("utf-8" if encoding == "ascii" else encoding)  # Typer leaves ASCII alone
    assert text.encode("ascii", "backslashreplace") == whole.encode("ascii", "backslashreplace")


# --- workers that are spawned ---------------------------------------------------------------------

PROGRAM = """
import sys
from ablate.cli.app import main
from ablate.launch import processes

processes._has_server = lambda: False
sys.argv = ["ablate", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
def test_spawned_workers_make_runs_and_files_are_utf_8(tmp_path):
    """In the C locale, with every encoding that is left open an error."""
    text = "ἄνδρα μοι ἔννεπε, μοῦσα, πολύτροπον — naïve Σ √ 😀\n" * 120
    (tmp_path / "odyssey.txt").write_text(text, encoding="utf-8", newline="\r\n")
    texts = ("corpus=file", "corpus.path=odyssey.txt", "corpus.unique=none", "corpus.tokenizer=char")
    sweep = ("run", "-m", "fusion=concat,sum", "seed=0,1", *texts, *QUICK[2:4], "hydra.launcher.workers=1")
    strict = ("-X", "warn_default_encoding", "-W", "error::EncodingWarning")
    own = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "cp1252"}
    argv = [sys.executable, *strict, "-c", PROGRAM, *sweep]
    done = subprocess.run(argv, cwd=tmp_path, env=os.environ | own, capture_output=True, timeout=100)
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr.decode()
    runs = Store(tmp_path / "runs").finished()
    assert len(runs) == 4
    for run in runs:
        at = tmp_path / "runs" / "store" / run
        tokenizer = json.loads((at / "tokenizer.json").read_text(encoding="utf-8"))
        assert {"ἔ", "😀", "\r"} <= {*"".join(map(str, tokenizer.values()))}
        assert b"\r" not in (at / "metrics.csv").read_bytes()


def test_macos_forks_no_workers(monkeypatch):
    assert processes._has_server()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not processes._has_server()
