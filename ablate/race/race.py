"""The runs of a race. Its directory holds race.json, the plan and the runs that have ended, written whole
after each run, so that one that is killed is in it or begins again; results.csv, a table of these; and a
directory for each run in runs/, {out}, with its log."""

import contextlib
import json
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import pandas as pd
import psutil

from ablate.config.rules import ConfigError
from ablate.files.atomic import StoreError, read_json, write_atomically
from ablate.files.owned import drop
from ablate.phrases import joined
from ablate.printing import say
from ablate.race.metric import LOG, printed, read
from ablate.store.columns import Status

MARK = "ABLATE_RACE"  # an environment variable of all that a race starts: its directory
COLUMNS = ["method", "seed", "seconds", "status"]  # of the table, beside the metric


class Race:
    """A race in its directory, whose lock this process has. plan: commands by name, baseline first; looks,
    numbers of pairs; and what else the verdict depends on. runs: by name and seed. Raises StoreError."""

    def __init__(self, directory: Path, plan: dict) -> None:
        self.directory, self.file, self.table = directory, directory / "race.json", directory / "results.csv"
        self.plan = read_json(self.file, {*plan, "runs"}) if self.file.exists() else {**plan, "runs": []}
        if other := [key for key in plan if key != "looks" and plan[key] != self.plan[key]]:
            way_out = "give its commands other names with -n, or move that directory away"
            raise StoreError(f"{directory} has another race, with other {joined(other)}; {way_out}")
        columns = [*COLUMNS[:2], plan["metric"], *COLUMNS[2:]]
        self.runs = pd.DataFrame(self.plan.pop("runs"), columns=columns).set_index(COLUMNS[:2])
        end_all(directory)

    def save(self) -> None:
        """Write down all that is known."""
        table = self.runs.reset_index()
        write_atomically(self.table, table.to_csv(index=False))
        write_atomically(self.file, json.dumps({**self.plan, "runs": table.to_numpy(object).tolist()}))

    def by_seed(self, column: str) -> pd.DataFrame:
        """A column as numbers, a row for each command; NaN where there is no finite one."""
        cells = self.runs[column].astype(float).unstack("seed").replace([np.inf, -np.inf], np.nan)
        return cells.reindex(index=[*self.plan["commands"]], columns=range(self.plan["seeds"]))

    def run(self, names: Sequence[str], upto: int, jobs: int) -> None:
        """Run what has not ended of the seeds below `upto`, `jobs` at a time: forward at even seeds, backward
        at odd ones. Raises ConfigError if the race can't go on."""
        todo = [(name, seed) for seed in range(upto) for name in names[:: -1 if seed % 2 else 1]]
        with ThreadPoolExecutor(jobs, "slot") as pool:
            runs = [pool.submit(self.run_one, *one) for one in todo if one not in self.runs.index]
            try:
                for run in as_completed(runs):
                    self._add(*run.result())
            except BaseException:
                while not all(run.cancel() or run.done() for run in runs):
                    end_all(self.directory)
                raise

    def run_one(self, name: str, seed: int) -> tuple[str, int, list]:
        """Run a command with a seed, after --prepare; returns which run it is, and its row. Raises
        ConfigError if --prepare fails, or the first run of a command is not found or gives no number."""
        plan, out = self.plan, self.directory / "runs" / f"{name}-{seed}"
        drop(out)  # of a run that was cut off
        out.mkdir(parents=True)
        slot = threading.current_thread().name.partition("_")[2] or "0"
        words = {"seed": str(seed), "out": shlex.quote(str(out)), "slot": slot}
        began, code = 0.0, 0
        with (out / LOG).open("ab") as log:
            # A session of its own, since Ctrl-C is for this process, which ends the others.
            given = {"shell": True, "stdin": subprocess.DEVNULL, "stdout": log, "start_new_session": True}
            given |= {"stderr": log, "env": {**os.environ, MARK: str(self.directory)}}
            for command in (plan["prepare"], plan["commands"][name]):
                if code:
                    raise _ended(f"--prepare failed before seed {seed} of {name}", out)
                filled = re.sub(r"\{(seed|out|slot)\}", lambda found: words[found[1]], command)
                began = time.monotonic()
                code = subprocess.run(filled, **given).returncode
        seconds = round(time.monotonic() - began, 3)
        if code < 0:
            time.sleep(0.3)  # within which this process ends, too, if everything is killed
        value = None if code else read(out, plan["metric"], plan["source"])
        if value is None and code in (0, 127) and name not in self.runs.index.unique("method"):
            wanted = " by ".join(filter(None, [plan["metric"], plan["source"]]))
            raise _ended(f"{name}: {f'it gave no {wanted}' if code == 0 else 'no such command'}", out, r"\d")
        status = Status.FAILED if value is None else Status.DONE if np.isfinite(value) else Status.DIVERGED
        return name, seed, [value, seconds, str(status)]

    def _add(self, name: str, seed: int, row: list) -> None:
        """Write a row down, and tell one without a value. Raises ConfigError if it is the second in a row of
        its command that failed."""
        if row[-1] != Status.DONE:
            say(f"{name} {row[-1]} at seed {seed}")
        self.runs.loc[(name, seed), :] = row
        self.runs = self.runs.sort_index(level=["seed", "method"])
        self.save()
        failed = self.runs["status"].xs(name, level="method") == Status.FAILED
        if failed.loc[seed] and failed.loc[seed - 1 : seed + 1].sum() > 1:
            raise _ended(f"{name} failed twice in a row", self.directory / "runs" / f"{name}-{seed}")


def end_all(directory: Path) -> None:
    """Kill what a race in this directory has started, and what that has started."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == str(directory):
                process.kill()


def _ended(why: str, out: Path, of: str = "") -> ConfigError:
    """The error that ends a race, with the last lines of a log. of: a pattern that these have, if any has."""
    lines = [line for line in printed(out / LOG).splitlines() if line.strip()]
    lines = [line for line in lines if re.search(of, line)] or lines
    return ConfigError(f"{why}; {out / LOG} ends: {' | '.join(lines[-5:]) or 'nothing'}")
