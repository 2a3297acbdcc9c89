import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ablate.phrases import PLACE
from ablate.printing import left_out
from tests.helpers import Command, Server, call_cli, forgetting_plugins, quick

# Several files are tested side by side: a thread for each, here and in the commands that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("ABLATE_RUNS", None)  # results lie where a test says

# In the background of a shell tests ignore Ctrl-C, and under nohup SIGHUP; commands they start would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True, scope="session")
def _a_cache_of_its_own(tmp_path_factory):
    """Tests of all workers share one cache of tokenized texts, apart from the user's."""
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATE_CACHE", str(cache))
        yield


@pytest.fixture(autouse=True, scope="session")
def _quick():
    with quick():
        yield


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    import torch  # not by the process that starts others to run the tests

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded():
    import torch

    torch.default_generator.manual_seed(0)  # torch.manual_seed asks every kind of device, at 2 ms


@pytest.fixture
def two_seeds_decide(monkeypatch):
    """Verdicts on as few seeds as a test reckons with by hand."""
    for module in ("analysis.findings", "analysis.looks", "analysis.power", "reporting.next"):
        monkeypatch.setattr(f"ablate.{module}.FEWEST", 2)


@pytest.fixture(autouse=True)
def _nothing_left_out():
    """What one test leaves out, another does not say; nor the --runs that it was given."""
    yield
    left_out()
    PLACE.clear()


@pytest.fixture(autouse=True)
def _no_plugins_left():
    with forgetting_plugins():
        yield


def pytest_collection_finish():
    """No test looks for garbage in all that has been imported, and no fork copies its pages."""
    gc.freeze()


def pytest_addoption(parser: pytest.Parser):
    parser.addoption(
        "--clusters", choices=("only",), help="tests on a real SLURM and Ray, by Hydra's launchers"
    )


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks how many processes there are to be
def pytest_cmdline_main(config: pytest.Config):
    """`pytest` alone runs the quick tests, in two processes; `pytest tests`, or a file of them, all that it
    names."""
    option, in_worker = config.option, "PYTEST_XDIST_WORKER" in os.environ
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not option.markexpr:
        option.markexpr = "not slow"  # which each worker has to find by itself
        # Not in a worker, which would start two more, and these two each: that filled the memory once.
        if not in_worker and getattr(option, "numprocesses", 0) is None and not option.usepdb:
            option.numprocesses, option.dist, option.loadscopereorder = 2, "loadfile", False


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests on clusters are collected in a session of their own."""
    is_on_clusters = collection_path.name in ("test_slurm.py", "test_ray.py", "test_launchers.py")
    is_asked_for = is_on_clusters == bool(config.getoption("clusters"))
    return None if is_asked_for or collection_path.is_dir() else True


def pytest_collection_modifyitems(items: list[pytest.Item]):
    """The files with the most slow tests first, so that no worker is left alone with one."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


@pytest.fixture
def command(tmp_path, monkeypatch):
    """call_cli in tmp_path: the exit code, the output and what stderr says."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> tuple[int, str, str]:
        done = call_cli(*arguments, cwd=Path())
        return done.returncode, done.stdout, done.stderr

    return command


@pytest.fixture
def server(monkeypatch):
    """A Server of texts, with no proxy on the way to it."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """A cache of its own for a test, with no text piped in before."""
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ABLATE_STDIN", "")
    return tmp_path / "cache"


@pytest.fixture
def start():
    """`ablate …` in a process group of its own, as a shell starts it; ended with the test."""
    with contextlib.ExitStack() as ends:
        yield lambda *words, **given: ends.enter_context(contextlib.closing(Command(*words, **given)))


@pytest.fixture
def start_python():
    """The same, where Python has to start and load PyTorch itself."""
    with contextlib.ExitStack() as ends:

        def start(*arguments: str, cwd: Path, **env: str) -> subprocess.Popen:
            given: Any = {"cwd": cwd, "env": {**os.environ, **env}, "start_new_session": True, "text": True}
            piped: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            process = subprocess.Popen([sys.executable, "-m", "ablate", *arguments], **given, **piped)
            ends.callback(_end, process)
            return process

        yield start


def _end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture(scope="module")
def browser():
    """Chromium, headless."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs a chromium on the PATH, as Debian's package chromium installs it")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()
