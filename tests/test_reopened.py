"""A stored run is opened again with what it was made with, or not at all."""

import errno
import hashlib
import json
import os
import pickle
import random
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import pytest

import ablate
from ablate.config.rules import ConfigError
from ablate.data import corpus
from ablate.execution.execute import execute
from ablate.execution.reopen import reopened, require_as_begun
from ablate.execution.run import PlacedRun, prepare
from ablate.probes.study import write_maps
from ablate.store import provenance
from ablate.store.store import Store
from ablate.study.cluster.helper import Job, _prepared
from ablate.study.launchers import _job
from tests.helpers import call_cli, make_config, reseal, stopping

SIZES = ("model.d_model=16", "heads=2", "model.layers=1", "model.context=16")
QUICK = (*SIZES, "train.steps=4", "train.eval_every=2", "train.batch=2")
BOOK = ("corpus=file", "corpus.path=book.txt", "corpus.tokenizer=char")


def letters(seed: int, alphabet: str = "abcde ", count: int = 4000) -> str:
    return alphabet + "".join(random.Random(seed).choices(alphabet, k=count - len(alphabet)))


def fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@pytest.fixture(scope="module")
def _made(tmp_path_factory) -> Path:
    """A run of book.txt, and one of pairs."""
    cwd = tmp_path_factory.mktemp("made")
    (cwd / "book.txt").write_text(letters(0))
    (cwd / "pairs.txt").write_text("".join(f"{w}\t{w[::-1]}\n" for w in letters(0).split()))
    assert call_cli("run", *BOOK, *QUICK, "name=book", cwd=cwd).returncode == 0
    of_pairs = ("corpus=pairs", "corpus.path=pairs.txt", "corpus.long=drop", "model=pair", "name=pairs")
    done = call_cli("run", *of_pairs, *QUICK, "fusion=sum", "corpus.tokenizer=char", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return cwd


@pytest.fixture
def made(_made, tmp_path, monkeypatch) -> Path:
    shutil.copytree(_made, tmp_path / "made")
    monkeypatch.chdir(tmp_path / "made")
    corpus.forget()
    return tmp_path / "made"


def directory(made: Path, begins: str = "concat") -> Path:
    (found,) = (made / "runs" / "store").glob(f"{begins}-*")
    return found


# --- the text -----------------------------------------------------------------------------------

OTHERS = {"letters": letters(1), "vocabulary": letters(1, "abcdefgh "), "short": "abc"}


@pytest.mark.parametrize(
    "command",
    [
        ("probe", "concat", "--only", "loss_added"),
        ("compare", "book", "--cost"),
    ],
    ids=lambda command: command[0],
)
def test_another_text_is_not_measured(made, command):
    (made / "book.txt").write_text(OTHERS["letters"])
    done = call_cli(*command, cwd=made)
    assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr
    line = next(line for line in done.stderr.splitlines() if "corpus=file" in line)
    was, now = map(fingerprint, (letters(0), OTHERS["letters"]))
    assert f"{directory(made).name}: corpus=file: the text changed: the fingerprint of book.txt" in line
    assert f"was {was} and is {now}; put back what it was, or train on" in line


def test_the_same_text_may_come_back_and_any_other_is_refused(made):
    stored = reopened(directory(made))
    assert stored.prepared("cpu").corpus.sha256 == stored.row["corpus_sha256"]
    for other in OTHERS.values():
        corpus.forget()
        (made / "book.txt").write_text(other)
        with pytest.raises(ConfigError, match=f"^{stored.directory.name}: corpus=file: "):
            stored.prepared("cpu")
    (made / "book.txt").write_text(letters(0))
    assert stored.prepared("cpu").name == stored.directory.name


def test_what_needs_no_text_works_when_it_is_gone(made, monkeypatch):
    prompted = ("sample", "concat", "--prompt", "abc", "--tokens", "5")
    exported = ("export", "concat", "--to", "hf", "--out", "exported")
    before = call_cli(*prompted, cwd=made).stdout
    for text in ("book.txt", "pairs.txt"):
        (made / text).unlink()
    monkeypatch.setattr(corpus, "_open", mock.Mock(side_effect=AssertionError("the text is opened")))
    for command in (prompted, exported, ("sample", "sum", "--prompt", "abc")):
        done = call_cli(*command, cwd=made)
        assert done.returncode == 0, done.stderr
    assert call_cli(*prompted, cwd=made).stdout == before != ""
    assert ablate.load_model("concat").generate("abc", tokens=5) + "\n" == before
    (made / "mine.txt").write_text("abcde abcde")
    write_maps({"run": directory(made)}, Path("mine.txt"), Path("maps.json"))
    assert json.loads(Path("maps.json").read_text())["run"]["tokens"] == [*"abcde abcde"]
    write_maps({}, Path("mine.txt"), Path("maps.json"))
    Path("maps.json").write_text('{"mine": 1}')
    with pytest.raises(ConfigError, match=r"maps\.json: no file of ablate probe --text; move it away"):
        write_maps({"run": directory(made)}, Path("mine.txt"), Path("maps.json"))


def test_a_pair_is_shown_of_the_runs_own_pairs_only(made):
    assert call_cli("sample", "sum", cwd=made).stdout.startswith("source")
    (made / "pairs.txt").write_text("".join(f"{w}\t{w[::-1]}\n" for w in letters(2).split()))
    done = call_cli("sample", "sum", cwd=made)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert re.search(r"corpus=pairs: the text changed: .* was [0-9a-f]{12} and is [0-9a-f]{12};", done.stderr)
    (made / "pairs.txt").unlink()
    done = call_cli("sample", "sum", cwd=made)
    assert done.returncode == 2 and f"{directory(made, 'sum').name}: " in done.stderr
    assert "no such file" in done.stderr


# --- the tokenizer, the code ----------------------------------------------------------------------


def test_another_tokenizer_is_refused(made):
    path = directory(made) / "tokenizer.json"
    was = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    path.write_text(path.read_text().replace("abc", "bac"))
    now = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    with pytest.raises(ConfigError, match=rf"concat-h2.*tokenizer.*the SHA-256 {was}, and it is {now}; put"):
        ablate.load_model("concat")
    reseal(directory(made), tokenizer_sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(ConfigError, match=rf"the SHA-256 {now}, and it is {was}; put"):
        reopened(directory(made)).prepared("cpu")  # the text gives the first one


def test_weights_and_config_are_those_that_were_sealed(made):
    weights = directory(made) / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    done = call_cli("sample", "concat", "--prompt", "a", cwd=made)
    assert done.returncode == 2 and "model.safetensors: missing, damaged, or edited since" in done.stderr


@pytest.mark.parametrize("file", ["config.yaml", "metrics.csv"])
def test_trackers_get_what_was_sealed(made, file, monkeypatch):
    path = directory(made) / file
    path.write_text(path.read_text().replace("2", "3", 1))
    for target in ("concat", "book"):
        done = call_cli("export", target, "--to", "tensorboard", "--out", "exported", cwd=made)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and not Path("exported").exists()
        line = (
            f"{file}: missing, damaged, or edited since"
            if target == "concat"
            else "done or diverged (1 damaged)"
        )
        assert line in done.stderr


def test_a_seal_is_read_once_in_a_process(made, monkeypatch):
    read = Counter[str]()
    digest = hashlib.file_digest

    def counted(file, *given):
        read[Path(file.name).name] += 1
        return digest(file, *given)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    for path in directory(made).iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))
    reopened(directory(made))
    reopened(directory(made))
    assert read["model.safetensors"] == 1
    weights = directory(made) / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(weights, (1_000_000_000, 1_000_000_000))
    with pytest.raises(ConfigError, match=r"model\.safetensors: missing, damaged, or edited"):
        reopened(directory(made))


def test_too_little_memory_is_no_damage(made, monkeypatch):
    few_files, no_room = (OSError(n, os.strerror(n)) for n in (errno.EMFILE, errno.ENOMEM))
    torch_says = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes")
    memory = r"too little memory to load its 0\.0 MB; free some, and try again$"
    for where, error, line in (
        ("safetensors.torch.load_file", MemoryError(), memory),
        ("safetensors.torch.load_file", no_room, memory),
        ("safetensors.torch.load_file", few_files, "can't be read \\(Too many open files\\); mend that"),
        ("ablate.execution.trained.build_model", torch_says, memory),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, mock.Mock(side_effect=error))
            with pytest.raises(ConfigError, match=rf"model\.safetensors: {line}"):
                ablate.load_model("concat")


@pytest.mark.parametrize(
    "command",
    [
        ("probe", "concat"),
        ("export", "concat", "--to", "hf"),
        ("probe", "concat", "--text", "book.txt"),
    ],
    ids=lambda command: " ".join(command[::2]),
)
def test_what_another_program_computed_is_not_computed_again(made, command):
    reseal(directory(made), numerics=0, torch="1.0.0")
    done = call_cli(*command, cwd=made)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert re.search(r"\(numerics was 0, is \d+; torch was 1\.0\.0, is 2\.\S+\); train it", done.stderr)
    assert call_cli("sample", "concat", "--prompt", "a", cwd=made).returncode == 0


@pytest.mark.slow
def test_other_code_of_the_same_numerics_counts_as_before_and_is_told(made):
    reseal(directory(made), code="0" * 12)
    assert call_cli("probe", "concat", "--only", "entropy", cwd=made).returncode == 0
    again = call_cli("run", *BOOK, *QUICK, cwd=made)
    assert again.returncode == 0 and "1 run had finished before, 1 of them by an ablate with" in again.stderr
    reseal(directory(made), code=provenance.code())
    assert "1 run had finished before; force" in call_cli("run", *BOOK, *QUICK, cwd=made).stderr


# --- going on ---------------------------------------------------------------------------------------


def interrupted(made: Path, *overrides: str) -> PlacedRun:
    """A run that was interrupted after step 2."""
    run = prepare(make_config(*BOOK, *QUICK, "seed=1", *overrides))
    with pytest.raises(KeyboardInterrupt):
        execute(run, stopping(4))
    return run


def edit(run: PlacedRun, changed: Mapping[str, str]) -> None:
    attempt = Store().run(run.name).latest()
    assert attempt is not None
    path = attempt / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"code": "0" * 12}, r"another program.*code was 0{12}, is \w{12}.*force=stale"),
        ({"tokenizer_sha256": "0" * 64}, r"another tokenizer.* 0{12}, and it is \w{12}.*force=true"),
    ],
)
def test_from_a_checkpoint_only_the_same_program_goes_on(made, changed, words):
    run = interrupted(made, "train.checkpoint_every=2")
    require_as_begun(run, Store())
    edit(run, changed)
    command = ("run", *BOOK, *QUICK, "seed=1", "train.checkpoint_every=2")
    done = call_cli(*command, cwd=made)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and re.search(words, done.stderr), done.stderr
    assert call_cli(*command, f"force={words.rpartition('=')[2]}", cwd=made).returncode == 0
    log = (Store().run(run.name).directory / "log.txt").read_text()
    assert log.count("begun") == 2 and "going on" not in log


def test_what_has_no_checkpoint_yet_begins_anew(made):
    run = interrupted(made)
    edit(run, {"code": "0" * 12})
    assert call_cli("run", *BOOK, *QUICK, "seed=1", cwd=made).returncode == 0


# --- between the plan and its runs --------------------------------------------------------------------


@pytest.mark.parametrize("other", ["letters", "vocabulary"])
def test_a_text_that_changes_while_runs_wait_trains_none_of_them(made, other):
    run = prepare(make_config(*BOOK, *QUICK, "seed=1"))
    pickled, planned = pickle.dumps(run.corpus), {run.name: run.corpus.sha256}
    (made / "book.txt").write_text(OTHERS[other])
    assert pickle.loads(pickled) is run.corpus  # who has it open goes on
    corpus.forget()
    was, now = map(fingerprint, (letters(0), OTHERS[other]))
    with pytest.raises(ConfigError, match=f"the text changed: .* was {was} and is {now}"):
        pickle.loads(pickled)
    trained, refused = _prepared([Job(run.name, run.config, [], run.corpus.sha256)])
    assert not trained and [*refused] == [run.name]
    assert f"was {was} and is {now}; give the command again" in refused[run.name]
    job = {"threads": 1, "total": None, "own": (), "root": Store().root, "named_by": ()}
    with pytest.raises(ConfigError, match=f"not what was planned.* was {was} and is {now}; give"):
        _job(run.config, planned=planned, **job)
    assert not Store().begun()


def test_in_one_process_each_command_reads_its_text_anew(made):
    small = {"model.d_model": 16, "model.layers": 1, "model.context": 16, "train.steps": 2, "train.batch": 2}
    keys = {"corpus": "file", "corpus.tokenizer": "char", "corpus.path": "book.txt", "heads": 2, **small}
    for text in (letters(3), letters(4)):
        (made / "book.txt").write_text(text)
        assert ablate.run(**keys)["corpus_sha256"].item() == hashlib.sha256(text.encode()).hexdigest()


def test_a_row_that_is_put_in_anothers_place_is_read_anew(made):
    at = directory(made) / "result.json"
    before, stat = Store().results(), at.stat()
    content = at.read_bytes()
    assert next(iter(before.values()))["seed"] == 0
    reseal(directory(made), seed=7)
    other = at.read_bytes()
    assert len(other) != len(content) or other != content
    other += b" " * (len(content) - len(other))
    at.write_bytes(content)
    os.utime(at, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert Store().results().keys() == before.keys()
    at.write_bytes(other)
    os.utime(at, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    row = next(row for row in Store().results().values() if row["fusion"] == "concat")
    assert row["seed"] == 7
