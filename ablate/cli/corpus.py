"""`ablate corpus`: what can be trained on, what is known of a text before training, and downloads."""

import math
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.shared import FormatOption, JsonOption, print_table, put_json
from ablate.config.rules import ConfigError, as_value, did_you_mean, line_on
from ablate.phrases import counted
from ablate.printing import put, say

if TYPE_CHECKING:
    from ablate.config.schema import RunConfig

OF_A_PATH = {*"./\\~*?["}  # characters of paths and patterns, which no name of a corpus has
ConfigDirOption = Annotated[
    str | None,
    typer.Option("-cd", "--config-dir", metavar="DIR", help="A directory with your own corpus/NAME.yaml."),
]

corpus = typer.Typer(
    help="List texts and tasks to train on, show one, or download one.",
)


@corpus.command("list")
def listed(format: FormatOption = "table", config_dir: ConfigDirOption = None) -> None:
    """List what can be trained on.

    For each corpus: how models read it (as text, as rows of a task, or as pairs), what it consists of, and of
    those that are downloaded the licence, the size, and whether it is here already.
    """
    import pandas as pd

    from ablate.compose.configs import corpora
    from ablate.data.available import facts

    table = pd.DataFrame([facts(name, keys) for name, keys in corpora(config_dir).items()])
    table["bytes"] = table["bytes"].astype("Int64")
    print_table(table, format, spare=("licence",), all_of_it="--format md")


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
    config_dir: ConfigDirOption = None,
) -> None:
    """Show what is known of a corpus before training.

    It is opened as a run with these overrides opens it. Of a text: characters and tokens of each split, the
    share of a held-out split that lies in stretches of 50 characters or more that another split has, too, and
    the loss of counting, in nats a token and in bits a byte. Of each corpus: how often training reads it, and
    how each split begins.
    """
    import pandas as pd

    from ablate.analysis.notes import repeats
    from ablate.data.summary import beginning, figures, visible
    from ablate.data.text_statistics import text_statistics
    from ablate.execution.formulas import before_training
    from ablate.execution.run import resolve
    from ablate.tables import records, render_row

    given = overrides or []
    run = resolve(_config([*_choice(text, given, config_dir), *given], config_dir))
    opened, steps, vocabulary = run.corpus, run.config.train.steps, run.corpus.tokenizer.vocab_size
    statistics, epochs = text_statistics(opened, run.spec.context), before_training(run)["epochs"]
    often = f"{epochs:.2f}" if epochs else "nothing is repeated"
    row = {
        "corpus": visible(opened.config.called),
        "vocabulary": f"{vocabulary:,} tokens, ln {vocabulary:,} = {math.log(vocabulary):.4f}",
        "epochs": f"{often}, {steps:,} steps of {run.tokens_a_step:,.0f} tokens",
    }
    if statistics is not None:
        part = f", in {100 * statistics.counted:.1f} % of training" if statistics.counted < 1 else ""
        row["documents"] = f"{opened.documents:,}"
        row["counting"] = f"n-grams of {counted(statistics.order, 'token')}{part}"
    row |= opened.recipe.known
    row["sha256"] = opened.sha256
    splits = pd.DataFrame([figures(opened, split, statistics) for split in opened.splits])
    if format == "json":
        put_json(about=row, rows=records(splits))
        return
    for note in repeats(max(statistics.overlap.values()) if statistics else 0):
        say(note.text)
    put(render_row(pd.Series(row, dtype=object)))
    print_table(splits, "table")
    for split in opened.splits:
        if lines := beginning(opened, split, run.config.resolved_seeds()["data"]):
            put("\n  ".join([f"\n{split}", *lines]))


@corpus.command()
def get(
    name: Annotated[str, typer.Argument(help="A text to download, by name.")],
    config_dir: ConfigDirOption = None,
) -> None:
    """Download a published text.

    Says where it lies. What is here already is checked, and not downloaded again.
    """
    from ablate.compose.configs import corpora, downloads
    from ablate.config.read import read
    from ablate.data.corpora.download import Download

    chosen = _config([_named(name, corpora(config_dir))], config_dir).corpus
    if chosen.recipe != Download.name:
        raise ConfigError(
            f"corpus={name}: no text to get beforehand; ablate run corpus={name} makes it, or fetches it,"
            f" when it is needed; choices: {', '.join(downloads(config_dir))}"
        )
    for file in read(Download, chosen.options, "corpus").files:
        put(file.fetch())


def _choice(text: str, overrides: Sequence[str], config_dir: str | None) -> list[str]:
    """The overrides that choose a corpus by its name, or else a text by its path. Raises ConfigError."""
    from ablate.compose.configs import corpora
    from ablate.data.available import kind_of

    known = corpora(config_dir)
    if text not in known and (os.path.exists(text) or text == "-" or OF_A_PATH & {*text}):
        return ["corpus=file", f"corpus.path={as_value(text)}"]
    chooses_model = any(override.startswith("model=") for override in overrides)
    of_pairs = text in known and (kind := kind_of(known[text])) and kind.read_as == ("pairs",)
    return [_named(text, known), *(["model=pair"] if of_pairs and not chooses_model else [])]


def _named(name: str, known: Iterable[str]) -> str:
    """The override that chooses a corpus. Raises ConfigError for an unknown one, which Hydra may take for a
    sweep."""
    if name not in known:
        given = f"corpus={name}"
        raise ConfigError(line_on(given) or f"{given}: no such corpus{did_you_mean(name, known)}")
    return f"corpus={name}"


def _config(overrides: Sequence[str], config_dir: str | None) -> "RunConfig":
    """The config of a single run. Raises ConfigError."""
    from ablate.compose.sweep import compose

    sweep = compose([*([] if config_dir is None else ["-cd", config_dir]), *overrides])
    if not sweep.is_single:
        raise ConfigError(f"{' '.join(overrides)}: these are several runs; give the settings of one")
    return sweep.configs(())
