"""Collect what ablate needs beside PyTorch, for a machine without a network, where PyTorch is.

    python benchmarks/wheels.py wheels --python 3.12

There, in this checkout, with the directory copied to it:

    python -m pip install --no-index --no-deps wheels/*.whl
    python benchmarks/gpu.py stack
"""

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
SOURCE_ONLY = "antlr4-python3-runtime==4.9.3"  # of which there is no wheel; it is pure Python


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--python", default=f"{sys.version_info.major}.{sys.version_info.minor}")
    arguments = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [one for one in project["dependencies"] if re.split(r"\W", one)[0] != "torch"]
    pip, into = [sys.executable, "-m", "pip"], str(arguments.directory)
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", into, SOURCE_ONLY], check=True)
    for_it = ["--python-version", arguments.python, "--implementation", "cp", "--only-binary=:all:"]
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    found = ["--find-links", into, "-d", into]
    subprocess.run([*pip, "download", "-q", *for_it, *platforms, *found, *needed, "pytest"], check=True)
    size = sum(path.stat().st_size for path in arguments.directory.iterdir())
    print(f"{len([*arguments.directory.iterdir()])} wheels, {size / 1e6:,.0f} MB, in {into}")


if __name__ == "__main__":
    main()
