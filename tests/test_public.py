"""The public names with their signatures are those of public.txt, so that none changes by accident; and the
wheel carries what it needs: built, unpacked, and used from a directory that knows no checkout.

A change that is meant: `python -m tests.test_public >tests/public.txt`, and a line in CHANGELOG.md.
"""

import functools
import inspect
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ablate
import ablate.methods
from ablate.execution.trained import TrainedModel
from ablate.model.parts import Part
from ablate.reporting.html import ShownComparison
from tests.helpers import ROOT

SNAPSHOT = Path(__file__).with_name("public.txt")


def of_any_version(lines: Iterable[str]) -> list[str]:
    """The same lines in each version of Python and pandas, which name some modules otherwise."""
    elsewhere = {"pandas.core.frame.": "pandas.", "pathlib._local.": "pathlib.", "typing.": ""}
    return [functools.reduce(lambda text, names: text.replace(*names), elsewhere.items(), of) for of in lines]


def surface() -> Iterator[str]:
    """A line for each public name, and one for each public method or property of a class."""
    for module in (ablate, ablate.methods):
        for name in sorted(module.__all__):
            yield from described(f"{module.__name__}.{name}", getattr(module, name))
    for behind in (Part, ShownComparison, TrainedModel):  # a base class, and what functions return
        yield from described(behind.__name__, behind)


def described(name: str, thing: Any) -> Iterator[str]:
    if not inspect.isclass(thing):
        yield f"{name}{inspect.signature(thing)}" if callable(thing) else name
        return
    bases = ", ".join(base.__name__ for base in thing.__bases__)
    made = inspect.signature(thing) if "__init__" in vars(thing) else ""
    yield f"class {name}({bases}){made}"
    for member in sorted(name for name in vars(thing) if not name.startswith("_")):
        value = inspect.getattr_static(thing, member)
        function = getattr(value, "__func__", getattr(value, "fget", value))
        signature = str(inspect.signature(function)) if inspect.isfunction(function) else ""
        yield f"    {member}{signature}"


def test_the_public_names_are_those_of_the_snapshot():
    assert of_any_version(surface()) == SNAPSHOT.read_text(encoding="utf-8").splitlines()


# --- the wheel ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_wheel_runs_from_another_directory(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("ablate_heads-*.whl")
    installed, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    assert not (installed / "tests").exists() and not (installed / "runs").exists()
    configs = {path.relative_to(ROOT / "configs") for path in (ROOT / "configs").rglob("*.yaml")}
    packed = installed / "ablate" / "configs"
    assert configs == {path.relative_to(packed) for path in packed.rglob("*.yaml")}
    beside = {
        p.relative_to(ROOT)
        for e in ("j2", "css", "js", "svg", "typed", "yaml")
        for p in ROOT.glob(f"ablate/**/*.{e}")
    }
    assert beside and all((installed / path).is_file() for path in beside)
    elsewhere.mkdir()
    # The wheel's files come first, and the checkout, which an editable install adds, not at all.
    code = (
        "import sys; sys.path = [p for p in sys.path if p != sys.argv[1]]; sys.argv[:2] = ['ablate']\n"
        "import ablate, ablate.cli.app\n"
        "print(ablate.__file__, flush=True)\n"
        "ablate.cli.app.main()"
    )
    overrides = ["-m", "corpus=grammar", "corpus.characters=9000", "train=simulated", "fusion=sum,mean"]
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT), "run", *overrides],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.splitlines()[0]).is_relative_to(installed)
    assert "2 runs in runs" in done.stdout


if __name__ == "__main__":
    print("\n".join(of_any_version(surface())))
