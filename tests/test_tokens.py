"""From a text to batches: tokenizers, matches, splits, the counting model, and batches of one text."""

import itertools
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from ablate.config.rules import ConfigError
from ablate.data import division, matches
from ablate.data.counting import discounts, kneser_ney
from ablate.data.division import by_document, divide, paragraphs
from ablate.data.matches import WIDTH, hashes, overlap, places
from ablate.data.splits import Stream
from ablate.data.text import Document, of_files
from ablate.data.tokenizers import Bpe, Byte, Char, Tokenizer, load

# --- tokenizers ---------------------------------------------------------------------------------------------


# 1, 2, 3 and 4 bytes; accents apart; odd line ends
TEXT = "naïve 日本 🙂\r\n\tna\u0301ive  \u2028 na na na\n"


def tokenizers() -> list[Tokenizer]:
    return [Char("".join(sorted(set(TEXT)))), Byte(), Bpe.train([TEXT], 269)]


@pytest.mark.parametrize("tokenizer", tokenizers(), ids=lambda tokenizer: tokenizer.name)
def test_lossless_and_true_lengths(tokenizer: Tokenizer, tmp_path: Path):
    ids = tokenizer.encode(TEXT)
    assert ids.ndim == 1 and ids.max() < tokenizer.vocab_size
    assert tokenizer.decode(ids) == tokenizer.decode(ids.tolist()) == TEXT
    assert sum(map(tokenizer.bytes_of, ids.tolist())) == len(TEXT.encode())
    assert tokenizer.encode("").tolist() == [] and tokenizer.decode([]) == ""

    (tmp_path / "tokenizer.json").write_text(tokenizer.dump(), encoding="utf-8")
    again = load(tmp_path / "tokenizer.json")
    assert again.name == tokenizer.name
    assert again.encode(TEXT).tolist() == ids.tolist()
    assert again.vocab_size == tokenizer.vocab_size


def test_char_by_hand():
    char = Char("\nabé日")
    assert char.encode("日ab\né").tolist() == [4, 1, 2, 0, 3]
    assert [*map(char.bytes_of, range(5))] == [1, 1, 1, 2, 3]
    assert char.decode([3, 3, 1]) == "ééa"


@pytest.mark.parametrize("text, shown", [("abZ", "'Z' (U+005A)"), ("a\udcff", "U+DCFF"), ("🙂", "U+1F642")])
def test_char_refuses_the_unknown(text: str, shown: str):
    with pytest.raises(ConfigError) as caught:
        Char("\nabé日").encode(text)
    assert shown in str(caught.value) and r"'\nab\xe9\u65e5'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bpe_merges_what_is_frequent():
    """In `abababab cd` the pair ab is the most frequent, then abab; one merge is one token."""
    bpe = Bpe.train(["abababab cd"], 258)
    assert bpe.vocab_size == 258
    lengths = [*map(bpe.bytes_of, range(258))]
    assert sorted(lengths)[-2:] == [2, 4] and lengths.count(1) == 256
    assert [lengths[i] for i in bpe.encode("ababab")] == [4, 2]
    assert bpe.decode(bpe.encode("🙂")[:2]) == "\ufffd"
    assert Bpe.train(["ab"], 1024).vocab_size == 257  # no more pairs
    assert Bpe.train([], 1024).vocab_size == 256


@pytest.mark.parametrize("tokenizer", [Byte(), Bpe.train([], 256)], ids=lambda tokenizer: tokenizer.name)
def test_half_a_surrogate_pair_is_refused(tokenizer: Tokenizer):
    with pytest.raises(ConfigError, match=r"U\+D800"):
        tokenizer.encode("a\ud800")


@pytest.mark.parametrize("content", ["", "[]", json.dumps({"name": "words"}), json.dumps({"name": "char"})])
def test_a_file_that_is_no_tokenizer(content: str, tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ConfigError, match=r"tokenizer\.json: no tokenizer"):
        load(tmp_path / "tokenizer.json")


# --- verbatim matches, against a search for every stretch ---------------------------------------------------


def by_search(text: str, other: str) -> float:
    covered = [False] * len(text)
    for at in range(len(text) - WIDTH + 1):
        if text[at : at + WIDTH] in other:
            covered[at : at + WIDTH] = [True] * WIDTH
    return sum(covered) / len(text)


def made(length: int, seed: int) -> str:
    return "".join(random.Random(seed).choices("ab\n é中😀", k=length))


@pytest.mark.parametrize("block", [7, 64, 1 << 20])
def test_planted_repeats_are_measured_exactly(block, monkeypatch):
    monkeypatch.setattr(matches, "BLOCK", block)
    text, one, other = made(1500, 0), made(900, 1), made(700, 2)
    one = one[:100] + text[200:280] + one[100:] + text[700 : 700 + WIDTH - 1]  # the last is too short by one
    other = text[260 : 260 + WIDTH] + other + text[-WIDTH:]

    share = overlap(text, one + "|" + other)
    assert share == pytest.approx(by_search(text, one + "|" + other), abs=1e-12)
    assert share == pytest.approx((310 - 200 + WIDTH) / 1500)


@pytest.mark.parametrize("text", ["", "short", "x" * (WIDTH - 1)])
def test_a_text_shorter_than_a_stretch_has_no_matches(text):
    assert overlap(text, text * 3) == overlap(made(99, 0), text) == 0.0
    assert (places(hashes("x" * 99), hashes(text)) == matches.ABSENT).all()


# --- what goes into which split: by position, by document, and without what repeats -------------------------


SHARES = (0.8, 0.1, 0.1)
Dividing = Callable[[Sequence[float]], division.Divided]  # by these shares


def text_of(*contents: str, split: str = "auto", unique: str = "none", given: Sequence[str] = ()) -> Dividing:
    documents = [
        Document(f"{number}.txt", text, of)
        for number, (text, of) in enumerate(zip(contents, given or [""] * len(contents), strict=True))
    ]
    return partial(divide, documents, split=split, unique=unique)


def split_up(text: Dividing, shares: Sequence[float] = SHARES) -> list[str]:
    return text(shares).splits


def sentences(count: int, seed: int) -> list[str]:
    draws = random.Random(seed)
    return [
        "".join(draws.choices("abcdefgh ", k=draws.randint(60, 90))) + f" {i}-{seed}.\n\n"
        for i in range(count)
    ]


def test_auto_keeps_documents_whole_from_fifty_on():
    contents = [f"document {number} " * 9 for number in range(60)]
    some, whole = split_up(text_of(*contents[:49])), split_up(text_of(*contents))
    assert "".join(some) == "".join(contents[:49])
    assert some == split_up(text_of(*contents[:49], split="position"))
    assert (
        whole
        == split_up(text_of(*contents, split="document"))
        != split_up(text_of(*contents, split="position"))
    )
    for text in contents:
        assert sum(text in part for part in whole) == 1
    assert "".join(sorted(contents)) == "".join(
        sorted(text for part in whole for text in contents if text in part)
    )


def test_documents_fill_test_then_validation_and_large_ones_train():
    draws = np.random.default_rng(0)
    sizes = np.array([*draws.integers(100, 1000, 900), 40_000, 50_000])
    splits = np.array(by_document([f"d{i}" for i in range(902)], sizes, SHARES))
    for split in (1, 2):
        of_split = sizes[splits == split]
        assert 0 <= of_split.sum() - 0.1 * sizes.sum() < 1000
        assert of_split.max() <= 0.02 * of_split.sum()
    again = by_document([f"d{i}" for i in range(902)][::-1], sizes[::-1], SHARES)
    assert (splits == again[::-1]).all()  # by their names, not by their order


@pytest.mark.parametrize("sizes", [[5, 5, 90], [33, 33, 34], [25] * 4])
def test_few_documents_still_give_each_split_one(sizes):
    splits = by_document([f"d{i}" for i in range(len(sizes))], np.array(sizes), SHARES)
    assert {*splits} == {0, 1, 2}
    assert splits[int(np.argmax(sizes))] == 0 or max(sizes) < 50


def test_splits_of_its_own_are_kept():
    text = text_of("last", "first", "held", "more", given=("test", "train", "validation", "train"))
    assert split_up(text) == ["firstmore", "held", "last"]
    text = text_of("first", "held", given=("train", "validation"), unique="paragraph")
    assert split_up(text) == ["first", "held", ""]


def test_paragraphs_end_with_their_blank_lines():
    text = "one\ntwo\n\nthree\n \t\n\n\nfour\r\n\r\nfive\n\n"
    assert [*paragraphs(text)] == ["one\ntwo\n\n", "three\n \t\n\n\n", "four\r\n\r\n", "five\n\n"]


@pytest.mark.parametrize("block", [200, 1 << 20])
def test_unique_text_keeps_each_paragraph_once_and_no_match_between_splits(block, monkeypatch):
    monkeypatch.setattr(matches, "BLOCK", block)
    draws, contents = random.Random(1), []
    for number in range(80):
        own = sentences(12, number)
        if number:
            borrowed = draws.choice(contents)
            own.insert(3, "Licence:\n  of   all\n\n" if number % 2 else "licence: OF ALL\n\n")
            start = draws.randrange(len(borrowed) // 2, len(borrowed) - 80)
            own[5] = own[5][:20] + borrowed[start : start + 70].replace("\n", " ") + own[5][20:]
        contents.append("".join(own))
    text = text_of(*contents, unique="paragraph")
    train, validation, test = split_up(text)
    assert (train + validation + test).lower().count("licence:") == 1
    assert overlap(validation, train) == overlap(test, train) == overlap(test, validation) == 0
    before = split_up(text_of(*contents))
    assert overlap(before[2], before[0]) > 0
    assert len(train) > 0.6 * len(before[0]) and len(test) > 0.8 * len(before[2])


def test_a_paragraph_in_training_goes_and_not_the_one_held_out():
    shared = "a stretch of characters that is as long as it has to be, and more"
    assert len(shared) > WIDTH
    own = [f"paragraph {i}: {'xyzw'[i % 4] * 3} {i * 7919}\n\n" for i in range(100)]
    own[10] = f"training {shared} here\n\n"
    own[85] = f"validation {shared}\n\n"
    own[97] = f"test {shared}\n\n"
    train, validation, test = split_up(text_of("".join(own), split="position", unique="paragraph"))
    assert shared not in train + validation and shared in test
    assert "".join(own[11:60]) in train and own[9] in train


def test_the_fingerprint_is_of_the_text_and_its_division():
    contents = [f"document {number}\n\n" * 9 for number in range(60)]
    made = {
        text_of(*contents, split=split, unique=unique)(SHARES).fingerprint
        for split in ("position", "document")
        for unique in ("none", "paragraph")
    }
    assert len(made) == 4
    assert len({text_of(*contents)(shares).fingerprint for shares in (SHARES, (0.6, 0.2, 0.2))}) == 2


def test_a_long_text_is_cut_by_position(monkeypatch):
    contents = [f"document {number} " * 9 for number in range(60)]
    for limit, split in ((1, "document"), (0, "position")):
        monkeypatch.setattr(division, "LONG", sum(map(len, contents)) + limit)
        assert split_up(text_of(*contents)) == split_up(text_of(*contents, split=split))


def test_files_are_documents_named_from_the_directory_that_all_are_in(tmp_path: Path):
    for name in ("a/x.txt", "a/b/y.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    files = [tmp_path / "a/b/y.txt", tmp_path / "a/x.txt"]
    assert [document.name for document in of_files(files, "utf-8", "strict").documents()] == [
        "b/y.txt",
        "x.txt",
    ]


# --- the counting model, against its formula written with dictionaries --------------------------------------


class ByTheBook:
    """Modified Kneser–Ney of one order, a count at a time."""

    def __init__(self, text: list[int], vocab: int, order: int) -> None:
        self.vocab, self.order = vocab, order
        self.counts: dict[int, Counter[tuple[int, ...]]] = {}
        for n in range(1, order + 1):
            whole = Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1))
            if n < order:
                longer = {tuple(text[i : i + n + 1]) for i in range(len(text) - n)}
                whole = Counter(gram[1:] for gram in longer)
            self.counts[n] = whole
        self.discounts = {n: self.discount(counts) for n, counts in self.counts.items()}

    @staticmethod
    def discount(counts: Counter[tuple[int, ...]]) -> dict[int, float]:
        of = Counter(counts.values())
        result, last = {}, 0.5
        for c in (1, 2, 3):
            if of[1] and of[c]:
                value = c - (c + 1) * of[1] / (of[1] + 2 * of[2]) * of[c + 1] / of[c]
                last = value if value > 0 else last
            result[c] = last
        return result

    def probability(self, history: tuple[int, ...], token: int) -> float:
        history = history[-(self.order - 1) :] if self.order > 1 else ()
        return self.recurse(len(history) + 1, history, token)

    def recurse(self, n: int, history: tuple[int, ...], token: int) -> float:
        if n == 0:
            return 1 / self.vocab
        lower = self.recurse(n - 1, history[1:], token)
        follow = {gram[-1]: c for gram, c in self.counts[n].items() if gram[:-1] == history and c}
        if not follow:
            return lower
        taken = self.discounts[n]
        kept = max(follow.get(token, 0) - taken[min(follow[token], 3)], 0) if token in follow else 0
        freed = sum(taken[min(c, 3)] for c in follow.values())
        return (kept + freed * lower) / sum(follow.values())


def made_text(length: int, vocab: int, seed: int) -> np.ndarray:
    """A text in which what comes next depends on two tokens before, with rare tokens."""
    draws = np.random.default_rng(seed)
    table = draws.dirichlet(np.full(vocab, 0.15), size=(vocab, vocab))
    text = [0, 1]
    while len(text) < length:
        text.append(int(draws.choice(vocab, p=table[text[-2], text[-1]])))
    return np.array(text)


@pytest.mark.parametrize("context", [1, 3, 50])
def test_its_loss_is_that_of_the_formula(context):
    training, other, vocab = made_text(400, 9, 0), made_text(60, 9, 1), 10
    models = kneser_ney(training, {"other": other}, vocab=vocab, context=context)
    for order, probabilities in enumerate(itertools.islice(models, 5), 1):
        expected = []
        for place in range(1, len(other)):
            start = (place - 1) // context * context
            history = tuple(other[start:place].tolist())
            book = ByTheBook(training.tolist(), vocab, min(order, len(history) + 1))
            expected.append(book.probability(history, int(other[place])))
        assert probabilities["other"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "training", [made_text(300, 7, 2), np.zeros(40, int), np.arange(7), np.array([3, 3])]
)
def test_its_probabilities_sum_to_one(training):
    history, vocab = [1, 0, 2, 1], 7
    total = defaultdict(float)
    for token in range(vocab):
        text = np.array([*history, token])
        for order, probabilities in enumerate(kneser_ney(training, {"": text}, vocab=vocab, context=9)):
            assert probabilities[""][-1] > 0
            total[order] += probabilities[""][-1]
            if order == 5:
                break
    assert [*total.values()] == pytest.approx([1.0] * len(total), abs=1e-9) and total


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([1, 1, 1, 1, 2, 2, 3, 4], [0.5, 2 - 3 * 0.5 / 2, 3 - 4 * 0.5]),  # 4, 2, 1, 1 of them: a share of 1/2
        ([1, 1, 1], [1.0, 1.0, 1.0]),
        ([2, 2, 5], [0.5, 0.5, 0.5]),
        ([1, 2, 3, 3, 3], [1 / 3, 1 / 3, 3.0]),  # that of 2 would be 2 − 3 · 1/3 · 3 = −1
    ],
)
def test_discounts_where_counts_leave_them_undefined(counts, expected):
    assert discounts(np.array(counts)) == pytest.approx([0.0, *expected])


# --- batches: every start, every target, and nothing but the arguments --------------------------------------


TOKENS = np.arange(100, 123, dtype=np.uint16)  # 23 tokens, each the place it stands at, plus 100
TEXT_OF_SPLITS = Stream(TOKENS)


def test_targets_are_the_inputs_one_later():
    inputs, targets, positions, _ = TEXT_OF_SPLITS.batch(context=5, batch=7, seed=0, step=3)
    assert inputs.shape == targets.shape == (7, 5)
    assert inputs.dtype == targets.dtype == torch.int64
    assert inputs.is_contiguous() and targets.is_contiguous() and positions is None
    assert torch.equal(inputs[:, :1] + torch.arange(5), inputs)
    assert torch.equal(inputs + 1, targets)


def test_a_batch_depends_on_seed_and_step_alone():
    def batch(seed: int, step: int) -> list[int]:
        np.random.seed(step + 7 * seed)
        torch.manual_seed(step + 7 * seed)
        return TEXT_OF_SPLITS.batch(context=5, batch=29, seed=seed, step=step)[0][:, 0].tolist()

    first = batch(1, 2)
    assert batch(1, 3) != first and batch(2, 2) != first
    assert batch(1, 2) == first


def test_every_start_is_drawn_equally_often():
    """23 tokens hold 18 windows of 5 and a target: starts 0 to 17, each 1/18 of the draws."""
    inputs, targets, *_ = TEXT_OF_SPLITS.batch(context=5, batch=36_000, seed=0, step=0)
    counts = torch.bincount(inputs[:, 0] - 100)
    assert counts.shape == (18,) and targets.max() == 122
    assert (counts - 2000).abs().max() < 5 * np.sqrt(2000)
    inputs, targets, *_ = Stream(TOKENS[:6]).batch(context=5, batch=3, seed=0, step=0)  # the smallest
    assert inputs.tolist() == [[100, 101, 102, 103, 104]] * 3 and targets[0, -1] == 105


def test_evaluation_by_hand():
    """22 targets are 4 windows of 5, three at a time, and one of 2."""
    windows = list(TEXT_OF_SPLITS.windows(context=5, windows=3))
    assert [tuple(inputs.shape) for inputs, *_ in windows] == [(3, 5), (1, 5), (1, 2)]
    assert torch.cat([inputs.flatten() for inputs, *_ in windows]).tolist() == list(range(100, 122))
    assert torch.cat([targets.flatten() for _, targets, *_ in windows]).tolist() == list(range(101, 123))
    assert windows[0][0][1].tolist() == [105, 106, 107, 108, 109]
    assert all(part.dtype == torch.int64 for window in windows for part in window[:2])


def test_evaluation_without_a_shorter_window():
    assert [tuple(x.shape) for x, *_ in TEXT_OF_SPLITS.windows(context=11, windows=5)] == [(2, 11)]
    assert [tuple(x.shape) for x, *_ in TEXT_OF_SPLITS.windows(context=31, windows=5)] == [(1, 22)]
    assert not list(Stream(TOKENS[:1]).windows(context=5, windows=3))
    assert not list(Stream(TOKENS[:0]).windows(context=5, windows=3))


@pytest.mark.parametrize(("most", "count"), [(1, 1), (5, 1), (14, 2), (350, 70), (998, 199)])
def test_some_windows_are_spread_over_the_split_and_the_same_each_time(most, count):
    tokens = np.arange(1000)  # 199 windows of 5

    def starts() -> list:
        batches = Stream(tokens).windows(context=5, windows=3, most=most)
        return [window[0].item() for inputs, *_ in batches for window in inputs]

    assert len(starts()) == count and starts() == starts()
    gaps = np.diff([*starts(), 199 * 5]) // 5
    assert gaps.max() - gaps.min() <= 1 and all(start % 5 == 0 for start in starts())
