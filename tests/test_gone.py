"""Each name that is gone is refused in one line that says what to type instead; so none of them exists."""

import pytest

from ablate.config.rules import elsewhere
from tests.helpers import refusal

# One of each kind, whatever the table has.
INVENTED = (
    *("lost", "train.lost", "study.lost", "study.kind=lost", "corpus=lost", "fusion=lost", "out_proj=lost"),
    *("train.precision=lost", "model=rung/lost", "study=lost", "hydra/launcher=lost", "hydra.launcher.lost"),
    *("ablate lost", "ablate corpus lost", "run --lost", "compare --lost"),
)
INSTEAD, GONE = "type that instead", elsewhere()["is gone"]
# What a command takes besides, if it reads an option's value last.
OPERANDS = {"probe": ["study"]}


def commands(name: str) -> list[list[str]]:
    """Commands that use the name, each as words."""
    if name.startswith("ablate "):
        return [name.split()[1:]]
    if name.startswith("--"):
        return [[name, "there", "runs"]]
    if " " in name:
        command, option, *value = name.split()
        return [[command, *OPERANDS.get(command, ()), option, *value]]
    if name.startswith("hydra"):
        return [["run", "-m", "seed=0", name if "=" in name else f"{name}=1"]]
    if name.startswith("study."):
        return [["run", "study=fusion", name if "=" in name else f"{name}=1"]]
    if "=" in name:
        return [["run", "--dry-run", name]]
    return [["run", f"{name}=1"], ["run", f"+{name}=1"], ["run", "-m", f"{name}=1,2"], ["keys", name]]


@pytest.fixture(autouse=True)
def _with_invented(monkeypatch):
    for name in INVENTED:
        monkeypatch.setitem(GONE, name, INSTEAD)


def test_no_line_says_what_a_table_has_which_changes():
    assert not [why for why in GONE.values() if "its table has" in why]


@pytest.mark.parametrize("name", [*INVENTED, *GONE])
def test_a_name_that_is_gone_is_refused_with_what_to_type_instead(name, tmp_path):
    for command in commands(name):
        assert refusal(*command, cwd=tmp_path) == f"ablate: {name} is gone; {GONE[name]}\n", command


STUDY = """\
# @package _global_
study:
  kind: grid
  question: Which?
  factors: {{{factors}}}
  seeds: [0, 1]
  primary: []
  metric: val_loss
"""


@pytest.mark.parametrize(
    "file, text, words, name",
    [
        ("study/own.yaml", STUDY.format(factors="lost: [1, 2]"), ["study=own"], "lost"),
        ("study/own.yaml", STUDY.format(factors="train.lost: [1, 2]"), ["study=own"], "train.lost"),
        ("study/own.yaml", STUDY.format(factors="fusion: [sum, lost]"), ["study=own"], "fusion=lost"),
        ("study/own.yaml", STUDY.format(factors="heads: [1]") + "  lost: 1\n", ["study=own"], "study.lost"),
        ("own.yaml", "defaults: [config, _self_]\ntrain: {lost: 1}\n", ["-cn", "own"], "train.lost"),
        ("own.yaml", "defaults: [config, _self_]\nlost: 1\n", ["-cn", "own"], "lost"),
    ],
)
def test_so_is_one_in_a_file_of_the_user(file, text, words, name, tmp_path):
    path = tmp_path / "mine" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    line = refusal("run", "--dry-run", "-cd", "mine", *words, "corpus=grammar", cwd=tmp_path)
    assert line == f"ablate: {name} is gone; {INSTEAD}\n"
