"""Export to TensorBoard: event files written with its protocol buffers, without TensorFlow or torch.

OUT/STUDY/                        the HParams tab's summary of the study
OUT/STUDY/NAME-OF-RUN/            one run: its settings, its scalars, and what made it as a text
OUT/STUDY/report/report.html      the report, a file beside them, as TensorBoard shows no pages
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from ablate.config.extras import require
from ablate.export.exporter import ExportedRun, Exporter, Plain, safe
from ablate.files import owned

WRITTEN = owned.Mark(r".+-[0-9a-f]{8}|report")  # the directory of a run, or of the report
EVENTS = "events.out.tfevents.{}.ablate"  # the name of a file, with the time
MOST_VALUES = 50  # of a setting whose values the HParams tab lists to choose from


class TensorBoard(Exporter):
    def __init__(self, out: str | None, default: Path) -> None:
        require("--to tensorboard", "tensorboard", extra="tensorboard")
        self.api = import_module("tensorboard.plugins.hparams.api_pb2")
        self.hparams = import_module("tensorboard.plugins.hparams.summary_v2")
        self.plugin_data = import_module("tensorboard.plugins.hparams.plugin_data_pb2")
        self.metadata = import_module("tensorboard.plugins.hparams.metadata")
        self.text = import_module("tensorboard.plugins.text.summary_v2")
        self.event = import_module("tensorboard.compat.proto.event_pb2")
        self.summary = import_module("tensorboard.compat.proto.summary_pb2")
        self.records = import_module("tensorboard.summary.writer.record_writer")
        self.root = self.directory = Path(out) if out else default
        self.place = str(self.root)

    def write(self, run: ExportedRun) -> None:
        study = self._study(run)
        study.mkdir(parents=True, exist_ok=True)
        for left in self.root.glob(f"{owned.PART}*"):
            owned.drop(left)
        with owned.scratch(self.root) as part:
            (new := part / "new").mkdir()
            for path in run.artifacts:
                owned.create(new / path.name, path.read_bytes())
            if not run.is_report:
                self._write_events(new, run.started, self._events(run))
            for earlier in self._directories(run):
                with suppress(FileNotFoundError):
                    owned.take_away(earlier, part, WRITTEN)
            assert owned.rename_onto_free(new, study / run.safe_name), "earlier ones were just taken away"

    def holds(self, run: ExportedRun) -> bool:
        return any(self._directories(run))

    def view(self, study: str) -> str:
        return f"tensorboard --logdir {self.root / safe(study)}"

    def finish(self, runs: Sequence[ExportedRun]) -> None:
        """Write the summary of the HParams tab: which settings and results there are, and which values each
        setting has."""
        values: dict[str, list[Plain]] = {}
        for key, value in itertools.chain.from_iterable(run.config.items() for run in runs):
            values.setdefault(key, []).append(value)
        given = {key: [v for v in of_runs if v is not None] for key, of_runs in values.items()}
        keys = [self._hparam(key, values) for key, values in given.items() if values]
        names = dict.fromkeys(name for run in runs for name in run.metrics if name != "tokens")
        began = min(run.started for run in runs)
        summary = self.hparams.hparams_config_pb(keys, [*map(self.hparams.Metric, names)], began)
        study = self._study(runs[0])
        with owned.scratch(self.root) as new:
            file = self._write_events(new, began, [(0, began, summary)])
            owned.move_file(file, study / file.name)
        for earlier in study.glob(EVENTS.format("*")):
            if earlier.name != file.name:
                owned.delete(earlier)

    def _study(self, run: ExportedRun) -> Path:
        return self.root / safe(run.study)

    def _directories(self, run: ExportedRun) -> Iterator[Path]:
        """The directories of this run, by the id that ends their names: the rest of a name may change."""
        end = run.safe_name if run.is_report else run.id[:8]
        return (path for path in self._study(run).glob(f"*{end}") if WRITTEN.is_on(path))

    def _events(self, run: ExportedRun) -> Iterator[tuple[int, float, Any]]:
        """The events as (step, time, summary)."""
        settings = {key: value for key, value in run.config.items() if value is not None}
        yield 0, run.started, self.hparams.hparams_pb(settings, run.id, run.started)
        lines = [f"| {key} | {value} |".replace("\n", " ") for key, value in run.facts.items()]
        yield 0, run.started, self.text.text_pb("about", "\n".join(["| | |", "| --- | --- |", *lines]))
        for point in run.curves:
            yield point.step, point.time, self._scalars(point.values)
        yield run.last_step, run.ended, self._scalars(run.final)
        status = self.api.STATUS_SUCCESS if run.status == "done" else self.api.STATUS_FAILURE
        end = self.plugin_data.SessionEndInfo(status=status, end_time_secs=run.ended)
        yield run.last_step, run.ended, self._ended(end)

    def _scalars(self, values: Any) -> Any:
        """TensorBoard keeps scalars in float32."""
        each = [self.summary.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        return self.summary.Summary(value=each)

    def _ended(self, end: Any) -> Any:
        data = self.plugin_data.HParamsPluginData(session_end_info=end)
        about, tag = self.metadata.create_summary_metadata(data), self.metadata.SESSION_END_INFO_TAG
        value = self.summary.Summary.Value(tag=tag, metadata=about, tensor=self.metadata.NULL_TENSOR)
        return self.summary.Summary(value=[value])

    def _hparam(self, key: str, values: Sequence[Any]) -> Any:
        """A setting with its type and, if they are few, its values."""
        kinds = {type(value) for value in values}
        kind = bool if kinds == {bool} else float if kinds <= {int, float} else str
        distinct: list[Any] = sorted({kind(value) for value in values})
        if len(distinct) > MOST_VALUES and kind is float:
            return self.hparams.HParam(key, self.hparams.RealInterval(distinct[0], distinct[-1]))
        return self.hparams.HParam(key, self.hparams.Discrete(distinct, dtype=kind))

    def _write_events(self, directory: Path, time: float, events: Any) -> Path:
        """Write an event file and return its path. Equal events make equal bytes."""
        path = directory / EVENTS.format(f"{time:.0f}")
        with path.open("xb") as file:
            writer = self.records.RecordWriter(file)
            writer.write(self.event.Event(wall_time=time, file_version="brain.Event:2").SerializeToString())
            for step, at, summary in events:
                event = self.event.Event(step=step, wall_time=at, summary=summary)
                writer.write(event.SerializeToString())
            writer.close()
        return path
