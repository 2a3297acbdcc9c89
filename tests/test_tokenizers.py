"""Tokenizers: ids worked by hand, lossless both ways, and lengths in UTF-8 bytes."""

import json
from pathlib import Path

import numpy as np
import pytest

from ablate.config.rules import ConfigError
from ablate.data.tokenizers import Bpe, Byte, Char, Tokenizer, load

# 1, 2, 3 and 4 bytes; accents apart; odd line ends
TEXT = "naïve 日本 🙂\r\n\tna\u0301ive  \u2028 na na na\n"


def tokenizers() -> list[Tokenizer]:
    return [Char("".join(sorted(set(TEXT)))), Byte(), Bpe.train([TEXT], 269)]


@pytest.mark.parametrize("tokenizer", tokenizers(), ids=lambda tokenizer: tokenizer.name)
def test_lossless_and_true_lengths(tokenizer: Tokenizer, tmp_path: Path):
    ids = tokenizer.encode(TEXT)
    assert ids.dtype == np.uint16 and ids.ndim == 1
    assert tokenizer.decode(ids) == tokenizer.decode(ids.tolist()) == TEXT
    assert tokenizer.byte_lengths.dtype == np.int64
    assert tokenizer.byte_lengths.shape == (tokenizer.vocab_size,)
    assert tokenizer.byte_lengths[ids].sum() == len(TEXT.encode())
    assert tokenizer.encode("").tolist() == [] and tokenizer.decode([]) == ""

    (tmp_path / "tokenizer.json").write_text(tokenizer.dump(), encoding="utf-8")
    again = load(tmp_path / "tokenizer.json")
    assert again.name == tokenizer.name
    assert again.encode(TEXT).tolist() == ids.tolist()
    assert again.byte_lengths.tolist() == tokenizer.byte_lengths.tolist()


def test_char_by_hand():
    char = Char("\nabé日")
    assert char.encode("日ab\né").tolist() == [4, 1, 2, 0, 3]
    assert char.byte_lengths.tolist() == [1, 1, 1, 2, 3]
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
    assert sorted(bpe.byte_lengths)[-2:] == [2, 4] and sum(bpe.byte_lengths == 1) == 256
    assert [bpe.byte_lengths[i] for i in bpe.encode("ababab")] == [4, 2]
    assert bpe.decode(bpe.encode("🙂")[:2]) == "\ufffd"
    assert Bpe.train(["ab"], 1024).vocab_size == 257  # no more pairs
    assert Bpe.train([], 1024).vocab_size == 256


@pytest.mark.parametrize("tokenizer", [Byte(), Bpe.train([], 256)], ids=lambda tokenizer: tokenizer.name)
def test_half_a_surrogate_pair_is_refused(tokenizer: Tokenizer):
    with pytest.raises(ConfigError, match=r"U\+D800"):
        tokenizer.encode("a\ud800")


def test_ids_above_16_bits():
    alphabet = "".join(map(chr, range(0x10000, 0x10000 + 65_537)))
    char = Char(alphabet)
    assert char.dtype == np.uint32
    assert char.encode(alphabet[-1]).tolist() == [65_536]
    assert Char(alphabet[:-1]).dtype == np.uint16


@pytest.mark.parametrize("content", ["", "[]", json.dumps({"name": "words"}), json.dumps({"name": "char"})])
def test_a_file_that_is_no_tokenizer(content: str, tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ConfigError, match=r"tokenizer\.json: no tokenizer"):
        load(tmp_path / "tokenizer.json")
