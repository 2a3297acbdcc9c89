"""Try odd command lines and odd files: each has to end in a result, or in one line and exit code 1 or 2.

    python benchmarks/fuzz.py --seed 7
    python benchmarks/fuzz.py --seed 7 --only 1234
    python benchmarks/fuzz.py store --cases 1000
    python benchmarks/fuzz.py configs --cases 500

With `store`, odd stores: each command that reads one has to end in a result or in one line, in 10 s of the
processor, and to touch nothing outside of it. With `configs`, hostile configs: none may run code, or change a
file.

Ten command lines alternate with one odd file. A case fails with a traceback, if it takes longer than
--longest says (more than the usual 20 s on a busy machine), if it changes a file of the user's, or if it
writes one where none was asked for. Failures are printed with the number that repeats them. A case has 4 GB
of memory and one thread per process, and may write files of up to 1 GB.
"""

import argparse
import os
import random
import resource
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

from benchmarks.odd import trial as trials
from benchmarks.odd.commands import odd_command
from benchmarks.odd.configs import Cage, odd_config
from benchmarks.odd.files import odd_file
from benchmarks.odd.stores import OddStore, Stores, odd_store
from benchmarks.odd.trial import Case, Ending, Sandbox

KINDS = (*[odd_command] * 10, odd_file)
CASES = 3000 // 10 * len(KINDS)
LIMITS = {resource.RLIMIT_DATA: 4 << 30, resource.RLIMIT_FSIZE: 1 << 30, resource.RLIMIT_CORE: 0}

sandbox: Sandbox | Stores  # of this process


def case(face: str, seed: int, number: int) -> Case | OddStore:
    faces = {"store": odd_store, "configs": odd_config}
    kind = faces.get(face) or KINDS[number % len(KINDS)]
    return kind(random.Random(f"{seed} {number}"))


def begin(root: str, face: str, longest: float) -> None:
    global sandbox
    trials.LONGEST_S = longest
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8:strict"}
    for limit, most in LIMITS.items():
        resource.setrlimit(limit, (most, most))
    kinds = {"store": Stores, "configs": Cage}
    sandbox = kinds.get(face, Sandbox)(Path(tempfile.mkdtemp(dir=root)))


def trial(face: str, seed: int, number: int) -> Ending:
    return sandbox.trial(case(face, seed, number))  # pyright: ignore[reportArgumentType]


def shown(number: int, of: Case | OddStore, ending: Ending) -> str:
    """A violation as one line."""
    if not isinstance(of, Case):
        return f"{number}: {'; '.join(ending.faults)}: {of}"
    words = shlex.join(word if len(word) < 200 else f"{word[:20]}…({len(word)})" for word in of.argv)
    return f"{number}: {'; '.join(ending.faults)}: ablate {ascii(words)[1:-1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    faces = ("commands", "store", "configs")
    parser.add_argument("face", nargs="?", choices=faces, default="commands")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, action="append", help="this case alone, and all that it said")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--longest", type=float, default=trials.LONGEST_S, help="seconds of a case at most")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    numbers: Sequence[int] = arguments.only or range(arguments.first, arguments.first + arguments.cases)
    processes = min(arguments.processes, len(numbers))
    endings: dict[int, Ending] = {}
    with (
        tempfile.TemporaryDirectory() as root,
        ProcessPoolExecutor(
            processes, get_context("spawn"), begin, (root, arguments.face, arguments.longest)
        ) as pool,
    ):
        tried = pool.map(trial, repeat(arguments.face), repeat(arguments.seed), numbers)
        for number, ending in zip(numbers, tried, strict=True):
            endings[number] = ending
            if ending.faults:
                print(shown(number, case(arguments.face, arguments.seed, number), ending), flush=True)
            if arguments.only:
                print(f"exit code {ending.code}, {ending.seconds:.1f} s", ending.out, ending.err, sep="\n")
    codes = Counter(str(ending.code) for ending in endings.values())
    slowest = max(endings, key=lambda number: endings[number].seconds)
    faulty = sum(bool(ending.faults) for ending in endings.values())
    print(f"{len(endings)} cases of seed {arguments.seed}; by exit code:", dict(sorted(codes.items())))
    print(f"slowest: {slowest}, {endings[slowest].seconds:.1f} s; violations: {faulty}")
    sys.exit(1 if faulty else 0)


if __name__ == "__main__":
    main()
