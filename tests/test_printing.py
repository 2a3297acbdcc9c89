"""What leaves a command is clean, whatever came in; and labels that stand for different things differ."""

import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from ablate.analysis.load import read
from ablate.analysis.variants import Variant, variants_of
from ablate.cli.app import main
from ablate.phrases import cleaned, visible
from ablate.printing import put
from ablate.reporting.next import repeated
from ablate.store.columns import csv_text
from tests.synthetic import small_study

# Names that somebody gave to methods: all are different, and none may do anything where it is shown.
NAMES = [
    "relu",
    "relu k=2",
    "relu k=3",
    '"relu k=3"',
    "a\nb",
    "a\\nb",
    "a\u2028b",
    "a|b",
    "\x1b[31mred",
    "k=2",
]
NAMES += ["gpj\u202e", "a  b", "a b", "a\xa0b"]
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def test_what_a_terminal_would_obey_is_written_out():
    assert (
        cleaned("é\t日本 😀\n\x1b[2J\x9b1m\x7f\ud800\u202e")
        == "é\t日本 😀\n\\u001b[2J\\u009b1m\\u007f\\ud800\\u202e"
    )
    assert visible(" a\nb  c ") == " a\\u000ab \\u0020c "
    every = "".join(map(chr, range(0x2100))) + "\ud800\U000e0041"
    assert not OBEYED.search(cleaned(every)) and "\n" not in visible(every)
    text = json.dumps({every: [every]}, ensure_ascii=False)
    assert json.loads(cleaned(text)) == json.loads(text)


def test_bold_is_ours_alone(capsys):
    put("\x1b[1mname\x1b[0m\x1b[31m", bold=True)
    put("\x1b[1mname")
    assert capsys.readouterr().out == "\x1b[1mname\x1b[0m\\u001b[31m\n\\u001b[1mname\n"


# --- labels ------------------------------------------------------------------------------------------


def test_names_tell_all_variants_apart():
    columns = ["method", "learning rate", "k"]
    table = pd.DataFrame([(a, b, c) for a in NAMES for b in NAMES for c in ("", "2")], columns=columns)
    called_so = [one.name for one in variants_of(table, columns)]
    assert len({*called_so}) == len(table)
    assert all(re.match(r'method=.* "learning rate"=.* k=2?$', name) for name in called_so)
    assert not OBEYED.search("".join(called_so)) and "\n" not in "".join(called_so)
    assert Variant({"fusion": "sum", "windows": "[8, 8]"}).name == "fusion=sum windows=[8, 8]"


# --- CSV ---------------------------------------------------------------------------------------------


def test_what_programs_read_stays_as_it_is():
    text = csv_text([{"run_id": "a", "error": "=1+1"}], ["run_id", "error"])
    assert text == "run_id,error\na,=1+1\n"


# --- commands that are shown -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_command_is_shown_if_it_is_one_of_ablate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = small_study(Path("runs"), seeds=1).study_directory("synthetic") / "study.json"
    record = json.loads(path.read_text())
    for command, shown in (
        ("ablate duel sum 'my method.py' --seeds 4", "ablate duel sum 'my method.py' --seeds 4"),
        ("ablate duel a b; rm -rf ~", "ablate duel a 'b;' rm -rf '~'"),
        ("rm -rf ~", ""),
        ("ablate duel 'a", ""),
    ):
        path.write_text(json.dumps(record | {"command": command}))
        assert repeated(read("synthetic").record) == shown


def test_what_is_said_to_nobody_ends_no_command(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["ablate", "frobnicate"])
    monkeypatch.setattr(sys, "stderr", None)  # as after `2>&-`
    with pytest.raises(SystemExit, match="2"):
        main()
    sys.stderr.close()
