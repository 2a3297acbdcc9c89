"""Pairs of texts: drawn, or read from files; in batches of similar length; never shared
between splits."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ablate.config.rules import ConfigError
from ablate.data.corpora import registry
from ablate.data.corpus import open_corpus, require_usable
from ablate.data.paired import BATCHES, Paired
from ablate.data.splits import IGNORE_INDEX
from ablate.data.tokenizers import load
from ablate.execution.trained import TrainedModel, answer
from tests.helpers import forget, make_config, refusal

DRAWN: Any = {"seed": 0, "examples": None, "held_out": 10}


def opened(*overrides: str):
    config = make_config("model=pair", *overrides)
    forget()  # files may have changed
    corpus = open_corpus(config.corpus, config.model.two_texts)
    require_usable(corpus, config.model.context)
    return corpus


def texts(corpus, split: str, count: int = 200) -> list[tuple[str, str]]:
    """The first pairs of a split, as texts."""
    pairs = corpus.splits[split].pairs
    some = pairs.at(5, range(count)) if split == "train" else pairs.held_out[:count]
    return [tuple(corpus.tokenizer.decode(side) for side in pair) for pair in some]


# --- tasks of words -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "target"), [("copy", [3, 1, 2]), ("reverse", [2, 1, 3]), ("sort", [1, 2, 3])]
)
def test_words_by_hand(name, target):
    kind: Any = registry.named(name)
    task = kind(length=8, vocabulary=5, **DRAWN)
    assert task.answer(np.array([3, 1, 2])).tolist() == target


# --- splits and batches -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["reverse", "sort"])
def test_no_pair_is_in_two_splits(corpus):
    found = opened(f"corpus={corpus}", "corpus.held_out=300")
    train, validation, test = ({*texts(found, split, 3000)} for split in ("train", "validation", "test"))
    assert validation and test and not (train & validation or train & test or validation & test)


def test_batches_drawn_together_hold_each_pair_once_and_little_padding():
    split = opened("corpus=reverse").splits["train"]
    assert isinstance(split, Paired)
    batches = [split.batch(context=80, batch=32, seed=0, step=step) for step in range(1, BATCHES + 1)]
    rows = [tuple(target[target != IGNORE_INDEX].tolist()) for batch in batches for target in batch.targets]
    drawn, end = split.pairs.at(0, range(BATCHES * 32)), split.separator
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
    epochs = [split.pairs.at(3, range(start, start + count)) for start in (0, count)]
    said = [[tuple(pair.source.tolist()) for pair in epoch] for epoch in epochs]
    assert sorted(said[0]) == sorted(said[1]) and said[0] != said[1] and len({*said[0]}) == count


def test_evaluating_reads_each_pair_once_or_some():
    split = opened("corpus=reverse", "corpus.held_out=50").splits["validation"]
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


def test_all_targets_of_one_source_are_in_one_split(tmp_path):
    write(tmp_path, [f"Satz {i // 5}" for i in range(300)], [f"sentence {i}" for i in range(300)])
    corpus = opened(*files(tmp_path))
    sources = [{source for source, _ in texts(corpus, name)} for name in corpus.splits]
    assert sum(map(len, sources)) == len(set.union(*sources)) == 60


def test_a_source_as_long_as_the_context_is_answered():
    """By a model that copies its source, letter by letter, and then ends. An answer has a letter less than
    the context, as it begins with the separator."""

    class Copies(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.on = torch.nn.Linear(1, 1)

        def forward(self, inputs_BT, positions, source_BS):
            letters_BT = torch.nn.functional.pad(source_BS, (0, 1), value=5)[:, : inputs_BT.shape[1]]
            return torch.nn.functional.one_hot(letters_BT, 6).float()

    network: Any = Copies()
    stored: Any = SimpleNamespace(
        config=make_config("model=pair", "model.context=8"), tokenizer=SimpleNamespace(separator=5)
    )
    model = TrainedModel(network, stored)
    for length in (3, 7, 8):
        source_S = torch.arange(length) % 5
        assert answer(model, source_S).tolist() == source_S[:7].tolist()
    for length in (0, 9):
        with pytest.raises(ConfigError, match=f"the prompt has {length} tokens; give 1 to 8"):
            answer(model, torch.zeros(length, dtype=torch.int64))


@pytest.mark.parametrize(
    ("sources", "targets", "words"),
    [
        (GERMAN, ENGLISH[:-1], ("60 lines and 59",)),
        ([""] * 3, ["a"] * 3, ("no pairs", "3 lines", "3 have an empty side")),
        ([f"{'x' * 90}{i}" for i in range(50)], ["y"] * 50, ("model.context=92", "shorter pairs")),
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
        (("corpus=pairs", "corpus.path=-", "corpus.target=one.tsv"), ("one file of each language",)),
    ],
)
def test_bad_input_is_one_line(tmp_path, overrides, words):
    for name in ("one.tsv", "two.tsv"):
        (tmp_path / name).write_text("a\tb\nc d\n")
    line = refusal("run", "model=pair", *overrides, cwd=tmp_path)
    assert all(word in line for word in words), line
