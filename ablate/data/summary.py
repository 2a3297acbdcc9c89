"""What a reader is shown of a corpus: figures of each split, and how it begins."""

import math
from typing import Any

from ablate.data.corpora import SPLITS
from ablate.data.corpus import Corpus
from ablate.data.examples import Examples
from ablate.data.splits import Stream
from ablate.data.text_statistics import TextStatistics
from ablate.phrases import visible

LINES = 3  # of a text, and as many examples
WIDTH = 80  # characters of a line that are shown
READ = 4096  # tokens that are decoded for the lines of a text
ANSWER = "→ "  # before what a model is to predict
ENDLESS = "endless"


def figures(corpus: Corpus, split: str, statistics: TextStatistics | None) -> dict[str, Any]:
    """Figures of a split, by the names that a table gives them. statistics: of a text."""
    chosen, text = corpus.splits[split], corpus.text
    if text is None or statistics is None:
        tokens = "target tokens" if chosen.is_ragged else "tokens"
        sizes = {"examples": chosen.count, tokens: chosen.size}
        return {"split": split} | {name: ENDLESS if size is None else size for name, size in sizes.items()}
    shares = {f"shared with {other}": text.overlap.get(split, {}).get(other) for other in SPLITS[:2]}
    overlap = {name: None if share is None else f"{100 * share:.2f} %" for name, share in shares.items()}
    loss, predicted = statistics.loss.get(split), chosen.predicted_bytes
    bits = loss * (chosen.size or 0) / math.log(2) / predicted if loss and predicted else None
    sizes = {"characters": text.characters[split], "tokens": len(corpus.tokens(split))}
    return {"split": split, **sizes, **overlap, "counting loss": loss, "bits per byte": bits}


def beginning(corpus: Corpus, split: str, seed: int) -> list[str]:
    """The first lines of a text that are not blank, else the first examples, each followed by its answer.
    seed: of the batches, which training examples are drawn with. Empty for an empty split."""
    chosen = corpus.splits[split]
    if chosen.size == 0:
        return []
    decode = corpus.tokenizer.decode
    if isinstance(chosen, Stream):
        lines = [line for line in decode(chosen.tokens[:READ]).split("\n") if line.strip()][:LINES]
    else:
        assert isinstance(chosen, Examples)
        examples = chosen.at(seed, range(LINES)) if split == "train" else chosen.held_out[:LINES]
        rows = [map(decode, one.question_and_answer) for one in examples]
        lines = [line for question, answer in rows for line in (question, ANSWER + answer)]
    return [visible(line[:WIDTH]) for line in lines]
