"""What several test files build."""

import atexit
import contextlib
import copy
import dataclasses
import functools
import hashlib
import http.server
import io
import itertools
import json
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.util
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any
from unittest import mock

import hydra
import pandas as pd
import pytest
import yaml
from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository, IConfigRepository
from hydra._internal.defaults_list import DefaultsList, Overrides, create_defaults_list
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig

from ablate.analysis.compare import Comparison, compare, reported
from ablate.analysis.contrasts import declared_pairs, equal_variants
from ablate.analysis.projection import project
from ablate.analysis.question import ask, direction
from ablate.cli.app import main
from ablate.compose.configs import configs_dir, defaults_of
from ablate.compose.sweep import compose
from ablate.config.contrast import Contrast, as_a_contrast
from ablate.config.read import read
from ablate.config.rules import ConfigError
from ablate.config.schema import PARTS, RunConfig
from ablate.data.corpus import forget
from ablate.execution import plugins
from ablate.execution.plugins import KINDS
from ablate.files.atomic import digest
from ablate.model.parts import HeadShape
from ablate.model.sizing import resolve_spec
from ablate.model.spec import ModelSpec
from ablate.printing import left_out
from ablate.store import lease, provenance
from ablate.store.record import PlannedContrast, Side, StudyRecord
from ablate.store.store import Store
from ablate.training.events import Evaluation, Listener, News

ROOT = Path(__file__).parent.parent
VOCAB = 59
HANGING_S = 600.0  # what a command takes depends on the machine and on its other work
SEEDS = {"backbone": 0, "fusion": 0, "data": 0}


def hydra_at(directory: Path) -> contextlib.AbstractContextManager[None]:
    """Hydra with the configs of a directory; 1.3 takes the defaults of 1.1 if none are named."""
    base = {"version_base": "1.3"} if hydra.__version__.startswith("1.3.") else {}
    return hydra.initialize_config_dir(str(directory), **base)


@functools.cache
def make_config(*overrides: str) -> RunConfig:
    """The RunConfig that these overrides give on the command line."""
    return compose(()).configs(overrides)


def quick_config(*overrides: str) -> RunConfig:
    """The same for overrides of plain values and of parts, in a hundredth of the time."""
    plain: dict[str, Any] = dataclasses.asdict(make_config())
    for key, _, text in (override.partition("=") for override in overrides):
        *path, last = key.split(".")
        if key in PARTS:
            options = defaults_of(key, text, KINDS[key].methods()[text].Options)
            plain[key] = {"name": text, "options": options}
        elif path and path[0] in PARTS:
            plain[path[0]]["options"][last] = yaml.safe_load(text)
        else:
            (plain[path[0]] if path else plain)[last] = yaml.safe_load(text)
    return read(RunConfig, plain)


def make_spec(*overrides: str, vocab: int = VOCAB) -> ModelSpec:
    return resolve_spec(make_config(*overrides), vocab)


def refusal_of(*overrides: str) -> str:
    """The one line with which sizes are refused."""
    with pytest.raises(ConfigError) as refusal:
        make_spec(*overrides)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def make_shape(heads: int = 4, *, key_width: int = 3, value_width: int = 5, d_model: int = 7) -> HeadShape:
    """Of heads that share nothing."""
    scale = key_width**-0.5
    return HeadShape(heads=heads, key_width=key_width, value_width=value_width, d_model=d_model, scale=scale)


def read_contrast(entry: Mapping[str, Any]) -> Contrast:
    """The contrast of an entry of a YAML."""
    return read(Contrast, as_a_contrast(entry, "primary"), "primary")


def make_record(**given: Any) -> StudyRecord:
    """A record that says little more than what is given."""
    little = {"name": "s", "kind": "grid", "factors": {}, "fixed": {}, "seeds": [], "runs": []}
    primary = [read_contrast(entry) for entry in given.get("primary", [])]
    return StudyRecord(**{**little, **given, "primary": primary})


def summarize(rows: pd.DataFrame, metric: str = "val_loss") -> pd.DataFrame:
    return project(reported(rows)[0], metric, better=direction(metric, None)).best_first()


def compared(rows: pd.DataFrame, *, records: Sequence[StudyRecord] = (), **asked: Any) -> Comparison:
    """The comparison of these rows that a command with these options makes. A record without the runs of its
    contrasts gets those of these rows."""
    return compare(rows, ask(**asked), [with_contrasts(one, rows, **asked) for one in records])


def with_contrasts(record: StudyRecord, rows: pd.DataFrame, **asked: Any) -> StudyRecord:
    """The record with the contrasts that it declares, each with the runs that these rows have of its arms."""
    if record.contrasts or not record.primary:
        return record
    metric = asked.get("metric") or record.metric or "val_loss"
    variants = project(reported(rows)[0], metric)
    pairs = [pair for one in record.primary for pair in declared_pairs(variants, one)]
    runs = [[run_id for run_id in ids if run_id] for ids in variants.run_ids.tolist()]
    contrasts = [
        PlannedContrast(
            name=f"{variants.names[one]} - {variants.names[base]}",
            sides=[Side(w, variants.names[at], runs[at]) for w, at in ((1.0, one), (-1.0, base))],
            equal=same is not None,
        )
        for (one, base), same in zip(pairs, equal_variants(variants, pairs), strict=True)
    ]
    return dataclasses.replace(record, contrasts=contrasts)


def but(words: Sequence[str], *others: str) -> tuple[str, ...]:
    """The overrides with others in place of those of the same keys."""
    keys = {other.partition("=")[0] for other in others}
    return (*(word for word in words if word.partition("=")[0] not in keys), *others)


def write_study(store: Store, record: StudyRecord) -> None:
    """Whatever was there before."""
    store.change_study(record.name, lambda _: record)


# What a YAML of a text to download says, besides `name` and `files`.
DOWNLOAD = {"recipe": "download", "about": "A play", "licence": "none"}
DOWNLOAD |= {"encoding": "utf-8", "errors": "strict", "split": "auto", "unique": "none"}


class Server(http.server.ThreadingHTTPServer):
    """Serves `content` by path; of a path in `cut` only the first half, though it announces the whole."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.requests: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        body = self.server.content.get(self.path)
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        if body:
            self.wfile.write(body[: len(body) // 2] if self.path in self.server.cut else body)

    def log_message(self, *_: Any) -> None:
        pass


def remote(
    content: bytes, *addresses: str, file: str = "play/play.txt", **holds: str | None
) -> dict[str, Any]:
    """The entry of a file in a YAML."""
    sha256 = hashlib.sha256(content).hexdigest()
    size, holds = len(content), holds or {"all": None}
    return {"file": file, "sha256": sha256, "size": size, "addresses": [*addresses], "holds": holds}


# A run of a few hundredths of a second.
QUICK = ("corpus=grammar", "corpus.characters=5000", "train.steps=3", "train.batch=2", "train.save=none")
QUICK += ("model.layers=1",)
# Runs without training: of milliseconds, and of 5 ms a step, until they are ended.
SIMULATED = ("train=simulated", *QUICK[:2])
LONG = (*SIMULATED, "train.simulated.step_ms=5", "train.steps=100000", "train.eval_every=100000")
LONG += ("train.checkpoint_every=10",)
# A plugin: concat with one line before.
CONCAT = """
import time
from ablate.methods import register
from ablate.model.fusion.concat import Concat

@register("{name}")
class Mine(Concat):
    def forward(self, z, x):
        {line}
        return super().forward(z, x)
"""
# Another: a multiple of the sum.
SUM = """
from ablate.methods import Fusion, register

@register("{name}")
class Mine(Fusion):
    @classmethod
    def slots(cls, heads, options):
        return 1

    def forward(self, z_BTHV, x_BTC):
        return {factor} * z_BTHV.sum(-2)
"""
# Sizes of which no two are equal and no one divides another, save where heads have to.
PRIMES = ("heads=3", "key_width=7", "value_width=5", "model.d_model=11", "model.context=13", "model.layers=2")


# A start of Python with PyTorch takes seconds, and the suite makes more than a hundred.
WARM = multiprocessing.get_context("forkserver")
WARM.set_forkserver_preload(["tests.warm"])


class Command:
    """`ablate …` in a process of its own, forked from one that has loaded PyTorch; it is used as a Popen is.

    piped: what it finds on standard input. The fixture `start_python` starts Python itself, as does the pool
    then.
    """

    def __init__(self, *arguments: str, cwd: Path, piped: str | bytes = "", **env: str) -> None:
        self.args = arguments
        self._directory = Path(tempfile.mkdtemp())
        given, *self._streams = (self._directory / name for name in ("in", "out", "err"))
        given.write_bytes(piped.encode() if isinstance(piped, str) else piped)
        streams = (given, *self._streams)
        for path in self._streams:
            path.touch()
        self._process = WARM.Process(target=_command, args=(arguments, cwd, {**os.environ, **env}, streams))
        self._process.start()
        self.pid = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def written(self) -> tuple[str, str]:
        """What it has written so far, to its output and to its errors."""
        out, err = (path.read_text(encoding="utf-8", errors="backslashreplace") for path in self._streams)
        return out, err

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait until it ends; what it has written. Raises TimeoutExpired."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0, stderr=self.written()[1].encode())
        return self.written()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """End it, with its workers."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has just begun, and has no group yet
                os.killpg(self.pid, signal.SIGKILL)
            self._process.kill()
            self._process.join()
        shutil.rmtree(self._directory, ignore_errors=True)


def fork_cli(
    *arguments: str, cwd: Path, timeout_s: float = HANGING_S, piped: str | bytes = "", **env: str
) -> subprocess.CompletedProcess:
    """`ablate …` as a Command, until it ends."""
    with contextlib.closing(Command(*arguments, cwd=cwd, piped=piped, **env)) as command:
        texts = command.communicate(timeout_s)
        return subprocess.CompletedProcess(arguments, command.returncode or 0, *texts)


def call_cli(
    *arguments: str, cwd: Path, timeout_s: float = HANGING_S, piped: str | bytes = "", **env: str
) -> subprocess.CompletedProcess:
    """`ablate …` in this process, which costs a fourth of a process of its own."""
    given = io.TextIOWrapper(io.BytesIO(piped.encode() if isinstance(piped, str) else piped))
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")
    code: Any = "it ends with SystemExit"
    forget()  # its key is a path as it was typed
    left_out()  # by a command that failed
    with (
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, env),
        mock.patch.multiple(sys, argv=["ablate", *arguments], stdin=given, stdout=out, stderr=err),
        no_later_than(timeout_s),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    texts = [stream.seek(0) or stream.read() for stream in (out, err)]
    return subprocess.CompletedProcess(arguments, code, *texts)


def stopping(step: int) -> Listener:
    """Interrupts a run at the evaluation after this step."""

    def listen(news: News) -> None:
        if isinstance(news, Evaluation) and news.step == step:
            raise KeyboardInterrupt

    return listen


def ignore(news: News) -> None:
    """A listener."""


def present(directory: Path, pattern: str) -> list[Path]:
    """The paths that match, as Path.glob gives them, which raises if a directory goes while it is listed."""
    return [directory / name for name in glob(pattern, root_dir=directory)]


def refusal(*arguments: str, cwd: Path) -> str:
    """The one line with which `ablate …` refuses."""
    done = call_cli(*arguments, cwd=cwd)
    assert done.returncode == 2 and done.stderr.startswith("ablate: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """No config is parsed twice, estimates time steps for a shorter while, and workers come from the server
    of WARM, which has loaded PyTorch."""
    with (
        composed_once(),
        mock.patch("ablate.study.estimate.TIMED_S", 0.05),
        mock.patch("ablate.launch.processes.PRELOADED", ["tests.warm"]),
    ):
        yield


@contextlib.contextmanager
def composed_once() -> Iterator[None]:
    """Each config of Hydra's and of ablate's own is read once, and each choice from their groups merged once;
    values of a command are set anew. The suite composes some thousand times, at 40 ms each."""
    create, merge = create_defaults_list, ConfigLoaderImpl._compose_config_from_defaults_list
    read = ConfigRepository.load_config
    own, lists, pickles = f"file://{configs_dir()}", dict[str, DefaultsList](), dict[str, bytes]()

    def key(repo: IConfigRepository, *what: Any) -> str:
        """Of what depends on no file of a user and on no plugin; else empty."""
        sources = [(type(source), source.full_path()) for source in repo.get_sources()]
        is_own = all(path == own or path.startswith(("pkg://", "structured://")) for _, path in sources)
        return repr((sources, *what)) if is_own and not provenance.plugins else ""

    def remembered(key: str, result: Callable[[], Any]) -> Any:
        if not key:
            return result()
        if key not in pickles:
            pickles[key] = pickle.dumps(result())
        return pickle.loads(pickles[key])

    def create_once(*, repo: IConfigRepository, overrides_list: Any, **given: Any) -> DefaultsList:
        chosen = Overrides(repo, overrides_list)
        groups = (chosen.override_choices, chosen.append_group_defaults, chosen.deletions)
        if not (known := key(repo, groups, given)):
            return create(repo=repo, overrides_list=overrides_list, **given)
        if known not in lists:
            lists[known] = create(repo=repo, overrides_list=overrides_list, **given)
        return dataclasses.replace(lists[known], config_overrides=chosen.config_overrides)

    def merge_once(loader: ConfigLoaderImpl, *, defaults: Any, repo: IConfigRepository) -> DictConfig:
        return remembered(key(repo, "merged", defaults), lambda: merge(loader, defaults=defaults, repo=repo))

    def read_once(repo: ConfigRepository, config_path: str) -> Any:
        return remembered(key(repo, "read", config_path), lambda: read(repo, config_path))

    with (
        mock.patch.object(config_loader_impl, "create_defaults_list", create_once),
        mock.patch.object(ConfigLoaderImpl, "_compose_config_from_defaults_list", merge_once),
        mock.patch.object(ConfigRepository, "load_config", read_once),
        mock.patch.object(ConfigRepository, "__deepcopy__", lambda repo, _: copy.copy(repo), create=True),
    ):
        yield


@contextlib.contextmanager
def forgetting_plugins() -> Iterator[None]:
    """What is done in here leaves nothing of the plugins that it used."""
    groups = {kind: {**ConfigStore.instance().repo.get(kind, {})} for kind in PARTS}
    try:
        yield
    finally:
        for path in [*provenance.plugins]:
            for method in plugins._methods.pop(path, []):
                KINDS[method.kind].forget([method.name])
        provenance.plugins.clear()
        provenance._digest_of_file.cache_clear()
        for kind, methods in groups.items():
            if kind in ConfigStore.instance().repo:
                ConfigStore.instance().repo[kind] = methods


class _Late(BaseException):
    """Passes through whatever handles errors."""


@contextlib.contextmanager
def no_later_than(timeout_s: float) -> Iterator[None]:
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
    """What `ablate ARGUMENTS…` is, in this process, which was forked for it."""
    for number, path in enumerate(streams):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    os.setsid()
    sys.stdin = os.fdopen(0)  # multiprocessing gives its processes an empty one
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["ablate", *arguments]
    lease.EXPIRES_S = float(env.get("ABLATE_LEASE_EXPIRES_S", lease.EXPIRES_S))
    lease.HEARTBEAT_S = min(lease.HEARTBEAT_S, lease.EXPIRES_S / 4)
    multiprocessing.util.spawnv_passfds = _forkv_passfds
    try:
        main()
    finally:
        atexit._run_exitfuncs()  # which multiprocessing leaves out


def _forkv_passfds(path: bytes, arguments: Sequence[str], kept: Sequence[int]) -> int:
    """How the server of a pool begins here: `python -c CODE ARGUMENTS…`, but forked, with PyTorch loaded."""
    if process := os.fork():
        return process
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for low, high in itertools.pairwise([2, *sorted(kept), os.sysconf("SC_OPEN_MAX")]):
            os.closerange(low + 1, high)
        code = arguments.index("-c") + 1
        sys.argv = ["-c", *arguments[code + 1 :]]  # where Python 3.14 hands on those of the program
        exec(arguments[code], {})
    finally:
        os._exit(0)


def reseal(directory: Path, **changed: Any) -> dict[str, Any]:
    """Change the row of a finished run, `files` included, as if it had ended so. Return the row."""
    row = json.loads((directory / "result.json").read_text(encoding="utf-8")) | changed
    files = row.pop("files")
    del row["seal"]
    sealed = {**row, "files": files, "seal": digest([row, files])}
    (directory / "result.json").write_text(json.dumps(sealed), encoding="utf-8")
    return row
