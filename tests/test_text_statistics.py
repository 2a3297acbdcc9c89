"""What is measured of a text, the mixture of a model with counting, and what a comparison says of both."""

import itertools
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ablate.analysis.load import load
from ablate.config.schema import CorpusConfig
from ablate.data import counting as module
from ablate.data.corpus import Corpus, open_corpus
from ablate.data.counting import evenly, kneser_ney, mixture, text_statistics
from ablate.data.matches import overlap
from ablate.phrases import texts
from tests.helpers import compared, make_config
from tests.synthetic import small_study

STRETCH = "a stretch of more than fifty characters that stands in two splits of it. "


def made_text() -> str:
    """10,000 characters, of which 73 of test stand in training, too."""
    words = random.Random(0).choices(["one ", "two ", "three ", "four ", "five ", "sixty "], k=2500)
    text = "".join(words)[: 10_000 - 2 * len(STRETCH)]
    return text[:300] + STRETCH + text[300:9500] + STRETCH + text[9500:]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    (tmp_path / "text.txt").write_text(made_text())
    options = {"path": str(tmp_path / "text.txt"), "split": "auto", "unique": "none"}
    options |= {"encoding": "utf-8", "errors": "strict"}
    return open_corpus(
        CorpusConfig(name="file", options=options, tokenizer="char", bpe_vocab=300, splits=(0.8, 0.1, 0.1))
    )


def test_a_text_is_measured_and_the_figures_are_kept(corpus: Corpus, monkeypatch):
    known, text = corpus.text, text_statistics(corpus, 16)
    assert known is not None and text is not None
    assert known.characters == {"train": 8000, "validation": 1000, "test": 1000}
    pieces = {name: corpus.tokenizer.decode(corpus.tokens(name)) for name in corpus.splits}
    others = {"validation": ("train",), "test": ("train", "validation")}
    wanted = {of: {name: overlap(pieces[of], pieces[name]) for name in others[of]} for of in others}
    assert known.overlap == wanted
    assert known.most_shared == wanted["test"]["train"] >= len(STRETCH) / 1000 - 0.01
    held_out = {name: corpus.tokens(name) for name in ("validation", "test")}
    models = kneser_ney(corpus.tokens("train"), held_out, vocab=corpus.tokenizer.vocab_size, context=16)
    losses = [
        {name: -np.log(p).mean() for name, p in of_order.items()} for of_order in itertools.islice(models, 10)
    ]
    best = min(losses, key=lambda loss: loss["validation"])
    assert text.loss == pytest.approx(best) and losses[text.order - 1] is best and text.counted == 1
    assert -np.log(text.probabilities["test"]).mean() == pytest.approx(best["test"], rel=1e-5)
    monkeypatch.setattr(module, "_measure", None)
    assert text_statistics(corpus, 16) == text


def test_a_task_has_no_figures():
    config = make_config("corpus=copy", "model.context=16")
    assert text_statistics(open_corpus(config.corpus), 16) is None


def test_of_a_long_text_evenly_spread_pieces_are_counted(monkeypatch):
    monkeypatch.setattr(module, "PIECE", 10)
    tokens = np.arange(100)
    assert evenly(tokens, 100) is tokens
    assert evenly(tokens, 35).tolist() == [*range(10), *range(30, 40), *range(60, 70)]


def test_the_weight_of_a_mixture_is_the_best_there_is():
    draws = np.random.default_rng(0)
    for low, high in ((0.01, 0.5), (0.2, 0.9), (0.01, 0.011)):
        model_J, counting_J = draws.uniform(low, high, 500), draws.uniform(0.01, 0.4, 500)
        grid = [-np.log(w * model_J + (1 - w) * counting_J).mean() for w in np.linspace(0, 1, 201)]
        weight = mixture(model_J, counting_J)
        assert -np.log(weight * model_J + (1 - weight) * counting_J).mean() <= min(grid) + 1e-9


# --- what a comparison says ----------------------------------------------------------------------------


@pytest.fixture
def rows(tmp_path: Path) -> pd.DataFrame:
    store = small_study(tmp_path / "runs")
    return load([str(store.root / "studies" / name) for name in store.study_names()]).rows


def doubts(rows: pd.DataFrame, **columns: float) -> list[str]:
    comparison = compared(rows.assign(**columns))
    of_other_tests = ("one learning rate", "only 2 seeds")
    return texts(note for note in comparison.notes if note.is_doubt and note.brief not in of_other_tests)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"ngram_val_loss": 1.0}, "worse than counting 5 tokens by .*concat.*; .*mix_loss"),
        (
            {"overlap": 0.08},
            "a text that repeats itself: 8.0 % of a held-out split .*corpus.unique=paragraph",
        ),
        ({"epochs": 5.5}, "a run reads its text 5.5 times, .*fewer train.steps"),
    ],
)
def test_a_text_or_a_budget_that_cannot_carry_a_verdict(rows, columns, words):
    assert doubts(rows) == []
    (line,) = doubts(rows, **columns)
    assert pd.Series([line]).str.match(words).all(), line
