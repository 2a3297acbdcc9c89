"""Mutants: small faults put into ablate/, each of which some test has to find.

`python -m tests.mutants cover [-m "not slow"]` runs the tests, and keeps in build/mutants.json which of them
reach a line; it needs coverage. `record 300` draws mutants of lines that are reached, runs the tests that
reach them, the fastest first, and adds those that are found to mutants.tsv: file, line, the line in its
place. `replay` says which of the record live, by what `cover` has found before; one whose line is gone leaves
the record, and `record` draws another.
"""

import ast
import importlib
import itertools
import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
REACHED, RECORD = ROOT / "build" / "mutants.json", ROOT / "tests" / "mutants.tsv"
FLIPPED: dict[type, type] = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.In: ast.NotIn}
FLIPPED |= {ast.Is: ast.IsNot, ast.Add: ast.Sub, ast.Mult: ast.Div, ast.And: ast.Or}
FLIPPED |= {second: first for first, second in FLIPPED.items()}
# For a mutant: how many tests, their seconds, and when it is given up.
TESTS, BUDGET_S, HANGING_S = 150, 20.0, 120


class Cover:
    """A plugin of pytest: the lines of ablate/ that each test reaches, and its seconds of a processor."""

    def __init__(self) -> None:
        import coverage

        self.seconds: dict[str, float] = {}
        self.coverage = coverage.Coverage(data_file=None, source=[str(ROOT / "ablate")], config_file=False)
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        self.coverage.switch_context(item.nodeid)
        began = sum(os.times()[:4])
        result = yield
        self.seconds[item.nodeid] = sum(os.times()[:4]) - began
        self.coverage.switch_context("")
        return result

    def save(self) -> None:
        self.coverage.stop()
        data, seen = self.coverage.get_data(), reached()
        seen["seconds"] |= self.seconds
        for file in data.measured_files():
            lines = seen["lines"].setdefault(str(Path(file).relative_to(ROOT)), {})
            for line, tests in data.contexts_by_lineno(file).items():
                both = {*lines.get(str(line), ()), *tests} - {""}
                lines[str(line)] = sorted(both, key=seen["seconds"].__getitem__)[:TESTS]
        REACHED.parent.mkdir(exist_ok=True)
        REACHED.write_text(json.dumps(seen))


def reached() -> dict[str, Any]:
    """Of each file and line the tests that reach it, the fastest first; the seconds of each test."""
    return json.loads(REACHED.read_text()) if REACHED.exists() else {"seconds": {}, "lines": {}}


def is_found(file: str, line: str, mutant: str, seen: dict[str, Any]) -> bool:
    """Whether a test fails with a mutant in the place of its line."""
    path = ROOT / file
    text, times = path.read_text("utf-8"), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    lines = text.split("\n")
    place = lines.index(line)
    tests, spent = list[str](), 0.0
    for test in seen["lines"].get(file, {}).get(str(place + 1), ()):
        spent += seen["seconds"][test]
        tests += [test] if not tests or spent < BUDGET_S else []
    files = [*dict.fromkeys(test.partition("::")[0] for test in tests)]
    few = [test for test in tests if test.partition("::")[0] in files[:2]]  # which are collected at once
    try:
        path.write_text("\n".join([*lines[:place], mutant, *lines[place + 1 :]]), "utf-8")
        return any(map(fails, (few, tests) if tests else ()))
    finally:
        path.write_text(text, "utf-8")
        os.utime(path, ns=times)


def fails(tests: list[str]) -> bool:
    """Whether one of these tests does; not where one hangs."""
    if not (child := os.fork()):
        signal.alarm(HANGING_S)
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (1, 2, 3, 4)


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """Lines that stand once in the text of a file, each with one that may stand in its place."""
    lines, tree = text.split("\n"), ast.parse(text)
    tests = {id(node.test) for node in ast.walk(tree) if isinstance(node, ast.If | ast.While | ast.IfExp)}
    for node in expressions(tree):
        number = getattr(node, "lineno", 0)
        if not number or number != node.end_lineno or lines.count(lines[number - 1]) != 1:
            continue
        line = lines[number - 1].encode()
        for new in [*changed(node), *([f"not ({ast.unparse(node)})"] if id(node) in tests else [])]:
            mutant = line[: node.col_offset] + new.encode() + line[node.end_col_offset :]
            yield line.decode(), mutant.decode()


def expressions(node: ast.AST) -> Iterator[Any]:
    """A node and those below it, without types and texts."""
    yield node
    if not isinstance(node, ast.JoinedStr):
        for name, value in ast.iter_fields(node):
            below = value if isinstance(value, list) else [value]
            for one in below if name not in ("annotation", "returns") else ():
                yield from expressions(one) if isinstance(one, ast.AST) else ()


def changed(node: Any) -> Iterator[str]:
    """What a mistake makes of an expression or of a statement."""
    match node:
        case ast.Compare(ops=[op]) if new := FLIPPED.get(type(op)):
            yield ast.unparse(ast.Compare(node.left, [new()], node.comparators))
        case ast.BinOp(op=op) if new := FLIPPED.get(type(op)):
            yield ast.unparse(ast.BinOp(node.left, new(), node.right))
        case ast.BoolOp(op=op):
            yield ast.unparse(ast.BoolOp(FLIPPED[type(op)](), node.values))
        case ast.Constant(value=bool(value)):
            yield repr(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield repr(value + 1)
        case ast.Return(value=ast.AST()):
            yield "return None"
        case ast.Call(keywords=[*keywords, _]):
            yield ast.unparse(ast.Call(node.func, node.args, keywords))
        case ast.Call(args=[*arguments, _]):
            yield ast.unparse(ast.Call(node.func, arguments, []))


def record(number: int, prefix: str = "ablate/") -> None:
    """Draw mutants of the files that begin so until that many are in the record."""
    seen, known = reached(), written()
    drawn = [
        (file, line, random.Random(line).choice([*found])[1])
        for file, lines in seen["lines"].items()
        if file.startswith(prefix) and file.endswith(".py")
        for text in [(ROOT / file).read_text("utf-8")]
        for line, found in itertools.groupby(sorted(mutants(text)), lambda pair: pair[0])
        if lines.get(str(text.split("\n").index(line) + 1))
    ]
    random.Random(73).shuffle(drawn)
    for file, line, mutant in drawn:
        if len(known) == number:
            break
        is_new = (file, line) not in [one[:2] for one in known]
        if is_new and is_found(file, line, mutant, seen) and not is_found(file, line, line, seen):
            known = sorted([*known, (file, line, mutant)])
            write(known)
            print(len(known), file, line, mutant, sep="\t", flush=True)


def replay() -> None:
    """Which mutants of the record live; those whose line is gone leave it."""
    seen, before = reached(), written()
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8").split("\n")
        for path in (ROOT / "ablate").rglob("*.py")
    }
    there = []
    for file, line, mutant in before:  # a line that has moved is followed
        places = [place for place in [file, *texts] if texts.get(place, []).count(line) == 1]
        there += [(place, line, mutant) for place in places[:1] if file in places or len(places) == 1]
    write(sorted(there))
    print(f"{len(there)} of {len(before)} are there")
    for file, line, mutant in there:
        if not is_found(file, line, mutant, seen):
            print("lives", file, line, mutant, sep="\t", flush=True)


def written() -> list[tuple[str, str, str]]:
    rows = RECORD.read_text("utf-8").splitlines() if RECORD.exists() else []
    return [(file, line, mutant) for file, line, mutant in (row.split("\t") for row in rows)]


def write(mutants: list[tuple[str, str, str]]) -> None:
    RECORD.write_text("".join("\t".join(one) + "\n" for one in mutants), "utf-8")


def main(verb: str, *words: str) -> None:
    if verb == "cover":
        cover = Cover()
        pytest.main(["-n", "0", *words], plugins=[cover])
        return cover.save()
    for name in ("torch", "pandas", "scipy.stats", "omegaconf", "antlr4", "rich.console", "typer"):
        importlib.import_module(name)  # once, for all whose tests are forked from here
    sys.dont_write_bytecode = True
    return record(int(words[0]), *words[1:]) if verb == "record" else replay()


if __name__ == "__main__":
    main(*sys.argv[1:])
