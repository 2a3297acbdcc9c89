"""macOS and Windows, as far as Linux can stand for them: what they lack is taken away, what they refuse is
refused."""

import io
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest

from ablate.cli.app import main
from ablate.config.rules import ConfigError
from ablate.execution import plugins
from ablate.execution.plugins import Plugin
from ablate.execution.run import prepare
from ablate.files import atomic, cache, owned
from ablate.launch import processes
from ablate.store.store import Store
from tests.helpers import CONCAT, QUICK, ROOT, call_cli, make_config, make_record, write_study

# --- files that another process has open ----------------------------------------------------------


@pytest.fixture(autouse=True)
def patience(monkeypatch) -> None:
    monkeypatch.setattr(owned, "PATIENCE_S", 2.0)


def hold(monkeypatch: pytest.MonkeyPatch, times: float, *operations: str) -> Counter[tuple[str, ...]]:
    """Have each operation of os on a path refused so many times before it succeeds, as Windows does while
    another process has the file open; returns how often each was refused."""
    refused = Counter[tuple[str, ...]]()

    def reluctant(name: str, operation):
        def tried(*paths, **given):
            key = name, *map(str, paths)
            if not given and refused[key] < times:
                refused[key] += 1
                raise PermissionError(13, "Access is denied", *[key[1], None, *key[2:]][: 2 * len(paths) - 1])
            return operation(*paths, **given)

        return tried

    for name in operations:
        monkeypatch.setattr(os, name, reluctant(name, getattr(os, name)))
    return refused


@pytest.mark.slow
def test_a_run_waits_for_those_who_have_its_files_open(tmp_path, monkeypatch):
    refused = hold(monkeypatch, 3, "rename", "replace", "unlink")
    run = ("run", *QUICK, "name=held", "train.checkpoint_every=1")
    for more in ((), ("force=true",)):  # the second moves the result of the first away
        done = call_cli(*run, *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert {name for name, *_ in refused} == {"rename", "replace", "unlink"}
    assert {times for (name, *_), times in refused.items() if name != "unlink"} == {3}
    leases = [key for key in refused if key[0] == "unlink" and key[1].endswith("lease.json")]
    assert leases and {refused[key] for key in leases} == {3}
    (made,) = Store(tmp_path / "runs").finished()
    left = {path.name for path in (tmp_path / "runs/store").iterdir()} - {".rows.json"}
    assert left == {made}, [*tmp_path.rglob("*")]
    done = call_cli("runs", "--delete-study", "held", "--yes", cwd=tmp_path)
    assert done.returncode == 0 and not Store(tmp_path / "runs").finished()


@pytest.mark.parametrize("operation", ["rename", "replace"])
def test_a_file_that_stays_open_is_one_line(tmp_path, monkeypatch, operation):
    monkeypatch.setattr(owned, "PATIENCE_S", 0.02)
    prepare(make_config(*QUICK))  # its text is in the cache from here on
    hold(monkeypatch, float("inf"), operation)
    done = call_cli("run", *QUICK, cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("ablate: ") and "can't be written (Access is denied)" in line
    assert line.endswith("close the program that has it open, or run ablate in another directory")


def test_a_user_without_a_home_has_a_cache_for_the_time(monkeypatch):
    monkeypatch.delenv("ABLATE_CACHE", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda _: str(Path("~nobody-at-all", "cache")))
    place, about = cache.publish("key", lambda part: (part / "file").write_bytes(b"whole"))
    assert about == 5 and place.parent.parent == Path(tempfile.gettempdir())


def test_a_damaged_entry_of_the_cache_that_stays_open_is_an_error(tmp_path, monkeypatch):
    """It can't be moved away, and a new one can't take its place."""
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path))
    cache.publish("key", lambda part: (part / "file").write_bytes(b"whole"))
    (tmp_path / "key" / "file").write_bytes(b"cut")
    monkeypatch.setattr(owned, "PATIENCE_S", 0.02)
    move = os.rename

    def rename(source, target):
        if Path(source).name == "key":
            raise PermissionError(13, "Access is denied", str(source))
        move(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(PermissionError):
        cache.publish("key", lambda part: (part / "file").write_bytes(b"again"))
    monkeypatch.setattr(os, "rename", move)
    place, _ = cache.publish("key", lambda part: (part / "file").write_bytes(b"again"))
    assert (place / "file").read_bytes() == b"again"


def test_a_file_that_is_being_replaced_is_read_a_moment_later(tmp_path, monkeypatch):
    (tmp_path / "study.json").write_text('{"name": 1}', encoding="utf-8")
    read, tries = atomic.read_bytes, iter([PermissionError(13, "Access is denied")] * 2)

    def read_bytes(*given):
        if error := next(tries, None):
            raise error
        return read(*given)

    monkeypatch.setattr(atomic, "read_bytes", read_bytes)
    assert atomic.read_json(tmp_path / "study.json", {"name"}) == {"name": 1}


# --- names ----------------------------------------------------------------------------------------


def test_a_new_method_is_no_device(tmp_path):
    done = call_cli("new", "fusion", "aux", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("ablate: aux: a device on Windows")
    assert not [*tmp_path.iterdir()]


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


@pytest.mark.slow
def test_a_path_that_windows_would_not_take_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "longest_path", lambda: 259)
    deep = tmp_path / ("a" * 120)
    deep.mkdir()
    done = call_cli("run", *QUICK, cwd=deep)
    assert (
        done.returncode == 2 and "and Windows takes 259; run ablate in a directory with a sh" in done.stderr
    )
    assert not (deep / "runs" / "store").exists()
    made = call_cli("run", *QUICK, cwd=tmp_path)
    assert made.returncode == 0 or len(str(tmp_path)) > 100


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


# --- what other systems lack ----------------------------------------------------------------------

# A sitecustomize.py: modules of ablate can't import what Windows lacks, nor call it.
LACKING = """
import builtins, multiprocessing, os, signal
real, lacking = builtins.__import__, {modules}
def importing(name, own=None, *rest, **given):
    if name.partition(".")[0] in lacking and str((own or {{}}).get("__name__")).startswith("ablate"):
        raise ImportError(f"No module named {{name!r}}")
    return real(name, own, *rest, **given)
builtins.__import__ = importing
multiprocessing.get_all_start_methods = lambda: ["spawn"]
for name in ("sched_getaffinity", "fork", "killpg", "getloadavg"):
    delattr(os, name)
for name in ("pthread_sigmask", "SIGHUP", "SIGALRM", "setitimer"):
    delattr(signal, name)
"""
MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline", "curses"}
PROGRAM = """
import importlib, pkgutil, sys
import ablate
from ablate.cli.app import main
for module in pkgutil.walk_packages(ablate.__path__, "ablate."):
    if not module.name.endswith(("__main__", "ray_calls")) and ".templates" not in module.name:
        importlib.import_module(module.name)
for words in {commands}:
    sys.argv = ["ablate", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
"""


@pytest.mark.slow
def test_runs_are_made_without_what_windows_lacks_and_files_are_utf_8(tmp_path):
    """By workers that are spawned, in the C locale, with every encoding that is left open an error."""
    (tmp_path / "sitecustomize.py").write_text(LACKING.format(modules=MODULES), encoding="utf-8")
    text = "ἄνδρα μοι ἔννεπε, μοῦσα, πολύτροπον — naïve Σ √ 😀\n" * 120
    (tmp_path / "odyssey.txt").write_text(text, encoding="utf-8", newline="\r\n")
    keys = (
        "corpus=file",
        "corpus.path=odyssey.txt",
        "corpus.unique=none",
        "corpus.tokenizer=char",
        *QUICK[2:4],
    )
    commands = [
        ["run", "-m", "fusion=concat,sum", "seed=0,1", *keys, "name=epic", "hydra.launcher.workers=1"],
        ["compare", "epic", "--format", "md"],
        ["report", "epic"],
    ]
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    own = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "cp1252"}
    done = processes_of(PROGRAM.format(commands=commands), tmp_path, PYTHONPATH=path, **own)
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr.decode()
    rows = pd.read_csv(tmp_path / "runs" / "results.csv")
    assert rows["status"].tolist() == 4 * ["done"] and (rows["peak_memory_mb"] > 0).all()
    for run in Store(tmp_path / "runs").finished():
        at = tmp_path / "runs" / "store" / run
        tokenizer = json.loads((at / "tokenizer.json").read_text(encoding="utf-8"))
        assert {"ἔ", "😀", "\r"} <= {*"".join(map(str, tokenizer.values()))}
        assert b"\r" not in (at / "metrics.csv").read_bytes()
    assert "<!doctype html>" in (tmp_path / "runs/studies/epic/report.html").read_text(encoding="utf-8")


def processes_of(program: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    """A Python that runs this program, and to which an encoding that is left open is an error."""
    strict = ("-X", "warn_default_encoding", "-W", "error::EncodingWarning")
    return subprocess.run(
        [sys.executable, *strict, "-c", program],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        timeout=100,
    )


def test_a_process_waits_for_no_more_workers_than_windows_can(monkeypatch):
    waited = []
    monkeypatch.setattr(processes, "wait", lambda ends, timeout: waited.append((len(ends), timeout)))
    staff = [mock.Mock(ends=[0, 1]) for _ in range(40)]
    for most in (None, 63):
        monkeypatch.setattr(processes, "MOST_HANDLES", most)
        processes.wait_for(staff)
    assert waited == [(80, processes.LOOK_EVERY_S), (63, processes.LOOK_EVERY_S)]


def test_macos_forks_no_workers(monkeypatch):
    assert processes._has_server()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not processes._has_server()
