"""Text to token ids and back: by character, by UTF-8 byte, by byte pairs or, for tasks, by number.

The first three are lossless, so that losses per token can be converted to bits per byte, which are comparable
across tokenizers.
"""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ablate.config.rules import ConfigError


class Tokenizer(ABC):
    """A fixed vocabulary. separator: the token that marks the ends of texts that come in pairs; only some
    tokenizers have one. state: the plain data from which `load` makes it again."""

    name: str
    state: Mapping[str, Any] = {}
    vocab_size: int
    separator: int

    @abstractmethod
    def encode(self, text: str) -> np.ndarray:
        """(tokens,) ids. Raises ConfigError for text that the vocabulary can't express."""

    def decode(self, ids: ArrayLike) -> str:
        """The text of (tokens,) ids, with U+FFFD for incomplete characters, without added separators."""
        ids = np.asarray(ids, np.int64)
        return self._decode(ids[ids != self.separator] if "separator" in self.state else ids)

    @abstractmethod
    def _decode(self, ids: np.ndarray) -> str: ...

    def add_separator(self) -> None:
        """One more token, which has no bytes."""
        self.separator, self.vocab_size = self.vocab_size, self.vocab_size + 1
        self.state = {**self.state, "separator": True}

    def bytes_of(self, token: int) -> int:
        """How many UTF-8 bytes of a text a token stands for: one, unless its class says otherwise."""
        return 1

    def dump(self) -> str:
        """The JSON text that `load` reads."""
        return json.dumps({"name": self.name, **self.state})

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.dump().encode()).hexdigest()


class Char(Tokenizer):
    """One token for each character (code point). alphabet: the characters of the text, sorted."""

    name = "char"

    def __init__(self, alphabet: str) -> None:
        self.alphabet, self.state, self.vocab_size = alphabet, {"alphabet": alphabet}, len(alphabet)
        self._codes = np.frombuffer(alphabet.encode("utf-32-le"), "<u4")

    def encode(self, text: str) -> np.ndarray:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        ids = np.searchsorted(self._codes, codes)
        is_known = self._codes.take(ids, mode="clip") == codes
        if not is_known.all():
            character = text[int(is_known.argmin())]
            raise ConfigError(
                f"{character!a} (U+{ord(character):04X}): not among the characters of this"
                f" vocabulary, {self.alphabet[:20]!a} …; use those, or corpus.tokenizer=byte"
            )
        return ids

    def _decode(self, ids: np.ndarray) -> str:
        return self._codes[ids].tobytes().decode("utf-32-le")

    def bytes_of(self, token: int) -> int:
        return len(self.alphabet[token].encode())


class Byte(Tokenizer):
    """One token for each byte of the text in UTF-8."""

    name = "byte"
    vocab_size = 256

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(utf8(text), np.uint8)

    def _decode(self, ids: np.ndarray) -> str:
        return ids.astype(np.uint8).tobytes().decode(errors="replace")


class Numbers(Tokenizer):
    """One token for each number below vocab_size, written with spaces between: the words of a task."""

    name = "number"
    separator = 0

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size, self.state = vocab_size, {"vocab_size": vocab_size}

    def encode(self, text: str) -> np.ndarray:
        for word in text.split():
            if not (word.isdecimal() and int(word) < self.vocab_size):
                raise ConfigError(
                    f"{word!a}: no number from 0 to {self.vocab_size - 1}; use those, with spaces"
                )
        return np.array([int(word) for word in text.split()], np.int64)

    def _decode(self, ids: np.ndarray) -> str:
        return " ".join(map(str, ids.tolist()))


LONGEST_WORD = 1000  # characters; longer words are cut, since training time is quadratic in their length


class Bpe(Tokenizer):
    """Byte pair encoding over bytes, which can encode any text. model: the JSON of Hugging Face's library."""

    name = "bpe"

    def __init__(self, model: str) -> None:
        self.state = {"model": model}
        self._model = _hugging_face().Tokenizer.from_str(model)
        self.vocab_size = self._model.get_vocab_size()

    @classmethod
    def train(cls, chunks: Iterable[str], vocab_size: int) -> "Bpe":
        """Merge the most frequent pairs until there are vocab_size tokens, or no pairs left to merge."""
        hf = _hugging_face()
        model = hf.Tokenizer(hf.models.BPE())
        model.pre_tokenizer = hf.pre_tokenizers.Sequence(
            [
                hf.pre_tokenizers.Split(hf.Regex(rf"\S{{{LONGEST_WORD}}}"), "isolated"),
                hf.pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        model.decoder = hf.decoders.ByteLevel()
        trainer = hf.trainers.BpeTrainer(
            vocab_size=vocab_size,
            initial_alphabet=hf.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        model.train_from_iterator(chunks, trainer)
        return cls(model.to_str())

    def encode(self, text: str) -> np.ndarray:
        utf8(text)  # raises for surrogates, on which the library would crash
        return np.array(self._model.encode_batch_fast([text])[0].ids, np.int64)  # fast: without offsets

    def _decode(self, ids: np.ndarray) -> str:
        return self._model.decode(ids.tolist())

    def bytes_of(self, token: int) -> int:
        return len(self._model.id_to_token(token))  # spelled with a letter for each byte


def fitted(kind: str, texts: Iterable[str], training: Iterable[str], bpe_vocab: int) -> Tokenizer:
    """The tokenizer that corpus.tokenizer=KIND stands for. texts: which make up the whole text; training:
    what byte pairs are learned from."""
    if kind == "char":
        return Char("".join(sorted(set().union(*texts))))
    return Byte() if kind == "byte" else Bpe.train(training, bpe_vocab)


def load(path: Path) -> Tokenizer:
    """The tokenizer in a file that has its `dump`. Raises ConfigError for any other file."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        has_separator = state.pop("separator", False)
        tokenizer = {kind.name: kind for kind in (Char, Byte, Numbers, Bpe)}[state.pop("name")](**state)
        if has_separator:
            tokenizer.add_separator()
        return tokenizer
    except Exception as error:  # Hugging Face raises bare Exceptions
        raise ConfigError(
            f"{path}: no tokenizer can be read from it ({error}); mend that, or move it away and run again"
        ) from None


def utf8(text: str) -> bytes:
    """The text as UTF-8. Raises ConfigError for a lone surrogate, which is no character."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise ConfigError(
            f"U+{code:04X}: half of a surrogate pair, not a character; give valid text"
        ) from None


def _hugging_face() -> Any:
    # The library warns on stderr when a process forks after it used threads: use one, unless set otherwise.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import tokenizers

    return tokenizers
