"""Export to MLflow: an experiment for each study, in it a run for each run, and one with the report.

A run is logged anew and the earlier one deleted, as MLflow refuses to change a parameter.
"""

import http.client
import logging
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ablate.config.extras import require
from ablate.config.rules import ConfigError
from ablate.export.exporter import ExportedRun, Exporter, without_passwords

URI = "MLFLOW_TRACKING_URI"
PATIENCE_S = 10  # for the first answer of a server
# MLflow itself waits for minutes for a server that stops to answer.
PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "60", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
ID, STUDY = "ablate.run_id", "ablate.study"
MOST_VALUES, MOST_PARAMS, LONGEST = 1000, 100, 6000  # of a request, and of a parameter in characters
UNFIT = re.compile(r"[^/\w.\- :]")  # in the name of a parameter or metric


class Mlflow(Exporter):
    def __init__(self, out: str | None, default: Path) -> None:
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        require("--to mlflow", "mlflow", extra="mlflow")
        tracking, self.entities = import_module("mlflow.tracking"), import_module("mlflow.entities")
        logging.getLogger("mlflow").setLevel(logging.ERROR)
        logging.getLogger("alembic").setLevel(logging.ERROR)
        uri = out if out and "://" in out else None if out else os.environ.get(URI)
        if not uri:
            for needed in ("sqlalchemy", "alembic"):
                require("--to mlflow", needed, extra="mlflow")
            self.directory = Path(out) if out else default
            uri = f"sqlite:///{self.directory.absolute().as_posix()}/mlflow.db"
        self.place = str(self.directory or without_passwords(uri))
        if uri.startswith("http"):
            _require_answer(uri, self.place)
        self.uri, self._tracking = uri, tracking
        self._known: dict[str, tuple[str, dict[str, list[str]]]] = {}

    @cached_property
    def client(self) -> Any:
        """Made at its first use, when the directory exists."""
        return self._tracking.MlflowClient(tracking_uri=self.uri)

    def write(self, run: ExportedRun) -> None:
        experiment, known = self._experiment(run.study)
        tags = {ID: run.id, STUDY: run.study, **{f"ablate.{key}": text for key, text in run.facts.items()}}
        made = self.client.create_run(experiment, _ms(run.started), tags, run.name)
        new = made.info.run_id
        earlier, known[run.id] = known.get(run.id, []), [*known.get(run.id, []), new]
        params = [
            self.entities.Param(UNFIT.sub("_", key), str(value)[:LONGEST])
            for key, value in run.config.items()
            if value is not None
        ]
        for part in _parts(params, MOST_PARAMS):
            self.client.log_batch(new, params=part)
        for part in _parts([*self._values(run)], MOST_VALUES):
            self.client.log_batch(new, metrics=part)
        for path in run.artifacts:
            self.client.log_artifact(new, str(path))
        self.client.set_terminated(new, "FINISHED" if run.status == "done" else "FAILED", _ms(run.ended))
        for old in earlier:
            self.client.delete_run(old)
        known[run.id] = [new]

    def view(self, study: str) -> str:
        return f"mlflow ui --backend-store-uri {self.uri}" if self.directory else ""

    def holds(self, run: ExportedRun) -> bool:
        return len(self._experiment(run.study)[1].get(run.id, [])) == 1

    def _values(self, run: ExportedRun) -> Iterator[Any]:
        for point in run.curves:
            for name, value in point.values.items():
                yield self.entities.Metric(UNFIT.sub("_", name), value, _ms(point.time), point.step)
        for name, value in run.final.items():  # of two values at a step, the later is the metric
            yield self.entities.Metric(UNFIT.sub("_", name), value, _ms(run.ended) + 1, run.last_step)

    def _experiment(self, study: str) -> tuple[str, dict[str, list[str]]]:
        """The id of the study's experiment, which is made if there is none, and in it the runs that this
        program made, interrupted ones too, by run_id."""
        if study not in self._known:
            experiment = self.client.get_experiment_by_name(study)
            if experiment is not None and experiment.lifecycle_stage == "deleted":
                self.client.restore_experiment(experiment.experiment_id)
            number = experiment.experiment_id if experiment is not None else self._new_experiment(study)
            known: dict[str, list[str]] = {}
            token = None
            while True:
                page = self.client.search_runs([number], max_results=1000, page_token=token)
                for run in page:
                    if run.data.tags.get(STUDY) == study and ID in run.data.tags:
                        known.setdefault(run.data.tags[ID], []).append(run.info.run_id)
                if not (token := page.token):
                    break
            self._known[study] = number, known
        return self._known[study]

    def _new_experiment(self, study: str) -> str:
        place = (self.directory / "artifacts").absolute().as_uri() if self.directory else None
        return self.client.create_experiment(study, artifact_location=place)


def _parts(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    return (items[at : at + size] for at in range(0, len(items), size))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _require_answer(uri: str, place: str) -> None:
    """Raises ConfigError if no server answers. place: the URI as it may be printed."""
    parts = urlsplit(uri)
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    try:
        urllib.request.urlopen(bare, timeout=PATIENCE_S).close()
    except urllib.error.HTTPError:
        return  # an answer
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = str(getattr(error, "reason", error)).strip() or type(error).__name__
        raise ConfigError(
            f"--to mlflow: {place} does not answer ({reason}); start it, or leave out --out and {URI} to"
            " write to a directory"
        ) from error
