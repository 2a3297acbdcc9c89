"""Nothing of a user's is deleted or overwritten: one file does it, and only to what bears ablate's mark."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ablate.files import cache, owned
from ablate.store.rows import short_id
from ablate.store.store import Store
from tests.helpers import ROOT, call_cli

QUICK = ("corpus=grammar", "corpus.characters=3000", "train.steps=1", "train.batch=2", "train.eval_tokens=64")
QUICK += ("model.d_model=16", "model.layers=1", "model.context=16", "heads=2")
OLD = (1_000_000_000, 1_000_000_000)

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


def test_only_what_bears_the_mark_is_deleted(tmp_path: Path):
    for name in ("part-1-raw", f"part-1-{'0' * 15}", f"apart-1-{'0' * 16}", ".gone-2024", ".gone-mine"):
        (tmp_path / name).mkdir()
        owned.drop(tmp_path / name)
    assert len([*tmp_path.iterdir()]) == 5
    with pytest.raises(ValueError, match=r"2024: not made by ablate, so it is not deleted; move it away$"):
        owned.remove_tree(tmp_path / ".gone-2024", owned.Mark(".*", "study.json"))
    with pytest.raises(FileExistsError):
        (tmp_path / "thesis.txt").write_text("all")
        owned.create(tmp_path / "thesis.txt", "")
    assert (tmp_path / "thesis.txt").read_text() == "all"


# --- the cache ----------------------------------------------------------------------------------------


def test_a_clean_up_of_the_cache_takes_what_has_its_whole_name(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "data"))
    ours = f"part-17-{'0123456789abcdef'}"
    names = ("part-1-raw", "part-time", f"{ours}0", f"part-x-{'0' * 16}", f"part-3-{'A' * 16}", ours)
    for name in names:
        (tmp_path / "data" / name).mkdir(parents=True)
        for path in (tmp_path / "data" / name / "measurements.csv", tmp_path / "data" / name):
            path.touch()
            os.utime(path, OLD)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    link = tmp_path / "data" / f"part-18-{'0' * 16}"
    link.symlink_to(elsewhere)
    for path in (elsewhere / "kept", elsewhere):
        os.utime(path, OLD)
    os.utime(link, OLD, follow_symlinks=False)
    cache.publish("key", lambda part: None)
    left = {path.name for path in (tmp_path / "data").iterdir()} - {link.name, "key"}
    assert left == {*names} - {ours} and (elsewhere / "kept").exists()


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
    assert "nothing to delete" in call_cli("runs", "--prune", "--force", "--yes", cwd=made).stderr
    for path in no_runs[:-1]:
        done = call_cli("runs", "--delete", path.name, "--force", "--yes", cwd=made)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert f"runs/store/{path.name}: not a run that ablate made, so it is not deleted" in done.stderr
    assert call_cli("runs", "--delete-study", "single", "--yes", cwd=made).returncode == 0
    assert [contents(path) for path in no_runs] == before
    others = [path for path in (made / "runs/store").iterdir() if path not in no_runs]
    assert {path.name for path in others} == {".rows.json", "notes.txt"}


def test_a_damaged_run_is_moved_and_not_deleted(made: Path, caplog):
    (run,) = (made / "runs/store").glob("[!.]*")
    (run / "result.json").write_text("{")
    held = contents(run)
    done = call_cli("runs", "--delete", run.name, "--force", "--yes", cwd=made)
    assert done.returncode == 0 and not run.exists()
    aside = made / "runs/damaged" / f"{run.name}-1"
    assert contents(aside) == held
    assert (
        f"{run.name}: damaged, so it is not deleted; it is in {aside.relative_to(made)}"
        in caplog.text.replace("\n", "")
    )


def test_links_are_deleted_and_never_what_they_lead_to(made: Path):
    store, far = made / "runs/store", made / "far"
    (run,) = store.glob("[!.]*")
    name = run.name
    run.rename(far)
    run.symlink_to(far)
    (far / "inner").symlink_to(made)
    attempts = store / f".{name}.part"
    (made / "attempts/1/01234567").mkdir(parents=True)
    (made / "attempts/.gone-01234567").mkdir()
    attempts.symlink_to(made / "attempts")
    study = made / "runs/studies/single"
    study.rename(made / "single")
    study.symlink_to(made / "single")
    before = {**contents(far), **contents(made / "attempts"), **contents(made / "single")}
    refused = call_cli("run", *QUICK, "force=true", cwd=made)
    assert refused.returncode == 2 and f"{attempts.name}: a link" in refused.stderr
    done = call_cli("runs", "--delete-study", "single", "--yes", cwd=made)
    assert done.returncode == 0, done.stderr
    assert not any(map(os.path.lexists, (run, attempts, study)))
    after = {**contents(far), **contents(made / "attempts"), **contents(made / "single")}
    forgot = {
        name: after[name] for name in ("results.csv", "study.json")
    }  # the run, before it was taken away
    assert before | forgot == {name: after[name] for name in before}


# --- advice ---------------------------------------------------------------------------------------------
