"""Nothing of a user's is deleted or overwritten: one file does it, and only to what bears ablate's mark."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ablate.store.rows import short_id
from ablate.store.store import Store
from tests.helpers import ROOT, call_cli

QUICK = ("corpus=grammar", "corpus.characters=3000", "train.steps=1", "train.batch=2", "train.eval_tokens=64")
QUICK += ("model.d_model=16", "model.layers=1", "model.context=16", "heads=2")

# --- one file does it ---------------------------------------------------------------------------------

DELETES = re.compile(
    r"\bos\.(remove|unlink|rmdir|removedirs|renames?|replace|truncate)\b|\bshutil\.(rmtree|move|copy)|"
    r"\btempfile\.(mkdtemp|TemporaryDirectory|Named|Spooled)|"
    r"\.(unlink|rmdir|rmtree|write_text|write_bytes)\(|\bopen\([^)]*['\"]w|"
    r"from (os|shutil|tempfile) import|\.with_name\(.*\)\.(replace|rename)\("
)


def test_one_file_deletes_overwrites_and_renames():
    files = {path: path.read_text(encoding="utf-8") for path in (ROOT / "ablate").rglob("*.py")}
    found = {path.name: text for path, text in files.items() if DELETES.search(text)}
    assert found.pop("owned.py") and not [(name, DELETES.findall(text)) for name, text in found.items()]


# --- the store ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def _made(tmp_path_factory) -> Path:
    cwd = tmp_path_factory.mktemp("made")
    assert call_cli("run", *QUICK, cwd=cwd).returncode == 0
    return cwd


@pytest.fixture
def made(_made: Path, tmp_path: Path) -> Path:
    """A directory with a finished run."""
    return shutil.copytree(_made, tmp_path / "made")


def contents(directory: Path) -> dict[str, bytes | None]:
    paths = directory.rglob("*")
    return {str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None for path in paths}


FOREIGN = {
    "results.csv": "subject,age\n1,20\n",
    "studies/single/results.csv": "a;b\n",
    "studies/single/study.json": '{"title": "mine"}',
}


@pytest.mark.parametrize("file", FOREIGN)
def test_foreign_files_are_refused_before_training(file: str, tmp_path: Path):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(FOREIGN[file])
    (tmp_path / "metrics.csv").write_text("step,mine\n")  # is in nobody's way
    before = contents(tmp_path)
    done = call_cli("run", "--runs", ".", *QUICK, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert file in done.stderr and ("move" in done.stderr or "name another directory" in done.stderr)
    assert "remove" not in done.stderr and contents(tmp_path) == before


def test_a_table_that_was_cut_off_is_ours_and_one_behind_a_link_stays(made: Path):
    table, other = made / "runs/results.csv", made / "mine.csv"
    whole = table.read_text()
    for start in ("", "run_id,stu", "run_id,study,status,of an older ablate\n"):
        table.write_text(start)
        Store(made / "runs").write_results()
        assert table.read_text() == whole
    other.write_text("subject,age\n")
    table.unlink()
    table.symlink_to(other)
    with pytest.raises(ValueError, match=r"results\.csv: not written by ablate, which would overwrite it"):
        Store(made / "runs").write_results()
    assert other.read_text() == "subject,age\n"


def strangers(store: Path) -> Iterator[Path]:
    """Directories in a store that are no runs; and a file beside them."""
    (store / "notes.txt").touch()
    for name, file in (
        ("pictures", "a.jpg"),
        ("photos-2024abcd", "a.jpg"),
        ("project-2024abcd", "result.json"),
        ("config-00000000", "config.yaml"),
        (f"named-{short_id(next(store.glob('[!.]*')).name)}", "data.csv"),
        (".mail-0123abcd.part", "new"),
    ):
        (store / name).mkdir()
        (store / name / file).write_text('{"accuracy": 1}')
        yield store / name


def test_what_is_no_run_is_never_offered(made: Path):
    no_runs = [*strangers(made / "runs/store")]
    before = [contents(path) for path in no_runs]
    listed = call_cli("runs", cwd=made)
    assert listed.returncode == 0 and "2024abcd" not in listed.stdout and "failed" not in listed.stdout
    for path in no_runs[:-1]:
        done = call_cli("runs", "--delete", path.name, "--force", "--yes", cwd=made)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert f"{path.name}: no run or study begins with it" in done.stderr
    assert call_cli("runs", "single", "--delete", "--yes", cwd=made).returncode == 0
    assert [contents(path) for path in no_runs] == before
    others = [path for path in (made / "runs/store").iterdir() if path not in no_runs]
    assert {path.name for path in others} == {".alive", ".lock", ".rows.json", "notes.txt"}


def test_links_are_deleted_and_never_what_they_lead_to(made: Path):
    store, far = made / "runs/store", made / "far"
    (run,) = store.glob("[!.]*")
    name = run.name
    run.rename(far)
    run.symlink_to(far)
    (far / "inner").symlink_to(made)
    attempts = store / f".{name}.part"
    (made / "attempts/01234567").mkdir(parents=True)
    attempts.symlink_to(made / "attempts")
    study = made / "runs/studies/single"
    study.rename(made / "single")
    study.symlink_to(made / "single")
    before = {**contents(far), **contents(made / "attempts"), **contents(made / "single")}
    done = call_cli("runs", "single", "--delete", "--yes", cwd=made)
    assert done.returncode == 0, done.stderr
    assert not any(map(os.path.lexists, (run, attempts, study)))
    after = {**contents(far), **contents(made / "attempts"), **contents(made / "single")}
    forgot = {name: after[name] for name in ("results.csv", "study.json")}
    assert before | forgot == {name: after[name] for name in before}
