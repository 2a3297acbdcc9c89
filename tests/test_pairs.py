"""Pairs of texts: drawn with known alignments, or read from files; in batches of similar length; never shared
between splits."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ablate.config.rules import ConfigError
from ablate.data.corpora.base import registry
from ablate.data.corpora.numbers import NumberWords, _text, english, german, number_of
from ablate.data.corpus import open_corpus
from ablate.data.paired import BATCHES, GivenPairs, Layout, Pair, Paired
from ablate.data.splits import IGNORE_INDEX
from ablate.data.tokenizers import load
from ablate.execution.translate import translated
from tests.helpers import call_cli, forget, make_config, refusal

SAID = {
    0: ("null", "zero"),
    1: ("eins", "one"),
    16: ("sechzehn", "sixteen"),
    21: ("einundzwanzig", "twenty-one"),
    30: ("dreißig", "thirty"),
    100: ("einhundert", "one hundred"),
    101: ("einhunderteins", "one hundred and one"),
    341: ("dreihunderteinundvierzig", "three hundred and forty-one"),
    717: ("siebenhundertsiebzehn", "seven hundred and seventeen"),
    1000: ("eintausend", "one thousand"),
    1001: ("eintausendeins", "one thousand and one"),
    12_012: ("zwölftausendzwölf", "twelve thousand and twelve"),
    201_100: ("zweihunderteintausendeinhundert", "two hundred and one thousand one hundred"),
    999_999: (
        "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
        "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
    ),
}


DRAWN: Any = {"seed": 0, "examples": None, "held_out": 10}


def opened(*overrides: str):
    config = make_config("model=pair", *overrides)
    forget()  # files may have changed
    return open_corpus(config.corpus, config.model)


def texts(corpus, split: str, count: int = 200) -> list[tuple[str, str]]:
    """The first pairs of a split, as texts."""
    pairs = corpus.splits[split].pairs
    some = pairs.to_train(5, range(count)) if split == "train" else pairs.held_out[:count]
    return [tuple(corpus.tokenizer.decode(side) for side in pair) for pair in some]


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "said"), SAID.items())
def test_numbers_by_hand(number, said):
    assert (_text(german(number)), _text(english(number))) == said


def test_every_text_means_one_number():
    for said in (german, english):
        for number in (*range(1200), *range(990, 10**6, 997)):
            assert number_of(_text(said(number)), said) == number


@pytest.mark.parametrize("direction", ["de-en", "en-de"])
def test_units_before_tens(direction):
    task = NumberWords(direction=direction, **DRAWN)
    said = SAID[341] if direction == "de-en" else SAID[341][::-1]
    gold_TS = task.aligned(*said)
    german_text, english_text = SAID[341]

    def linked(one: str, other: str) -> bool:
        rows = slice(german_text.index(one), german_text.index(one) + len(one))
        columns = slice(english_text.index(other), english_text.index(other) + len(other))
        return bool((gold_TS[columns, rows] if direction == "de-en" else gold_TS[rows, columns]).all())

    assert linked("drei", "three") and linked("hundert", "hundred")
    assert linked("ein", "one") and linked("vierzig", "forty")
    assert gold_TS.sum() == 4 * 5 + 7 * 7 + 3 * 3 + 7 * 5  # and nothing else


def test_magnitudes_are_equally_often():
    drawn = NumberWords(direction="de-en", **DRAWN).draw_pairs(np.random.default_rng(0), 6000)
    digits = [len(str(number_of(source, german))) for source, _ in drawn]
    assert all(900 < digits.count(n) < 1100 for n in range(1, 7))


# --- tasks of words -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "target", "gold"),
    [
        ("copy", "3 1 3", [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        ("reverse", "3 1 3", [[0, 0, 1], [0, 1, 0], [1, 0, 0]]),
        ("sort", "1 3 3", [[0, 1, 0], [1, 0, 1], [1, 0, 1]]),
    ],
)
def test_words_by_hand(name, target, gold):
    kind: Any = registry.named(name)
    task = kind(length=8, vocabulary=5, **DRAWN)
    words = np.array([3, 1, 3])
    assert task.answer(words).tolist() == [int(word) for word in target.split()]
    assert task.aligned("3 1 3", target).astype(int).tolist() == gold


def test_every_length_of_words_comes_and_none_is_longer():
    corpus = opened("corpus=copy", "corpus.length=12")
    lengths = [len(source.split()) for source, target in texts(corpus, "train", 1000)]
    assert {*lengths} == {1, 2, 3, 4, 5}
    assert all(source == target for source, target in texts(corpus, "train"))


# --- splits and batches -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["numbers", "sort"])
def test_no_pair_is_in_two_splits(corpus):
    found = opened(f"corpus={corpus}", "corpus.held_out=300")
    train, validation, test = ({*texts(found, split, 3000)} for split in ("train", "validation", "test"))
    assert validation and test and not (train & validation or train & test or validation & test)


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["numbers", "copy"])
def test_held_out_pairs_are_all_different(corpus):
    found = opened(f"corpus={corpus}", "corpus.held_out=700")
    for split in ("validation", "test"):
        held_out = texts(found, split, 10**6)
        assert len(held_out) == len({*held_out}) == 700
    digits = [number_of(source, german) for source, _ in held_out] if corpus == "numbers" else [9999]
    assert sum(number < 1000 for number in digits) < 200  # there are few short ones


def test_a_batch_is_a_function_of_seed_and_step():
    one, other = (opened("corpus=numbers").splits["train"] for _ in range(2))
    for step in (40, 3):  # in any order
        first, second = (split.batch(context=80, batch=4, seed=7, step=step) for split in (one, other))
        assert all(a is not None and b is not None and a.equal(b) for a, b in zip(first, second, strict=True))
    assert not one.batch(context=80, batch=4, seed=8, step=3).inputs.equal(first.inputs)


def test_batches_drawn_together_hold_each_pair_once_and_little_padding():
    split = opened("corpus=numbers").splits["train"]
    assert isinstance(split, Paired)
    batches = [split.batch(context=80, batch=32, seed=0, step=step) for step in range(1, BATCHES + 1)]
    rows = [tuple(target[target != IGNORE_INDEX].tolist()) for batch in batches for target in batch.targets]
    drawn, end = split.pairs.to_train(0, range(BATCHES * 32)), split.layout.separator
    assert sorted(rows) == sorted((*pair.target.tolist(), end) for pair in drawn)
    sources = [batch.source for batch in batches if batch.source is not None]
    assert len(sources) == BATCHES
    filled = sum((source >= 0).sum().item() for source in sources)
    assert filled > 0.6 * sum(source.numel() for source in sources)
    lengths = [source.shape[1] for source in sources]
    assert lengths != sorted(lengths)  # the shortest do not come first


def test_an_epoch_of_files_has_each_pair_once(tmp_path):
    write(tmp_path, [f"a{i}" for i in range(100)], [f"b{i}" for i in range(100)])
    split = opened(*files(tmp_path)).splits["train"]
    assert isinstance(split, Paired)
    count = split.pairs.count
    assert count is not None
    epochs = [split.pairs.to_train(3, range(start, start + count)) for start in (0, count)]
    said = [[tuple(pair.source.tolist()) for pair in epoch] for epoch in epochs]
    assert sorted(said[0]) == sorted(said[1]) and said[0] != said[1] and len({*said[0]}) == count


def test_evaluating_reads_each_pair_once_or_some():
    split = opened("corpus=numbers", "corpus.held_out=50").splits["validation"]
    rows = [len(batch.inputs) for batch in split.windows(context=80, windows=16)]
    assert rows == [16, 16, 16, 2]
    some = [*split.windows(context=80, windows=16, most=200)]
    asked = sum(len(batch.target_positions) for batch in some if batch.target_positions is not None)
    assert split.size is not None and 0 < asked < split.size and asked == pytest.approx(200, rel=0.6)


# --- files of one's own -------------------------------------------------------------------------


def write(directory: Path, sources: list[str], targets: list[str], end: str = "\n") -> None:
    for name, lines in (("a.de", sources), ("a.en", targets)):
        (directory / name).write_bytes("".join(f"{line}{end}" for line in lines).encode())


def files(directory: Path) -> tuple[str, ...]:
    return ("corpus=pairs", f"corpus.path={directory}/a.de", f"corpus.target={directory}/a.en")


GERMAN = [f"ein Satz {i}" for i in range(60)]
ENGLISH = [f"a sentence {i}" for i in range(60)]
SENTENCES = {*zip(GERMAN, ENGLISH, strict=True)}


def every(corpus) -> set[tuple[str, str]]:
    pairs = (pair for split in corpus.splits.values() for pair in split.pairs.held_out)
    return {(corpus.tokenizer.decode(pair.source), corpus.tokenizer.decode(pair.target)) for pair in pairs}


def test_however_lines_end(tmp_path):
    found = []
    for end in ("\n", "\r\n"):
        write(tmp_path, GERMAN, ENGLISH, end)
        found.append(opened(*files(tmp_path)))
    (tmp_path / "a.de").write_bytes(b"\xef\xbb\xbf" + "\n".join(GERMAN).encode())  # a BOM, no last end
    found.append(opened(*files(tmp_path)))
    columns = [f"{de}\t{en}\tCC-BY 2.0" for de, en in zip(GERMAN, ENGLISH, strict=True)]
    (tmp_path / "both.tsv").write_text("\n".join(columns), encoding="utf-8")
    found.append(opened("corpus=pairs", f"corpus.path={tmp_path}/both.tsv"))
    assert all(every(corpus) == SENTENCES for corpus in found)
    assert len({corpus.sha256 for corpus in found}) == 1


def test_empty_lines_are_left_out(tmp_path):
    write(tmp_path, [*GERMAN, "", "  ", "allein"], [*ENGLISH, "x", "y", ""])
    assert every(opened(*files(tmp_path))) == SENTENCES


@pytest.mark.parametrize("tokenizer", ["char", "byte", "bpe"])
def test_every_tokenizer_writes_both_texts(tmp_path, tokenizer):
    write(tmp_path, [f"größer {i}" for i in range(60)], ENGLISH)
    corpus = opened(*files(tmp_path), f"corpus.tokenizer={tokenizer}", "corpus.bpe_vocab=300")
    assert ("größer 7", "a sentence 7") in every(corpus)
    (tmp_path / "tokenizer.json").write_text(corpus.tokenizer.dump())
    again = load(tmp_path / "tokenizer.json")
    separator = corpus.tokenizer.separator
    assert again.vocab_size == corpus.tokenizer.vocab_size == separator + 1
    ids = corpus.tokenizer.encode("größer")
    assert again.decode([separator, *ids, separator]) == "größer"


def test_long_pairs_are_dropped_or_cut(tmp_path):
    write(tmp_path, [*GERMAN, "x" * 90], [*ENGLISH, "y" * 200])
    with pytest.raises(ConfigError, match=r"1 of 61 pairs are longer, the longest 201;.*corpus.long=drop"):
        opened(*files(tmp_path))
    assert every(opened(*files(tmp_path), "corpus.long=drop")) == SENTENCES
    assert ("x" * 80, "y" * 79) in every(opened(*files(tmp_path), "corpus.long=cut"))


def test_other_held_out_pairs_are_another_text(tmp_path):
    """What a smaller context or another architecture drops or cuts, others are evaluated on."""
    write(tmp_path, [*GERMAN, "x" * 50], [*ENGLISH, "y" * 60])
    of = {
        asked: opened(*files(tmp_path), *asked.split()).sha256
        for asked in (
            *("model.context=80", "model.context=90", "model.context=61"),
            *("corpus.long=drop model.context=60", "corpus.long=drop model.context=55"),
            *("corpus.long=cut model.context=60", "corpus.long=cut model.context=55"),
        )
    }
    whole, *smaller = [*dict.fromkeys(of.values())]
    assert [*of.values()][:3] == [whole] * 3
    assert len(smaller) == 3  # both contexts drop the same pair


def test_translations_of_one_source_are_in_one_split(tmp_path):
    write(tmp_path, [f"Satz {i // 5}" for i in range(300)], [f"sentence {i}" for i in range(300)])
    corpus = opened(*files(tmp_path))
    sources = [{source for source, _ in texts(corpus, name)} for name in corpus.splits]
    assert sum(map(len, sources)) == len(set.union(*sources)) == 60


@pytest.mark.parametrize("size", [7, 152, 3])
def test_an_evaluation_of_as_much_as_there_is_reads_all(tmp_path, size):
    lengths = [1 + at % 3 for at in range(size)]
    pairs = [Pair(np.zeros(2, np.int64), np.zeros(length, np.int64)) for length in lengths]
    split = Paired(GivenPairs(pairs), Layout(5, True))
    assert sum(len(batch.inputs) for batch in split.windows(context=8, windows=4, most=split.size)) == size


def test_a_source_as_long_as_the_context_is_translated_whole():
    """By a model that copies its source, letter by letter, and then ends. A target has a letter less than the
    context, as it begins with the separator."""

    class Copies(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.on = torch.nn.Parameter(torch.zeros(()))

        def forward(self, inputs, positions, source):
            ends = torch.nn.functional.pad(source, (0, 1), value=-1)
            row, at = positions // inputs.shape[1], positions % inputs.shape[1]
            letters = ends[row, at]
            return torch.nn.functional.one_hot(letters.where(letters >= 0, torch.tensor(5)), 6).float()

    sources = [np.arange(length) % 5 for length in (3, 7, 8)]
    model: Any = Copies()
    found = translated(model, Layout(5, True), sources, 8)
    assert [one.tolist() for one in found] == [source[:7].tolist() for source in sources]


@pytest.mark.parametrize(
    ("sources", "targets", "words"),
    [
        (GERMAN, ENGLISH[:-1], ("60 lines and 59",)),
        ([""] * 3, ["a"] * 3, ("no pairs", "3 lines", "3 have an empty side")),
        ([], [], ("no pairs",)),
        (["a"], ["b"], ("1 pairs leave none for",)),
        ([f"{'x' * 90}{i}" for i in range(50)], ["y"] * 50, ("longer", "92")),
    ],
)
def test_files_that_will_not_do(tmp_path, sources, targets, words):
    write(tmp_path, sources, targets)
    with pytest.raises(ConfigError) as refused:
        opened(*files(tmp_path))
    assert all(word in str(refused.value) for word in words), refused.value


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("corpus=pairs",), ("which texts?", "corpus.target=")),
        (("corpus=pairs", "corpus.path=one.tsv"), ("line 2", "no tab")),
        (("corpus=pairs", "corpus.path=."), ("one file of each language",)),
        (("corpus=pairs", "corpus.path=-", "corpus.target=one.tsv"), ("one file of each language",)),
        (("corpus=numbers", "corpus.direction=fr-en"), ("corpus.direction=fr-en",)),
        (("corpus=numbers", "corpus.direction=null"), ("corpus.direction=null",)),
        (("corpus=numbers", "corpus.tokenizer=bpe"), ("corpus.tokenizer=bpe", "char or byte")),
        (("corpus=copy", "corpus.length=3"), ("corpus.length=3",)),
        (("corpus=numbers", "corpus.long=drop"), ("corpus.long=drop", "corpus=pairs")),
    ],
)
def test_bad_input_is_one_line(tmp_path, overrides, words):
    for name in ("one.tsv", "two.tsv"):
        (tmp_path / name).write_text("a\tb\nc d\n")
    line = refusal("run", "model=pair", *overrides, cwd=tmp_path)
    assert all(word in line for word in words), line


# --- from the command line ----------------------------------------------------------------------

SMALL = ("model.d_model=16", "model.layers=1", "train.eval_every=3", "train.batch=4", "corpus.held_out=40")


@pytest.mark.slow
def test_the_same_bytes_twice_and_bleu_is_sacrebleu_s(tmp_path):
    pytest.importorskip("sacrebleu")
    stores, asked = [], ("corpus=numbers", "train.translate=true", "train.steps=120", "train.lr=2e-2")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        done = call_cli("run", "model=pair", *asked, *SMALL, cwd=tmp_path / name)
        assert done.returncode == 0, done.stderr
        (run,) = (tmp_path / name / "runs" / "store").glob("concat-*")
        stores.append(run)
    for file in ("test.source", "test.target", "test.translation"):
        assert (stores[0] / file).read_bytes() == (stores[1] / file).read_bytes()
    columns = ("--columns", "test_bleu,test_chrf,test_exact")
    row = call_cli("runs", "--format", "json", *columns, cwd=tmp_path / "one")
    command = [sys.executable, "-m", "sacrebleu", str(stores[0] / "test.target")]
    command += ["-i", str(stores[0] / "test.translation"), "-m", "bleu", "chrf", "-w", "6"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    (found,) = json.loads(row.stdout)["rows"]
    for column, of in zip(("test_bleu", "test_chrf"), said, strict=True):
        assert found[column] == pytest.approx(of["score"], abs=1e-5)
    signature = json.loads((stores[0] / "environment.json").read_text())["sacrebleu"]["test_bleu"]
    assert signature.startswith("nrefs:1") and "version:" in signature


def test_without_a_test_split_nothing_is_translated(tmp_path):
    pytest.importorskip("sacrebleu")
    asked = ("corpus=copy", "corpus.length=10", "corpus.splits=[0.9,0.1,0]", "train.translate=true")
    done = call_cli("run", "model=pair", *asked, *SMALL, "train.steps=3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs" / "store").glob("concat-*")
    assert "the test split has no pairs, so nothing is translated" in (run / "log.txt").read_text()


def test_without_sacrebleu_bleu_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    done = call_cli("run", "model=pair", "corpus=numbers", "train.translate=true", cwd=tmp_path)
    assert done.returncode == 2 and "pip install 'ablate-heads[translate]'" in done.stderr
