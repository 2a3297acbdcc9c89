"""`ablate check`: whether a user's method fulfils the contract that every method has to."""

from collections import defaultdict
from typing import Annotated

import typer

from ablate.cli.output import say
from ablate.phrases import counted


def check(
    file: Annotated[str, typer.Argument(help="A Python file with methods, such as ablate new writes.")],
) -> None:
    """Test a method of your own: shapes, causality, gradients, seeds, parameter and FLOP counts, and the
    properties that it declares. Exit code 1 if a check fails."""
    from ablate.study.plugins import use
    from ablate.verify.contract import findings

    failed = False
    for method in use([file]):
        found = list(findings(method.kind, method.name))
        for variant in dict.fromkeys(finding.variant for finding in found):
            own = [finding for finding in found if finding.variant == variant]
            broken: defaultdict[str, list[str]] = defaultdict(list)
            for finding in own:
                if finding.broken:
                    broken[finding.broken].append(finding.check)
            lost = sum(map(len, broken.values()))
            held = f"{len(own) - lost} checks of {len(own)}" if lost else f"all {counted(len(own), 'check')}"
            typer.echo(f"{variant}: {held} hold")
            for why, checks in broken.items():
                others = f"; so do {len(checks) - 1} more" if len(checks) > 1 else ""
                say(f"failed: {checks[0]}: {why}{others}")
            failed = failed or bool(broken)
    if failed:
        raise typer.Exit(1)
