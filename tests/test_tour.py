"""docs/tour.md and README.md: each command, in order, in an empty directory, prints what the page shows."""

import re
import shlex
import subprocess

import pytest

from tests.helpers import ROOT, call_cli

# A short text, and a few steps where a model is needed; else nothing is trained.
QUICK = ("train.steps=2", "train.eval_every=1", "train.batch=2", "train.eval_tokens=64", "model.context=16")
SIMULATED = ("train/simulated=losses", "train.simulated.sd=0.15")
SHORT_TEXT = ("corpus=grammar", "corpus.characters=9000", "corpus.tokenizer=byte")  # which knows any prompt

# For each command of a reader, in order: what the page says appears.
STUDENT = (
    ("val_loss", "val_bpb", "val_acc", "test_loss", "params", "runs/studies/single/results.csv"),
    ("The import statement",),
    ("12 runs in runs/studies/first/results.csv",),
    ("difference [low, high]", "verdict"),
    (
        "a sum is concat with the same rows for every head",
        "18 not",
        "concat with a projection is a sum over heads",
    ),
)
AUTHOR = (
    ("32 runs", "about ", "from timing a few steps"),
    ("weighted_sum", "no model was trained", "/studies/fusion/report.html"),
    ("24 runs in runs/studies/ours/results.csv",),
    ("booktabs", r"mean over 6 seeds $\pm$ half of its 95 \% t-interval", "fusion & 2 & 4"),
    ("runs/studies/ours/report.html",),
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
    "ablate compare first --format latex": ("booktabs", "Exploratory"),
    "ablate compare first": ("6 paired seeds, 95 % confidence", "difference [low, high]", "verdict"),
    "ablate compare table.csv": ("ours", "too few for a verdict"),
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
    (tmp_path / "table.csv").write_text("method,seed,loss\nbase,0,3.2\nours,0,3.1\nbase,1,3.2\nours,1,3.2\n")
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
    made = (command, *rest, *(QUICK if has_model else SIMULATED), *text)
    if "--rehearse" not in made:
        return call_cli(*made, cwd=cwd)
    if made not in REHEARSED:  # both pages show the same one
        REHEARSED[made] = call_cli(*made, cwd=cwd)
    return REHEARSED[made]
