"""A user's own pairs, from two files that correspond line by line, or from one with a tab between source and
target. Pairs with an empty side are left out."""

from collections.abc import Iterator
from pathlib import Path

from ablate.config.schema import CorpusConfig
from ablate.data import text
from ablate.data.text import CorpusError


def read(config: CorpusConfig) -> list[tuple[str, str]]:
    """The pairs in which neither text is empty. Raises CorpusError."""
    assert config.path is not None
    if config.target is None:
        both = [
            _columns(config.path, number, line) for number, line in enumerate(_lines(config, config.path), 1)
        ]
    else:
        sources, targets = ([*_lines(config, path)] for path in (config.path, config.target))
        if len(sources) != len(targets):
            raise CorpusError(
                f"corpus.path={config.path} corpus.target={config.target}: {len(sources):,} lines and"
                f" {len(targets):,}; line n of one has to be the translation of line n of the other"
            )
        both = [*zip(sources, targets, strict=True)]
    pairs = [(source.strip(), target.strip()) for source, target in both]
    pairs = [pair for pair in pairs if all(pair)]
    if not pairs:
        empty = f", of which {len(both):,} have an empty side" if both else ""
        raise CorpusError(
            f"corpus.path={config.path}: no pairs: {len(both):,} lines{empty}; give lines with a text on both"
            " sides"
        )
    return pairs


def _lines(config: CorpusConfig, path: str) -> Iterator[str]:
    """The lines without their ends, \\n or \\r\\n, which the last line may lack."""
    (file,) = _only(path)
    text.check_encoding(config.encoding)
    chunks = text.read(file, config.encoding, config.errors, name=text.shown(file))
    lines = "".join(chunks).split("\n")
    yield from (line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1]))


def _only(path: str) -> list[Path]:
    if path == "-" or len(files := text.find(path)) != 1:
        raise CorpusError(f"corpus.path={path}: corpus=pairs reads one file of each language; name it")
    return files


def _columns(path: str, number: int, line: str) -> tuple[str, str]:
    """The first two columns of a line; others, such as the licence in files of Tatoeba, are ignored."""
    if not line.strip():
        return "", ""
    source, tab, rest = line.partition("\t")
    if not tab:
        raise CorpusError(
            f"corpus.path={path}: line {number:,} has no tab between source and target; put one there, or"
            " give the targets as corpus.target=FILE"
        )
    return source, rest.partition("\t")[0]
