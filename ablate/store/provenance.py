"""The provenance of results: code, versions, machine. Loads no torch.

The digest of a source file is a hash of its syntax tree, so comments, docstrings and layout do not change it.
A file of the package is named by its path in it (model/fusion/sum.py), one of a plugin by its name
(plugin/mine.py), any other by its absolute path.
"""

import ast
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ablate.config.rules import ConfigError
from ablate.config.schema import PARTS
from ablate.store.columns import RESULTS, Status
from ablate.version import __version__

PACKAGE = Path(__file__).parent.parent
# Fields of the syntax tree that do not affect what is computed.
IRRELEVANT = ("ctx", "kind", "type_comment", "type_ignores")
PLUGIN = "plugin/"  # prefix of the name of a plugin's file
_plugins: dict[Path, tuple[str, bytes]] = {}  # name and source of each plugin, as it was read
# The source files that determine the result of every run: a change in one of them makes all runs stale.
CORE = (
    *sorted(
        f"{folder}/{path.name}"
        for folder in ("model", "training")
        for path in (PACKAGE / folder).glob("[!_]*.py")
    ),
    "compute/fastest.py",
    "rng.py",
    *(f"data/{name}.py" for name in ("splits", "examples", "paired", "tokenizers", "tokenized")),
    *(f"data/{name}.py" for name in ("counting", "matches", "measured")),
    *(f"execution/{name}.py" for name in ("run", "formulas", "translate")),
)
# The folders of parts: a change in one of their files makes only the runs stale that use that part.
PART_FOLDERS = tuple(f"model/{kind}" for kind in PARTS)


@functools.cache
def core_code() -> str:
    """12 hex digits over the files of CORE. Raises ConfigError."""
    return combined(tree_digests(CORE))


@functools.cache
def parts_code(*files: str) -> Mapping[str, Any]:
    """The columns about the code of a run's own parts. files: their source files, as paths in the package or
    absolute ones.

    part_files: the digests, by name, of these files and of the files of other parts that they import; parts:
    12 hex digits over all of them.
    """
    names = {name for file in files for name in with_imports(file, PART_FOLDERS)}
    digests = tree_digests(sorted(names))
    return {"parts": combined(digests), "part_files": digests}


def changes(row: Mapping[str, Any]) -> list[str]:
    """What of the code and torch that made this row is another now: for each what it was and is. A plugin
    that is not loaded counts as unchanged."""
    held = [("code", row.get("code"), core_code()), ("torch", row.get("torch"), torch_version())]
    held += [(name, was, tree_digest(name)) for name, was in (row.get("part_files") or {"parts": ""}).items()]
    return [
        f"{what} was {was}, is {now}"
        for what, was, now in held
        if was != now and not (now is None and is_of_plugin(what))
    ]


def status_now(row: Mapping[str, Any]) -> str:
    """The row's status, or `stale` if other code or another torch made the result."""
    return Status.STALE if row["status"] in RESULTS and changes(row) else row["status"]


@functools.cache
def torch_version() -> str:
    return importlib.metadata.version("torch")


@functools.cache
def git_state() -> str:
    """The commit of ablate's own checkout, with `-dirty` if it was changed; empty if it is not a checkout."""
    checkout = PACKAGE.parent
    if not (checkout / ".git").exists():
        return ""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def provenance() -> dict[str, str]:
    """The columns that say which version of the program made a row."""
    return {
        "torch": torch_version(),
        "ablate": __version__,
        "code": core_code(),
        "git": git_state(),
    }


@functools.cache
def machine() -> dict[str, Any]:
    """The facts about machine and packages that environment.json adds, for repeating the run."""
    packages = ("torch", "numpy", "hydra-core", "omegaconf", "pandas", "tokenizers", "safetensors")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
        **provenance(),
    }


def register_plugin(path: Path, name: str, source: bytes) -> None:
    """Register a plugin's file with its name and source, which stay valid even if the file changes."""
    _plugins[path] = f"{PLUGIN}{name}", source
    tree_digest.cache_clear()


def plugin_files() -> dict[str, str]:
    """The name of each plugin, by the path of its file."""
    return {str(path): name.removeprefix(PLUGIN) for path, (name, _) in _plugins.items()}


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
    digests = {}
    for name in names:
        if (digest := tree_digest(name)) is None:
            raise ConfigError(
                f"{PACKAGE / name}: this source file of ablate is missing or damaged; install ablate again"
            )
        digests[name] = digest
    return digests


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
            if field not in IRRELEVANT and value is not None and value != []
        ]
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        return f"[{','.join(canonical(entry) for entry in node if not _stands_alone(entry))}]"
    return f"{type(node).__name__} {node!a}"


def with_imports(file: str, folders: Iterable[str]) -> list[str]:
    """The names of a file and of all files that it imports, directly or indirectly, from its own folder and
    from `folders` of the package, sorted.

    file: a path in the package, or an absolute one. If a folder is imported, the imports of its __init__
    count, but not the __init__ itself, unless it is `file`; so do those of ablate.methods.
    """
    start, public = PACKAGE / file, PACKAGE / "methods.py"
    inside = [start.parent, public, *(PACKAGE / folder for folder in folders)]
    reached, waiting = set[Path](), [start]
    while waiting:
        path = waiting.pop()
        if path not in reached and any(path.is_relative_to(folder) for folder in inside):
            reached.add(path)
            waiting += _imported(path)
    return sorted(
        _name(path) for path in reached if path == start or (path != public and path.name != "__init__.py")
    )


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
