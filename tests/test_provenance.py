"""Which change of the program makes which results stale: tried on a copy of the package's source."""

import hashlib
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ablate.compute.device import processor
from ablate.execution.attempt import describe
from ablate.execution.run import prepare
from ablate.store import provenance
from ablate.store.frames import frame
from ablate.store.store import Store
from ablate.version import NUMERICS
from tests.helpers import ROOT, compared, ignore, make_config, summarize
from tests.test_compare import note

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
        with run.attempt({}, row, {}, ignore) as writer:
            writer.finish({**row, "status": "done"})

    def stale(self) -> set[str]:
        """The methods whose results are stale; the others are done."""
        rows = self.store.rows()
        assert {row["status"] for row in rows} <= {"done", "stale"}
        return {row["fusion"] for row in rows if row["status"] == "stale"}


def begin_anew() -> None:
    """A process reads its source once; another one would read it now."""
    for cached in (provenance._digest_of_file, provenance.code):
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


# --- what a run records ---------------------------------------------------------------------------


def test_a_plugin_is_its_file_and_nothing_that_it_imports(program):
    helper = program.plugin.with_name("helper.py")
    helper.write_text("N = 7\n")
    program.plugin.write_text("from helper import N\n")
    begin_anew()
    recorded = provenance.parts_code(str(program.plugin), str(program.package / "model" / "attention.py"))
    digest = hashlib.sha256(b"from helper import N\n").hexdigest()[:16]
    assert recorded["part_files"] == {program.plugin.as_posix(): digest} and len(recorded["parts"]) == 12


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
    doubt = note(compared(frame(program.store.rows())), "several versions of the code")
    assert "fusion=sum" in doubt and "concat" not in doubt and "force=stale" in doubt
    program.train("sum", 0, val_loss=0.25)
    summary = summarize(frame(program.store.rows())).set_index("fusion")
    assert summary["mean"].to_dict() == {"concat": 2.75, "sum": 0.75} and program.stale() == set()


def test_a_run_records_the_processor_and_its_instruction_set():
    row = describe(prepare(make_config("corpus=grammar", "corpus.characters=5000")))
    assert row["processor"] == processor() == processor(torch.device("cpu"))
    assert torch.backends.cpu.get_cpu_capability() in row["processor"]
    if platform.machine() == "x86_64" and platform.system() == "Linux":
        assert not row["processor"].startswith("x86_64")
