"""The subject of a report: where its rows come from (a study, a store, a CSV file, or a DataFrame), and the
commands that reproduce its runs, with every key that affects a result. Loads no torch."""

import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from ablate.analysis.load import load, recall
from ablate.analysis.select import as_texts
from ablate.config.conditions import column_for
from ablate.config.overrides import as_value, flatten
from ablate.config.rules import typed
from ablate.config.schema import PARTS
from ablate.phrases import lines_if
from ablate.store.provenance import PLUGIN, is_of_plugin
from ablate.store.record import StudyRecord, keys_of_arms
from ablate.store.run_files import read_started
from ablate.store.store import Store

# The record for rows that belong to no known study.
NO_STUDY = StudyRecord(name="", kind="", factors={}, fixed={}, seeds=[], runs=[])


@dataclass(frozen=True)
class Subject:
    """The subject of a report. rows: one per run. is_whole: whether these are all rows, not a user's
    selection. record: of the study, or NO_STUDY. store: where the runs are, if known. page: the default
    path of the report. notes: lines on doubtful rows."""

    name: str
    rows: pd.DataFrame
    is_whole: bool
    record: StudyRecord
    store: Store | None
    page: Path
    notes: list[str]

    @cached_property
    def directories(self) -> dict[str, Path]:
        """The directories of the finished runs among the rows, by run_id."""
        return self.store.directories(self.rows["run_id"].dropna()) if self.store else {}


def find(target: str | Path | pd.DataFrame, metric: str | None = None) -> Subject:
    """The subject that a target names: a study by name or directory, a store, a CSV file, or rows from
    ablate.load or ablate.run. metric: as for load. Raises ConfigError."""
    is_whole = not isinstance(target, pd.DataFrame)
    results = load([str(target)], metric) if is_whole else recall(target, metric)
    if not results.sources:
        name, record, store, page = "results", None, None, Path("report.html")
    else:
        (source,) = results.sources
        name, record, store = source.name, source.record, source.store
        page, table = source.directory / "report.html", source.table
        if table and not (is_whole and Path(str(target)).is_dir()):
            page = table.with_name(f"{table.stem}-report.html")
    return Subject(name, results.rows, is_whole, record or NO_STUDY, store, page, results.notes)


# --- the commands that reproduce its runs ----------------------------------------------------------------

PLAIN = re.compile(r"\w[\w.-]*\.py")  # the name of a plugin's copy in a run's directory
SINGLE_RUNS = 10  # the most commands for a list of single runs
# Keys about where a run computes or what it keeps, which do not affect its result, and those that the name of
# a downloaded text stands for.
NOT_REPEATED = (
    *("name", "device", "force", "seed", "train.save", "train.checkpoint_every"),
    *("corpus.recipe", "corpus.licence", "corpus.files"),
)


def commands(subject: Subject) -> list[str]:
    """One command for a study, or one per run for single runs; empty if the runs are not here."""
    record, directories = subject.record, subject.directories
    if record.command:
        return [record.command]
    if not record.runs or not directories:
        return []
    own = ["-cd", record.config_dir] if record.config_dir else []
    own += [word for file in _plugins(subject) for word in ("--plugin", file)]
    if record.is_one_by_one:
        configs = [_config(path) for path in list(directories.values())[:SINGLE_RUNS]]
        return [_command(own, _kept(config) | {"seed": config["seed"]}) for config in configs]
    config = _config(next(iter(directories.values())))
    factors, fixed = record.factors, record.fixed
    free = {*factors, *keys_of_arms(record.arms)}
    # Prefer the values as asked for, which the record has: `auto` is a different number in each variant. Keys
    # below a factor have the defaults of the level chosen, so they can't be given for all runs.
    kept = {
        key: fixed.get(key, value)
        for key, value in _kept(config).items()
        if key not in free
        and (key in fixed or (key.partition(".")[0] not in free and _same(key, value, subject.rows)))
    }
    swept = {key: ",".join(levels) for key, levels in factors.items()}
    # Leave out development seeds, which the study adds by itself.
    seeds = record.looks.seeds if record.looks else record.reporting_seeds
    swept["seed"] = ",".join(map(str, seeds))
    start = [f"name={as_value(record.name)}"]
    if record.study:  # a study leaves out runs for which -m would refuse the whole sweep
        start = [f"study={record.study}", *lines_if(record.demonstration, "size=demo"), *start]
        # Give what the study declared, since keys of its YAML may have been overridden.
        declared = {key: value for key, value in record.declaration.items() if value != {}}
        if record.rungs:  # its contrasts follow from its arms
            del declared["primary"]
        held = {key: as_value(value) for key, value in declared.items()}
        levels = {key: value for key, value in record.declared.items() if isinstance(value, list)}
        held |= {key: typed(values) for key, values in levels.items()}  # in override syntax
        if record.arms:
            held["arms"] = typed(record.arms)
        start += [f"study.{key}={value}" for key, value in held.items()]
    else:
        start = ["-m", *start]
    return [_command([*own, *start, *(f"{key}={levels}" for key, levels in swept.items())], kept)]


def with_seeds(record: StudyRecord, count: int) -> str:
    """The command of a study as it was typed, with `count` seeds; empty if it did not come from a command."""
    if not record.typed:
        return ""
    first = min(record.reporting_seeds)
    words = [f"{key}={','.join(levels)}" for key, levels in record.factors.items()]
    grown = {word.partition("=")[0]: word for word in words}
    typed = [grown.get(word.partition("=")[0], word) for word in record.typed if not word.startswith("seed=")]
    seeds = f"seed=range({first},{first + count})"
    return shlex.join(["ablate", "run", *typed, seeds])


def is_duel(record: StudyRecord) -> bool:
    return record.command.startswith("ablate duel ")


def with_budget(record: StudyRecord, seconds: float) -> str:
    """The command of a duel that takes longer, and then with fresh seeds; empty for any other study."""
    if not is_duel(record) or not math.isfinite(seconds):
        return ""
    words = shlex.split(record.command)
    at = words.index("--budget") if "--budget" in words else len(words)
    minutes = 5 * math.ceil(seconds / 300)
    return shlex.join([*words[:at], *words[at + 2 :], "--budget", f"{minutes}m"])


def with_fixed_places(record: StudyRecord) -> str:
    """The commands that add heads which read fixed places to a study, as it was typed; empty if it did not
    come from a command."""
    if not record.typed:
        return ""
    name = f"{record.name}-fixed"
    typed = [word for word in record.typed if not word.startswith(("name=", "scores="))]
    words = ["ablate", "run", *typed, "scores=offsets", f"name={as_value(name)}"]
    return f"{shlex.join(words)} && ablate compare {shlex.join([record.name, name])}"


def whole_study(record: StudyRecord) -> str:
    """The command of the full study that this demonstration belongs to."""
    typed = [word for word in record.typed if word.partition("=")[0] not in ("size", "seed", "name")]
    return shlex.join(["ablate", "run", *(typed or [f"study={record.study}"])])


def _plugins(subject: Subject) -> list[str]:
    """The plugin files of the runs, by the names of the copies that each run keeps."""
    of_each_code = {*subject.rows.drop_duplicates("parts")["run_id"]}
    named = {
        (path, name.removeprefix(PLUGIN))
        for run, path in subject.directories.items()
        if run in of_each_code
        for name in read_started(path).get("part_files") or ()
        if is_of_plugin(name)
    }
    kept = (name for path, name in named if PLAIN.fullmatch(name) and (path / name).is_file())
    return sorted({*kept})


def _config(directory: Any) -> dict[str, Any]:
    return flatten(yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8")))


def _kept(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that a command has to give: no keys that are null by default."""
    return {
        key: value
        for key, value in config.items()
        if key not in NOT_REPEATED and (value is not None or key.startswith("train."))
    }


def _same(key: str, value: Any, rows: pd.DataFrame) -> bool:
    """Whether all rows have this value. A key that varies without being swept follows from another key."""
    group, column = key.partition(".")[0], column_for(key)
    if group in PARTS and column != "normalize":
        options = [json.loads(text) for text in rows[f"{group}_options"].dropna().unique()]
        return all(option.get(column) == value for option in options)
    if key.startswith("corpus.") and column not in ("tokenizer", "splits"):
        return True  # there is one text, since a comparison refuses several
    return column not in rows or as_texts(rows[column]).nunique() <= 1


def _command(start: list[str], keys: Mapping[str, Any]) -> str:
    words = [*start, *(f"{key}={as_value(value)}" for key, value in keys.items())]
    return " ".join(["ablate run", *map(shlex.quote, words)])
