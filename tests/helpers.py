"""What several test files build."""

import atexit
import contextlib
import dataclasses
import functools
import io
import itertools
import multiprocessing
import multiprocessing.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import hydra
import yaml
from hydra.core.config_store import ConfigStore

from ablate.cli.app import main
from ablate.compose.configs import configs_dir, defaults_of
from ablate.compose.variants import to_run_config
from ablate.config.read import read
from ablate.config.schema import RunConfig
from ablate.execution import plugins
from ablate.execution.plugins import KINDS
from ablate.execution.prepare import _corpus
from ablate.model.resolve import resolve_spec
from ablate.model.spec import HeadShape, ModelSpec
from ablate.store import code
from ablate.store.record import StudyRecord
from ablate.store.store import Store

ROOT = Path(__file__).parent.parent
VOCAB = 59


@functools.cache
def make_config(*overrides: str) -> RunConfig:
    """The RunConfig that these overrides give on the command line."""
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        return to_run_config(hydra.compose("config", overrides=list(overrides)))


def quick_config(*overrides: str) -> RunConfig:
    """The same for overrides of plain values and of parts, in a hundredth of the time."""
    plain: dict[str, Any] = dataclasses.asdict(make_config())
    for key, _, text in (override.partition("=") for override in overrides):
        *path, last = key.split(".")
        if key in KINDS:
            options = defaults_of(key, text, KINDS[key].methods()[text].Options)
            plain[key] = {"name": text, "options": options}
        elif path and path[0] in KINDS:
            plain[path[0]]["options"][last] = yaml.safe_load(text)
        else:
            (plain[path[0]] if path else plain)[last] = yaml.safe_load(text)
    return read(RunConfig, plain)


def make_spec(*overrides: str, vocab: int = VOCAB) -> ModelSpec:
    return resolve_spec(make_config(*overrides), vocab)


def make_shape(heads: int = 4, *, key_width: int = 3, value_width: int = 5, d_model: int = 7) -> HeadShape:
    """Of heads that share nothing."""
    widths = {"key_width": key_width, "value_width": value_width, "d_model": d_model}
    return HeadShape(heads=heads, **widths, patterns=tuple(range(heads)), scale=key_width**-0.5)


def make_record(**given: Any) -> StudyRecord:
    """A record that says little more than what is given."""
    little = {"name": "s", "kind": "grid", "factors": {}, "fixed": {}, "seeds": [], "runs": []}
    return StudyRecord(**{**little, **given})


def write_study(store: Store, record: StudyRecord) -> None:
    """Whatever was there before."""
    store.change_study(record.name, lambda _: record)


# Sizes of which no two are equal and no one divides another, save where heads have to.
PRIMES = ("heads=3", "key_width=7", "value_width=5", "model.d_model=11", "model.context=13", "model.layers=2")


# A start of Python with PyTorch takes seconds, and the suite makes more than a hundred.
WARM = multiprocessing.get_context("forkserver")
WARM.set_forkserver_preload(["tests.warm"])


def run_cli(
    *arguments: str, cwd: Path, timeout_s: float = 120, piped: str | bytes = "", **env: str
) -> subprocess.CompletedProcess:
    """`ablate …` in a process of its own, forked from one that has loaded PyTorch.

    piped: what it finds on standard input. The fixture `start` starts Python itself, as does the pool then.
    """
    with tempfile.TemporaryDirectory() as directory:
        given, out, err = (Path(directory) / name for name in ("in", "out", "err"))
        given.write_bytes(piped.encode() if isinstance(piped, str) else piped)
        process = WARM.Process(
            target=_command, args=(arguments, cwd, {**os.environ, **env}, (given, out, err))
        )
        process.start()
        process.join(timeout_s)
        if process.exitcode is None:
            assert process.pid is not None
            os.killpg(process.pid, signal.SIGKILL)  # with its workers
            process.join()
            raise subprocess.TimeoutExpired(arguments, timeout_s, stderr=err.read_bytes())
        texts = (path.read_text(encoding="utf-8", errors="backslashreplace") for path in (out, err))
        return subprocess.CompletedProcess(arguments, process.exitcode, *texts)


def call_cli(
    *arguments: str, cwd: Path, timeout_s: float = 120, piped: str | bytes = "", **env: str
) -> subprocess.CompletedProcess:
    """`ablate …` as run_cli, but in this process: for commands that start no other."""
    given = io.TextIOWrapper(io.BytesIO(piped.encode() if isinstance(piped, str) else piped))
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")
    code: Any = "it ends with SystemExit"
    _corpus.cache_clear()  # its key is a path as it was typed
    with (
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, env),
        mock.patch.multiple(sys, argv=["ablate", *arguments], stdin=given, stdout=out, stderr=err),
        _no_later_than(timeout_s),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    texts = [stream.seek(0) or stream.read() for stream in (out, err)]
    return subprocess.CompletedProcess(arguments, code, *texts)


@contextlib.contextmanager
def forgetting_plugins() -> Iterator[None]:
    """What is done in here leaves nothing of the plugins that it used."""
    groups = {kind: {**ConfigStore.instance().repo.get(kind, {})} for kind in KINDS}
    try:
        yield
    finally:
        for path in [*plugins._used]:
            plugins._forget(path)
        plugins._used.clear()
        code._plugins.clear()
        code.tree_digest.cache_clear()
        for kind, there in groups.items():
            if kind in ConfigStore.instance().repo:
                ConfigStore.instance().repo[kind] = there


class _Late(BaseException):
    """Passes through whatever handles errors."""


@contextlib.contextmanager
def _no_later_than(timeout_s: float) -> Iterator[None]:
    """Raises TimeoutExpired. In the end signals do what they did before."""

    def late(*_: Any) -> None:
        raise _Late

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    except _Late:
        raise subprocess.TimeoutExpired(sys.argv, timeout_s) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _command(arguments: Sequence[str], cwd: Path, env: Mapping[str, str], streams: Sequence[Path]) -> None:
    os.setsid()
    for number, path in enumerate(streams):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    sys.stdin = os.fdopen(0)  # multiprocessing gives its processes an empty one
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["ablate", *arguments]
    multiprocessing.util.spawnv_passfds = _forkv_passfds
    try:
        main()
    finally:
        atexit._run_exitfuncs()  # which multiprocessing leaves out


def _forkv_passfds(path: bytes, arguments: Sequence[str], kept: Sequence[int]) -> int:
    """How the server of a pool begins here: `python -c CODE`, but forked, with PyTorch loaded."""
    if process := os.fork():
        return process
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for low, high in itertools.pairwise([2, *sorted(kept), os.sysconf("SC_OPEN_MAX")]):
            os.closerange(low + 1, high)
        exec(arguments[-1], {})
    finally:
        os._exit(0)
