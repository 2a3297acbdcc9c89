"""`ablate corpus`: what can be trained on, and what is known of a text before training."""

import inspect
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate.cli.shared import FormatOption, JsonOption, print_table, put_json
from ablate.config.rules import ConfigError, as_value, did_you_mean, line_on
from ablate.phrases import counted, lines_if, visible
from ablate.printing import put, say

if TYPE_CHECKING:
    from ablate.config.schema import RunConfig
    from ablate.data.corpus import Corpus
    from ablate.data.counting import TextStatistics

LINES = 3  # of a text that are shown, and as many examples
WIDTH = 80  # characters of a line that are shown
READ = 4096  # tokens that are decoded for the lines of a text
OF_A_PATH = {*"./\\~*?["}  # characters of paths and patterns, which no name of a corpus has

corpus = typer.Typer(help="List texts and tasks to train on, or show one.")


@corpus.command("list")
def listed(format: FormatOption = "table") -> None:
    """List what can be trained on: how models read it, and what it consists of."""
    import pandas as pd

    from ablate.compose.configs import choices
    from ablate.data.corpora import registry

    rows = []
    for name, keys in choices("corpus").items():
        if kind := registry.methods().get(keys.get("recipe", keys["name"])):
            said, _, _ = (inspect.getdoc(kind) or "").partition("\n\n")
            about = keys.get("about") or " ".join(said.split()).partition(". ")[0].removesuffix(".")
            rows.append((name, ", ".join(kind.read_as), about))
    print_table(pd.DataFrame(rows, columns=["name", "kind", "consists of"]), format)


@corpus.command()
def show(
    text: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="A corpus by name; else a file, a directory, a glob, or - for standard input.",
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Overrides as ablate run takes them, as corpus.tokenizer=bpe or train.steps=2000.",
        ),
    ] = None,
    format: JsonOption = "table",
) -> None:
    """Show what is known of a corpus before training.

    It is opened as a run with these overrides opens it, so downloaded if need be. Of a text: characters and
    tokens of each split, the share of a held-out split that lies in stretches of 50 characters or more that
    another split has, too, and the loss of counting, in nats a token and in bits a byte. Of each corpus: how
    often training reads it, and how each split begins.
    """
    import pandas as pd

    from ablate.data.counting import text_statistics
    from ablate.data.matches import repeats
    from ablate.execution.formulas import before_training
    from ablate.execution.run import resolve
    from ablate.tables import records, render_row

    given = overrides or []
    run = resolve(_config([*_choice(text, given), *given]))
    opened, steps, vocabulary = run.corpus, run.config.train.steps, run.corpus.tokenizer.vocab_size
    statistics, epochs = text_statistics(opened, run.spec.context), before_training(run)["epochs"]
    often = f"{epochs:.2f}" if epochs else "nothing is repeated"
    row = {
        "corpus": visible(opened.config.called),
        "vocabulary": f"{vocabulary:,} tokens, ln {vocabulary:,} = {math.log(vocabulary):.4f}",
        "epochs": f"{often}, {counted(steps, 'step')} of {run.tokens_a_step:,.0f} tokens",
    }
    if opened.text and statistics:
        part = f", in {100 * statistics.counted:.1f} % of training" if statistics.counted < 1 else ""
        row["documents"] = f"{opened.text.documents:,}"
        row["counting"] = f"n-grams of {counted(statistics.order, 'token')}{part}"
    row |= opened.recipe.known
    row["sha256"] = opened.sha256
    splits = pd.DataFrame([_figures(opened, split, statistics) for split in opened.splits])
    if format == "json":
        put_json(about=row, rows=records(splits))
        return
    for note in repeats(opened.text.most_shared if opened.text else 0):
        say(note.text)
    put(render_row(row))
    print_table(splits, "table")
    for split in opened.splits:
        if lines := _beginning(opened, split, run.config.resolved_seeds()["data"]):
            put("\n  ".join([f"\n{split}", *lines]))


def _figures(corpus: "Corpus", split: str, statistics: "TextStatistics | None") -> dict[str, Any]:
    """Figures of a split, by the names that a table gives them. statistics: of a text."""
    from ablate.data.corpora import SPLITS
    from ablate.data.examples import Examples

    chosen, text = corpus.splits[split], corpus.text
    if isinstance(chosen, Examples):
        ragged = chosen.is_ragged
        examples = len(chosen.held_out) if ragged and chosen.per_epoch else chosen.per_epoch
        sizes = {"examples": examples, "target tokens" if ragged else "tokens": chosen.size}
        return {"split": split} | {name: "endless" if size is None else size for name, size in sizes.items()}
    assert text and statistics
    shares = {f"shared with {other}": text.overlap.get(split, {}).get(other) for other in SPLITS[:2]}
    overlap = {name: None if share is None else f"{100 * share:.2f} %" for name, share in shares.items()}
    loss, predicted = statistics.loss.get(split), chosen.predicted_bytes
    bits = loss * (chosen.size or 0) / math.log(2) / predicted if loss and predicted else None
    sizes = {"characters": text.characters[split], "tokens": len(corpus.tokens(split))}
    return {"split": split, **sizes, **overlap, "counting loss": loss, "bits per byte": bits}


def _beginning(corpus: "Corpus", split: str, seed: int) -> list[str]:
    """The first lines of a text that are not blank, else the first examples, each followed by its answer.
    seed: of the batches, which training examples are drawn with. Empty for an empty split."""
    from ablate.data.examples import Examples

    chosen, decode = corpus.splits[split], corpus.tokenizer.decode
    if chosen.size == 0:
        return []
    if isinstance(chosen, Examples):
        examples = chosen.at(seed, range(LINES)) if split == "train" else chosen.held_out[:LINES]
        rows = [map(decode, one.question_and_answer) for one in examples]
        lines = [line for question, answer in rows for line in (question, f"→ {answer}")]
    else:
        text = decode(corpus.tokens(split)[:READ])
        lines = [line for line in text.split("\n") if line.strip()][:LINES]
    return [visible(line[:WIDTH]) for line in lines]


def _choice(text: str, overrides: Sequence[str]) -> list[str]:
    """The overrides that choose a corpus by its name, or else a text by its path. Raises ConfigError."""
    from ablate.compose.configs import choices
    from ablate.data.corpora import registry

    known, name = choices("corpus"), f"corpus={text}"
    if text not in known and (os.path.exists(text) or text == "-" or OF_A_PATH & {*text}):
        return ["corpus=file", f"corpus.path={as_value(text)}"]
    if text not in known:  # which Hydra may take for a sweep
        raise ConfigError(line_on(name) or f"{name}: no such corpus{did_you_mean(text, known)}")
    chooses_model = any(override.startswith("model=") for override in overrides)
    kind = registry.methods().get(text)  # published texts are none by name, and no pairs
    needs_pairs = kind and kind.read_as == ("pairs",) and not chooses_model
    return [name, *lines_if(needs_pairs, "model=pair")]


def _config(overrides: Sequence[str]) -> "RunConfig":
    """The config of a single run. Raises ConfigError."""
    from ablate.compose.sweep import compose

    sweep = compose(overrides)
    if not sweep.is_single:
        raise ConfigError(f"{' '.join(overrides)}: these are several runs; give the settings of one")
    return sweep.configs(())
