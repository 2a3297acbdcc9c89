"""What the calling process has at large: ablate leaves it as it is, and computes the same whatever it is."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ablate.store.columns import RESOURCE_COLUMNS
from tests.foreign_program import SMALL
from tests.helpers import SUM, Command, call_cli

SAID = ("changed ", "sample ")


@pytest.mark.slow
def test_what_a_program_has_set_is_not_changed_and_does_not_matter(tmp_path):
    """See tests/foreign_program.py; here the same is done by commands."""
    there, here = tmp_path / "there", tmp_path / "here"
    for directory in (there, here):
        directory.mkdir()
        (directory / "mine.py").write_text(SUM.format(name="own", factor=0.5))
    with closing(Command(cwd=there, module="tests.foreign_program")) as program:
        out, err = program.communicate(300)
    assert program.returncode == 0, out + err
    said = dict(line.split(" ", 1) for line in out.splitlines() if line.startswith(SAID))
    assert json.loads(said["changed"]) == {}
    small = [f"{key}={str(value).lower()}" for key, value in SMALL.items()]
    for words in (
        "-m name=here fusion=sum,mean seed=0",
        "--plugin mine.py -m name=pool fusion=own,concat seed=2",
    ):
        done = call_cli("run", *words.split(), *small, "hydra/launcher=basic", cwd=here)
        assert done.returncode == 0, done.stderr
    runs, others = (sorted(p.name for p in d.glob("runs/store/[!.]*")) for d in (here, there))
    assert runs == others and len(runs) == 4
    for run in runs:
        one, other = (directory / "runs" / "store" / run for directory in (here, there))
        for name in ("model.safetensors", "config.yaml", "tokenizer.json"):
            assert (one / name).read_bytes() == (other / name).read_bytes(), (run, name)
        assert _exact(one) == _exact(other)
    words = ("--prompt", "the ", "--tokens", "5", "--seed", "1")
    sampled = call_cli("sample", "sum-h4-d16x1-s0", *words, cwd=here)
    assert repr(sampled.stdout[:-1]) == said["sample"]


def _exact(run: Path) -> tuple[dict[str, Any], list[str]]:
    """The run's row and its curve, without what was measured, and the number of threads."""
    row = json.loads((run / "result.json").read_text())
    curve = (run / "metrics.csv").read_text().splitlines()
    left_out = (*RESOURCE_COLUMNS, "threads", "files", "seal")
    return {k: v for k, v in row.items() if k not in left_out}, [line.rpartition(",")[0] for line in curve]
