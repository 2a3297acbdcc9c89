"""The loss of each held-out document: counted, kept beside runs and studies, as an interval of a finding."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from ablate.analysis.compare import compare
from ablate.analysis.documents import interval
from ablate.analysis.finding import Finding
from ablate.analysis.load import load
from ablate.data.corpus import open_corpus
from ablate.execution.events import ignore
from ablate.execution.execute import execute
from ablate.execution.run import prepare
from ablate.reporting.answers import answer
from ablate.reporting.words import number as in_words
from ablate.store.record import Role, StudyRecord
from ablate.store.store import Store
from tests.helpers import make_config, make_record
from tests.synthetic import synthetic_study

DRAWS = np.random.default_rng(0)
SMALL = ("model.d_model=16", "heads=2", "model.context=16", "train.steps=2", "train.eval_every=2")


@pytest.fixture
def folder(tmp_path) -> Path:
    """60 files of words that are their own, so that each token tells its file; some of more bytes than
    letters."""
    path = tmp_path / "texts"
    path.mkdir()
    for number in range(60):
        words = (f"{'naïve' if number % 7 == 0 else 'plain'}{number} " for _ in range(40 + number))
        (path / f"{number:02}.txt").write_text("".join(words), encoding="utf-8")
    return path


@pytest.mark.parametrize("tokenizer", ["bpe", "char", "byte"])
def test_tokens_are_counted_to_the_document_that_they_are_of(folder, tokenizer):
    config = make_config("corpus=file", f"corpus.path={folder}", f"corpus.tokenizer={tokenizer}")
    corpus = open_corpus(config.corpus)
    assert not corpus.splits["train"].documents
    for split in ("validation", "test"):
        documents = corpus.splits[split].documents
        tokens, start = corpus.tokens(split), 0
        for name, count in documents:
            text = (folder / name).read_text(encoding="utf-8")
            part = corpus.tokenizer.decode(tokens[start : start + count])
            assert part.strip() == text.strip()  # a piece of a word begins with the blank before it
            start += count
        assert start == len(tokens) and len(documents) > 3


@pytest.mark.slow
def test_a_run_keeps_the_loss_of_each_document_and_a_study_those_of_its_runs(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATE_RUNS", str(tmp_path / "runs"))
    text = ("corpus=file", f"corpus.path={folder}", "corpus.tokenizer=char")
    rows = [execute(prepare(make_config(*text, *SMALL, f"seed={seed}")), ignore) for seed in (0, 1)]
    store, ids = Store(), [row["run_id"] for row in rows]
    store.change_study("mine", lambda _: make_record(name="mine", seeds=[0, 1], runs=ids))
    store.write_results("mine")
    losses = load(["mine"]).documents
    assert [*losses.columns] == ["split", "document", "targets", *sorted(ids)]
    for row in rows:
        for split, metric in (("validation", "val_loss"), ("test", "test_loss")):
            of = losses[losses["split"] == split]
            mean = (of[row["run_id"]] * of["targets"]).sum() / of["targets"].sum()
            assert mean == pytest.approx(row[metric], abs=1e-5)
    assert losses["document"].is_unique and losses["document"].str.fullmatch(r"\d\d\.txt").all()


def test_a_text_that_is_cut_has_no_documents(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATE_RUNS", str(tmp_path / "runs"))
    row = execute(prepare(make_config("corpus=grammar", "corpus.characters=5000", *SMALL)), ignore)
    (directory,) = Store().directories([row["run_id"]]).values()
    assert not (directory / "documents.csv").exists()


def test_the_interval_is_that_of_a_plain_bootstrap():
    diff, weight = DRAWS.normal(0.05, 0.1, 400), DRAWS.integers(50, 500, 400).astype(float)
    middle, *ours = interval(diff, weight)

    def mean(d: np.ndarray, w: np.ndarray, axis: int = -1) -> np.ndarray:
        return (d * w).sum(axis) / w.sum(axis)

    theirs = scipy_stats.bootstrap(
        (diff, weight), mean, paired=True, method="percentile", n_resamples=4000, rng=2
    ).confidence_interval
    assert middle == pytest.approx(mean(diff, weight)) and ours == pytest.approx([*theirs], abs=0.001)


NAMES = ("NA", "null", "1", "01", "1.0", "a,b", "", *(f"{d}.txt" for d in range(53)))


def _with_documents(root: Path) -> tuple[Store, pd.DataFrame]:
    """A study of concat and sum at four seeds, in which the sum is 0.1 worse than its mean difference on half
    of 60 documents, and as much better on the others. The losses of its documents."""
    store = synthetic_study(root, fusions=("concat", "sum"), heads=(4,), out_proj=(True,), seeds=4)
    rows = pd.DataFrame(store.study_rows("synthetic"))
    effect = np.repeat([0.1, -0.1], 30)
    losses = {
        row["run_id"]: row["val_loss"] + (effect if row["fusion"] == "sum" else 0 * effect)
        for row in rows.to_dict("records")
    }
    table = pd.DataFrame({"split": "validation", "document": NAMES, "targets": 100, **losses})
    return store, table


def _primary(table: pd.DataFrame | str, store: Store, **given: Any) -> Finding:
    path = store.study_directory("synthetic") / "documents.csv"
    path.write_text(table if isinstance(table, str) else table.to_csv(index=False), encoding="utf-8")
    results = load(["synthetic"])
    comparison = compare(results.rows, records=results.records, documents=results.documents, **given)
    (one,) = [found for found in comparison.findings if found.is_primary or given]
    return one


@pytest.fixture
def store(tmp_path, monkeypatch) -> tuple[Store, pd.DataFrame]:
    monkeypatch.setenv("ABLATE_RUNS", str(tmp_path / "runs"))
    return _with_documents(tmp_path / "runs")


@pytest.mark.slow
def test_a_comparison_has_the_interval_over_documents_beside_that_over_seeds(store):
    one = _primary(store[1], store[0])
    assert one.documents == 60 and one.documents_low + one.documents_high == pytest.approx(2 * one.diff)
    half = 2.001 * 0.1 / 59**0.5  # t of 59 degrees, and the sd of documents over the root of 60
    assert one.documents_high - one.diff == pytest.approx(half, rel=0.001)
    results = load(["synthetic"])
    found = compare(results.rows, records=results.records, documents=results.documents)
    (said,) = answer(found, results.record).findings
    ends = f"{in_words(one.documents_low)} to {in_words(one.documents_high)}"
    assert f"; with these seeds, other documents would give {ends} (95 %, 60 documents)." in said
    assert _primary(store[1], store[0], metric="val_bpb").documents is None  # of losses alone it is known


@pytest.mark.parametrize(
    "spoil",
    [
        lambda table: "",
        lambda table: table.iloc[:20],  # too few
        lambda table: table.assign(targets="many"),
        lambda table: table.iloc[:55],  # not all of them: their mean is another
        lambda table: table.mask(
            np.arange(table.size).reshape(table.shape) == 10 * table.shape[1] + 4, np.nan
        ),
        lambda table: table.drop(columns=table.columns[5]),
    ],
)
def test_what_is_not_all_documents_of_all_runs_gives_no_interval(store, spoil):
    assert _primary(spoil(store[1]), store[0]).documents is None


def test_an_answer_calls_arms_by_the_words_of_the_study(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATE_RUNS", str(tmp_path / "runs"))
    store = synthetic_study(
        tmp_path / "runs", fusions=("concat", "sum"), heads=(4,), out_proj=(True,), seeds=4, tuned="train.lr"
    )
    rows = store.study_rows("synthetic")
    arm_of = {row["run_id"]: "plain" if row["fusion"] == "concat" else "summed" for row in rows}
    roles = {
        run: Role(phase="report", role="tuned", tuned="train.lr", values={"tuned": [arm]})
        for run, arm in arm_of.items()
    }
    words = {"summed": "summing them as they are", "plain": "putting them side by side"}

    def changed(record: StudyRecord | None) -> StudyRecord:
        assert record
        return StudyRecord(**{**vars(record), "roles": roles, "answer": words})

    store.change_study("synthetic", changed)
    results = load(["synthetic"])
    (said,) = answer(compare(results.rows, records=results.records), results.record).findings
    assert "summing them as they are costs " in said and " against putting them side by side" in said
    assert "heads=4" not in said
