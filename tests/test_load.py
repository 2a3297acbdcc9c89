"""Where rows come from: tables of anybody's, some of them damaged, and studies that share runs."""

import io
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from ablate.analysis.foreign import read_table
from ablate.analysis.load import load
from ablate.config.rules import ConfigError
from ablate.phrases import texts
from ablate.store.columns import csv_text
from ablate.store.frames import frame
from ablate.store.record import Role
from ablate.version import NUMERICS
from tests.helpers import call_cli, compared, write_study
from tests.synthetic import small_study, synthetic_study

HEADER = "fusion,heads,out_proj,seed,val_loss"
ROWS = ("concat,4,true,0,2.0", "concat,4,true,1,2.1", "sum,4,true,0,2.2", "sum,4,true,1,2.31")
TABLE = "\n".join([HEADER, *ROWS, ""])


@pytest.fixture
def table(tmp_path, monkeypatch) -> Callable[[str | bytes], Path]:
    """Writes t.csv in the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(content: str | bytes) -> Path:
        Path("t.csv").write_bytes(content.encode() if isinstance(content, str) else content)
        return Path("t.csv")

    return write


DAMAGED = {
    "cut off in a row": (
        TABLE[: TABLE.rindex(",true")] + "\n",
        "line 5 has 2 cells, and the header 5: cut off",
    ),
    "cut off in a quotation": (TABLE.replace("sum,4,true,1", '"sum,4,true,1'), "unexpected end of data"),
    "two files of other columns": (
        TABLE + "heads,fusion,out_proj,seed,val_loss\n4,mean,true,0,2.0\n",
        "line 6: heads 'fusion' is no usable number",
    ),
    "only a header": (HEADER + "\n", "only a header"),
    "a null character": (TABLE.replace("2.2", "2\0"), "line 4 holds a null character"),
    "latin-1": (TABLE.replace("sum", "été", 1).encode("latin-1"), "line 4 is not UTF-8 text"),
    "a column twice": (TABLE.replace("seed", "heads"), "two columns are called heads"),
    "a word": (TABLE.replace("sum,4,true,1", "sum,four,true,1"), "line 5: heads 'four' is no usable number"),
    "no seed": (TABLE.replace("true,1,2.31", "true,,2.31"), "line 5 has no seed; complete it"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_wrong_with_a_table_is_one_line_that_says_where(table, what):
    content, reason = DAMAGED[what]
    with pytest.raises(ConfigError, match=rf"^t\.csv: .*{reason}") as caught:
        load([str(table(content))])
    assert "\n" not in str(caught.value)


READ = {
    "pasted together with their byte order marks": "\ufeff".join(["", TABLE[: TABLE.index("sum")], HEADER])
    + "\n"
    + TABLE[TABLE.index("sum") :],
    "of a spreadsheet": TABLE.replace(",", ";"),
    "with tabs": TABLE.replace(",", "\t"),
    "with blank lines": TABLE.replace("\n", "\n\n") + ",,,,\n",
    "with spaces": TABLE.replace(",", ", "),
    "quoted": '"' + TABLE.replace(",", '","').replace("\n", '"\n"')[:-1],
    "with an index": "\n".join(f"{i},{line}" if i else f",{line}" for i, line in enumerate(TABLE.split()))
    + "\n",
}


@pytest.mark.parametrize("what", READ)
def test_what_is_no_doubt_meant_is_read(table, what):
    results = load([str(table(READ[what]))])
    plain = pd.read_csv(io.StringIO(TABLE))
    pd.testing.assert_frame_equal(results.rows[[*plain.columns]], plain, check_dtype=False)
    assert results.notes == []


def test_a_last_line_without_an_end_is_said(table):
    results = load([str(table(TABLE[:-2]))])  # 2.31 is 2.3 now, which nobody can know
    assert results.rows["val_loss"].tolist()[-1] == 2.3
    (line,) = texts(results.notes)
    assert line == "taken: t.csv: its last line has no end; if it was cut off there, its last value is wrong"


# --- studies --------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path, monkeypatch):
    """runs/ in the working directory with the study synthetic, of a metric and a margin of its own."""
    monkeypatch.chdir(tmp_path)
    store = small_study(Path("runs"), seeds=4)
    record = store.read_study("synthetic")
    assert record is not None
    write_study(store, replace(record, metric="test_loss", margin=0.5))
    store.write_results("synthetic")
    return store


def test_rows_are_typed_and_their_csv_reads_back(tmp_path):
    odd = {"code": "12345678e012", "parts": "1234567890", "corpus_sha256": "7" * 64}
    seeds = {"seed_data": 2**53 + 1, "seed_fusion": None, "out_rank": None, "bias": False, "lr": 1e-8}
    store = synthetic_study(
        tmp_path, fusions=("concat", "weighted_sum"), seeds=2, diverging=[3], **odd, **seeds
    )
    rows = store.rows("synthetic")
    table = frame(rows)
    assert {name: set(table[name]) for name in odd} == {name: {text} for name, text in odd.items()}
    whole = ["seed", "seed_backbone", "seed_data", "heads", "params", "best_step", "out_rank"]
    assert {*map(str, table[whole].dtypes)} == {"Int64"} and {*table["seed_data"]} == {2**53 + 1}
    assert table["seed_fusion"].isna().all() and table["error"].count() == 1
    assert table["val_loss"].isna().sum() == 1
    assert {str(table[name].dtype) for name in ("val_loss", "lr", "test_acc")} == {"float64"}
    booleans = table.select_dtypes("boolean")
    assert "out_proj" in booleans and not table["bias"].any()
    spelled = {str(name): values.map({True: "true", False: "false"}) for name, values in booleans.items()}
    written = tmp_path / "t.csv"
    table.assign(**spelled).to_csv(written, index=False, lineterminator="\n")
    assert written.read_text(encoding="utf-8") == csv_text(rows)
    pd.testing.assert_frame_equal(read_table(written)[0].reset_index(drop=True), table)


@pytest.mark.slow
def test_a_csv_beside_its_study_json_is_the_study(store, command):
    path = store.results_path("synthetic")
    named, by_path = load(["synthetic"]), load([str(path)])
    assert by_path.records == named.records and by_path.records[0].margin == 0.5 and by_path.notes == []
    assert command("compare", str(path)) == command("compare", "synthetic")
    Path("latest.csv").symlink_to(path)
    assert load(["latest.csv"]).records == named.records


@pytest.mark.slow
def test_a_run_that_two_studies_share_is_one_row_and_a_result_like_any(store):
    record = store.read_study("synthetic")
    assert record is not None
    shared, alone, *_ = record.runs
    roles = {run: Role(phase="develop", role="", tuned="train.lr") for run in (shared, alone)}
    write_study(store, replace(record, name="tuned", runs=[shared, alone], roles=roles))
    write_study(store, replace(record, name="grid", runs=[shared, *record.runs[2:]]))
    for targets in (["grid", "tuned"], ["tuned", "grid"]):
        rows = load(targets).rows.set_index("run_id")
        assert rows.index.is_unique and len(rows) == len(record.runs)
        assert rows["phase"].fillna("").to_dict() == {run: "" for run in record.runs} | {alone: "develop"}
        assert compared(rows.reset_index()).table["n"].sum() == len(record.runs) - 1
    assert load(["tuned"]).rows["phase"].tolist() == ["develop"] * 2


# --- results without their store --------------------------------------------------------------------


@pytest.fixture
def travelled(tmp_path, monkeypatch) -> Path:
    """A small finished study, of which only results.csv and study.json are left."""
    monkeypatch.chdir(tmp_path)
    small = ("corpus=grammar", "corpus.characters=5000", "model.context=16", "train.batch=2", "train.steps=2")
    done = call_cli("run", "-m", "fusion=concat,sum", "seed=0,1,2", "name=away", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    directory = tmp_path / "results" / "away"
    directory.mkdir(parents=True)
    for name in ("results.csv", "study.json"):
        shutil.copy(tmp_path / "runs" / "studies" / "away" / name, directory)
    shutil.rmtree(tmp_path / "runs")
    return directory


@pytest.mark.slow
def test_results_go_with_their_record(travelled):
    table, record = travelled / "results.csv", travelled / "study.json"
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)

    table.write_text("".join([*lines, lines[-1].replace(lines[-1][:16], "f" * 16)]), encoding="utf-8")
    assert any("1 row of no run that" in note.text for note in load([str(travelled)]).notes)
    header, last = lines[0].rstrip().split(","), lines[-1].rstrip().split(",")
    last[header.index("numerics") - len(header)] = "7"
    table.write_text("".join([*lines[:-1], ",".join(last)]), encoding="utf-8")
    results = load([str(travelled)])
    notes = texts(compared(results.rows, records=results.records).notes)
    assert any(f"numerics ({NUMERICS}, 7) differs between" in line for line in notes)
    table.unlink()
    with pytest.raises(ConfigError, match=r"study\.json without results\.csv; copy both"):
        load([str(travelled)])
    table.write_text("".join(lines), encoding="utf-8")
    record.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError):
        load([str(travelled)])
    record.unlink()
    with pytest.raises(ConfigError, match="no study in this directory"):
        load([str(travelled)])
