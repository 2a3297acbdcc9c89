"""A stored run is opened again with what it was made with, or not at all."""

import hashlib
import json
import pickle
import random
import re
import shutil
from pathlib import Path
from unittest import mock

import pytest

import ablate
from ablate.config.rules import ConfigError
from ablate.data import corpus
from ablate.execution.execute import execute
from ablate.execution.run import Run, prepare
from ablate.execution.stored import require_as_begun
from ablate.store.store import Store
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
    words = [word for word in letters(0).split() if len(word) < 8]  # so that a pair fits into a context of 16
    for name, turn in (("a.txt", 1), ("b.txt", -1)):
        (cwd / name).write_text("\n".join(word[::turn] for word in words))
    assert call_cli("run", *BOOK, *QUICK, "name=book", cwd=cwd).returncode == 0
    of_pairs = ("corpus=pairs", "corpus.path=a.txt", "corpus.target=b.txt", "model=pair", "name=pairs")
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


def test_another_text_is_not_measured(made):
    (made / "book.txt").write_text(OTHERS["letters"])
    done = call_cli("probe", "concat", cwd=made)
    assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr
    line = next(line for line in done.stderr.splitlines() if "corpus=file" in line)
    was, now = map(fingerprint, (letters(0), OTHERS["letters"]))
    assert f"{directory(made).name}: corpus=file: the text changed: the fingerprint of book.txt" in line
    assert f"was {was} and is {now}; put back what it was, or train on" in line


def test_what_needs_no_text_works_when_it_is_gone(made, monkeypatch):
    prompted = ("sample", "concat", "--prompt", "abc", "--tokens", "5")
    before = call_cli(*prompted, cwd=made).stdout
    for text in ("book.txt", "a.txt", "b.txt"):
        (made / text).unlink()
    monkeypatch.setattr(corpus, "_open", mock.Mock(side_effect=AssertionError("the text is opened")))
    for command in (prompted, ("sample", "sum", "--prompt", "abc")):
        done = call_cli(*command, cwd=made)
        assert done.returncode == 0, done.stderr
    assert call_cli(*prompted, cwd=made).stdout == before != ""
    assert ablate.load_model("concat").generate("abc", tokens=5) + "\n" == before


# --- the tokenizer, the code ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [("probe", "concat"), ("export", "concat", "--to", "hf")],
    ids=lambda command: " ".join(command[::2]),
)
def test_what_another_program_computed_is_not_computed_again(made, command):
    reseal(directory(made), numerics=0, torch="1.0.0")
    done = call_cli(*command, cwd=made)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert re.search(r"\(numerics was 0, is \d+; torch was 1\.0\.0, is 2\.\S+\); train it", done.stderr)
    assert call_cli("sample", "concat", "--prompt", "a", cwd=made).returncode == 0


# --- going on ---------------------------------------------------------------------------------------


def interrupted(made: Path, *overrides: str) -> Run:
    """A run that was interrupted after step 2."""
    run = prepare(make_config(*BOOK, *QUICK, "seed=1", *overrides))
    with pytest.raises(KeyboardInterrupt):
        execute(run, stopping(4))
    return run


def edit(run: Run, changed: dict[str, str]) -> None:
    attempt = Store().run(run.name).latest()
    assert attempt is not None
    path = attempt / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


@pytest.mark.slow
def test_from_a_checkpoint_only_the_same_program_goes_on(made):
    run = interrupted(made, "train.checkpoint_every=2")
    require_as_begun(run, Store())
    edit(run, {"code": "0" * 12})
    command = ("run", *BOOK, *QUICK, "seed=1", "train.checkpoint_every=2")
    done = call_cli(*command, cwd=made)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert re.search(r"made otherwise \(code was 0{12}, is \w{12}\).*force=stale", done.stderr), done.stderr
    assert call_cli(*command, "force=stale", cwd=made).returncode == 0
    log = (Store().run(run.name).directory / "log.txt").read_text()
    assert log.count("begun") == 2 and "going on" not in log


def test_a_checkpoint_that_another_command_takes_away_ends_nothing(made):
    folder = Store().run(interrupted(made, "train.checkpoint_every=2").name)
    (checkpoint,) = (folder.latest() or made).glob("checkpoint*")
    assert folder.last_step() == 2
    checkpoint.unlink()
    checkpoint.symlink_to("gone")
    assert folder.last_step() == 0


# --- between the plan and its runs --------------------------------------------------------------------


@pytest.mark.parametrize("other", ["letters", "vocabulary"])
def test_a_text_that_changes_while_runs_wait_trains_none_of_them(made, other):
    run = prepare(make_config(*BOOK, *QUICK, "seed=1"))
    pickled = pickle.dumps(run.corpus)
    (made / "book.txt").write_text(OTHERS[other])
    assert pickle.loads(pickled) is run.corpus  # who has it open goes on
    corpus.forget()
    was, now = map(fingerprint, (letters(0), OTHERS[other]))
    with pytest.raises(ConfigError, match=f"the text changed: .* was {was} and is {now}"):
        pickle.loads(pickled)
