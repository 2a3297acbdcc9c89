"""Export to Trackio: a project for each study, in a database that its dashboard reads without a server.

Trackio takes its directory from the environment as it is imported, and dates what is logged by the clock.
"""

import contextlib
import io
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from ablate.config.extras import require
from ablate.config.rules import ConfigError
from ablate.export.exporter import ExportedRun, Exporter, safe


class Trackio(Exporter):
    def __init__(self, out: str | None, default: Path) -> None:
        require("--to trackio", "trackio", extra="trackio")
        self.directory = Path(out) if out else default
        self.place, home = str(self.directory), self.directory.resolve()
        os.environ["TRACKIO_DIR"] = str(home)
        self.trackio = import_module("trackio")
        if (taken := import_module("trackio.utils").TRACKIO_DIR) != home:
            raise ConfigError(f"--to trackio: this process has begun to write to {taken}; take another one")

    def write(self, run: ExportedRun) -> None:
        facts = {"run_id": run.id, **run.facts}
        about = {**run.config, **{f"ablate.{key}": text for key, text in facts.items()}}
        for earlier in self._runs(run):
            earlier.delete()
        with contextlib.redirect_stdout(io.StringIO()):  # on which it says where it writes
            quiet = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
            made = self.trackio.init(project=safe(run.study), name=run.safe_name, config=about, **quiet)
            try:
                for point in run.curves:
                    made.log(dict(point.values), step=point.step)
                if run.final:
                    made.log(dict(run.final), step=run.last_step)
                for path in run.artifacts:
                    made.log_artifact(str(path), name=path.stem, type="report", overwrite=True)
            finally:
                self.trackio.finish()  # which waits until all is written

    def holds(self, run: ExportedRun) -> bool:
        return len(self._runs(run)) == 1

    def view(self, study: str) -> str:
        return f"TRACKIO_DIR={self.directory} trackio show --project {safe(study)}"

    def _runs(self, run: ExportedRun) -> list[Any]:
        """What Trackio has of this run."""
        with contextlib.suppress(ValueError):  # no such project yet
            return [one for one in self.trackio.Api().runs(safe(run.study)) if one.name == run.safe_name]
        return []
