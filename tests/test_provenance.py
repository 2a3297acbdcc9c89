"""Which change of the code makes which results stale: tried on a copy of the package's source."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from ablate.analysis.frames import frame
from ablate.analysis.variants import Incomparable
from ablate.config.rules import ConfigError
from ablate.execution.execute import describe
from ablate.execution.run import prepare
from ablate.store import provenance
from ablate.store.store import Store
from tests.helpers import ROOT, make_config, summarize

METHODS = ("concat", "grouped", "mean", "sum", "weighted_sum")


class Program:
    """A copy of the package, and the store of the runs that it made."""

    def __init__(self, directory: Path) -> None:
        self.package = directory / "ablate"
        self.store = Store(directory / "runs")
        shutil.copytree(ROOT / "ablate", self.package, ignore=shutil.ignore_patterns("__pycache__"))

    def edit(self, file: str, old: str, new: str) -> None:
        text = (self.package / file).read_text(encoding="utf-8")
        assert old in text, f"{file} has no {old!r} to change any more"
        (self.package / file).write_text(text.replace(old, new), encoding="utf-8")
        begin_anew()

    def train(self, fusion: str, seed: int, **columns) -> None:
        """A finished run, without the training."""
        identity = f"{METHODS.index(fusion)}{seed}".ljust(16, "0")
        row = {"run_id": identity, "status": "running", "fusion": fusion, "heads": 4, "out_proj": True}
        row |= {"seed": seed, "val_loss": 2.25 + seed, **provenance.provenance()}
        scores = "windows" if fusion == "sum" else "softmax"
        parts = provenance.parts_code(f"model/fusion/{fusion}.py", f"model/scores/{scores}.py")
        row |= {**parts, **columns}
        run = self.store.run(f"{fusion}-{seed}")
        known = run.stamp()
        with run.attempt({}, row, known=known) as writer:
            run.finish(writer, {**row, "status": "done"}, known=known)

    def files_of(self, file: str, source: str) -> list[str]:
        """The files that are recorded of a fusion that is written to this file."""
        path = self.package / "model" / "fusion" / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(source, encoding="utf-8")
        begin_anew()
        return list(provenance.parts_code(f"model/fusion/{file}")["part_files"])

    def stale(self) -> set[str]:
        """The methods whose results are stale; the others are done."""
        rows = self.store.rows()
        assert {row["status"] for row in rows} <= {"done", "stale"}
        return {row["fusion"] for row in rows if row["status"] == "stale"}


def begin_anew() -> None:
    """A process reads its source once; another one would read it now."""
    for cached in (provenance.tree_digest, provenance.core_code, provenance.parts_code):
        cached.cache_clear()


@pytest.fixture
def program(tmp_path, monkeypatch) -> Iterator[Program]:
    copy = Program(tmp_path)
    monkeypatch.setattr(provenance, "PACKAGE", copy.package)
    begin_anew()
    yield copy
    begin_anew()


# --- what becomes stale ---------------------------------------------------------------------------


def test_a_new_method_leaves_every_finished_run_as_it_is(program):
    for fusion in METHODS:
        program.train(fusion, 0)
    text = (program.package / "model" / "fusion" / "sum.py").read_text(encoding="utf-8")
    (program.package / "model" / "fusion" / "gated.py").write_text(text.replace('"sum"', '"gated"'))
    begin_anew()
    assert program.stale() == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "file, old, new, stale",
    [
        ("model/fusion/sum.py", "heads**-0.5", "heads**-1.5", {"sum"}),
        ("model/fusion/weighted_sum.py", "else 1.0", "else 2.0", {"weighted_sum"}),
        ("model/fusion/base.py", '["none", "variance"]', '["variance", "none"]', set(METHODS)),
        ("model/scores/windows.py", "head + 2", "head + 3", {"sum"}),
        ("model/scores/softmax.py", "order_free = True", "order_free = False", {*METHODS} - {"sum"}),
        ("model/scores/talking.py", '("pre", "both")', '("pre",)', set()),
        ("execution/formulas.py", "math.log(2)", "math.log(3)", set(METHODS)),
        ("execution/translate.py", "FILES = ", "OTHERS = FILES = ", set(METHODS)),
        ("training/train.py", "self.nats / self.targets", "self.nats / 2", set(METHODS)),
        ("model/layers.py", "STD = 0.02", "STD = 0.03", set(METHODS)),
        ("model/fusion/sum.py", "Heads added up", "Heads summed", set()),
        ("model/fusion/base.py", "Combines the outputs of the heads", "Combines all outputs of heads", set()),
        ("execution/formulas.py", "A row of metrics.csv.", "One row of metrics.csv.", set()),
        ("training/train.py", "\n\n\n", "\n\n\n# a comment\n\n\n", set()),
        ("model/fusion/__init__.py", "__all__ =", "NAMES = __all__ =", set()),
        ("config/rules.py", "class ConfigError", "class Unused: ...\n\n\nclass ConfigError", set()),
    ],
)
def test_a_change_makes_those_results_stale_that_it_decides(program, file, old, new, stale):
    for fusion in METHODS:
        program.train(fusion, 0)
    program.edit(file, old, new)
    assert program.stale() == stale


@pytest.mark.parametrize(
    "columns",
    [
        {"code": "0" * 12},
        {"torch": "2.0.0"},
        {"part_files": {}},
        {"part_files": None},
        {"part_files": {"model/fusion/gone.py": "0" * 16}},
    ],
)
def test_a_result_of_another_program_is_stale(program, columns):
    program.train("sum", 0)
    program.train("mean", 0, **columns)
    assert program.stale() == {"mean"}


def test_a_diverged_run_may_be_stale_and_a_failed_one_is_failed(program):
    for seed, status in enumerate(("diverged", "failed")):
        name, row = f"r{seed}", {"run_id": str(seed) * 16, "code": "0" * 12, "torch": "2.0.0", "seed": 0}
        with program.store.run(name).attempt({}, row | {"status": "running"}, known=[]) as writer:
            program.store.run(name).finish(writer, row | {"status": status}, known=[])
    assert [row["status"] for row in program.store.rows()] == ["stale", "failed"]


def test_the_core_is_there_whole(program):
    (program.package / "rng.py").unlink()
    begin_anew()
    with pytest.raises(ConfigError, match=r"rng\.py: this source file of ablate is missing"):
        provenance.core_code()


# --- what a run records ---------------------------------------------------------------------------


@pytest.mark.parametrize("fusion", METHODS)
def test_a_run_records_the_files_of_its_own_parts(fusion):
    row = describe(prepare(make_config("corpus=grammar", "corpus.characters=5000", f"fusion={fusion}")))
    own = [f"model/fusion/{fusion}.py", "model/scores/softmax.py"]
    files = {"model/fusion/base.py", "model/scores/base.py", *own}
    assert row["part_files"] == {name: provenance.tree_digest(name) for name in files}
    assert row["parts"] == provenance.parts_code(*own)["parts"]
    assert row["code"] == provenance.core_code() and len(row["code"]) == len(row["parts"]) == 12


def test_what_the_core_computes_with_is_core_as_well():
    """A formula that moves to a file of its own must not leave the core unseen."""
    computing = ("model/", "training/", "data/", "compute/", "execution/", "rng.py")
    by_fingerprint = {
        f"data/{name}.py" for name in ("corpora/base", "corpus", "division", "text")
    }  # of the text
    in_the_row = {"compute/device.py", "execution/place.py"}  # what they choose: device, linear, attention
    imported = {
        provenance._name(path)
        for name in provenance.CORE
        for path in provenance._imported(provenance.PACKAGE / name)
        if path.name != "__init__.py"
    }
    needed = {name for name in imported if name.startswith(computing)}
    own = {name for name in needed if name.startswith(provenance.PART_FOLDERS)}
    assert needed - own - by_fingerprint - in_the_row <= set(provenance.CORE)


def test_the_core_and_the_parts_have_no_file_in_common():
    assert not [name for name in provenance.CORE if name.startswith(provenance.PART_FOLDERS)]
    assert len({provenance.parts_code(f"model/fusion/{fusion}.py")["parts"] for fusion in METHODS}) == 5


@pytest.mark.parametrize(
    "imported",
    [
        "from ablate.model.fusion.mean import Mean",
        "from ablate.model.fusion import mean",
        "import ablate.model.fusion.mean",
        "from .mean import Mean",
        "from . import mean",
        "def later():\n    from ablate.model.fusion.mean import Mean",
    ],
)
def test_what_a_part_imports_of_other_parts_is_followed(program, imported):
    """A part that builds on mean is of mean's code, and of the base that mean imports; of no other room's."""
    source = f"import math\nfrom ablate.model.layers import STD\n{imported}\n"
    files = [f"model/fusion/{name}.py" for name in ("base", "mean", "trimmed")]
    assert program.files_of("trimmed.py", source) == files


def test_what_a_package_exports_is_of_the_file_that_it_comes_from(program):
    files = ["model/fusion/base.py", "model/fusion/other.py"]
    assert program.files_of("other.py", "from ablate.model.fusion import Fusion, register\n") == files
    public = program.files_of("other.py", "from ablate.methods import Fusion, register\n")
    assert public == [*files, "model/scores/base.py"]


def test_a_method_may_be_a_folder_of_its_own(program):
    program.files_of("large/helper.py", "N = 7\n")
    source = "from ablate.model.fusion.base import Fusion\nfrom . import helper\n"
    own = ["model/fusion/large/__init__.py", "model/fusion/large/helper.py"]
    assert program.files_of("large/__init__.py", source) == ["model/fusion/base.py", *own]


def test_a_file_from_elsewhere_is_recorded_by_its_absolute_path(program, tmp_path):
    (tmp_path / "mine").mkdir()
    own, helper = tmp_path / "mine" / "own.py", tmp_path / "mine" / "helper.py"
    own.write_text("import helper\nfrom ablate.model.fusion.sum import Sum\n")
    helper.write_text("N = 7\n")
    parts = [f"model/fusion/{name}.py" for name in ("base", "sum")]
    recorded = provenance.parts_code(str(own))["part_files"]
    assert set(recorded) == {own.as_posix(), helper.as_posix(), *parts}
    program.train("sum", 0, part_files=recorded)
    assert program.stale() == set()
    helper.write_text("N = 11\n")
    begin_anew()
    assert program.stale() == {"sum"}


# --- what may stand in one table ------------------------------------------------------------------


def test_a_corrected_method_stands_beside_the_others_when_all_of_it_is_run_again(program):
    for fusion in ("concat", "sum"):
        for seed in (0, 1):
            program.train(fusion, seed)
    program.edit("model/fusion/sum.py", "heads**-0.5", "heads**-1.5")
    assert program.stale() == {"sum"}
    assert summarize(frame(program.store.rows()))["n"].tolist() == [2, 2]  # all of before
    program.train("sum", 1, val_loss=1.25)
    versions = frame(program.store.rows()).set_index("run_id")["parts"]
    with pytest.raises(Incomparable, match=r"^fusion=sum heads=4 .*: its rows .*force=stale.*--mixed") as why:
        summarize(frame(program.store.rows()))
    assert versions["3000000000000000"] in str(why.value) and "\n" not in str(why.value)
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
    for some in (pd.concat([rows, cut_off]), rows.drop(columns="parts"), rows.assign(parts=None)):
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
