"""The provenance of results: the version of what is computed, plugins, packages, machine. Loads no torch.

Results of another version of the numerics, of another torch, or of a plugin that has changed since are stale.
The digest of a plugin's file is a hash of its syntax tree, so comments, docstrings and layout do not change
it. It is named by its name (plugin/mine.py), another file that it imports by its absolute path.
"""

import ast
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ablate.config.rules import ConfigError
from ablate.numerics import NUMERICS
from ablate.store.columns import RESULTS, Status
from ablate.version import __version__

PACKAGE = Path(__file__).parent.parent
# Fields of the syntax tree that do not affect what is computed.
IRRELEVANT = ("ctx", "kind", "type_comment", "type_ignores")
PLUGIN = "plugin/"  # prefix of the name of a plugin's file
_plugins: dict[Path, tuple[str, bytes]] = {}  # name and source of each plugin, as it was read


@functools.cache
def code() -> str:
    """12 hex digits over all files of the package. They tell one copy of it from another, and make no result
    stale."""
    files = sorted(PACKAGE.rglob("*.py"))
    return combined({path.relative_to(PACKAGE).as_posix(): hashed(path.read_bytes()) for path in files})


@functools.cache
def parts_code(*files: str) -> Mapping[str, Any]:
    """The columns about the code of a run's methods that are not ablate's own. files: the source files of
    its methods.

    part_files: the digests, by name, of these files and of those that they import from their own folders;
    parts: 12 hex digits over all of them, None without any. Raises ConfigError.
    """
    names = {name for file in files if not _is_own(Path(file)) for name in with_imports(Path(file))}
    digests = {name: tree_digest(name) for name in sorted(names)}
    return {"parts": combined(digests) if digests else None, "part_files": digests}


def changes(row: Mapping[str, Any]) -> list[str]:
    """What made this row and is another now, so that it may compute something else: for each what it was and
    is. A plugin that is not loaded counts as unchanged."""
    held = [("numerics", row.get("numerics"), NUMERICS), ("torch", row.get("torch"), torch_version())]
    held += [(name, was, tree_digest(name)) for name, was in (row.get("part_files") or {}).items()]
    return [
        f"{what} was {was}, is {now}"
        for what, was, now in held
        if was != now and not (now is None and is_of_plugin(what))
    ]


def changes_in_code(row: Mapping[str, Any]) -> list[str]:
    """As `changes`, and any other difference of this copy of the program, as a run that goes on is to be made
    by one alone."""
    now = code()
    return [*changes(row), *([] if row.get("code") == now else [f"code was {row.get('code')}, is {now}"])]


def status_now(row: Mapping[str, Any]) -> str:
    """The row's status, or `stale` if it does not count any more (`changes`)."""
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


def provenance() -> dict[str, Any]:
    """The columns that say which version of the program made a row."""
    return {
        "torch": torch_version(),
        "ablate": __version__,
        "numerics": NUMERICS,
        "code": code(),
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
        tree = ast.parse(of_plugins[name] if name in of_plugins else Path(name).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    return hashed(canonical(tree).encode())


def hashed(data: bytes) -> str:
    """16 hex digits of SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]


def combined(digests: Mapping[str, str | None]) -> str:
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


def with_imports(file: Path) -> list[str]:
    """The names of a plugin's file and of all files that it imports, directly or indirectly, from its own
    folder, sorted. If a folder is imported, the imports of its __init__ count, but not the __init__ itself,
    unless it is `file`."""
    reached, waiting = set[Path](), [file]
    while waiting:
        path = waiting.pop()
        if path not in reached and path.is_relative_to(file.parent) and not _is_own(path):
            reached.add(path)
            waiting += _imported(path)
    return sorted(_name(path) for path in reached if path == file or path.name != "__init__.py")


def _imported(path: Path) -> Iterator[Path]:
    """The files that `path` imports from its own folder, or from those above it. Raises ConfigError."""
    try:
        tree = ast.parse(_plugins[path][1] if path in _plugins else path.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(f"{_name(path)}: can't be read as Python; correct or restore it") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            level, modules = 0, [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            level, modules = node.level, [module, *(f"{module}.{alias.name}" for alias in node.names)]
        else:
            continue
        root = path.parents[level - 1] if level else path.parent
        for at in (root.joinpath(*module.split(".")) for module in modules):
            yield from filter(Path.is_file, (at.with_suffix(".py"), at / "__init__.py"))


def _is_own(path: Path) -> bool:
    return path.is_relative_to(PACKAGE)


def _name(path: Path) -> str:
    return _plugins[path][0] if path in _plugins else path.as_posix()


def _stands_alone(node: Any) -> bool:
    """Whether the node is a statement that consists of a string, such as a docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
