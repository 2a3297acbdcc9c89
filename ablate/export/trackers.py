"""Export to a tracker: each run that is new there or has changed, then the study's report. Loads no torch."""

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ablate.config.rules import ConfigError
from ablate.export import manifest
from ablate.export.exporter import ExportedRun, Exporter, exporter, without_passwords
from ablate.export.manifest import Manifest
from ablate.export.runs import Selection, report_of
from ablate.files.owned import scratch
from ablate.phrases import counted, lines_if
from ablate.reporting.html import write_report

DEFAULT = "exports"  # the directory below that of the results
LONGEST = 300  # characters of the message of a tracker
GOES_ON = "; the same command goes on from there"


def export(selection: Selection, target: str, out: str | None) -> tuple[str, list[str]]:
    """Make a place of a tracker hold the chosen runs, each once, as they are in the store; returns a line on
    what it holds now, and remarks.

    target: a name of exporter.targets. out: the value of --out. Raises ConfigError; what was written until
    then counts, and the same command goes on from there.
    """
    default = selection.store.root / DEFAULT
    with _as_one_line(f"--to {target}: can't be used"):
        opened = exporter(target)(out, default / target)
    if opened.directory is not None:
        done = manifest.of_directory(opened.directory, target)
    else:
        done = manifest.of_server(opened.place, target, default)
    became = Counter(_write(opened, done, run, target) for run in selection.chosen)
    no_report = _write_report(opened, done, selection, target) if selection.only is None else ""
    with _as_one_line(f"--to {target}: not finished in {opened.place}", GOES_ON):
        opened.finish([run for run in selection.runs if done.written.get(_key(run))])
    counts = ", ".join(f"{became[kind]} {kind}" for kind in ("new", "changed", "equal") if became[kind])
    left_out = ", ".join(f"{count} {status}" for status, count in selection.left_out.items())
    left = "".join(lines_if(left_out, f"; left out: {left_out}"))
    runs = counted(became.total(), "run")
    view = opened.view(selection.study)
    remarks = lines_if(no_report, f"without a report: {no_report}") + lines_if(view, f"see it: {view}")
    return f"{target}: {runs} of {selection.study} in {opened.place}: {counts}{left}", remarks


def _write(opened: Exporter, done: Manifest, run: ExportedRun, target: str) -> str:
    """Write the run unless the place has it; returns `new`, `changed` or `equal`."""
    with _as_one_line(f"--to {target}: {run.name}: not written to {opened.place}", GOES_ON):
        before = done.written.get(_key(run))
        if before == run.digest and opened.holds(run):
            return "equal"
        opened.write(run)
    done.add(_key(run), run.digest)
    return "new" if before in (None, run.digest) else "changed"


def _write_report(opened: Exporter, done: Manifest, selection: Selection, target: str) -> str:
    """Write the study's report unless the place has it; returns why there is none, or nothing."""
    run = report_of(selection)
    with scratch(Path(tempfile.gettempdir())) as directory:
        if done.written.get(_key(run)) != run.digest or not opened.holds(run):
            try:
                page = write_report(
                    selection.store.study_directory(selection.study), out=directory / "report.html"
                )
            except ConfigError as error:  # nothing to compare
                return str(error)
            run = replace(run, artifacts=[page])
        _write(opened, done, run, target)
    return ""


def _key(run: ExportedRun) -> str:
    return f"{run.study}/{run.id}"


@contextlib.contextmanager
def _as_one_line(what: str, way_out: str = "") -> Iterator[None]:
    """Turn any error of an exporter into a ConfigError."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        line = without_passwords(" ".join(str(error).split())) or type(error).__name__
        raise ConfigError(f"{what} ({line[:LONGEST]}){way_out}") from error
