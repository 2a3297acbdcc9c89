"""corpus=lags: the letters depend on what they are said to depend on."""

import numpy as np

from ablate.data.corpora import lags


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
