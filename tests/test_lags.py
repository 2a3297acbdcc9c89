"""corpus=lags: the letters depend on what they are said to depend on."""

import numpy as np

from ablate.data.corpora import lags
from ablate.data.corpus import open_corpus, require_usable
from ablate.execution.run import prepare
from tests.helpers import make_config


def ids(seed: int, count: int, back: tuple[int, ...], symbols: int) -> np.ndarray:
    return np.array([lags.LETTERS.index(letter) for letter in "".join(lags.text(seed, count, back, symbols))])


def test_the_next_letter_is_drawn_from_the_row_of_those_at_the_lags_in_their_order():
    back, symbols = (3, 1), 3
    letters, weights = ids(5, 300_000, back, symbols), lags.table(5, back, symbols)
    counts = np.zeros((symbols, symbols, symbols))
    np.add.at(counts, (letters[:-3], letters[2:-1], letters[3:]), 1)
    shares, wanted = counts / counts.sum(-1, keepdims=True), weights / weights.sum(-1, keepdims=True)
    assert np.abs(shares - wanted).max() < 0.02
    assert np.abs(shares.transpose(1, 0, 2) - wanted).max() > 0.2  # the other order is another text


def test_the_same_text_on_every_machine_in_chunks_of_any_size(monkeypatch):
    whole = "".join(lags.text(0, 1000, (2, 3), 8))
    assert whole[:40] == "bggeafgdcfgdcgagbbbgfcdgddgedhgddfebebag"
    monkeypatch.setattr(lags, "CHUNK", 7)
    assert "".join(lags.text(0, 1000, (2, 3), 8)) == whole and len(whole) == 1000
    assert "".join(lags.text(1, 1000, (2, 3), 8)) != whole


def test_the_corpus_is_a_text_like_others():
    config = make_config("corpus=lags", "corpus.characters=5000", "corpus.symbols=5").corpus
    corpus = open_corpus(config)
    assert corpus.tokenizer.decode(np.arange(5)) == "abcde"
    assert [len(corpus.tokens(split)) for split in corpus.splits] == [4000, 500, 500]
    require_usable(corpus, 3)
    prepare(make_config("corpus=lags", "corpus.characters=2000", "corpus.lags=[64]"))  # as long as the window
