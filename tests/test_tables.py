"""No wrong number from anybody's table: what a row is, how a name is spelt, and what is refused in a line."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ablate
from ablate.analysis import copies
from ablate.config.conditions import pairs
from ablate.config.rules import ConfigError
from benchmarks.drawn_tables import NULLS, compared, covering, try_table
from tests.helpers import ROOT, call_cli

ASKED: dict[str, Any] = {"by": "method", "metric": "loss", "baseline": "method=base"}
ASKED["higher_is_better"] = False
SHELL = ("--by", "method", "--metric", "loss", "--lower-is-better", "--baseline", "method=base")
RNG = np.random.default_rng(0)
VALUES = {"base": [3.2139, 3.2094, 3.2207, 3.2112, 3.2063, 3.2171]}
VALUES["ours"] = [3.1702, 3.1681, 3.1834, 3.1652, 3.1713, 3.1725]


def asked(**others: Any) -> dict[str, Any]:
    return {**ASKED, **others}


def rows(**columns: Any) -> pd.DataFrame:
    made = [(name, seed, loss) for name, of in VALUES.items() for seed, loss in enumerate(of)]
    return pd.DataFrame(made, columns=["method", "seed", "loss"]).assign(**columns)


def refused(table: Any, **others: Any) -> str:
    with pytest.raises(ConfigError) as error:
        ablate.compare(table, **asked(**others))
    assert "\n" not in str(error.value)
    return str(error.value)


# --- the truth is known -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_no_table_ends_with_another_n_mean_or_verdict(part, tmp_path):
    """python -m benchmarks.drawn_tables tries 300."""
    for seed in covering()[part::3]:
        try_table(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", NULLS)
def test_tables_without_a_difference_have_seldom_a_verdict(kind):
    """python -m benchmarks.drawn_tables draws 1,000 of each, of which at most 64 may."""
    found = [*compared(kind, 12)]
    assert all(one.pairs == runs for runs, one in found)
    assert sum(one.verdict != "undecided" for _, one in found) <= 3


@pytest.mark.parametrize("values", ["ten", "integers", "sevenths"])
def test_an_honest_table_loses_no_run(values):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        drawn = {"ten": rng.binomial(10, 0.7, 16) / 10, "integers": np.round(rng.normal(200, 20, 16))}
        drawn["sevenths"] = (rng.integers(2, 7, 16) / 7).round(4)
        assert not copies.copies([drawn[values].reshape(2, 8)])[0].any()
    many = np.random.default_rng(0).normal(3, 0.3, (2, 3000))
    assert not copies.copies([many.round(9)])[0].any()  # without an overflow


# --- a name keeps its spelling, and can be pasted -----------------------------------------------------------


SPELT = [("1e5", "100000"), ("007", "7"), ("0.10", "0.1"), ("true", "True"), ("none", "NA"), ("null", "nan")]
SPELT += [("12e4567", "12e4568"), ("a,b", "a=b"), ("it's", '"q"'), ("x and y", "x"), ("1_000", "1000")]


@pytest.mark.slow
@pytest.mark.parametrize("at, names", [*enumerate(SPELT)])
def test_what_is_printed_can_be_pasted(at, names, tmp_path):
    """From frames and files in turn."""
    table = rows().replace({"method": dict(zip(("base", "ours"), names, strict=True))})
    table.to_csv(file := tmp_path / "t.csv", index=False)
    source = (table, file)[at % 2]
    for one in ablate.compare(source, by="method", metric="loss", baseline={"method": names[0]}).variants:
        (tested,) = ablate.compare(source, **asked(baseline=one)).tested
        assert tested.baseline.name == one and tested.pairs == 6
    assert ablate.compare(source, by="method", metric="loss", where=one).summary["n"].tolist() == [6]


def test_pairs_are_read_to_the_next_name():
    assert pairs("method=a,b=c") == {"method": "a", "b": "c"} and pairs("method=a,b") == {"method": "a,b"}
    assert pairs("method=ours v2 lr=0.1") == {"method": "ours v2", "lr": "0.1"}
    assert pairs('"x,y"="a=b",n=2') == {"x,y": '"a=b"', "n": "2"} and pairs("method") is None


def test_blank_alone_is_missing(tmp_path):
    table = rows().assign(method=lambda made: made["method"].where(made["method"] != "base"))
    assert ablate.compare(table, **asked(baseline="method=None")).tested[0].pairs == 6
    mixed = pd.concat([table, rows().query("method == 'base'").assign(method="None")])
    assert "it is None in some rows, blank in 6 rows" in refused(mixed)


# --- what is no run ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_word_among_numbers_is_a_sum_of_others(tmp_path):
    words = ["mean", "std", "min", "max", "mean±std"]
    more = pd.DataFrame({"method": "base", "seed": words, "loss": 3.2})
    two = rows().query("seed < 2").astype({"seed": str})
    for key in ("seed", "task", "fold_id"):
        table = pd.concat([two, more]).rename(columns={"seed": key})
        found = ablate.compare(table, pair_by=() if key == "seed" else key, **ASKED)
        assert found.summary["n"].tolist() == [2, 2] and f"5 rows of {key}=mean, {key}=std" in str(found)
    tasks = rows().rename(columns={"seed": "task"}).astype({"task": str})
    tasks["task"] = tasks["task"].map(
        dict(zip("012345", ["arc", "sum", "max", "rte", "piqa", "average"], strict=True))
    )
    assert ablate.compare(tasks, pair_by="task", **ASKED).summary["n"].tolist() == [5, 5]


def test_a_column_called_fusion_makes_no_run_of_ours():
    mean = pd.DataFrame({"method": ["ours"], "seed": ["mean"], "loss": [3.2]})
    table = pd.concat([rows(), mean]).rename(columns={"method": "fusion"})
    found = ablate.compare(table, **asked(by="fusion", baseline="base"))
    assert found.summary["n"].tolist() == [6, 6] and "1 row of seed=mean" in str(found)


def test_a_row_that_is_the_mean_of_the_others_is_a_doubt():
    means = rows().groupby("method", as_index=False)["loss"].mean().round(4).assign(seed=6)
    assert "Doubts: seed=6 looks like a mean" in str(ablate.compare(pd.concat([rows(), means]), **ASKED))
    assert "looks like" not in str(ablate.compare(rows(), **ASKED))


@pytest.mark.slow
def test_copies_count_once_and_rows_of_ours_are_exempt(tmp_path):
    three = rows().query("seed < 3")
    found = ablate.compare(pd.concat([three, three.assign(seed=three["seed"] + 3)]), **ASKED)
    assert found.summary["n"].tolist() == [3, 3] and "6 runs that repeat another of method=" in str(found)
    assert "missing" not in str(found.notes)
    other = pd.concat([three.assign(acc=0.1), three.assign(seed=three["seed"] + 3, acc=0.2)])
    assert ablate.compare(other, **ASKED).summary["n"].tolist() == [6, 6]
    rerun = pd.concat([three.assign(runtime_s=1.5), three.assign(seed=three["seed"] + 3, runtime_s=1.7)])
    assert ablate.compare(rerun, **ASKED).summary["n"].tolist() == [3, 3]
    twice = ablate.compare(pd.concat([rows(), rows().head(3)]), **ASKED)
    assert twice.summary["n"].tolist() == [6, 6] and "left out: 3 rows that stand twice" in str(twice)


def test_an_arm_that_never_varies_has_no_verdict_unless_it_is_fixed():
    still = rows()
    still.loc[still["method"] == "base", "loss"] = 3.214
    found = ablate.compare(still, **ASKED)
    assert found.tested[0].why.startswith(
        "method=base is the same at every seed: perhaps the seed never reached it"
    )
    known = ablate.compare(still, fixed="method=base", **ASKED).tested[0]
    assert (known.verdict, known.diff) == ("better", pytest.approx(np.mean(VALUES["ours"]) - 3.214))
    once = still[(still["method"] == "ours") | (still["seed"] == 0)]
    assert ablate.compare(once, fixed="base", **ASKED).tested[0].low == pytest.approx(known.low)
    assert "it has 6 different values" in refused(rows(), fixed="method=base")


def test_a_history_is_told_how_to_take_its_last():
    table = pd.concat([rows(step=at, loss=rows()["loss"] + at) for at in (0, 100)])
    assert refused(table).endswith("take the last of each: --where step=100")
    table["step"] *= 1 + table["seed"]
    assert 'frame.sort_values("step").groupby(["method", "seed"]).tail(1)' in refused(table)
    one = table[table["seed"] == 0].drop(columns="seed")
    assert "rows of one run differ in step" in refused(one)


@pytest.mark.slow
def test_rows_without_a_seed_are_no_runs_where_they_are_parts_of_one():
    parts = rows().rename(columns={"seed": "doc"})
    assert "doc has the same 6 values in each variant: --pair-by doc" in refused(parts)
    found = ablate.compare(parts.assign(seed=[0] * 6 + [1] * 6), pair_by="doc", **ASKED)
    assert "6 paired docs, over docs, of these two models, 95 % confidence" in str(found)
    runs = pd.concat([rows(run=at, loss=rows()["loss"] + RNG.normal(0, 0.01, 12)) for at in range(3)])
    runs = runs.rename(columns={"seed": "doc"})
    for pair_by in ("run,doc", "doc,run"):
        assert ablate.compare(runs, pair_by=pair_by, **ASKED).tested[0].pairs == 3
    assert "differ in run; add run to --by or" in refused(runs, pair_by="doc")
    folds = ablate.compare(parts.rename(columns={"doc": "fold"}), pair_by="fold", **ASKED).tested[0]
    assert (folds.verdict, folds.more_seeds) == ("undecided", None)


# --- what people bring -----------------------------------------------------------------------------------


def test_a_pipe_is_read_once(command, tmp_path):
    rows().to_csv("t.csv", index=False)
    text, first = Path("t.csv").read_text(), str(ablate.compare("t.csv", **ASKED)).partition("\n")[0]
    read, write = os.pipe()  # as <(cat t.csv) is one
    os.write(write, text.encode())
    os.close(write)
    pipes = call_cli("compare", f"/dev/fd/{read}", *SHELL, cwd=tmp_path)
    for done in (pipes, call_cli("compare", "-", *SHELL, cwd=tmp_path, piped=text)):
        assert (done.returncode, done.stderr) == (0, "") and first in done.stdout


def test_json_of_any_kind_keeps_its_spelling(tmp_path):
    nested = [{"cfg": {"method": row.pop("method")}, **row} for row in rows().to_dict("records")]
    (tmp_path / "t.json").write_text(json.dumps(nested))
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, nested)))
    for name in ("t.json", "t.jsonl"):
        found = ablate.compare(tmp_path / name, **asked(by="method", baseline="base"))
        assert found.tested[0].verdict == "better" and '"cfg.method"=ours' in found.variants
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, nested))[:-9])
    assert "line 12 is no JSON: cut off?" in refused(tmp_path / "t.jsonl")
    (tmp_path / "t.xlsx").write_bytes(b"PK\x03\x04\x14\0")
    assert "line 1 holds a null character; save its table as CSV" in refused(tmp_path / "t.xlsx")


def test_a_column_for_each_variant(tmp_path):
    wide = rows().pivot(index="seed", columns="method", values="loss").reset_index()
    found = ablate.compare(wide, **asked(by="base,ours", baseline="base"))
    assert found.tested[0].diff == pytest.approx(ablate.compare(rows(), **ASKED).tested[0].diff)
    assert "if each column is a variant: --by base,ours" in refused(wide, by=())


@pytest.mark.slow
def test_a_column_that_no_comparison_needs_refuses_nothing(command):
    rows(steps="10k", layers="x", lr="auto", params="12M", heads=[4] * 6 + [8] * 6).to_csv(
        "t.csv", index=False
    )
    code, out, err = command("compare", "t.csv", *SHELL)
    assert (code, err) == (0, "") and "Doubts: heads differs, too" in out and "6 paired seeds" in out
    code, _, err = command("report", "t.csv", *SHELL)
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("cells", "mean"),
    [("−{:.3f}", -3.2), *((shown, 3.2) for shown in ("{:.3f} %", "{}", "+{:.3f}", " {:.3f} ", "{:_.3f}"))],
)
def test_numbers_as_they_are_shown(cells, mean):
    shown = rows(loss=[cells.format(value) for value in rows()["loss"]])
    assert ablate.compare(shown, **ASKED).summary["mean"].mean() == pytest.approx(mean, abs=0.02)


def test_the_status_says_which_variant_lost_how_many():
    word = ["Finished", "DONE", "ok", "crashed", "nan", "running"] * 2
    found = ablate.compare(rows(state=word), **ASKED)
    assert "left out: 1 crashed, 1 running of method=base; 1 crashed, 1 running of method=ours" in str(found)
    assert found.summary[["n", "diverged"]].to_numpy().tolist() == [[3, 1]] * 2
    assert "state: fertig: no status that is known" in (line := refused(rows(state="fertig")))
    assert "--finished fertig" in line
    assert ablate.compare(rows(state="fertig"), finished="fertig", **ASKED).tested[0].pairs == 6


@pytest.mark.slow
def test_the_page_shows_what_is_printed(command):
    page = (ROOT / "docs" / "elsewhere.md").read_text(encoding="utf-8")
    printed, tried = "", 0
    for kind, file, text in re.findall(r"```(\w+)(?: (\S+))?\n(.*?)```", page, re.S):
        if file:
            Path(file).write_text(text, encoding="utf-8")
        elif kind == "sh":
            code, printed, err = command(*shlex.split(text)[1:])
            assert (code, err) == (0, "")
        elif kind == "python":
            *before, last = text.splitlines()
            names = {"pd": pd, "ablate": ablate}
            exec("\n".join(before), names)
            printed = f"{eval(last, names)}\n"
        else:
            assert text.strip() and printed.startswith(text.strip())
            tried += 1
    assert tried == 5 and len(page.split()) <= 350
    _, told, _ = command("compare", "--help")
    assert "--by method --metric loss" in told
