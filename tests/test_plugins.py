"""Methods of one's own: from `ablate new` to every worker; what is not taken, and what has changed since."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from ablate.config.schema import PARTS
from tests.helpers import SUM, call_cli, fork_cli

QUICK = ("corpus=grammar", "corpus.characters=20000", "train.steps=6", "train.eval_every=3", "train.batch=4")


def write(
    tmp_path: Path,
    name: str = "mine",
    factor: float = 1,
    file: str = "mine.py",
    body: str = "",
    claims: str = "",
) -> Path:
    """body: what it returns, in place of factor · Σ z_i. claims: lines at the start of its class."""
    source = SUM.format(name=name, factor=factor).replace("    @classmethod", f"{claims}    @classmethod")
    path = tmp_path / file
    path.write_text(source.replace(f"{factor} * z_BTHV.sum(-2)", body) if body else source, encoding="utf-8")
    return path


def run_mine(tmp_path: Path, *overrides: str) -> subprocess.CompletedProcess:
    return call_cli("run", "--plugin", "mine.py", "fusion=mine", *QUICK, *overrides, cwd=tmp_path)


def assert_refused(done: subprocess.CompletedProcess, *words: str) -> None:
    """In one line that says all this."""
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def rows(tmp_path: Path) -> list[dict]:
    return json.loads(call_cli("runs", "--format", "json", cwd=tmp_path).stdout)["rows"]


# --- from a template to a comparison ----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", PARTS)
def test_what_new_writes_passes_and_runs(tmp_path, kind):
    made = call_cli("new", kind, "my_own", cwd=tmp_path)
    passes = "my_own.py: it passes; change it, then: ablate check my_own.py\n"
    assert (made.returncode, made.stdout) == (0, passes)
    assert not re.search(r"\bmine\b", (tmp_path / "my_own.py").read_text(encoding="utf-8"))
    checked = call_cli("check", "my_own.py", cwd=tmp_path)
    assert checked.returncode == 0 and f"{kind}=my_own start=1.0: all" in checked.stdout, checked.stdout
    done = call_cli("run", "--plugin", "my_own.py", f"{kind}=my_own", f"{kind}.start=2", *QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs" / "store").glob("[!.]*")
    row = json.loads((run / "result.json").read_text())
    assert (row[kind], json.loads(row[f"{kind}_options"])) == ("my_own", {"start": 2.0})
    assert "plugin/my_own.py" in row["part_files"] and not [n for n in row["part_files"] if n.startswith("/")]
    assert (run / "my_own.py").read_bytes() == (tmp_path / "my_own.py").read_bytes()


@pytest.mark.slow
def test_check_says_what_fails(tmp_path):
    write(tmp_path, factor=2, claims="    one_head_passes = True\n\n")
    checked = call_cli("check", "mine.py", cwd=tmp_path)
    assert checked.returncode == 1
    assert checked.stdout == "fusion=mine: 11 checks of 12 hold\n"
    assert checked.stderr == (
        "failed: With one head, fused = z at the start (one_head_passes): one_head_passes is true, and"
        " with one head it is off by 1, relatively; so what probes and classes say of it may be wrong, and"
        " its losses stand\n"
    )


@pytest.mark.slow
def test_what_a_method_raises_is_told_once_with_its_line(tmp_path):
    write(tmp_path, body="z_BTHV.sum(no_such)")
    said = call_cli("check", "mine.py", cwd=tmp_path).stderr
    words = "NameError: name 'no_such' is not defined (line 11 of mine.py); so do"
    assert said.count("\n") == 1 and words in said
    assert_refused(run_mine(tmp_path), words.partition(";")[0], "; ablate check tries all that it has to do")
    write(tmp_path, body="z_BTHV[..., 0]")  # fails in products of many sizes
    assert call_cli("check", "mine.py", cwd=tmp_path).stderr.count("\n") == 2
    write(tmp_path, claims="    @classmethod\n    def count_flops(cls, shape, options): return no_such\n\n")
    assert_refused(run_mine(tmp_path), "(line 7 of mine.py); mend your method")


# --- what has changed since ---------------------------------------------------------------------


@pytest.mark.slow
def test_a_finished_run_stands_until_another_file_takes_its_name(tmp_path):
    write(tmp_path)
    assert run_mine(tmp_path).returncode == 0
    assert call_cli("run", "fusion=sum", *QUICK, cwd=tmp_path).returncode == 0
    assert {row["status"] for row in rows(tmp_path)} == {"done"}
    write(tmp_path, factor=3)
    for words in ((), ("--dry-run",)):
        assert_refused(run_mine(tmp_path, *words), "; ablate run also takes force=stale, or a new file")
    assert_refused(
        run_mine(tmp_path, "-m", "seed=0,1", "name=other"),
        "; ablate run also takes force=stale, or a new file",
    )
    assert not (tmp_path / "runs" / "studies" / "other").exists()  # the name stays free
    assert {row["fusion"]: row["status"] for row in rows(tmp_path)} == {"mine": "stale", "sum": "done"}
    assert run_mine(tmp_path, "force=stale").returncode == 0
    assert {row["fusion"]: row["status"] for row in rows(tmp_path)} == {"mine": "done", "sum": "done"}


@pytest.mark.slow
def test_what_is_made_of_its_runs_needs_the_file_and_says_so(tmp_path):
    write(tmp_path)
    assert run_mine(tmp_path, "name=s").returncode == 0
    assert call_cli("run", "fusion=concat", "name=s", *QUICK, cwd=tmp_path).returncode == 0
    assert call_cli("report", "s", cwd=tmp_path).returncode == 0
    page = (tmp_path / "runs" / "studies" / "s" / "report.html").read_text()
    assert "mine" in page.partition("<body>")[2]
    refused = fork_cli("sample", "mine-", cwd=tmp_path)  # which has loaded no plugin
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "was made with the plugin mine.py; add --plugin mine.py;" in refused.stderr
    exported = fork_cli("export", "mine-", "--to", "hf", cwd=tmp_path)  # which takes none
    assert_refused(exported, "with a method of mine.py; ablate.load_model('mine-")
    assert "no such fusion" in fork_cli("run", "fusion=mine", *QUICK, cwd=tmp_path).stderr
    sample = ("sample", "mine-", "--tokens", "3", "--plugin", "mine.py")
    done = call_cli(*sample, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    write(tmp_path, factor=3)
    changed = fork_cli(*sample, cwd=tmp_path)
    assert_refused(changed, "--plugin mine.py: not the file that mine-h4")
    advice = re.search(r"give --plugin (runs/store/mine-\S+/mine.py);", changed.stderr)
    assert advice and fork_cli("sample", "mine-", "--plugin", advice[1], cwd=tmp_path).returncode == 0


# --- what is not taken ----------------------------------------------------------------------------

NO_DEFAULT = '''
from dataclasses import dataclass
from ablate.methods import Fusion, Options, register

@dataclass(frozen=True, kw_only=True)
class MineOptions(Options):
    width: int

@register("mine")
class Mine(Fusion):
    Options = MineOptions
    @classmethod
    def slots(cls, heads, options): return 1
    def forward(self, z_BTHV, x_BTC): return z_BTHV.sum(-2)
'''  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "source, words",
    [
        ("a = [1, 2\n", "line 1: no Python ("),
        (
            SUM[: SUM.index("class")].format(name="f") + "def f(): pass\n",
            "fusion=f: not a class built on Fusion",
        ),
        ("a = 1\n", 'it registers no method; write @register("NAME") above a class'),
        (SUM.format(name="sum", factor=1), "fusion=sum: there is a method of that name; choose another"),
        ("\nb = 1 / 0\n", "it raises ZeroDivisionError: division by zero (line 2 of mine.py); mend that"),
        (NO_DEFAULT, "fusion=mine: its option width has no default; write one in its Options"),
        (SUM.format(name="mine", factor=1).replace("def forward", "def other"), "fusion=mine lacks forward"),
    ],
)
def test_what_is_no_plugin_is_refused_in_one_line(tmp_path, source, words):
    if source is not None:
        (tmp_path / "mine.py").write_text(source)
    for command in (("run", "--plugin", "mine.py", "fusion=mine", *QUICK), ("check", "mine.py")):
        refused = call_cli(*command, cwd=tmp_path)
        assert refused.returncode == 2 and refused.stderr.startswith("ablate: mine.py: ")
        assert words.lower() in refused.stderr.lower() and refused.stderr.count("\n") == 1, refused.stderr
    assert not (tmp_path / "runs").exists()


def test_a_config_names_no_code(tmp_path):
    write(tmp_path)
    assert_refused(call_cli("run", "plugin=mine.py", *QUICK, cwd=tmp_path), "plugin: no such key")
