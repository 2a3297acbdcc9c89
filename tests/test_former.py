"""What files of before say of keys that are gone: nothing at a former default, a line at another value."""

import io
import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

import ablate
from ablate.analysis.load import load
from ablate.config.rules import ConfigError
from ablate.execution.execute import execute
from ablate.execution.run import prepare
from ablate.execution.trained import load_model
from ablate.files.atomic import file_digest
from ablate.files.reading import left_out
from ablate.store.columns import FORMER_DEFAULTS, csv_text
from ablate.store.record import as_plain, read_record
from tests.helpers import QUICK, call_cli, compared, ignore, make_config, make_record, reseal
from tests.synthetic import small_study

RESULTS = Path(__file__).parents[1] / "docs" / "results"
OTHER = {"average": "0.2", "kv_rank": "32", "match_by": "value_width", "value_proj": "false", "long": "cut"}


@pytest.fixture
def table(tmp_path, monkeypatch) -> pd.DataFrame:
    """The results of a study, with a column for each key that is gone, at its former default."""
    monkeypatch.chdir(tmp_path)
    rows = small_study(tmp_path / "runs", name="mine").rows()
    return pd.read_csv(io.StringIO(csv_text(rows)), dtype=str).assign(**FORMER_DEFAULTS)


def loaded(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    table.to_csv("old.csv", index=False)
    left_out()
    return load(["old.csv"]).rows, left_out()


@pytest.mark.slow
def test_at_its_former_default_a_key_that_is_gone_says_nothing(table):
    rows, lines = loaded(table)
    without, _ = loaded(table.drop(columns=[*FORMER_DEFAULTS]))
    pd.testing.assert_frame_equal(rows, without)
    assert len(rows) == len(table) and not lines


@pytest.mark.parametrize("column", OTHER)
def test_rows_of_what_can_no_longer_be_trained_are_left_out_with_one_line(table, column):
    table.loc[[1, 3], column] = OTHER[column]
    rows, lines = loaded(table)
    assert {*table["run_id"]} - {*rows["run_id"]} == {*table.loc[[1, 3], "run_id"]}
    assert lines == [f"left out: 2 rows of {column}={OTHER[column]}, which ablate no longer has"]


@pytest.mark.slow
def test_a_readout_by_name_is_gone_too_and_a_frame_is_read_as_a_file(table):
    table.loc[0, "out_proj"] = "hadamard"
    table.loc[1, "query_heads"] = "1"
    rows, (line,) = loaded(table)
    assert line == "left out: 2 rows of query_heads=1, out_proj=hadamard, which ablate no longer has"
    with pytest.warns(UserWarning, match="which ablate no longer has"):
        result = ablate.compare(table, baseline={"fusion": "concat"})
    assert len(result.rows) == len(rows)


def test_a_table_of_another_program_keeps_such_columns():
    rows = pd.DataFrame({"method": list("aabb"), "average": [1, 2, 1, 2], "seed": [0, 0, 1, 1], "loss": 1.0})
    result = ablate.compare(rows, metric="loss", by=["method", "average"], baseline="method=a,average=1")
    assert {*result.table["average"]} == {"1", "2"}


def test_runs_of_a_store_are_read_so_and_stay_listed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = small_study(tmp_path / "runs", name="mine")
    first, second, *_ = sorted(path for path in (store.root / "store").iterdir() if path.name[0] != ".")
    of_before = {"query_heads": "auto", "value_proj": True, "kv_rank": None, "numerics": 2}
    gone = reseal(first, **{**of_before, "kv_rank": 32})["run_id"]
    kept = reseal(second, **of_before)["run_id"]
    results = load(["mine"])
    assert gone not in {*results.rows["run_id"]} and kept in {*results.rows["run_id"]}
    assert left_out() == ["left out: 1 row of kv_rank=32, which ablate no longer has"]
    assert gone not in results.record.runs
    listed = json.loads(call_cli("runs", "--format", "json", cwd=tmp_path).stdout)["rows"]
    assert {row["run_id"] for row in listed if row["status"] == "stale"} == {gone, kept}
    assert call_cli("runs", "--delete", gone, "--force", "--yes", cwd=tmp_path).returncode == 0
    assert not first.exists() and second.exists()


def test_a_model_of_before_is_loaded_if_it_is_one_of_today(tmp_path):
    run = prepare(make_config(*QUICK, "train.save=model"))
    execute(run, ignore, tmp_path)
    directory = tmp_path / "store" / run.name
    wanted = load_model(directory)
    for rank in (None, 8):
        config = yaml.safe_load((directory / "config.yaml").read_text())
        config |= {"kv_rank": rank, "query_heads": "auto"}
        config["train"] |= {"average": None, "probe_every": 7}
        config["corpus"]["options"] |= {"long": None}
        (directory / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        files = json.loads((directory / "result.json").read_text())["files"]
        reseal(directory, files=files | {"config.yaml": file_digest(directory / "config.yaml")})
        if rank is None:
            assert load_model(directory).state_dict().keys() == wanted.state_dict().keys()
        else:
            with pytest.raises(ConfigError, match="kv_rank=8: kv_rank is gone; keys and values"):
                load_model(directory)


def test_a_study_of_before_is_read_without_what_is_gone():
    now = as_plain(make_record(name="mine", kind="grid", typed=["-m", "seed=0,1"]))
    of_before = now | {"machine": {"threads": 1, "linear": "mkl"}, "fixed": {"match_by": "mlp", "kv_rank": 8}}
    record = read_record(of_before | {"typed": ["-m", "train.translate=false", "seed=0,1"]})
    assert record == read_record(now | {"fixed": {"kv_rank": 8}}) and record.typed == ["-m", "seed=0,1"]
    with pytest.raises(ConfigError, match=r"^study\.kind=ladder is gone; "):
        read_record(of_before | {"kind": "ladder", "rungs": []})


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.parent.name for path in RESULTS.glob("*/results.csv")))
def test_committed_results_are_read_and_compared(name):
    left_out()
    results = load([str(RESULTS / name)])
    result = compared(results.rows, records=results.records)
    lines = left_out()
    assert not lines
    assert len(result.findings) and {*results.rows["run_id"]} == {*results.record.runs}
