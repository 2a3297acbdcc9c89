"""The loss of each held-out document: counted, kept beside runs and studies, as an interval of a finding."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from ablate.analysis.compare import compare
from ablate.analysis.documents import bootstrap
from ablate.analysis.load import load
from ablate.data.corpus import open_corpus
from ablate.execution.events import ignore
from ablate.execution.execute import execute
from ablate.execution.run import prepare
from ablate.reporting.answers import answer
from ablate.reporting.words import interval
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
    assert not corpus.splits["train"].documents  # pyright: ignore[reportAttributeAccessIssue]
    for split in ("validation", "test"):
        documents = corpus.splits[split].documents  # pyright: ignore[reportAttributeAccessIssue]
        tokens, start = corpus.tokens(split), 0
        for name, count in documents:
            text = (folder / name).read_text(encoding="utf-8")
            part = corpus.tokenizer.decode(tokens[start : start + count])
            assert part.strip() == text.strip()  # a piece of a word begins with the blank before it
            start += count
        assert start == len(tokens) and len(documents) > 3


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
    diff, weight = DRAWS.normal(0.05, 0.1, 80), DRAWS.integers(50, 500, 80).astype(float)
    ours = bootstrap(diff, weight, np.random.default_rng(1))

    def mean(d: np.ndarray, w: np.ndarray, axis: int = -1) -> np.ndarray:
        return (d * w).sum(axis) / w.sum(axis)

    theirs = scipy_stats.bootstrap(
        (diff, weight), mean, paired=True, method="percentile", n_resamples=4000, rng=2
    ).confidence_interval
    assert ours == pytest.approx([*theirs], abs=0.003)


def _with_documents(root: Path) -> tuple[Store, pd.DataFrame]:
    """A study of concat and sum at four seeds, in which the sum loses 0.1 on half of 40 documents, and gains
    as much on the others but four."""
    store = synthetic_study(root, fusions=("concat", "sum"), heads=(4,), out_proj=(True,), seeds=4)
    rows = pd.DataFrame(store.study_rows("synthetic"))
    effect = np.repeat([0.1, -0.1, 0.0], [20, 16, 4])
    losses = {
        row["run_id"]: row["val_loss"] + (effect if row["fusion"] == "sum" else 0 * effect)
        for row in rows.to_dict("records")
    }
    of_documents = {"split": "validation", "document": [f"{d}.txt" for d in range(40)], "targets": 100}
    table = pd.DataFrame({**of_documents, **losses})
    table.to_csv(store.study_directory("synthetic") / "documents.csv", index=False)
    return store, rows


def test_a_comparison_has_the_interval_over_documents_beside_that_over_seeds(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATE_RUNS", str(tmp_path / "runs"))
    _with_documents(tmp_path / "runs")
    results = load(["synthetic"])
    given = {"records": results.records, "documents": results.documents}
    (one,) = [f for f in compare(results.rows, **given).findings if f.is_primary]
    seeds_alone = one.diff  # over documents it is larger by (20·0.1 − 16·0.1)/40
    assert one.documents == 40
    assert one.documents_low < seeds_alone + 0.01 < one.documents_high
    assert one.documents_high - one.documents_low == pytest.approx(2 * 1.96 * 0.0943 / 40**0.5, rel=0.1)
    (said,) = answer(compare(results.rows, **given), results.record).findings
    assert f"; over 40 documents {interval(one.documents_low, one.documents_high)}" in said
    other = compare(results.rows, **given, metric="val_bpb").findings
    assert all(f.documents is None for f in other)  # of the losses alone it is known


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", "split,document,targets\n", "\x00"])
def test_a_file_that_is_no_table_of_documents_changes_no_comparison(tmp_path, monkeypatch, content):
    monkeypatch.setenv("ABLATE_RUNS", str(tmp_path / "runs"))
    store, _ = _with_documents(tmp_path / "runs")
    (store.study_directory("synthetic") / "documents.csv").write_text(content)
    results = load(["synthetic"])
    found = compare(results.rows, records=results.records, documents=results.documents).findings
    assert found and all(one.documents is None for one in found)


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
