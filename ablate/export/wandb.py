"""Export to Weights & Biases: a group for each study, in it a run for each run, and one with the report.

With WANDB_MODE=offline it needs neither account nor network: `wandb sync` uploads later what lies in
OUT/wandb. W&B never gives the id of a deleted run again, so an id ends in the digest of what was written.
"""

import glob
import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from ablate.config.extras import require
from ablate.config.rules import ConfigError
from ablate.export.exporter import ExportedRun, Exporter, safe
from ablate.files.owned import Mark, remove_tree, until_exit

PROJECT = "ablate"
WRITTEN = Mark(r"(offline-)?run-.{8}_.{6}-.+-[0-9a-f]{8}")
PATIENCE_S = 30  # for a server that does not answer


class Wandb(Exporter):
    def __init__(self, out: str | None, default: Path) -> None:
        require("--to wandb", "wandb", extra="wandb")
        self.wandb = import_module("wandb")
        self.mode = os.environ.get("WANDB_MODE", "online")
        if self.mode not in ("online", "offline"):
            raise ConfigError(f"WANDB_MODE={self.mode}: nothing would be written; set online or offline")
        if out and not self.is_offline:
            raise ConfigError(f"--out {out}: a server is written to; with WANDB_MODE=offline a directory is")
        if self.is_offline:
            self.logs = self.directory = Path(out) if out else default
        else:
            self.logs = until_exit()  # what is sent needs no copy here
        self.project = os.environ.get("WANDB_PROJECT", PROJECT)
        server = [os.environ.get("WANDB_BASE_URL", "wandb.ai"), os.environ.get("WANDB_ENTITY", "")]
        self.place = str(self.logs) if self.is_offline else "/".join([*filter(None, server), self.project])

    @property
    def is_offline(self) -> bool:
        return self.mode == "offline"

    def write(self, run: ExportedRun) -> None:
        id = f"{_id(run)}-{run.digest[:8]}"
        for interrupted in self._directories(run):
            if interrupted.name.endswith(id):  # in the same second the new one has the same name
                remove_tree(interrupted, WRITTEN)
        made = self._begin(
            project=self.project,
            group=run.study,
            job_type="report" if run.is_report else "train",
            id=id,
            name=run.name,
            config={**run.config, **{f"ablate.{key}": text for key, text in run.facts.items()}},
        )
        failed = True  # also if an error ends it here
        try:
            self._log(made, run)
            failed = run.status != "done"
        finally:
            made.finish(exit_code=int(failed))
        if not self.is_offline:
            self._confirm(run, made.path)
        for earlier in self._directories(run):
            if not earlier.name.endswith(id):
                remove_tree(earlier, WRITTEN)

    def _log(self, made: Any, run: ExportedRun) -> None:
        for point in run.curves:
            # commit, as a last step that is written at the end would replace the final values
            made.log({**point.values, "_timestamp": point.time}, step=point.step, commit=True)
        made.summary.update(dict(run.metrics))
        if run.artifacts:
            artifact = self.wandb.Artifact(f"{run.study}-{run.name}", "report")
            for path in run.artifacts:
                artifact.add_file(str(path))
            made.log_artifact(artifact)

    def view(self, study: str) -> str:
        return f"wandb sync {self.logs}/wandb/offline-run-*-{safe(study)}-*" if self.is_offline else ""

    def holds(self, run: ExportedRun) -> bool:
        return not self.is_offline or len([*self._directories(run)]) == 1

    def _begin(self, **about: Any) -> Any:
        """A new run of W&B, without what it would note of this process. Raises ConfigError."""
        settings = self.wandb.Settings(
            silent=True,
            console="off",
            init_timeout=PATIENCE_S,
            finish_timeout=10 * PATIENCE_S,
            finish_timeout_raises=True,
            disable_git=True,
            disable_code=True,
            x_disable_stats=True,
            x_disable_meta=True,
            x_save_requirements=False,  # which takes longer than all the rest
        )
        mode: Any = {"dir": self.logs, "mode": self.mode, "reinit": "create_new"}
        try:
            return self.wandb.init(**about, **mode, settings=settings)
        except self.wandb.Error as error:
            line = str(error).splitlines()[0].rstrip(".")
            raise ConfigError(
                f"--to wandb: {self.place}: {line}; with WANDB_MODE=offline it needs no server"
            ) from error

    def _directories(self, run: ExportedRun) -> Iterator[Path]:
        """The directories of this run, whatever was written."""
        pattern = f"wandb/*run-????????_??????-{glob.escape(_id(run))}-{'[0-9a-f]' * 8}"
        return self.logs.glob(pattern)

    def _confirm(self, run: ExportedRun, path: str) -> None:
        """Ask the server for the run, and delete earlier ones of it. path: ENTITY/PROJECT/ID."""
        project, _, made = path.rpartition("/")
        of_it = {"name": {"$regex": f"^{re.escape(_id(run))}-[0-9a-f]{{8}}$"}}  # `name` is what W&B calls ids
        there = [*self.wandb.Api(timeout=PATIENCE_S).runs(project, filters=of_it)]
        if made not in [one.id for one in there]:
            raise ConfigError(f"W&B does not show {path} after it was written")
        for earlier in (one for one in there if one.id != made):
            earlier.delete()


def _id(run: ExportedRun) -> str:
    """What the ids of this run begin with; a run may be in several studies."""
    return f"{safe(run.study)}-{run.id}"
