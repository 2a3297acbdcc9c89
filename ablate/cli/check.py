"""`ablate check`: whether a method of one's own does what every method must."""

from typing import Annotated

import typer

from ablate.cli.output import say
from ablate.phrases import counted


def check(
    file: Annotated[str, typer.Argument(help="A Python file with methods, as ablate new writes.")],
) -> None:
    """Try a method of your own: shapes, the future, gradients, seeds, parameters and FLOPs, and what it says
    of itself. Exit code 1 if it fails."""
    from ablate.study.plugins import use
    from ablate.verify.contract import findings

    failed = 0
    for method in use([file]):
        found = list(findings(method.kind, method.name))
        for variant in dict.fromkeys(finding.variant for finding in found):
            own = [finding for finding in found if finding.variant == variant]
            broken = [finding for finding in own if finding.broken]
            held = counted(len(own) - len(broken), "check")
            typer.echo(f"{variant}: {held} of {len(own)} hold" if broken else f"{variant}: all {held} hold")
            for finding in broken:
                say(f"failed: {finding.check}: {finding.broken}")
            failed += len(broken)
    if failed:
        raise typer.Exit(1)
