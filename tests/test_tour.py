"""docs/tour.md and README.md: every command of theirs, in order, in a directory that begins empty."""

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
    ("concat  4      true", "sum     4      true", "12 runs in runs/studies/first/results.csv"),
    ("against concat", "6 paired seeds", "95 % confidence", "difference [low, high]", "verdict"),
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
    ("booktabs", r"mean over 8 seeds $\pm$ half of its 95 \% t-interval", "fusion & 4"),
    ("runs/studies/ours/report.html",),
)
ENGINEER = (
    ("mine.py: it passes",),
    ("fusion=mine start=1.0: all 11 checks hold",),
    ("mine    4      true", "12 runs in runs/studies/mine/results.csv"),
    ("as measured", "if lower", "if higher"),
    ("distance", "previous", "probes.csv"),
)
# For each command of the README that starts with ablate.
SEEN = {
    "ablate run": ("val_loss", "beside val_loss", "1 run in runs/studies/single/results.csv"),
    "ablate compare docs/results/later": (
        "summing the heads at equal size (by 0.037 nats)",
        "6 to 8 paired seeds",
    ),
    "ablate run -m fusion=concat,sum": ("12 runs in runs/studies/first/results.csv",),
    "ablate compare first": ("6 paired seeds, 95 % confidence", "difference [low, high]", "verdict"),
    "ablate compare table.csv": ("ours", "too few for a verdict"),
    "ablate new fusion mine": ("mine.py",),
    "ablate check mine.py": ("all 11 checks hold",),
    "ablate duel mine.py concat": ("mine", "concat", "nats"),
    "ablate run study=questions --dry-run": ("arms: concat, concat_bare", "rates", "report", "least", "most"),
    "ablate run study=fusion --rehearse": ("no model was trained", "/studies/fusion/report.html"),
}


@pytest.mark.slow
def test_the_readme_shows_what_its_commands_print(tmp_path, monkeypatch):
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "table.csv").write_text("method,seed,loss\nbase,0,3.2\nours,0,3.1\nbase,1,3.2\nours,1,3.2\n")
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^    (?:pip install .* && )?(ablate .*)$", page, re.MULTILINE)
    for command in commands:
        (seen,) = [SEEN[begin] for begin in sorted(SEEN, key=len) if command.startswith(begin)][-1:]
        ended = _typed(shlex.split(command), tmp_path)
        said = ended.stdout + ended.stderr
        assert ended.returncode == 0, f"{command}: {said}"
        for expected in seen:
            assert expected in said, f"{command}: {said}"
    assert len(commands) == len(SEEN)


@pytest.mark.slow
@pytest.mark.parametrize("reader, shown", [("student", STUDENT), ("author", AUTHOR), ("engineer", ENGINEER)])
def test_a_reader_sees_what_the_page_says(reader, shown, tmp_path):
    (tmp_path / "book.txt").write_text("a rose is a rose is a rose\n" * 700)
    commands = _commands(reader)
    assert len(commands) == 5
    for words, seen in zip(commands, shown, strict=True):
        ended = _typed(words, tmp_path)
        said = ended.stdout + ended.stderr
        assert ended.returncode == 0, f"{shlex.join(words)}: {said}"
        for expected in seen:
            assert expected in said, f"{shlex.join(words)}: {said}"


def _commands(reader: str) -> list[list[str]]:
    page = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    section = page.split(f"\n## The {reader}")[1].split("\n## ")[0]
    return [shlex.split(block) for block in re.findall(r"```sh\n(.*?)\n```", section)]


def _typed(words: list[str], cwd) -> subprocess.CompletedProcess:
    """One command of the page, made quick if it trains."""
    _, command, *rest = words
    if command not in ("run", "duel"):
        return call_cli(command, *rest, cwd=cwd)
    has_model = "name=mine" in rest or (command == "run" and not {"-m", "study="} & {w[:6] for w in rest})
    if has_model:
        rest = [word for word in rest if not word.startswith("train.steps=")]
    text = () if any(word.startswith("corpus=") for word in rest) else SHORT_TEXT
    return call_cli(command, *rest, *(QUICK if has_model else SIMULATED), *text, cwd=cwd)
