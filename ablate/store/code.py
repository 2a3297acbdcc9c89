"""Digests of source files that comments, docstrings and layout do not change: hashes of their syntax trees.

A file of the package is named by its path in it (model/fusion/sum.py), one of a plugin by its name
(plugin/mine.py), any other by its absolute path. Loads no torch.
"""

import ast
import functools
import hashlib
import json
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ablate.config.rules import ConfigError

PACKAGE = Path(__file__).parent.parent
# Fields of the syntax tree that do not affect what is computed.
UNSAID = ("ctx", "kind", "type_comment", "type_ignores")
PLUGIN = "plugin/"  # prefix of the name of a plugin's file
_plugins: dict[Path, tuple[str, bytes]] = {}  # name and source of each plugin, as it was read


def know(path: Path, name: str, source: bytes) -> None:
    """Register a plugin's file with its name and source, which stay valid even if the file changes."""
    _plugins[path] = f"{PLUGIN}{name}", source
    tree_digest.cache_clear()


def raised(error: BaseException) -> str:
    """The type and message of an error, with the line of the plugin that raised it, if one did."""
    frames = traceback.extract_tb(error.__traceback__)
    known = {str(path): name.removeprefix(PLUGIN) for path, (name, _) in _plugins.items()}
    lines = [
        f" (line {frame.lineno} of {known[frame.filename]})" for frame in frames if frame.filename in known
    ]
    return (f"{type(error).__name__}: {error}".splitlines() or [""])[0] + "".join(lines[-1:])


def is_of_plugin(name: str) -> bool:
    return name.startswith(PLUGIN)


@functools.cache
def tree_digest(name: str) -> str | None:
    """16 hex digits over the syntax tree of a file; None if there is no such file, or it is not valid Python.

    Each file is read once per process, since its module is also imported once.
    """
    of_plugins = {known: source for known, source in _plugins.values()}
    try:
        tree = ast.parse(of_plugins[name] if name in of_plugins else (PACKAGE / name).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    return hashlib.sha256(canonical(tree).encode()).hexdigest()[:16]


def tree_digests(names: Iterable[str]) -> dict[str, str]:
    """The digest of each file, by name. Raises ConfigError for a file that is missing."""
    found = {name: tree_digest(name) for name in names}
    for name, of_file in found.items():
        if of_file is None:
            raise ConfigError(
                f"{PACKAGE / name}: this source file of ablate is missing or damaged; install ablate again"
            )
    return {name: of_file for name, of_file in found.items() if of_file is not None}


def combined(digests: Mapping[str, str]) -> str:
    """12 hex digits over the digests of several files and their names."""
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:12]


def canonical(node: Any) -> str:
    """A syntax tree as text, the same in every version of Python: without empty fields, of which some
    versions have more, and without strings that are statements, such as docstrings."""
    if isinstance(node, ast.JoinedStr):  # Python 3.12 puts empty strings into it, other versions do not
        node.values = [v for v in node.values if not (isinstance(v, ast.Constant) and v.value == "")]
    if isinstance(node, ast.AST):
        fields = [
            f"{field}={canonical(value)}"
            for field, value in ast.iter_fields(node)
            if field not in UNSAID and value is not None and value != []
        ]
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        return f"[{','.join(canonical(entry) for entry in node if not _stands_alone(entry))}]"
    return f"{type(node).__name__} {node!a}"


def with_imports(file: str, folders: Iterable[str]) -> list[str]:
    """The names of a file and of all files that it imports, directly or indirectly, from its own folder and
    from `folders` of the package, sorted.

    file: a path in the package, or an absolute one. If a folder is imported, the imports of its __init__
    count, but not the __init__ itself, unless it is `file`.
    """
    start = PACKAGE / file
    inside = [start.parent, *(PACKAGE / folder for folder in folders)]
    found, waiting = set[Path](), [start]
    while waiting:
        path = waiting.pop()
        if path not in found and any(path.is_relative_to(folder) for folder in inside):
            found.add(path)
            waiting += _imported(path)
    return sorted(_name(path) for path in found if path == start or path.name != "__init__.py")


def _imported(path: Path) -> Iterator[Path]:
    """The files that `path` imports from this package or from its own folder."""
    for node in ast.walk(ast.parse(_plugins[path][1] if path in _plugins else path.read_bytes())):
        if isinstance(node, ast.Import):
            level, modules = 0, [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            level, modules = node.level, [module, *(f"{module}.{alias.name}" for alias in node.names)]
        else:
            continue
        roots = [path.parents[level - 1]] if level else [PACKAGE.parent, path.parent]
        for at in (root.joinpath(*module.split(".")) for module in modules for root in roots):
            yield from filter(Path.is_file, (at.with_suffix(".py"), at / "__init__.py"))


def _name(path: Path) -> str:
    if path in _plugins:
        return _plugins[path][0]
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else path.as_posix()


def _stands_alone(node: Any) -> bool:
    """Whether the node is a statement that consists of a string, such as a docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
