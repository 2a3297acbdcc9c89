"""The corpora to train on, opened as splits: texts as streams of token ids, and tasks of synthetic examples.

A text is a function from its configuration to a Text, listed in TEXTS; a task draws its examples
(ablate.data.tasks). Each has a configs/corpus/NAME.yaml, and its own keys in OWN_KEYS.
"""

import dataclasses
import itertools
import random
import re
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ablate.config.identity import digest
from ablate.config.rules import ConfigError, did_you_mean, typed
from ablate.config.schema import CorpusConfig, ModelConfig
from ablate.data import grammar, lags, pairs, stdin, text, tokenized
from ablate.data.episodes import Episodes
from ablate.data.paired import Paired, laid_out
from ablate.data.pairs import PairTask
from ablate.data.splits import Split, Stream
from ablate.data.tasks import TASKS
from ablate.data.text import CorpusError, Text
from ablate.data.tokenizers import Numbers, Tokenizer, load
from ablate.files import cache


@dataclass(frozen=True, eq=False)
class Corpus:
    """A corpus, opened. sha256: of the whole text as UTF-8 or, for a task, of what determines its episodes or
    pairs. splits: "train", "validation", and "test", which may be empty. reach: how many tokens back the next
    one is known to depend on. For pairs, edge: the token at the ends of a text; task: the task that draws
    them, None if they come from files."""

    name: str
    sha256: str
    tokenizer: Tokenizer
    splits: Mapping[str, Split]
    reach: int = 0
    edge: int | None = None
    task: PairTask | None = None

    def tokens(self, split: str) -> np.ndarray:
        """The ids of a split of a text, in order."""
        stream = self.splits[split]
        assert isinstance(stream, Stream), "episodes are no text"
        return stream.tokens


def open_corpus(config: CorpusConfig, model: ModelConfig | None = None) -> Corpus:
    """Open a corpus as this model reads it, by default as one text, which comes from the cache if it is
    there. Raises ConfigError."""
    if config.name not in (names := {*TEXTS, *TASKS, *pairs.NAMES}):
        raise CorpusError(f"corpus={config.name}: no such corpus{did_you_mean(config.name, names)}")
    _require_own_keys(config)
    if model is not None and model.architecture != "decoder":
        return _pairs(config, model)
    if config.name not in (*TEXTS, *TASKS):
        raise CorpusError(
            f"corpus={config.name}: it is of pairs of texts; take model=pair, or model=prefix, which reads"
            " both as one text"
        )
    return _episodes(config) if config.name in TASKS else _text(config)


def _pairs(config: CorpusConfig, model: ModelConfig) -> Corpus:
    """Open pairs, laid out for this model. Those too long for it are dropped or cut (corpus.long)."""
    if config.name not in pairs.NAMES:
        raise CorpusError(
            f"corpus={config.name}: it is one text, and model={model.name} reads pairs of them; take"
            f" corpus={' or corpus='.join(pairs.NAMES)}, or model=tiny"
        )
    opened = pairs.open_pairs(config)
    splits = laid_out(opened, config, model)
    return Corpus(config.name, opened.sha256, opened.tokenizer, splits, edge=opened.edge, task=opened.task)


def _require_own_keys(config: CorpusConfig) -> None:
    """Raises CorpusError if a key that this corpus needs is null, or one that it does not have is given."""
    own = OWN_KEYS.get(config.name, ())
    for key in dict.fromkeys(itertools.chain(*OWN_KEYS.values())):
        value = getattr(config, key)
        if value is None and key in own and key not in MAY_BE_NULL:
            raise CorpusError(f"corpus.{key}=null: corpus={config.name} can't be drawn without; give a value")
        if value is not None and key not in own:
            others = ", ".join(name for name, keys in OWN_KEYS.items() if key in keys)
            raise CorpusError(
                f"corpus.{key}={typed(value)}: corpus={config.name} has no such key; remove it,"
                f" or take {others}"
            )
    if config.tokenizer not in (taken := _tokenizers(config.name)):
        only = " or ".join(filter(None, (", ".join(taken[:-1]), taken[-1])))
        raise CorpusError(f"corpus.tokenizer={config.tokenizer}: corpus={config.name} takes {only}")


def _tokenizers(corpus: str) -> tuple[str, ...]:
    """Those it takes: words are numbers, and of drawn letters there is no text to learn byte pairs from."""
    if corpus in (*TASKS, *pairs.OF_WORDS):
        return ("number",)
    return ("char", "byte") if corpus == "numbers" else ("char", "byte", "bpe")


def _episodes(config: CorpusConfig) -> Corpus:
    """Open a task. Its fingerprint is a digest of its sizes, its seed and a few of its episodes."""
    kind = TASKS[config.name]
    task = kind(**{field.name: getattr(config, field.name) for field in dataclasses.fields(kind)})
    assert config.seed is not None
    ends = [*itertools.accumulate(config.splits, initial=0.0)]
    held_out = {"train": config.examples, "validation": config.held_out, "test": config.held_out}
    splits = {}
    for name, within in zip(held_out, itertools.pairwise(ends), strict=True):
        stream = f"data/episodes/{config.seed}" if name == "train" else f"episodes/{name}"
        count = held_out[name] if within[0] < within[1] else 0
        splits[name] = Episodes(task, stream, within, seed=config.seed, count=count)
    some = [splits[name].rows(config.seed, np.arange(10)) for name in splits if splits[name].count != 0]
    said = [[row.tolist() for row in batch[:2]] for batch in some]
    sha256 = digest([config.name, vars(task), held_out, config.seed, said])
    return Corpus(config.name, sha256, Numbers(task.vocabulary), splits)


def _text(config: CorpusConfig) -> Corpus:
    try:
        sha256, directory, about = _tokens(TEXTS[config.name](config), config)
    except OSError as error:
        raise CorpusError(
            f"{cache.directory()}: the cache can't be used ({error.strerror or error});"
            " set ABLATE_CACHE to a directory with room"
        ) from None
    tokenizer = load(directory / "tokenizer.json")
    splits = {
        split: Stream(tokenized.read(directory, split, facts["tokens"], tokenizer), facts["predicted_bytes"])
        for split, facts in about.items()
    }
    return Corpus(config.name, sha256, tokenizer, splits, reach=max(config.lags or (0,)))


def require_usable(corpus: Corpus, context: int) -> None:
    """Raises ConfigError unless each split of a text fills a window with its targets and has at least two
    different tokens (only test may be empty), or an episode of a task is as long as a window."""
    if corpus.reach > context:
        raise ConfigError(
            f"model.context={context}: what decides the next token of corpus={corpus.name} lies up to"
            f" {corpus.reach} back; take model.context={corpus.reach} at least, or shorter lags"
        )
    for name, split in corpus.splits.items():
        if isinstance(split, Paired):
            continue
        if isinstance(split, Episodes):
            if split.task.length != context:
                raise ConfigError(
                    f"model.context={context}: an episode of corpus={corpus.name} has {split.task.length}"
                    " positions; leave corpus.length out, then it follows model.context"
                )
            continue
        tokens = len(corpus.tokens(name))
        if tokens <= context and (tokens or name != "test"):
            raise ConfigError(
                f"corpus={corpus.name}: the {name} split has {tokens} tokens, fewer than the {context + 1}"
                f" that model.context={context} needs; take a smaller model.context, more text,"
                " or other corpus.splits"
            )
        if tokens and _is_constant(corpus.tokens(name)):
            token = corpus.tokenizer.decode(corpus.tokens(name)[:1])
            raise CorpusError(
                f"corpus={corpus.name}: the {name} split is {token!a} again and again: there is nothing to"
                " predict; give other text, or other corpus.splits"
            )


def _is_constant(tokens: np.ndarray) -> bool:
    """Whether all tokens are the same. tokens: (tokens,), read until two differ."""
    starts = range(0, len(tokens), text.BLOCK)
    return not any((tokens[start : start + text.BLOCK] != tokens[0]).any() for start in starts)


def _tokens(whole: Text, config: CorpusConfig) -> tuple[str, Path, dict]:
    """(fingerprint, directory of the cache entry, what tokenized.write returned)."""
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
    """The language reference that CPython ships for help(), its topics in a fixed shuffled order."""
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


def _lags(config: CorpusConfig) -> Text:
    """Letters that depend on those a few places back, see ablate.data.lags."""
    back, symbols, seed, characters = config.lags, config.symbols, config.seed, config.characters
    assert back is not None and symbols is not None and seed is not None and characters is not None
    lags.check(back, symbols)
    stamp = ["lags", lags.VERSION, seed, characters, back, symbols]
    return Text(lambda: lags.text(seed, characters, back, symbols), stamp)


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


TEXTS: dict[str, Callable[[CorpusConfig], Text]] = {
    "file": _file,
    "grammar": _grammar,
    "lags": _lags,
    "pydoc": _pydoc,
    "stdlib": _stdlib,
}

_DRAWN = ("seed", "characters")
_EPISODES = ("seed", "examples", "held_out", "length", "vocabulary")
# The keys that only some corpora have, and those of them that may be null.
OWN_KEYS: dict[str, tuple[str, ...]] = {
    "grammar": _DRAWN,
    "lags": (*_DRAWN, "lags", "symbols"),
    "copy": _EPISODES,
    "induction": _EPISODES,
    "mqar": (*_EPISODES, "pairs", "filler"),
    "reverse": _EPISODES,
    "sort": _EPISODES,
    "numbers": ("seed", "examples", "held_out", "direction"),
    "pairs": ("target", "long"),
}
MAY_BE_NULL = ("examples", "target", "long")
