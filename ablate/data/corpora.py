"""The texts one can train on, opened as splits of token ids.

A corpus is a function from its configuration to a Text. To add one, write the function,
name it in CORPORA, and add configs/corpus/NAME.yaml.
"""

import random
import re
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ablate.config.identity import digest
from ablate.config.rules import ConfigError, did_you_mean
from ablate.config.schema import CorpusConfig
from ablate.data import grammar, stdin, text, tokenized
from ablate.data.text import CorpusError, Text
from ablate.data.tokenizers import Tokenizer, load
from ablate.files import cache


@dataclass(frozen=True, eq=False)
class Split:
    """tokens: (tokens,) ids, mapped from disk, read-only. predicted_bytes: UTF-8 bytes after the first."""

    tokens: np.ndarray
    predicted_bytes: int


@dataclass(frozen=True, eq=False)
class Corpus:
    """sha256: of the whole text as UTF-8. splits: "train", "validation", and "test", which may be empty."""

    name: str
    sha256: str
    tokenizer: Tokenizer
    splits: Mapping[str, Split]


def open_corpus(config: CorpusConfig) -> Corpus:
    """The corpus as tokens, from the cache where it is there. Raises CorpusError."""
    if config.name not in CORPORA:
        raise CorpusError(f"corpus={config.name}: no such corpus{did_you_mean(config.name, CORPORA)}")
    for key in ("seed", "characters"):
        value = getattr(config, key)
        if value is None and config.name == "grammar":
            raise CorpusError(
                f"corpus.{key}=null: corpus=grammar can't be drawn without; give a whole number"
            )
        if value is not None and config.name != "grammar":
            raise CorpusError(f"corpus.{key}={value}: only corpus=grammar has it; remove it here")
    try:
        sha256, directory, about = _tokens(CORPORA[config.name](config), config)
    except OSError as error:
        raise CorpusError(
            f"{cache.directory()}: the cache can't be used ({error.strerror or error});"
            " set ABLATE_CACHE to a directory with room"
        ) from None
    tokenizer = load(directory / "tokenizer.json")
    splits = {
        split: Split(tokenized.read(directory, split, facts["tokens"], tokenizer), facts["predicted_bytes"])
        for split, facts in about.items()
    }
    return Corpus(config.name, sha256, tokenizer, splits)


def require_usable(corpus: Corpus, context: int) -> None:
    """Raises ConfigError unless each split fills a window, its targets included, and has two tokens that
    differ; only test may be empty."""
    for name, split in corpus.splits.items():
        tokens = len(split.tokens)
        if tokens <= context and (tokens or name != "test"):
            raise ConfigError(
                f"corpus={corpus.name}: the {name} split has {tokens} tokens, fewer than the {context + 1}"
                f" that model.context={context} needs; take a smaller model.context, more text,"
                " or other corpus.splits"
            )
        if tokens and _is_constant(split.tokens):
            token = corpus.tokenizer.decode(split.tokens[:1])
            raise CorpusError(
                f"corpus={corpus.name}: the {name} split is {token!a} again and again: there is nothing to"
                " predict; give other text, or other corpus.splits"
            )


def _is_constant(tokens: np.ndarray) -> bool:
    """Whether there is one token alone. tokens: (tokens,), looked at until two differ."""
    starts = range(0, len(tokens), text.BLOCK)
    return not any((tokens[start : start + text.BLOCK] != tokens[0]).any() for start in starts)


def _tokens(whole: Text, config: CorpusConfig) -> tuple[str, Path, dict]:
    """(fingerprint, directory of the cache, what tokenized.write returned)."""
    sha256 = cache.recall(whole.stamp)
    if isinstance(sha256, str) and (entry := cache.find(_key(sha256, config))):
        return sha256, *entry
    try:
        scanned = tokenized.scan(whole)
    except CorpusError:
        raise
    except ConfigError as error:
        raise CorpusError(f"corpus.encoding={config.encoding}: {error}") from None
    if not scanned.characters:
        name = stdin.NAME if config.path == "-" else text.shown(Path(config.path or "it"))
        raise CorpusError(f"corpus={config.name}: {name} is empty; give text to train on")
    cache.remember(whole.stamp, scanned.sha256)
    key = _key(scanned.sha256, config)
    entry = cache.find(key) or cache.publish(key, lambda part: tokenized.write(part, whole, scanned, config))
    return scanned.sha256, *entry


def _key(sha256: str, config: CorpusConfig) -> str:
    vocab = config.bpe_vocab if config.tokenizer == "bpe" else None
    return digest([tokenized.FORMAT, sha256, config.tokenizer, vocab, config.splits])


# --- the corpora ------------------------------------------------------------------------------


def _pydoc(config: CorpusConfig) -> Text:
    """The reference that CPython carries for its help(): topics in an order shuffled once and for all."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise CorpusError(
            "corpus=pydoc: this Python lacks the module pydoc_data.topics (some distributions leave it out);"
            " take corpus=stdlib, corpus=grammar or corpus=file"
        ) from None
    names = sorted(topics)
    random.Random(0).shuffle(names)
    whole = "\n\n".join(topics[name].strip("\n") for name in names) + "\n"
    return Text(lambda: iter([whole]))


def _grammar(config: CorpusConfig) -> Text:
    """Sentences of known entropy, see ablate.data.grammar."""
    seed, characters = config.seed, config.characters
    assert seed is not None and characters is not None
    return Text(lambda: grammar.text(seed, characters), ["grammar", grammar.VERSION, seed, characters])


def _stdlib(config: CorpusConfig) -> Text:
    """The Python source of the interpreter's standard library, without its tests and installed packages."""
    root = Path(sysconfig.get_path("stdlib"))
    apart = re.compile(r"tests?|idle_test|__pycache__|(site|dist)-packages|config-.*").fullmatch
    with text.readable(root):
        files = text.below(root, ".py", lambda name: apart(name) is not None)
    files = [file for file in files if not file.name.startswith("_sysconfigdata")]  # paths of this machine
    if not files:
        raise CorpusError(
            f"corpus=stdlib: {root} holds no Python source for {sys.executable};"
            " take corpus=pydoc, corpus=grammar or corpus=file"
        )
    return text.of_files(files, config.encoding, config.errors)


def _file(config: CorpusConfig) -> Text:
    """The user's own text: a file, a directory, a glob, or - for standard input."""
    assert config.path is not None
    if config.path == "-":
        return stdin.text(config.encoding, config.errors)
    return text.of_files(text.find(config.path), config.encoding, config.errors)


CORPORA: dict[str, Callable[[CorpusConfig], Text]] = {
    "file": _file,
    "grammar": _grammar,
    "pydoc": _pydoc,
    "stdlib": _stdlib,
}
