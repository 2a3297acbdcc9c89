"""Corpora of pairs of texts: drawn by a task, whose alignments are known, or read from files."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from ablate.config.identity import digest
from ablate.config.schema import CorpusConfig
from ablate.data.pairs import files, numbers, words
from ablate.data.pairs.base import Drawn, Pair, Pairs, PairTask, Read, encoded, place
from ablate.data.text import CorpusError
from ablate.data.tokenizers import Bpe, Byte, Char, Tokenizer, WithEdge
from ablate.data.tokenizers import Numbers as NumberTokens

TASKS: dict[str, type[PairTask]] = {
    "copy": words.Copy,
    "numbers": numbers.Numbers,
    "reverse": words.Reverse,
    "sort": words.Sort,
}
FILES = "pairs"
NAMES = (*TASKS, FILES)
OF_WORDS = tuple(name for name, task in TASKS.items() if issubclass(task, words.WordTask))
SPLITS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True, eq=False)
class Opened:
    """Pairs, opened. sha256: of what determines the pairs. edge: the token at the ends of a text. task: the
    one that draws them; None if they come from files."""

    sha256: str
    tokenizer: Tokenizer
    edge: int
    splits: Mapping[str, Pairs]
    task: PairTask | None


def open_pairs(config: CorpusConfig) -> Opened:
    """Open a corpus of pairs. Raises ConfigError."""
    within = [*itertools.pairwise(itertools.accumulate(config.splits, initial=0.0))]
    if config.name == FILES:
        return _read(config, within)
    kind = TASKS[config.name]
    task = kind(**{field.name: getattr(config, field.name) for field in dataclasses.fields(kind)})
    tokenizer = _tokenizer_of(task, config)
    # Word tasks do not use the word 0 in texts; alphabets get one more token.
    edge = words.EDGE if isinstance(task, words.WordTask) else tokenizer.vocab_size - 1
    assert config.seed is not None
    counts = dict(zip(SPLITS, (config.examples, config.held_out, config.held_out), strict=True))
    splits = {}
    for name, share in zip(SPLITS, within, strict=True):
        stream = f"data/pairs/{config.seed}" if name == "train" else f"pairs/{name}"
        count = counts[name] if share[0] < share[1] else 0
        splits[name] = Drawn(task, tokenizer, stream, share, seed=config.seed, count=count)
    some = [splits[name].first(10) for name in SPLITS if splits[name].count != 0]
    said = digest(["pairs", config.name, dataclasses.asdict(task), counts, config.seed, some])
    return Opened(said, tokenizer, edge, splits, task)


def _read(config: CorpusConfig, within: Sequence[tuple[float, float]]) -> Opened:
    pairs = files.read(config)
    of_split = {
        name: [pair for pair in pairs if low <= place(*pair) < high]
        for name, (low, high) in zip(SPLITS, within, strict=True)
    }
    for name, share in zip(SPLITS[:2], config.splits[:2], strict=True):
        if not of_split[name]:
            raise CorpusError(
                f"corpus.splits: {len(pairs):,} pairs leave none for {name}, whose share is {share:g}; give"
                " more pairs, or a larger share"
            )
    texts = [text for pair in of_split["train"] for text in pair]
    match config.tokenizer:
        case "bpe":
            plain: Tokenizer = Bpe.train(texts, config.bpe_vocab)
        case "byte":
            plain = Byte()
        case _:
            plain = Char("".join(sorted({*"".join(text for pair in pairs for text in pair)})))
    tokenizer = WithEdge(plain)
    splits = {name: Read(encoded(plain, chosen)) for name, chosen in of_split.items()}
    return Opened(digest(["pairs", pairs]), tokenizer, tokenizer.edge, splits, None)


def _tokenizer_of(task: PairTask, config: CorpusConfig) -> Tokenizer:
    if isinstance(task, words.WordTask):
        return NumberTokens(task.vocabulary)
    return WithEdge(Byte() if config.tokenizer == "byte" else Char(numbers.ALPHABET))


__all__ = ["NAMES", "OF_WORDS", "Opened", "Pair", "PairTask", "Pairs", "open_pairs"]
