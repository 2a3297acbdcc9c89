"""`ablate new`, `ablate check` and `ablate verify`: a method of your own, its contract, and which ways of
combining heads are the same."""

import ast
import dataclasses
import importlib.util
import keyword
import re
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from ablate.cli import completion
from ablate.cli.shared import (
    JsonOption,
    PluginOption,
    RunsOption,
    WideOption,
    print_table,
    put_json,
    say_loading,
    use_plugins,
)
from ablate.config.rules import DEVICE, ConfigError
from ablate.files.owned import create
from ablate.phrases import counted
from ablate.printing import put, say

PACKAGE = Path(__file__).parent.parent
TEMPLATES = PACKAGE / "verify" / "templates"


SEAMS = """\
Which seam does an idea fit? docs/plugins.md has the smallest example of each.

fusion   how heads are combined: sees what each head read, the layer's input, on request the token's values
scores   where heads look, and what they read there: sees queries, keys, values and what is visible
readout  what stands in place of out_proj: sees the fused heads; linear, each token by itself
none     positions, norms, MLPs, sizes, sharing: keys of a config; ablate keys model

ablate new KIND NAME writes a file that works, to change."""


def new(
    kind: Annotated[
        Literal["fusion", "scores", "readout"] | None,
        typer.Argument(help="What it is; without it, what each of them sees is printed.", show_default=False),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(help="Its name in configs; the file will be NAME.py.", show_default=False),
    ] = None,
    builtin: Annotated[
        bool,
        typer.Option("--builtin", help="In a checkout of ablate: begin a method of ablate's there."),
    ] = False,
) -> None:
    """Write a Python file with a working method of your own, for you to change; without arguments, say which
    kind of method an idea is."""
    if kind is None:
        return put(SEAMS)
    if name is None:
        raise typer.BadParameter(f"name it, as: ablate new {kind} mine", param_hint="NAME")
    title = "".join(part.capitalize() for part in name.split("_"))
    words = name, title  # of the file, and of its class
    if not name.isascii() or not all(word.isidentifier() and not keyword.iskeyword(word) for word in words):
        raise ConfigError(
            f"{name}: can't name a file and a class of Python; use another word, of a to z and _"
        )
    if DEVICE.fullmatch(name):
        raise ConfigError(f"{name}: a device on Windows, where no file can have that name; give another")
    if (PACKAGE / "model" / kind / f"{name}.py").exists():
        raise ConfigError(f"{name}: ablate has a {kind} of this name; give yours another")
    template = (TEMPLATES / f"{kind}.py").read_text(encoding="utf-8")
    named = template.replace("MineOptions", f"{title}Options").replace("class Mine(", f"class {title}(")
    named = re.sub(r"\bmine\b", name, named)
    if builtin:
        return _begin_builtin(kind, name, named)
    if importlib.util.find_spec(name):
        raise ConfigError(
            f"{name}: a package of Python has that name, which {name}.py would hide; give another"
        )
    path = Path(f"{name}.py")
    if path.exists():
        raise ConfigError(f"{path}: is there already; give another name, or move it away")
    create(path, named)
    put(f"{path}: it passes; change it, then: ablate check {path}")


def _begin_builtin(kind: str, name: str, text: str) -> None:
    """Write the files of a method of ablate's, from a template that works. Raises ConfigError outside of a
    checkout."""
    from ablate.compose.configs import configs_dir

    if not (PACKAGE.parent / "pyproject.toml").exists():
        raise ConfigError(
            "--builtin: ablate is installed here; take a checkout of it, as pip install -e gives"
        )
    exported = ast.parse((PACKAGE / "methods.py").read_text(encoding="utf-8")).body
    homes = {one.name: f.module or "" for f in exported if isinstance(f, ast.ImportFrom) for one in f.names}
    homes |= dict.fromkeys(("register", kind.capitalize()), f"ablate.model.{kind}.base")
    head, names, body = re.split(r"^from ablate\.methods import (.*)\n", text, flags=re.M)
    imports = defaultdict(list)
    for each in names.split(", "):
        imports[homes[each]].append(each)
    lines = [f"from {home} import {', '.join(of)}\n" for home, of in sorted(imports.items())]
    options, mark, method = body.partition("@register")
    keys = [("name", name), *re.findall(r"^    (\w+): .* = (.*)$", options, re.M)]
    options = re.sub(r"^(    \w+: .*) = .*$", r"\1", options, flags=re.M)  # its defaults are in the YAML
    method = method.replace("ablate.methods.Linear", "ablate.model.layers.Linear")
    source = "".join([head.split('"""\n\n', 1)[1], *lines, options, mark, method])
    files = {PACKAGE / "model" / kind / f"{name}.py": source}
    files[PACKAGE / "model" / kind / f"{name}.svg"] = (TEMPLATES / "new.svg").read_text(encoding="utf-8")
    if kind != "readout":
        files[configs_dir() / kind / f"{name}.yaml"] = "".join(f"{key}: {value}\n" for key, value in keys)
    for path, content in files.items():
        create(path, content)
        put(path)
    put("scripts/check fails until the rest is there, and says what; docs/architecture.md has the list")


def check(
    file: Annotated[str, typer.Argument(help="A Python file with methods, such as ablate new writes.")],
    format: JsonOption = "table",
) -> None:
    """Test a method of your own: shapes, causality, gradients, seeds, parameter and FLOP counts, and the
    properties that it declares. Exit code 1 if a check fails."""
    say_loading()
    from ablate.study.run import use_plugins
    from ablate.verify.contract import check_results

    failed, rows = False, []
    for method in use_plugins([file]):
        results = list(check_results(method.kind, method.name))
        rows += [{"kind": method.kind, "method": method.name, **dataclasses.asdict(each)} for each in results]
        for variant in dict.fromkeys(result.variant for result in results):
            own = [result for result in results if result.variant == variant]
            broken: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
            for result in own:
                if result.broken:
                    broken[result.broken, result.spoils].append(result.check)
            lost = sum(map(len, broken.values()))
            held = f"{len(own) - lost} checks of {len(own)}" if lost else f"all {counted(len(own), 'check')}"
            if format == "table":
                put(f"{variant}: {held} hold")
            for (why, spoiled), checks in broken.items():
                others = f"; so do {len(checks) - 1} more" if len(checks) > 1 else ""
                say(f"failed: {checks[0]}: {why}{others}; so {spoiled}")
            failed = failed or bool(broken)
    if format == "json":
        put_json(rows=rows)
    if failed:
        raise typer.Exit(1)


def verify(
    run: Annotated[
        str | None,
        typer.Option(
            help="Also measure a trained run: how far its heads are from a single head with the same weights,"
            " and how many outputs lie outside the range of the values.",
            autocompletion=completion.runs,
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="N[,N]", help="Check only these equations, by number, name or question (Q1)."),
    ] = None,
    class_: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--class",
            metavar="ONE OTHER",
            help='Instead say whether two configs, as "fusion=sum" "fusion=mean", can represent the same'
            " functions. Exit code 1 if not.",
        ),
    ] = None,
    plugin: PluginOption = None,
    format: JsonOption = "table",
    wide: WideOption = False,
    runs_dir: RunsOption = None,
) -> None:
    """Check the equations that say which ways of combining heads are the same, on ablate's own modules.

    Errors are relative to the largest entry, in float64. An equation passes up to 1e-10; two things that are
    claimed to differ have to differ by 1e-2 or more. Exit code 1 if a check fails.
    """
    say_loading()
    import pandas as pd

    from ablate.verify.identities import QUESTIONS
    from ablate.verify.results import FAIL, of_run
    from ablate.verify.results import verify as verified

    use_plugins(plugin)
    if class_ is not None:
        if only or run:
            raise ConfigError("--class: it compares two configs; leave out --only and --run")
        _compare_classes(*class_, format=format, wide=wide)
        return
    verdicts = verified([name.strip() for name in (only or "").split(",") if name.strip()])
    tables = {"identities": [dataclasses.asdict(verdict) for verdict in verdicts]}
    if run is not None:
        tables["run"] = of_run(run)
    failed = [verdict for verdict in verdicts if verdict.verdict == FAIL]
    if format == "json":
        put_json(**tables)
    else:
        for name, rows in tables.items():
            say(CAPTIONS[name])
            table = pd.DataFrame(rows)
            if name == "identities":
                table["error"] = ["" if e is None or e != e else f"{e:.1e}" for e in table["error"]]
                table = table.drop(columns="crash")
            print_table(table, "table", wide=wide)
            put()
        for question, words in QUESTIONS.items():
            if any(verdict.question == question for verdict in verdicts):
                say(f"{question}: {words}")
    for verdict in failed:
        if verdict.crash:
            say(f"{verdict.name}: {verdict.crash}")
    if failed:
        say(f"{counted(len(failed), 'equation')} failed: {', '.join(verdict.name for verdict in failed)}")
        raise typer.Exit(1)


def _compare_classes(one: str, other: str, *, format: str, wide: bool) -> None:
    """Print whether both are of one class. Raises ConfigError; exit code 1 if they are not."""
    import pandas as pd

    from ablate.verify.classes import DEFAULTS, same_class
    from ablate.verify.results import EQUAL

    result = same_class(one, other)
    ours, theirs = result.classes
    folded = [{"fold": way, "largest difference": f"{error:.1e}"} for way, error in result.errors.items()]
    if format == "json":
        put_json(**dataclasses.asdict(result))
    elif result.same:
        say(f"one class ({'; '.join(dict.fromkeys(ours.values()))}), in float64:")
        print_table(pd.DataFrame(folded), "table", wide=wide)
    else:
        say(f"two classes; the nearest neighbour of {one or DEFAULTS} that differs: {result.neighbour}")
        rows = [{"of": n, one or DEFAULTS: ours[n], result.neighbour: theirs[n]} for n in ours]
        print_table(pd.DataFrame(rows), "table", wide=wide)
        if result.errors:
            say("as close as weights of one come to random weights of the other, in float64:")
            print_table(pd.DataFrame(folded), "table", wide=wide)
    is_off = result.same and max(result.errors.values()) > EQUAL
    if is_off:
        say("the texts of both are equal, and the folds are not: what a method claims is false; ablate check")
    if is_off or not result.same:
        raise typer.Exit(1)


CAPTIONS = {
    "identities": "equations, in float64: the error relative to the largest entry",
    "run": "the relative change if the same weights make one head, and the share of outputs outside the range"
    " of the values",
}
