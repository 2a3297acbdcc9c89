"""The wheel carries what it needs: built, unpacked, and used from a directory that knows no checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.helpers import ROOT


@pytest.mark.slow
def test_a_wheel_runs_from_another_directory(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("ablate-*.whl")
    installed, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    assert not (installed / "tests").exists() and not (installed / "runs").exists()
    configs = {path.relative_to(ROOT / "configs") for path in (ROOT / "configs").rglob("*.yaml")}
    assert configs == {
        p.relative_to(installed / "ablate/configs") for p in installed.glob("ablate/configs/**/*.yaml")
    }
    beside = {p.relative_to(ROOT) for e in ("j2", "css", "js", "svg") for p in ROOT.glob(f"ablate/**/*.{e}")}
    assert beside and all((installed / path).is_file() for path in beside)
    elsewhere.mkdir()
    # The wheel's files come first, and the checkout, which an editable install adds, not at all.
    code = (
        "import sys; sys.path = [p for p in sys.path if p != sys.argv[1]]; sys.argv[:2] = ['ablate']\n"
        "import ablate, ablate.cli.app, hydra_plugins.ablate\n"
        "print(ablate.__file__, hydra_plugins.ablate.__file__, flush=True)\n"
        "ablate.cli.app.main()"
    )
    overrides = ["-m", "corpus=grammar", "corpus.characters=9000", "train.steps=2", "fusion=sum,mean"]
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT), "run", *overrides],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    where = done.stdout.splitlines()[0].split()
    assert all(Path(file).is_relative_to(installed) for file in where), where
    assert "2 runs in runs" in done.stdout
