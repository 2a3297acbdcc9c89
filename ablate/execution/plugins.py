"""Methods of one's own: a Python file named on the command line.

Their code is read once, when the command begins; every worker executes what was read then, and each run keeps
a copy. No code is ever executed because a config or a run names it.
"""

import dataclasses
import inspect
import os
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablate.config.read import require_text
from ablate.config.rules import ConfigError
from ablate.model import fusion, scores
from ablate.model.spec import AttentionSpec
from ablate.phrases import error_line, first_few
from ablate.store import provenance
from ablate.store.provenance import Plugin

KINDS = {"fusion": fusion, "scores": scores}


@dataclass(frozen=True)
class Method:
    """A method, with the group that chooses it. defaults: of its options, if a plugin registered it."""

    kind: str
    name: str
    defaults: Mapping[str, Any] = field(default_factory=dict)


_methods: dict[str, list[Method]] = {}  # by path of the plugin


def read(path: Path) -> Plugin:
    """Raises ConfigError."""
    try:
        require_text(f"--plugin {path.name}")
        return Plugin(str(path.absolute()), path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; name a Python file") from error


def methods(plugins: Iterable[Plugin]) -> list[Method]:
    """The methods that these plugins registered."""
    return [method for plugin in plugins for method in _methods[plugin.path]]


def used() -> tuple[Plugin, ...]:
    """The plugins in use, which every process that trains runs of this command has to `install`."""
    return tuple(provenance.plugins.values())


def words() -> list[str]:
    """The options that name the files in use, as they would be typed here again."""
    return [word for file in provenance.plugins for word in ("--plugin", os.path.relpath(file))]


def install(plugins: Sequence[Plugin]) -> None:
    """Execute the plugins that are new or have changed, as happens in a notebook, and register their methods.
    Raises ConfigError."""
    for plugin in plugins:
        if provenance.plugins.get(plugin.path) == plugin:
            continue
        for other in provenance.plugins.values():  # a run keeps copies of both in its directory
            if other.path != plugin.path and other.name.casefold() == plugin.name.casefold():
                raise ConfigError(
                    f"--plugin {plugin.path}: another plugin is called {other.name}; rename one of them"
                )
        for method in _methods.pop(plugin.path, []):
            KINDS[method.kind].forget([method.name])
        provenance.plugins[plugin.path] = plugin  # from here on errors name it
        _methods[plugin.path] = _registered(plugin)


def copies(attention: AttentionSpec) -> dict[str, bytes]:
    """The source that a run keeps of its plugins, by the name of the file."""
    plugins = (provenance.plugins.get(inspect.getfile(method)) for method, _ in attention.parts)
    return {Path(plugin.path).name: plugin.source for plugin in plugins if plugin}


def _registered(plugin: Plugin) -> list[Method]:
    """Execute a plugin and return its methods; if that fails, none of them stays registered."""
    before = {kind: {*folder.methods()} for kind, folder in KINDS.items()}
    try:
        _execute(plugin)
        added = [
            (kind, name) for kind, folder in KINDS.items() for name in {*folder.methods()} - before[kind]
        ]
        if not added:
            raise ConfigError(
                'it registers no method; write @register("NAME") above a class, as ablate new does'
            )
        return [Method(*each, _defaults(*each, KINDS[each[0]].methods()[each[1]])) for each in sorted(added)]
    except ConfigError as error:
        del provenance.plugins[plugin.path]
        for kind, folder in KINDS.items():
            folder.forget({*folder.methods()} - before[kind])
        raise ConfigError(f"{plugin.name}: {error}") from error


def _execute(plugin: Plugin) -> None:
    """Raises ConfigError. A file may import what lies beside it."""
    folder = str(Path(plugin.path).parent)
    is_new = folder not in sys.path
    try:
        module = types.ModuleType(f"ablate_plugin_{Path(plugin.path).stem}")
        module.__file__ = plugin.path
        if is_new:
            sys.path.append(folder)
        sys.modules[module.__name__] = module  # dataclasses look up the types of their fields there
        exec(compile(plugin.source, plugin.path, "exec"), module.__dict__)
    except ConfigError:
        raise
    except SyntaxError as error:
        line = f"line {error.lineno}: " if error.lineno else ""
        raise ConfigError(f"{line}no Python ({error.msg}); correct it") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"it raises {error_line(error, provenance.plugin_files())}; mend that") from error
    finally:
        if is_new and folder in sys.path:
            sys.path.remove(folder)


def _defaults(kind: str, name: str, method: Any) -> dict[str, Any]:
    """The defaults of a method's options. Raises ConfigError if the method could not be chosen or built."""
    if inspect.isabstract(method):
        raise ConfigError(f"{kind}={name} lacks {first_few(sorted(method.__abstractmethods__))}; define it")
    if not dataclasses.is_dataclass(method.Options):
        raise ConfigError(
            f"{kind}={name}: its Options are no dataclass; write @dataclass(frozen=True, kw_only=True)"
        )
    defaults = {option.name: option.default for option in dataclasses.fields(method.Options)}
    for option, default in defaults.items():
        if default is dataclasses.MISSING:
            raise ConfigError(f"{kind}={name}: its option {option} has no default; write one in its Options")
    return defaults
