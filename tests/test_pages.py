"""Pages of docs/ against the program: one run, methods, a seam for each kind of part, and the tours."""

import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from ablate.cli.app import main
from ablate.execution.plugins import KINDS
from ablate.model.fusion.sum import Sum
from ablate.probes.study import _abstaining
from ablate.store.columns import COLUMNS
from ablate.store.provenance import PACKAGE
from scripts.columns_table import PATH, table
from scripts.methods_page import COSTS, PAGE, costs, page
from tests.helpers import QUICK, ROOT, but, call_cli, refusal

# --- one run ------------------------------------------------------------------------------------------------


ONE_RUN = (ROOT / "docs" / "one-run.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([\w/]+\.py): (\w+)`", ONE_RUN)
STEPS = [
    (file, name) for _, file, name in re.findall(r"^(\d+)\. .*`([\w/]+\.py): (\w+)`$", ONE_RUN, re.MULTILINE)
]


def test_each_step_is_numbered_and_names_a_function():
    assert len(STEPS) == 28 and ONE_RUN.count("\n") <= 60
    assert [int(number) for number in re.findall(r"^(\d+)\. ", ONE_RUN, re.MULTILINE)] == [*range(1, 29)]


@pytest.mark.parametrize("file, name", NAMED)
def test_each_function_is_in_its_file(file: str, name: str):
    assert re.search(rf"^\s*def {name}\(", (ROOT / "ablate" / file).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.slow
def test_a_run_passes_through_them_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first: dict[tuple[str, str], int] = {}

    def called(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and f"{ROOT / 'ablate'}/" in code.co_filename:
            file = Path(code.co_filename).relative_to(ROOT / "ablate").as_posix()
            first.setdefault((file, code.co_name), len(first))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["ablate", "run", *QUICK, "fusion=sum"])
    sys.setprofile(called)
    try:
        main()
    except SystemExit as ended:
        assert not ended.code
    finally:
        sys.setprofile(None)
    assert [step for step in STEPS if step not in first] == []
    assert sorted(STEPS, key=lambda step: first[step]) == STEPS


# --- the page of methods ------------------------------------------------------------------------------------


SVG = "{http://www.w3.org/2000/svg}"
METHODS = [(kind, name) for kind, package in KINDS.items() for name in package.methods()]


def test_the_table_of_columns_is_what_the_code_says():
    written = PATH.read_text(encoding="utf-8")
    assert table() == written, "docs/columns.csv is old: run python scripts/columns_table.py"
    rows = {row["column"]: row for row in csv.DictReader(written.splitlines())}
    assert [*rows] == [*COLUMNS] and (rows["lr"]["from"], rows["seed"]["from"]) == ("train.lr", "seed")
    assert rows["wall_s"]["unit"] == "s" and rows["test_loss"]["from"] == "test split"


@pytest.mark.slow
def test_the_page_is_what_the_code_says(monkeypatch):
    written = PAGE.read_text(encoding="utf-8")
    assert page() == written, "docs/methods.md is old: run python scripts/methods_page.py"
    monkeypatch.setattr(Sum, "__doc__", f"{Sum.__doc__} Or so.")
    assert page() != written


@pytest.mark.slow
def test_the_table_of_costs_is_what_the_code_says():
    written = COSTS.read_text(encoding="utf-8")
    assert costs() == written, "docs/methods.csv is old: run python scripts/methods_page.py"
    rows = {row["settings"]: row for row in csv.DictReader(written.splitlines())}
    assert {f"{kind}={name}" for kind, name in METHODS} <= rows.keys()
    assert int(rows["fusion=sum"]["more_than_the_default"]) == 16 * 64 - 64 * 64  # W_O reads one narrow head


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_every_method_has_a_picture_an_equation_and_a_source(kind, name):
    (section,) = PAGE.read_text(encoding="utf-8").split(f"\n### `{kind}={name}`\n")[1:]
    drawing, about, *more = section.partition("\n#")[0].strip().split("\n\n")
    assert drawing.startswith("![") and drawing.endswith(f"/{name}.svg)")
    source = next(line for line in more if line.startswith("Source: "))
    assert any(sign in "".join([about, *more[: more.index(source)]]) for sign in (" = ", " ← "))
    assert len(source) > len("Source: ")


@pytest.mark.parametrize(
    "drawing", [*(PACKAGE / "model").glob("*/*.svg")], ids=lambda path: f"{path.parent.name} {path.stem}"
)
def test_every_drawing_is_small_has_a_title_and_one_size(drawing):
    root = ElementTree.parse(drawing).getroot()
    title = root.find(f"{SVG}title")
    assert title is not None and title.text
    assert [root.get(name) for name in ("viewBox", "width", "height")] == ["0 0 120 48", "120", "48"]
    assert drawing.stat().st_size < 1500


# --- what a method can be -----------------------------------------------------------------------------------


SEAMS = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
KIND_OF = {"gate": "fusion", "exclusive": "fusion", "differential": "scores"}
EXAMPLES = dict(zip(KIND_OF, re.findall("```python\nclass Mine.*?\n(.*?)```", SEAMS, re.S), strict=True))


def write(kind: str, example: str, cwd: Path) -> None:
    """mine.py as `ablate new` writes it, with the definitions of an example in place of its own."""
    assert call_cli("new", kind, "mine", cwd=cwd).returncode == 0
    text = (cwd / "mine.py").read_text().replace("HeadShape, Options", "HeadShape, Linear, Options")
    # An example with __init__ is whole, and is pasted over all of the class.
    text = re.sub(r"(class Mine\(.*?\n).*", r"\1", text, flags=re.S) if "__init__" in example else text
    for function in re.findall(r"    def (\w+)", example):
        own = rf"(    @classmethod\n)?    def {function}\(.*?(?=\n    (?:@|def |# )|\Z)"
        text = re.sub(own, "", text, flags=re.S)
    (cwd / "mine.py").write_text(f"{text.rstrip()}\n\n{example}")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_smallest_example_of_each_seam_passes(name, tmp_path):
    write(KIND_OF[name], EXAMPLES[name], tmp_path)
    done = call_cli("check", "mine.py", cwd=tmp_path)
    assert done.returncode == 0 and "hold" in done.stdout, (done.stdout, done.stderr)


@pytest.mark.parametrize("name", ["a-b", "3d", "Ä", "taken", "true", "sum", "gated", "softmax", "talking"])
def test_what_is_no_name_or_is_there_is_refused(name, tmp_path):
    (tmp_path / "taken.py").write_text("keep me")
    kind = next((kind for kind, of in KINDS.items() if name in of.methods()), "")
    taken = f"{kind}={name}: there is a method of that name; choose another"
    why = "is there already; give another name" if name == "taken" else taken if kind else f"{name}: no name"
    assert why in refusal("new", kind or "fusion", name, cwd=tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["keep me"]


MORE = """
    reads_more = True

    def forward(self, q_BHTK, k_BHSK, v_BHSV, mask, dropout):
        return self.probabilities(q_BHTK, k_BHSK, mask) @ v_BHSV + v_BHSV
"""


@pytest.mark.slow
def test_probes_abstain_where_patterns_do_not_say_all(tmp_path):
    """A rule that adds the token's own value: its losses count, and its patterns are not what it reads."""
    write("scores", MORE, tmp_path)
    assert call_cli("check", "mine.py", cwd=tmp_path).returncode == 0
    words = ("--plugin", "mine.py", "scores=mine", *but(QUICK[:4], "corpus.characters=20000"), "name=m")
    done = call_cli("run", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    probed = call_cli("probe", "m", "--plugin", "mine.py", cwd=tmp_path)
    assert probed.returncode == 0 and "scores=mine reads more than its patterns, so" in probed.stderr
    table = pd.read_csv(tmp_path / "runs/studies/m/probes.csv")
    (file,) = tmp_path.glob("runs/store/*/result.json")
    some = table[(table["probe"] != "write_rank") | (table["layer"] != 2)]  # a head of layer 2 had no number
    assert "at 0, so probes of what heads write abstain (layer 2)" in _abstaining(file.parent, some)
    assert "at 0" not in _abstaining(file.parent, table) + probed.stderr
    assert {*table["probe"]} == {"kept", "write_rank", "head_id_accuracy", "loss_added"}


# --- the tour and the README --------------------------------------------------------------------------------


# A short text, and a few steps where a model is needed; else nothing is trained.
SHORT = ("train.steps=2", "train.eval_every=1", "train.batch=2", "train.eval_tokens=64", "model.context=16")
DRAWN = ("train/simulated=losses", "train.simulated.sd=0.15")
SHORT_TEXT = ("corpus=grammar", "corpus.characters=9000", "corpus.tokenizer=byte")  # which knows any prompt

# For each command of a reader, in order: what the page says appears.
STUDENT = (
    ("val_loss", "val_bpb", "val_acc", "test_loss", "params", "runs/studies/single/results.csv"),
    ("12 runs in runs/studies/first/results.csv",),
    ("difference [low, high]", "verdict"),
    ("24 runs in runs/studies/copied/results.csv",),
    (),
)
AUTHOR = (
    ("mine.py: it passes",),
    ("24 runs in runs/studies/ours/results.csv",),
    ("booktabs", "Exploratory", "variant & mean & difference"),
    ("runs/studies/ours/report.html",),
    ("weighted_sum", "no model was trained", "/studies/fusion/report.html"),
)
ENGINEER = (
    ("mine.py: it passes",),
    ("fusion=mine start=1.0: all 11 checks hold",),
    ("mine    4      true", "12 runs in runs/studies/mine/results.csv"),
    ("as measured", "if lower", "if higher"),
    ("distance", "previous", "probes.csv"),
)
REHEARSED = dict[tuple[str, ...], subprocess.CompletedProcess]()
# For each command of the README that starts with ablate.
SEEN = {
    "ablate run": (),
    "ablate compare docs/results/later": (),
    "ablate run -m fusion=concat,sum": ("12 runs in runs/studies/first/results.csv",),
    "ablate compare first": ("6 paired seeds, 95 % confidence", "difference [low, high]", "verdict"),
    "ablate compare docs/results/gpt2.csv": ("arm=local", "undecided", "12 to 16 paired seeds"),
    "ablate new fusion mine": ("mine.py",),
    "ablate check mine.py": ("all 11 checks hold",),
    "ablate duel mine.py concat": ("mine", "concat", "nats"),
    "ablate run study=questions --dry-run": (
        "arms: concat, concat_bare",
        "153 runs first, about 476 in all",
        "16 seeds show a difference",
    ),
    "ablate run study=fusion --rehearse": ("no model was trained", "/studies/fusion/report.html"),
}


@pytest.mark.slow
def test_the_readme_shows_what_its_commands_print(tmp_path, monkeypatch):
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    commands = _commands((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(commands) == len(SEEN)
    for command, shown in commands:
        (seen,) = [SEEN[begin] for begin in sorted(SEEN, key=len) if command.startswith(begin)][-1:]
        _require(command, shown, seen, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("reader, shown", [("student", STUDENT), ("author", AUTHOR), ("engineer", ENGINEER)])
def test_a_reader_sees_what_the_page_says(reader, shown, tmp_path):
    (tmp_path / "book.txt").write_text("a rose is a rose is a rose\n" * 700)
    page = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    commands = _commands(page.split(f"\n## The {reader}")[1].split("\n## ")[0])
    assert len(commands) == 5
    for (command, block), seen in zip(commands, shown, strict=True):
        _require(command, block, seen, tmp_path)


def _commands(page: str) -> list[tuple[str, list[str]]]:
    """Each command of a page, with the lines that the page shows below it."""
    indented = re.sub(r"```sh\n(.*?)\n```", r"    \1", page)
    _, *parts = re.split(r"^    (?:pip install .* && )?(ablate .*)$", indented, flags=re.MULTILINE)
    blocks = [re.findall(r"^    (.+)$", text, re.MULTILINE) for text in parts[1::2]]
    return [*zip(parts[::2], blocks, strict=True)]


def _require(command: str, shown: list[str], seen: tuple[str, ...], cwd) -> None:
    """Every line that is shown has to be printed, but for line ends, what `…` leaves out, and the numbers of
    models, which are others here; on rows of the repository numbers count as well."""
    ended, has_rows = _typed(shlex.split(command), cwd), "docs/results" in command
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, f"{command}: {said}"

    def plain(text: str) -> str:
        whole = " ".join(text.split())
        return whole if has_rows else re.sub(r"\d[\d.,]*", "#", whole).replace("On grammar:", "On docs:")

    for part in (part for line in shown for part in line.split("…")):
        assert plain(part) in plain(said), f"{command}: {part}: {said}"
    for expected in seen:
        assert expected in said, f"{command}: {expected}: {said}"


def _typed(words: list[str], cwd) -> subprocess.CompletedProcess:
    """One command of the page, made quick if it trains."""
    _, command, *rest = words
    if command not in ("run", "duel"):
        return call_cli(command, *rest, cwd=cwd)
    has_model = "name=mine" in rest or (command == "run" and not {"-m", "study="} & {w[:6] for w in rest})
    if has_model:
        rest = [word for word in rest if not word.startswith("train.steps=")]
    text = () if any(word.startswith("corpus=") for word in rest) else SHORT_TEXT
    if command == "run" and ("-m" in rest or "--rehearse" in rest):
        text += ("hydra/launcher=basic",)
    if "--rehearse" in rest:
        text += ("seed=range(8)", "study.looks=null")
    if "corpus=copy" in rest:
        text += ("train.simulated.effects=[fusion=sum:1.7,out_rank=1:1.6]",)
    made = (command, *rest, *(SHORT if has_model else DRAWN), *text)
    if "--rehearse" not in made:
        return call_cli(*made, cwd=cwd)
    if made not in REHEARSED:  # both pages show the same one
        REHEARSED[made] = call_cli(*made, cwd=cwd)
    return REHEARSED[made]
