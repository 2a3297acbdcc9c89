"""docs/one-run.md: the functions that it names are there, and a run passes through them in that order."""

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ablate.cli.app import main
from tests.helpers import QUICK, ROOT

PAGE = (ROOT / "docs" / "one-run.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([\w/]+\.py): (\w+)`", PAGE)
STEPS = [
    (file, name) for _, file, name in re.findall(r"^(\d+)\. .*`([\w/]+\.py): (\w+)`$", PAGE, re.MULTILINE)
]


def test_each_step_is_numbered_and_names_a_function():
    assert len(STEPS) == 28 and PAGE.count("\n") <= 60
    assert [int(number) for number in re.findall(r"^(\d+)\. ", PAGE, re.MULTILINE)] == [*range(1, 29)]


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
