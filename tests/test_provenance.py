"""Which change of the program makes which results stale: tried on a copy of the package's source."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from ablate.analysis.frames import frame
from ablate.analysis.incomparable import Incomparable
from ablate.config.rules import ConfigError
from ablate.execution.execute import describe
from ablate.execution.run import prepare
from ablate.numerics import NUMERICS
from ablate.store import provenance
from ablate.store.store import Store
from tests.helpers import ROOT, make_config, summarize

METHODS = ("concat", "mean", "sum")


class Program:
    """A copy of the package, a plugin, and the store of the runs that they made."""

    def __init__(self, directory: Path) -> None:
        self.package, self.plugin = directory / "ablate", directory / "mine" / "own.py"
        self.store = Store(directory / "runs")
        shutil.copytree(ROOT / "ablate", self.package, ignore=shutil.ignore_patterns("__pycache__"))
        self.plugin.parent.mkdir()
        self.plugin.write_text("N = 7\n")

    def train(self, fusion: str, seed: int, **columns) -> None:
        """A finished run, without the training; that of sum is by the plugin."""
        identity = f"{METHODS.index(fusion)}{seed}".ljust(16, "0")
        row = {"run_id": identity, "status": "running", "fusion": fusion, "heads": 4, "out_proj": True}
        row |= {"seed": seed, "val_loss": 2.25 + seed, **provenance.provenance()}
        row |= {**provenance.parts_code(*([str(self.plugin)] if fusion == "sum" else [])), **columns}
        run = self.store.run(f"{fusion}-{seed}")
        known = run.stamp()
        with run.attempt({}, row, known=known) as writer:
            run.finish(writer, {**row, "status": "done"}, known=known)

    def stale(self) -> set[str]:
        """The methods whose results are stale; the others are done."""
        rows = self.store.rows()
        assert {row["status"] for row in rows} <= {"done", "stale"}
        return {row["fusion"] for row in rows if row["status"] == "stale"}


def begin_anew() -> None:
    """A process reads its source once; another one would read it now."""
    for cached in (provenance.tree_digest, provenance.code, provenance.parts_code):
        cached.cache_clear()


@pytest.fixture
def program(tmp_path, monkeypatch) -> Iterator[Program]:
    copy = Program(tmp_path)
    monkeypatch.setattr(provenance, "PACKAGE", copy.package)
    begin_anew()
    yield copy
    begin_anew()


# --- what becomes stale ---------------------------------------------------------------------------


def test_no_edit_of_a_file_of_ablate_makes_a_result_stale_but_the_code_tells_copies_apart(program):
    for fusion in METHODS:
        program.train(fusion, 0)
    codes = [provenance.code()]

    def edit(change) -> None:
        change()
        begin_anew()
        assert program.stale() == set()
        codes.append(provenance.code())

    formulas = program.package / "execution" / "formulas.py"
    edit(lambda: formulas.write_text(formulas.read_text(encoding="utf-8") + "# a comment\n"))
    edit(lambda: formulas.rename(program.package / "execution" / "columns.py"))
    edit(lambda: (program.package / "model" / "fusion" / "sum.py").unlink())
    assert len({*codes}) == len(codes) and all(len(code) == 12 for code in codes)


def test_another_version_of_the_numerics_makes_all_results_stale(program, monkeypatch):
    for fusion in METHODS:
        program.train(fusion, 0)
    monkeypatch.setattr(provenance, "NUMERICS", NUMERICS + 1)
    assert program.stale() == {*METHODS}
    assert provenance.changes(program.store.rows()[0]) == [f"numerics was {NUMERICS}, is {NUMERICS + 1}"]


@pytest.mark.parametrize(
    "columns",
    [{"numerics": 0}, {"numerics": None}, {"torch": "2.0.0"}, {"part_files": {"/gone.py": "0" * 16}}],
)
def test_a_result_of_another_program_is_stale(program, columns):
    program.train("sum", 0)
    program.train("mean", 0, **columns)
    assert program.stale() == {"mean"}


def test_a_plugin_that_changed_makes_its_results_stale(program):
    for fusion in METHODS:
        program.train(fusion, 0)
    program.plugin.write_text("N = 7  # a comment\n")
    begin_anew()
    assert program.stale() == set()
    program.plugin.write_text("N = 11\n")
    begin_anew()
    assert program.stale() == {"sum"}


def test_a_diverged_run_may_be_stale_and_a_failed_one_is_failed(program):
    for seed, status in enumerate(("diverged", "failed")):
        name, row = f"r{seed}", {"run_id": str(seed) * 16, "code": "0" * 12, "torch": "2.0.0", "seed": 0}
        with program.store.run(name).attempt({}, row | {"status": "running"}, known=[]) as writer:
            program.store.run(name).finish(writer, row | {"status": status}, known=[])
    assert [row["status"] for row in program.store.rows()] == ["stale", "failed"]


# --- what a run records ---------------------------------------------------------------------------


@pytest.mark.parametrize("fusion", METHODS)
def test_a_run_of_ablates_methods_records_the_version_and_no_files(fusion):
    row = describe(prepare(make_config("corpus=grammar", "corpus.characters=5000", f"fusion={fusion}")))
    assert (row["parts"], row["part_files"], row["numerics"]) == (None, {}, NUMERICS)
    assert row["code"] == provenance.code() and len(row["code"]) == 12


@pytest.mark.parametrize(
    "imported",
    [
        *("from helper import N", "import helper", "from . import helper", "from .helper import N"),
        "def later():\n    from .helper import N",
    ],
)
def test_what_a_plugin_imports_from_its_folder_is_followed(program, imported):
    """Neither what it imports of ablate is, nor what it imports from elsewhere."""
    helper = program.plugin.with_name("helper.py")
    helper.write_text("import other.far\nN = 7\n")
    program.plugin.write_text(f"import math\nfrom ablate.model.fusion.sum import Sum\n{imported}\n")
    (program.plugin.parent.parent / "other.py").write_text("N = 1\n")
    begin_anew()
    recorded = provenance.parts_code(str(program.plugin))
    assert {*recorded["part_files"]} == {program.plugin.as_posix(), helper.as_posix()}
    assert len(recorded["parts"]) == 12
    program.train("sum", 0)
    helper.write_text("N = 11\n")
    begin_anew()
    assert program.stale() == {"sum"}


def test_a_method_may_be_a_folder(program):
    folder = program.plugin.parent / "large"
    folder.mkdir()
    (folder / "helper.py").write_text("N = 7\n")
    (folder / "__init__.py").write_text("from ablate.methods import Fusion\nfrom . import helper\n")
    recorded = provenance.parts_code(str(folder / "__init__.py"))["part_files"]
    assert [*recorded] == [(folder / name).as_posix() for name in ("__init__.py", "helper.py")]


def test_a_plugin_beside_ablate_itself_is_followed_into_no_file_of_it(program):
    own = program.package.parent / "own.py"
    own.write_text("from ablate.methods import Fusion\n")
    assert [*provenance.parts_code(str(own))["part_files"]] == [own.as_posix()]


def test_a_plugin_that_is_no_python_is_refused(program):
    program.plugin.write_text("def")
    with pytest.raises(ConfigError, match=r"own\.py: can't be read as Python"):
        provenance.parts_code(str(program.plugin))


# --- what may stand in one table ------------------------------------------------------------------


@pytest.mark.slow
def test_a_corrected_plugin_stands_beside_the_others_when_all_of_it_is_run_again(program):
    for fusion in ("concat", "sum"):
        for seed in (0, 1):
            program.train(fusion, seed)
    program.plugin.write_text("N = 11\n")
    begin_anew()
    assert program.stale() == {"sum"}
    assert summarize(frame(program.store.rows()))["n"].tolist() == [2, 2]  # all of before
    program.train("sum", 1, val_loss=1.25)
    versions = frame(program.store.rows()).set_index("run_id")["parts"]
    with pytest.raises(Incomparable, match=r"^fusion=sum heads=4 .*: its rows .*force=stale.*--mixed") as why:
        summarize(frame(program.store.rows()))
    assert versions["2000000000000000"] in str(why.value) and "\n" not in str(why.value)
    assert summarize(frame(program.store.rows()), mixed=True)["n"].tolist() == [2, 2]
    program.train("sum", 0, val_loss=0.25)
    summary = summarize(frame(program.store.rows())).set_index("fusion")
    assert summary["mean"].to_dict() == {"concat": 2.75, "sum": 0.75} and program.stale() == set()


def test_a_run_that_stands_in_no_mean_and_rows_without_parts_refuse_nothing(program):
    for seed in (0, 1):
        program.train("sum", seed)
    rows = frame(program.store.rows())
    other = {"parts": "0" * 12, "seed": 7, "run_id": "7" * 16}
    cut_off = rows.head(1).assign(status="interrupted", val_loss=None, **other)
    for some in (pd.concat([rows, cut_off]), rows.assign(parts=None)):
        assert summarize(some)["n"].tolist() == [2]


# --- digests --------------------------------------------------------------------------------------

TEXT = '''
class A:
    """Words."""

    x: int = 3

    def f(self, a, b=None):
        "More words."
        return f"{a:>{self.x}}" + ("b" if b else "")
'''


def digest(tmp_path: Path, text: str) -> str | None:
    provenance.tree_digest.cache_clear()
    (tmp_path / "file.py").write_text(text, encoding="utf-8")
    return provenance.tree_digest(str(tmp_path / "file.py"))


@pytest.mark.parametrize(
    "old, new",
    [
        ('"""Words."""', '"""Other words, ∑ among them."""'),
        ('"More words."\n', "\n"),
        ("x: int = 3", "x: int = 3  # a comment"),
        ("self, a, b=None", "self,\n        a,\n        b=None,\n    "),
        ('("b" if b else "")', "('b' if b else '')"),
        ("= 3", "= 0x3"),
    ],
)
def test_words_and_layout_keep_a_digest(tmp_path, old, new):
    assert old in TEXT
    assert digest(tmp_path, TEXT) == digest(tmp_path, TEXT.replace(old, new))


def test_whatever_computes_changes_a_digest(tmp_path):
    changes = [
        *(("= 3", "= 4"), ("= 3", "= 3.0"), ("= 3", "= True"), ("=None", '=""'), ("=None", "=0")),
        *(("int", "float"), ('else ""', 'else " "'), ("self, a", "self, *a"), (">{", "<{"), ("f(", "g(")),
    ]
    texts = [TEXT, *(TEXT.replace(old, new) for old, new in changes)]
    assert len({digest(tmp_path, text) for text in texts}) == len(texts) == len(set(texts))


def test_a_digest_is_the_same_under_every_python(tmp_path):
    """3.11, 3.12 and 3.13 give trees that differ in their empty fields."""
    assert digest(tmp_path, TEXT) == "a98efb7fa9c04223"


def test_a_file_that_can_not_be_read_has_no_digest(tmp_path):
    assert digest(tmp_path, "def") is None and digest(tmp_path, "\0") is None
    assert provenance.tree_digest(str(tmp_path / "none.py")) is None
