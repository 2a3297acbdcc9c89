"""`ablate check` and `ablate verify`: the contract of a method of your own, and which ways of combining heads
are the same."""

import dataclasses
import re
from collections import defaultdict
from typing import Annotated

import typer

from ablate.cli.shared import (
    JsonOption,
    PluginOption,
    print_table,
    put_json,
    say_loading,
    separated,
    use_plugins,
)
from ablate.config.rules import ConfigError
from ablate.phrases import counted
from ablate.printing import put, say


def check(
    file: Annotated[str, typer.Argument(help="A Python file with methods, such as ablate new writes.")],
    format: JsonOption = "table",
) -> None:
    """Test a method of your own: shapes, causality, gradients, and more.

    Also seeds, parameter and FLOP counts, and the properties that it declares. Exit code 1 if a check fails.
    """
    say_loading()
    from ablate.study.run import use_plugins
    from ablate.verify.contract import CheckResult, check_results

    failed, rows = False, []
    for method in use_plugins([file]):
        results = list(check_results(method.kind, method.name))
        rows += [{"kind": method.kind, "method": method.name, **dataclasses.asdict(each)} for each in results]
        for variant in dict.fromkeys(result.variant for result in results):
            own = [result for result in results if result.variant == variant]
            broken: defaultdict[tuple[str, str], list[CheckResult]] = defaultdict(list)
            for result in own:
                if result.broken:  # a product of wrong shapes fails many checks, in other sizes
                    broken[re.sub(r"\d+", "", result.broken), result.spoils].append(result)
            lost = sum(map(len, broken.values()))
            held = f"{len(own) - lost} checks of {len(own)}" if lost else f"all {counted(len(own), 'check')}"
            if format == "table":
                put(f"{variant}: {held} hold")
            for (_, spoiled), (first, *more) in broken.items():
                others = f"; so do {len(more)} more" if more else ""
                say(f"failed: {first.check}: {first.broken}{others}; so {spoiled}")
            failed = failed or bool(broken)
    if format == "json":
        put_json(rows=rows)
    if failed:
        raise typer.Exit(1)


def verify(
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
) -> None:
    """Check the equations that say which combinations are the same.

    They are computed with ablate's own modules, in float64. Errors are relative to the largest entry. An
    equation passes up to 1e-10; two things that are claimed to differ have to differ by 1e-2 or more. Exit
    code 1 if a check fails.
    """
    say_loading()
    import pandas as pd

    from ablate.verify.results import DIFFERENT, EQUAL, FAIL
    from ablate.verify.results import verify as verified

    use_plugins(plugin)
    if class_ is not None:
        if only:
            raise ConfigError("--class: it compares two configs; leave --only out")
        _compare_classes(*class_, format=format)
        return
    verdicts = verified(separated(only))
    rows = [dataclasses.asdict(verdict) for verdict in verdicts]
    failed = [verdict for verdict in verdicts if verdict.verdict == FAIL]
    if format == "json":
        put_json(identities=rows)
    else:
        say("equations, in float64: the difference of both sides, relative to the largest entry")
        table = pd.DataFrame(rows).drop(columns="crash").rename(columns={"error": "difference"})
        bounds = [DIFFERENT if " not" in verdict.name else EQUAL for verdict in verdicts]
        table["difference"] = [
            "" if of.error is None else f"{of.error:.1e} {'>' if of.error > bound else '≤'} {bound:.0e}"
            for of, bound in zip(verdicts, bounds, strict=True)
        ]
        print_table(table, "table")
    for verdict in failed:
        if verdict.crash:
            say(f"{verdict.name}: {verdict.crash}")
    if failed:
        say(f"{counted(len(failed), 'equation')} failed: {', '.join(verdict.name for verdict in failed)}")
        raise typer.Exit(1)


def _compare_classes(one: str, other: str, *, format: str) -> None:
    """Print whether both are of one class. Raises ConfigError; exit code 1 if they are not."""
    import pandas as pd

    from ablate.verify.classes import DEFAULTS, inclusion, same_class
    from ablate.verify.results import EQUAL

    ours, theirs, errors = same_class(one, other)
    is_same = ours == theirs
    if format == "json":
        put_json(same=is_same, classes=(ours, theirs), errors=errors)
    elif is_same:
        say(f"one class ({'; '.join(dict.fromkeys(ours.values()))}), in float64:")
        rows = [{"fold": way, "largest difference": f"{error:.1e}"} for way, error in errors.items()]
        print_table(pd.DataFrame(rows), "table")
    else:
        say("two classes:")
        rows = [{"of": n, one or DEFAULTS: ours[n], other or DEFAULTS: theirs[n]} for n in ours]
        print_table(pd.DataFrame(rows), "table")
        put(inclusion(one, other, errors))
    if is_off := is_same and max(errors.values()) > EQUAL:
        say("the texts of both are equal, and the folds are not: what a method claims is false; ablate check")
    if is_off or not is_same:
        raise typer.Exit(1)
