"""Corpora: the splits, the fingerprint, the cache, and one clear line for every text that can't be used."""

import dataclasses
import hashlib
import io
import json
import os
import re
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml

from ablate.compose.configs import configs_dir
from ablate.config.read import hints
from ablate.config.rules import ConfigError
from ablate.config.schema import CorpusConfig
from ablate.data import division, tokenized
from ablate.data import text as of_text
from ablate.data.corpora import docs, registry
from ablate.data.corpora.stdlib import Stdlib, sources
from ablate.data.corpus import Corpus, open_corpus, require_usable
from ablate.data.text import CorpusError
from ablate.data.tokenizers import Bpe, load
from tests.helpers import ROOT, forget

pytestmark = pytest.mark.usefixtures("root")

DIGITS = "0123456789" * 10
COMMON = {"tokenizer": "char", "bpe_vocab": 300, "splits": (0.8, 0.1, 0.1)}


def config_of(name: str, **changes) -> CorpusConfig:
    """The config of a corpus, with the options of its YAML."""
    keys = {**COMMON, **read_yaml(name), **changes}
    common = {key: keys.pop(key) for key in ("name", *COMMON)}
    return CorpusConfig(**common, options=keys)


def read_yaml(name: str) -> dict:
    return yaml.safe_load((configs_dir() / f"corpus/{name}.yaml").read_text(encoding="utf-8"))


PATHS = (configs_dir() / "corpus").glob("*.yaml")
NAMES = sorted(
    path.stem for path in PATHS if "defaults:" not in path.read_text(encoding="utf-8")
)  # no presets
FROM_THE_NETWORK = ("download",)  # test_downloads.py


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that the user is in. Files in it are old, so that their stamps are trusted."""
    (tmp_path / "texts").mkdir()
    monkeypatch.chdir(tmp_path / "texts")
    return tmp_path / "texts"


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


@pytest.fixture
def book(texts: Path) -> Path:
    """A file of 100 digits."""
    return put(texts / "book.txt", DIGITS)


def opened(path: object, **changes) -> Corpus:
    return other("file", **{"path": str(path), "tokenizer": "char", **changes})


def other(name: str, **changes) -> Corpus:
    forget()  # as another process would open it
    return open_corpus(config_of(name, **changes))


def refusal(path: object, **changes) -> str:
    """The message with which the text is refused: one line."""
    with pytest.raises(CorpusError) as caught:
        opened(path, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def words(corpus: Corpus) -> list[str]:
    """The text of train, validation and test."""
    assert list(corpus.splits) == ["train", "validation", "test"]
    return [corpus.tokenizer.decode(corpus.tokens(split)) for split in corpus.splits]


def entries(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if len(path.name) == 64]


# --- splits and fingerprint -------------------------------------------------------------------


def test_splits_by_hand(texts: Path):
    """23 characters: 18 for training (23 x 0.8 = 18.4), 2 for validation (2.3), the last 3 for the test."""
    text = "日aé🙂bcdefghijklmnop\r\nxy"
    corpus = opened(put(texts / "a.txt", text))
    assert words(corpus) == [text[:18], text[18:20], text[20:]]
    assert corpus.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert corpus.config.name == "file"
    # Bytes of all characters but the first, which has three: 1, 2, 4 and 14 x 1 for training.
    assert [split.predicted_bytes for split in corpus.splits.values()] == [21, 1, 2]
    assert all(isinstance(corpus.tokens(split), np.memmap) for split in corpus.splits)
    assert {corpus.tokens(split).dtype for split in corpus.splits} == {np.dtype("uint16")}
    with pytest.raises(ValueError, match="read-only"):
        corpus.tokens("train")[0] = 1


@pytest.mark.parametrize(("characters", "dtype"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_ids_above_16_bits(texts: Path, characters: int, dtype: type):
    text = "".join(map(chr, range(0x10000, 0x10000 + characters)))
    ids = opened(put(texts / "a.txt", text)).tokens("test")
    assert ids.dtype == dtype and ids[-1] == characters - 1


@pytest.mark.parametrize(("tokenizer", "tokens", "predicted"), [("byte", 29, 28), ("bpe", 29, 28)])
def test_bytes_count_as_bytes(texts: Path, tokenizer, tokens: int, predicted: int):
    """29 characters, 23 for training: of 2, 3, 4 and 20 x 1 bytes. A vocabulary of 256 merges no pair."""
    text = "é日🙂abcdefghijklmnopqrst" + "uvwxyz"
    corpus = opened(put(texts / "a.txt", text), tokenizer=tokenizer, bpe_vocab=256, splits=(0.8, 0.2, 0.0))
    assert words(corpus) == [text[:23], text[23:], ""]
    assert [len(corpus.tokens(split)) for split in corpus.splits] == [tokens, 6, 0]
    assert [split.predicted_bytes for split in corpus.splits.values()] == [predicted, 5, 0]
    assert not corpus.tokens("test").flags.writeable


def test_the_split_sizes_of_nanogpt():
    """Its tiny Shakespeare, cut 90/10."""
    assert division.cuts(1_115_394, (0.9, 0.1, 0.0)) == (1_003_854, 1_003_854 + 111_540)
    assert division.cuts(101, (0.5, 0.25, 0.25)) == (50, 75)


def test_line_ends_stay_and_the_byte_order_mark_goes(texts: Path):
    plain = opened(put(texts / "plain", "one\r\ntwo\rthree\n\n"))
    marked = opened(put(texts / "marked", "\ufeffone\r\ntwo\rthree\n\n"))
    wide = opened(put(texts / "wide", "one\r\ntwo\rthree\n\n".encode("utf-16")), encoding="utf-16")
    assert "".join(words(plain)) == "one\r\ntwo\rthree\n\n"
    assert plain.sha256 == marked.sha256 == wide.sha256


def test_long_text_in_blocks_is_the_text(texts: Path):
    """A three-byte character at each border of blocks, a piece's border in words and in white space."""
    text = "日 本 語\n\n  lines  of varied length " * 100_003
    corpus = opened(put(texts / "long", text), tokenizer="byte")
    assert len(text.encode()) > 3 << 20
    assert "".join(words(corpus)) == text


def test_byte_pairs_do_not_depend_on_how_the_text_is_cut(texts: Path, monkeypatch: pytest.MonkeyPatch):
    text = "def f(x):\n\n    return  x  \n \r\n\n\n  # it's done!!  \n\tnext 日本 \u00a0 end\n" * 31
    monkeypatch.setattr(tokenized, "PIECE", 17)
    corpus = opened(put(texts / "a.py", text), tokenizer="bpe", splits=(0.5, 0.5, 0.0))
    half = len(text) // 2
    assert corpus.tokens("validation").tolist() == corpus.tokenizer.encode(text[half:]).tolist()
    assert corpus.tokens("train").tolist() == corpus.tokenizer.encode(text[:half]).tolist()
    assert isinstance(corpus.tokenizer, Bpe) and corpus.tokenizer.vocab_size == 300
    assert max(map(len, tokenized.pieces("x" * 100))) == 17


def test_byte_pairs_are_learned_from_the_training_split_alone(texts: Path):
    """`xyxyxyxy` stands in the rest only, so its pair is no token."""
    corpus = opened(put(texts / "a", "ab" * 400 + "xy" * 100), tokenizer="bpe", bpe_vocab=258)
    assert len(corpus.tokens("train")) < 800
    assert len(corpus.tokens("test")) == 100


# --- which files ------------------------------------------------------------------------------


def test_a_directory_and_a_glob(texts: Path):
    names = ("b/z.txt", "b/a.md", "b.txt", "a b\n[é].txt", ".c/d.txt", "b/.hidden")
    for number, name in enumerate(names, 1):
        put(texts / name, str(number) * 10)
    as_one = {"splits": (0.5, 0.5, 0.0)}
    assert "".join(words(opened(texts, **as_one))) == "".join(d * 10 for d in "4213")
    (texts / "b" / "up").symlink_to("..")  # each text would come forty times
    assert "".join(words(opened("**/*.txt", **as_one))) == "".join(d * 10 for d in "431")
    assert "".join(words(opened("**", **as_one))) == "".join(d * 10 for d in "4321")
    assert "".join(words(opened(".c/**", **as_one))) == "5" * 10
    assert "".join(words(opened("a b\n[é].txt", **as_one))) == "4" * 10
    assert "corpus.path=c[0-9]*: no file there" in refusal("c[0-9]*")


def test_standard_input_is_read_once(texts: Path, root: Path, monkeypatch: pytest.MonkeyPatch):
    class Stdin:
        buffer = io.BytesIO("piped in: é\n".encode() * 11)
        isatty = staticmethod(lambda: False)

    monkeypatch.setattr(sys, "stdin", Stdin)
    first = opened("-")
    assert "".join(words(first)) == "piped in: é\n" * 11
    assert opened("-", tokenizer="byte").sha256 == first.sha256  # the pipe is empty by now
    spooled = Path(os.environ["ABLATE_STDIN"])  # where child processes find it
    assert spooled.is_relative_to(root)
    os.environ["ABLATE_STDIN"] = ""
    assert "standard input is empty" in refusal("-")


# --- text that can't be used ------------------------------------------------------------------


def test_paths_without_a_text(texts: Path):
    for path in ("book.txt", "nowhere/book.txt", "a**"):
        assert refusal(path).startswith(f"corpus.path={path}: no file there, seen from {texts}; name a file,")
    put(texts / "empty" / ".hidden", "text")
    assert "corpus.path=empty: no file there" in refusal("empty")
    for nothing in ("", "\ufeff"):
        assert "book.txt is empty" in refusal(put(texts / "book.txt", nothing))
    for number in range(60):
        put(texts / "many" / os.fsdecode(b"%d\xff.txt" % number), "text " * 500)
    assert "".join(words(opened("many"))) == "text " * 500 * 60


def test_binary_data(texts: Path):
    message = refusal(put(texts / "data", b"text\0x" + b"x" * 11))
    assert message.startswith(f"{texts / 'data'}: no utf-8 text (a null); name its encoding")


@pytest.mark.parametrize("bad", [b"\xe9t", "日".encode()[:2] + b"x", "日".encode()[:2]])
def test_a_wrong_encoding_is_one_line_with_its_way_out(texts: Path, bad: bytes):
    message = refusal(put(texts / "book.txt", b"xxxxx" + bad))
    assert message.startswith(f"{texts / 'book.txt'}: no utf-8 text (")
    assert "corpus.encoding=" in message and "corpus.errors=replace" in message


def test_the_ways_out_of_a_wrong_encoding(texts: Path):
    put(texts / "book.txt", "café ".encode("latin-1") * 11)
    assert "".join(words(opened("book.txt", encoding="latin-1"))) == "café " * 11
    assert "".join(words(opened("book.txt", errors="replace"))) == "caf\ufffd " * 11
    assert "".join(words(opened("book.txt", errors="ignore"))) == "caf " * 11


def test_context_that_fits_and_does_not(book: Path):
    """100 characters: validation and test have 10 each, so 9 inputs and their targets fit."""
    corpus = opened(book)
    require_usable(corpus, 9)
    too_few = r"validation split has 10 of at least 11 tokens, with model\.context=10"
    with pytest.raises(ConfigError, match=too_few):
        require_usable(corpus, 10)
    require_usable(opened("book.txt", splits=(0.9, 0.1, 0.0)), 9)
    short = opened(put(book, "012"))
    with pytest.raises(ConfigError, match="validation split has 0 of at least 2 tokens"):
        require_usable(short, 1)


def test_what_does_not_belong():
    with pytest.raises(ConfigError, match=r"corpus=dox: no such corpus; did you mean docs\?"):
        open_corpus(dataclasses.replace(config_of("docs"), name="dox"))
    with pytest.raises(ConfigError, match=r"corpus\.seed: no such key"):
        other("docs", seed=0)


# --- the contract of every corpus -------------------------------------------------------------


def test_every_corpus_has_its_yaml_with_its_keys():
    assert {config_of(name).recipe for name in NAMES} == {*registry.methods()}
    for name in NAMES:
        kind = registry.named(config_of(name).recipe)
        assert {*read_yaml(name)} - {"tokenizer", "bpe_vocab"} == {"name", *hints(kind)}
        assert kind.__module__ == f"ablate.data.corpora.{kind.name}"
        assert read_yaml(name)["name"] == name
        assert read_yaml(name).get("tokenizer", "char") in kind.tokenizers


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        name
        for name in NAMES
        if config_of(name).recipe not in FROM_THE_NETWORK and name != "docs"  # read in seconds, below
    ],
)
def test_every_corpus_opens_and_is_the_same_each_time(texts: Path, monkeypatch, name: str):
    small = {"characters": 5000, "length": 64, "held_out": 20, "path": "text", "target": "text"}
    put(texts / "text", "".join(f"line {i}\n" for i in range(200)))
    monkeypatch.setattr(
        "ablate.data.corpora.stdlib.sources", lambda **given: dict([*sources(**given).items()][:15])
    )
    config = config_of(name, **{key: small[key] for key in small if key in read_yaml(name)})
    opened = 0
    for as_pairs in (False, True):
        bytes_of = []
        for cache_of in ("one", "two"):
            monkeypatch.setenv("ABLATE_CACHE", str(texts / cache_of))
            forget()
            try:
                corpus = open_corpus(config, as_pairs)
            except CorpusError as error:
                assert f"corpus={name}: it is " in str(error)
                break
            first = corpus.splits["train"].batch(context=64, batch=4, seed=7, step=3)
            held_out = next(corpus.splits["validation"].windows(context=64, windows=4))
            parts = [part.tolist() for batch in (first, held_out) for part in batch if part is not None]
            bytes_of.append((corpus.sha256, parts))
        assert not bytes_of or bytes_of[0] == bytes_of[1]
        if bytes_of and "seed" in config.options:
            other_seed = dataclasses.replace(config, options={**config.options, "seed": 1})
            assert open_corpus(other_seed, as_pairs).sha256 != bytes_of[0][0]
        opened += bool(bytes_of)
    assert opened


def test_the_docs_list_every_corpus():
    items, _, _ = (ROOT / "docs/corpora.md").read_text(encoding="utf-8").partition("\n## ")
    names = re.findall(r"^- (`.*?): ", items, re.M)
    assert {name for item in names for name in re.findall(r"`(\w+)`", item)} == {*NAMES}


def test_the_library_is_read_without_tables(texts: Path, monkeypatch: pytest.MonkeyPatch):
    """A document of 100 characters may have eight digits; a table has nine, or its name says what it is."""
    monkeypatch.setenv("ABLATE_STDLIB", str(texts))
    kept = ["json/__init__.py", "tables.py", "test/encodings/a.py", "topics.py"]
    left_out = ["encodings/a.py", "html/entities.py", "pydoc_data/topics.py", "stringprep.py", "test/b.py"]
    for name in (*kept, *left_out):
        path = texts / name
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, ("1" * 9 if name == "test/b.py" else "2" * 8).ljust(100, "x"))
    for tests, names in ((True, kept), (False, [name for name in kept if "test" not in name])):
        text = Stdlib(tests=tests, split="document", unique="none", encoding="utf-8", errors="strict").text()
        assert [document.name for document in text.documents()] == names


@pytest.mark.slow
def test_docs_which_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    corpus = other("docs", tokenizer="char")
    train, validation, test = words(corpus)
    assert 1_500_000 < len(train) + len(validation) + len(test) < 2_500_000
    assert 'The "if" statement' in train + validation + test
    assert corpus.text is not None and corpus.text.most_shared == 0
    for text in (validation, test):
        assert len(text) > 0.09 * len(train)
    monkeypatch.setattr(docs, "root", lambda: tmp_path)
    with pytest.raises(CorpusError, match=r"lacks pydoc_data/topics\.py"):
        other("docs", tokenizer="char")


# --- the cache --------------------------------------------------------------------------------


def test_tokenized_once(book: Path, root: Path, monkeypatch: pytest.MonkeyPatch):
    first = opened("book.txt")

    def fail(*_, **__):
        raise AssertionError("the text was read again")

    monkeypatch.setattr(tokenized, "divide", fail)
    again = opened("book.txt")
    assert words(again) == words(first) and again.sha256 == first.sha256
    assert load(entries(root)[0] / "tokenizer.json").encode("90").tolist() == [9, 0]
    for change in ({"errors": "replace"}, {"encoding": "latin-1"}):
        with pytest.raises(AssertionError, match="read again"):
            opened("book.txt", **change)
    put(book, DIGITS + "x")
    with pytest.raises(AssertionError, match="read again"):
        opened("book.txt")


def test_a_file_written_just_now_is_not_taken_for_an_earlier_one(texts: Path):
    """Two versions of one size, within one tick of a coarse clock."""
    tick = time.time_ns()
    for text in ("aaaaaaaaaa", "bbbbbbbbbb"):
        os.utime(put(texts / "book.txt", text), ns=(tick, tick))
        assert opened("book.txt").sha256 == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("damage", ["truncate", "delete", "meta"])
def test_a_damaged_entry_is_made_anew(book: Path, root: Path, damage: str):
    before = words(opened("book.txt"))
    (entry,) = entries(root)
    match damage:
        case "truncate":
            os.truncate(entry / "train.npy", 17)
        case "delete":
            (entry / "test.npy").unlink()
        case "meta":
            (entry / "meta.json").write_text("[1")
    assert words(opened("book.txt")) == before
    assert json.loads((entry / "meta.json").read_text())["sizes"].keys() >= {"train.npy", "tokenizer.json"}
    assert np.load(entry / "train.npy").size == 80
    assert not list(root.glob("part-*"))


@pytest.mark.parametrize("unique", ["none", "paragraph"])
def test_a_text_is_read_once(texts: Path, monkeypatch: pytest.MonkeyPatch, unique: str):
    for number in range(60):
        put(texts / f"many/{number}.txt", f"words of file {number}\n\n" * 40)
    read = Counter[Path]()
    plain = of_text.read

    def counting(file: Path, *how, **named):
        read[file] += 1
        return plain(file, *how, **named)

    monkeypatch.setattr(of_text, "read", counting)
    opened("many", tokenizer="bpe", unique=unique)
    assert len(read) == 60 and {*read.values()} == {1}
