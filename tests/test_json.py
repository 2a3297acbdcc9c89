"""--format json: one object of one schema from every command that prints results, as AGENTS.md says."""

import importlib
import inspect
import json
import re
from typing import Any

import pytest
import typer

from ablate.cli.app import COMMANDS
from ablate.cli.shared import SCHEMA
from tests.helpers import ROOT, call_cli

PAGE = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
TABLE = [line for line in PAGE.splitlines() if line.startswith("| `")]
KEYS = {key for line in TABLE for key in re.findall(r"`(\w+)`", line.split("|")[1])}
SMALL = ("model.d_model=8", "heads=2", "model.context=8", "train.steps=4", "train.batch=2", "corpus=grammar")
SWEEP = ("run", "-m", "fusion=concat,sum", "seed=0,1", *SMALL, "corpus.characters=5000", "name=s")
NO_RESULTS = {"new", "report", "sample", "export"}  # they write files, or a text


def printed(*words: str, cwd: Any, code: int = 0) -> dict[str, Any]:
    done = call_cli(*words, "--format", "json", cwd=cwd)
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(name))
    assert found["schema"] == SCHEMA == 1 and found.keys() <= KEYS
    return found


@pytest.mark.slow
def test_every_command_prints_one_object(tmp_path):
    dry = printed(*SWEEP, "--dry-run", cwd=tmp_path)
    assert (dry["runs"], dry["finished"]) == (4, 0) and dry["seconds"] > 0
    made = printed(*SWEEP, cwd=tmp_path)
    assert (
        made["study"] == "s"
        and len(made["rows"]) == 4
        and {row["status"] for row in made["rows"]} == {"done"}
    )
    found = printed("compare", "s", cwd=tmp_path)
    assert {row["fusion"] for row in found["rows"]} == {"concat", "sum"}
    assert "too few for a verdict" in " ".join(found["answer"]) and found["notes"]
    for words in (("runs",), ("plan", "s"), ("probe", "s"), ("keys", "heads"), ("corpus", "list")):
        assert printed(*words, cwd=tmp_path)["rows"]
    shown = printed("corpus", "show", "grammar", "corpus.characters=5000", cwd=tmp_path)
    assert shown["about"]["corpus"] == "grammar" and len(shown["rows"]) == 3
    assert printed("verify", "--only", "9", cwd=tmp_path)["identities"][0]["verdict"] == "pass"
    assert printed("verify", "--class", "fusion=sum", "fusion=mean", cwd=tmp_path)["same"] is True
    assert printed("verify", "--class", "fusion=sum", "fusion=gated", cwd=tmp_path, code=1)["same"] is False
    assert call_cli("new", "fusion", "mine", cwd=tmp_path).returncode == 0
    checked = printed("check", "mine.py", cwd=tmp_path)["rows"]
    assert all(row["broken"] == "" for row in checked) and len(checked) > 5


def test_no_command_that_prints_results_lacks_it():
    lacking = {name for name in COMMANDS if "format" not in parameters(name)}
    assert lacking == NO_RESULTS


def parameters(name: str) -> set[str]:
    """The options of a command and of its subcommands."""
    module, *_ = COMMANDS[name]
    command = getattr(importlib.import_module(f"ablate.cli.{module}"), name)
    if not isinstance(command, typer.Typer):
        return {*inspect.signature(command).parameters}
    callbacks = [each.callback for each in command.registered_commands]
    callbacks += [command.registered_callback.callback] if command.registered_callback else []
    return {option for each in callbacks if each for option in inspect.signature(each).parameters}
