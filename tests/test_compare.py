"""Variants side by side: hand-worked means, and what may not stand in one table."""

import pandas as pd
import pytest

from ablate.analysis.compare import Incomparable, missing_seeds, summarize, unusable
from ablate.columns import COLUMNS

ROW = {
    **dict.fromkeys(COLUMNS),
    **{"status": "done", "fusion": "concat", "heads": 4, "out_proj": True, "seed": 0, "params": 97},
    **{"corpus_sha256": "abc", "tokenizer": "char", "vocab": 11, "splits": "[0.8, 0.1, 0.1]"},
    **{"code": "c0de", "torch": "2.9.0", "value_width": 16, "key_width": 16},
}


def table(*rows: dict) -> pd.DataFrame:
    return pd.DataFrame([{**ROW, "run_id": f"{i:016x}", **row} for i, row in enumerate(rows)])


def grid() -> pd.DataFrame:
    values = {("concat", 4): (2.0, 2.2, 2.4), ("sum", 4): (1.0, 1.5, 2.0), ("sum", 8): (3.0, 3.0, 3.0)}
    return table(
        *(
            {"fusion": fusion, "heads": heads, "seed": seed, "val_loss": loss, "key_width": 64 // heads}
            for (fusion, heads), losses in values.items()
            for seed, loss in enumerate(losses)
        )
    )


def test_means_and_deviations_by_hand():
    summary = summarize(grid())
    assert summary["variant"].tolist() == [
        "fusion=sum heads=4 out_proj=true",
        "fusion=concat heads=4 out_proj=true",
        "fusion=sum heads=8 out_proj=true",
    ]
    assert summary["n"].tolist() == [3, 3, 3]
    assert summary["mean"].tolist() == pytest.approx([1.5, 2.2, 3.0])
    assert summary["sd"].tolist() == pytest.approx([0.5, 0.2, 0.0])
    assert summary["best"].tolist() == [True, False, False]


def test_where_more_is_better_the_largest_comes_first():
    rows = grid().assign(val_acc=lambda rows: rows["val_loss"])
    assert summarize(rows, "val_acc")["mean"].tolist() == pytest.approx([3.0, 2.2, 1.5])


def test_any_column_that_differs_makes_another_variant():
    rows = table({"val_loss": 1.0, "lr": 0.001}, {"val_loss": 2.0, "lr": 0.002})
    assert summarize(rows)["variant"].tolist() == [
        "fusion=concat heads=4 out_proj=true lr=0.001",
        "fusion=concat heads=4 out_proj=true lr=0.002",
    ]


@pytest.mark.parametrize("column, other", [("corpus_sha256", "xyz"), ("code", "0ld"), ("torch", "2.8.0")])
def test_texts_and_programs_are_not_mixed_unless_asked(column, other):
    rows = table({"val_loss": 1.0}, {"val_loss": 2.0, "seed": 1, column: other})
    with pytest.raises(Incomparable, match=rf"{column} .* / .*--mixed"):
        summarize(rows)
    assert summarize(rows, mixed=True)["n"].sum() == 2


def test_two_rows_of_one_variant_and_seed_are_named():
    rows = table({"val_loss": 1.0}, {"val_loss": 2.0, "seed": 1}, {"val_loss": 1.1})
    with pytest.raises(Incomparable, match="runs 0000000000000000 and 0000000000000002"):
        summarize(rows)


def test_seeds_of_single_streams_are_replicates_not_variants():
    rows = table({"val_loss": 1.0, "seed_data": 1.0}, {"val_loss": 2.0, "seed_data": 2.0})
    assert summarize(rows)["n"].tolist() == [2]


def test_what_did_not_finish_is_in_no_mean_and_named():
    rows = table(
        {"val_loss": 1.0},
        {"val_loss": 2.0, "seed": 1},
        {"status": "diverged", "error": "the loss was not finite at step 7", "seed": 2},
        {"status": "failed", "error": "MemoryError: full", "seed": 3},
        {"val_loss": 3.0, "fusion": "sum"},
    )
    summary = summarize(rows).set_index("variant")
    concat = summary.loc["fusion=concat heads=4 out_proj=true"]
    assert (concat["n"], concat["diverged"], concat["mean"]) == (2, 1, 1.5)
    named = unusable(rows)
    assert len(named) == 2 and "step 7" in named[0] and "seed=3" in named[1] and "MemoryError" in named[1]
    assert missing_seeds(rows) == [
        "missing: fusion=sum heads=4 out_proj=true: no run of seed 1, 2, 3",
    ]


def test_a_metric_that_is_not_there():
    with pytest.raises(Incomparable, match=r"--metric val_los: .*did you mean val_loss\?"):
        summarize(grid(), "val_los")
    with pytest.raises(Incomparable, match="no finished run has it"):
        summarize(table({"val_loss": 1.0, "status": "failed"}))
