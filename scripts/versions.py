"""The quick tests with other versions of Python and of packages, each in an environment of its own.

    python scripts/versions.py                              # those of MATRIX
    python scripts/versions.py "python3.13 torch==2.14.1"   # a Python, and what pip is to install there
    python scripts/versions.py "python3.11 lowest"          # the lowest versions that pyproject.toml admits;
                                                            # tools of the tests are newer, and may mind

Prints a row of a table for each. Environments stay in build/versions, and are used again.
"""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
MATRIX = (
    # A newer transformers refuses to load beside the lowest tokenizers.
    *("python3.11 lowest transformers==5.5.4", "python3.12 torch==2.13.0"),
    *("python3.13 torch==2.14.1", "python3.14 torch==2.15.0"),
    "python3.11 torch==2.13.0 hydra-core==1.4.0rc3",
)
SHOWN = ("torch", "hydra-core", "numpy", "pandas", "typer")
ASK = "import importlib.metadata as m, platform; print(platform.python_version(), *map(m.version, {!r}))"


def main(wanted: list[str]) -> None:
    print("| Python |", " | ".join(SHOWN), "| quick tests |")
    print("| --- |" + " --- |" * (len(SHOWN) + 1), flush=True)
    for line in wanted or MATRIX:
        python, *requirements = line.split()
        environment = ROOT / "build" / "versions" / re.sub(r"[^\w.]+", "-", line)
        executable = _made(environment, python, requirements)
        versions = _said(executable, "-c", ASK.format(SHOWN)).split()
        print(f"| {' | '.join(versions)} | {_tested(environment)} |", flush=True)


def _made(environment: Path, python: str, requirements: list[str]) -> Path:
    """The interpreter of the environment, in which what the tests need is installed."""
    executable = environment / "bin" / "python"
    if not executable.exists():
        subprocess.run([python, "-m", "venv", "--without-pip", environment], check=True)
    lowest = _lowest() if "lowest" in requirements else []
    wanted = [one for one in requirements if one != "lowest"]
    wanted += [one for one in lowest if one.startswith("torch=")]  # which brings libraries of its own
    pip = [sys.executable, "-m", "pip", "--python", executable, "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, "--editable", f"{ROOT}[dev]", *wanted], check=True)
    if lowest:
        subprocess.run([*pip, "--no-deps", *lowest], check=True)
    return executable


def _lowest() -> list[str]:
    """What the program itself requires, each in the lowest version that pyproject.toml admits."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["report"]]
    return [re.sub(r"(\[.*\])?\s*>=\s*([\w.]+).*", r"==\2", requirement) for requirement in wanted]


def _tested(environment: Path) -> str:
    """The last line of pytest; its whole output is kept beside the environment."""
    activate = f". {shlex.quote(str(environment / 'bin' / 'activate'))}"
    command = f'{activate} && python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not slow"'
    log = environment.parent / f"{environment.name}.log"
    with log.open("w", encoding="utf-8") as file:
        subprocess.run(["bash", "-c", command], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
    summary = log.read_text(encoding="utf-8").strip().splitlines()[-1]
    return ", ".join(re.findall(r"\d+ (?:passed|failed|skipped|errors?)", summary)) or f"see {log.name}"


def _said(*command: object) -> str:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main(sys.argv[1:])
