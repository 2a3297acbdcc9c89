"""Odd calls of the Python interface: sane ones with values in the place of some arguments that nobody should
give, and what is wrong with how they ended."""

import datetime
import decimal
import fractions
import inspect
import io
import os
import random
import reprlib
import subprocess
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from omegaconf import OmegaConf

import ablate
from ablate.methods import Fusion, register
from benchmarks.odd.trial import FILES, LONGEST_S, PILOT, RESULTS, Ending
from benchmarks.odd.words import ODD, apart
from tests.foreign_program import state
from tests.helpers import SUM, no_later_than

SMALL = {
    **{"corpus": "grammar", "corpus.characters": 5000, "hydra/launcher": "basic", "device": "cpu"},
    **{"model.d_model": 8, "model.layers": 1, "model.context": 8},
    **{"train.steps": 2, "train.batch": 2, "train.eval_every": 2},
}


class Unshown:
    """Its text can't be asked for, nor whether it equals another."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def in_itself() -> list[Any]:
    values: list[Any] = [1]
    values.append(values)
    return values


def each(*values: Any) -> list[Callable[[], Any]]:
    return [lambda value=value: value for value in values]


def table(**columns: Any) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(RESULTS)).assign(**columns)


# Of each, a function that makes it.
VALUES: tuple[Callable[[], Any], ...] = (
    *each(None, True, False, 0, -1, 1, 3, 2**31, 10**30, 10**400, 0.5, -0.0, 1e300, 1j, float("nan")),
    *each(float("inf"), "", "heads", "heads=2", "val_loss", PILOT, "table.csv", "nowhere", "\0", "\ud800"),
    *each("-m", "--cfg", "mine.py", "runs", "sum", "x" * 5000, b"x", bytearray(b"x"), (), (1, 2)),
    *each(("heads",), frozenset({1}), range(3), range(10**12), slice(1), ..., int, print, object()),
    *each(Path(PILOT), Path("nowhere"), Path("runs"), Path("mine.py"), Path(), decimal.Decimal("0.1")),
    *each(fractions.Fraction(1, 3), random, datetime.date(2020, 1, 1), np.datetime64("2020"), pd.NA, pd.NaT),
    *each(np.int64(3), np.float64(0.1), np.float32("nan"), np.True_, np.str_("heads"), np.array([1, 2])),
    *each(np.array("x"), np.eye(2), pd.Series([1, 2]), pd.Index(["heads"]), torch.tensor(3)),
    *each(torch.tensor([1, 2]), torch.tensor([0.5]), torch.nn.Linear(1, 1), [1], ["heads"], ["val_loss"]),
    *each([[1]], [None], [{}], [1, "a"], {"heads": 2}, {"heads": [1, 4]}, {1: 2}, {"a": {}}, {"name": "sum"}),
    *each(*(OmegaConf.create(one) for one in ([1, 2], {"heads": 2}, ["${x}"], {"a": "???"}))),
    *(list, dict, set, object, Unshown, in_itself, lambda: iter([1]), lambda: (one for one in "a")),
    *(table, lambda: table(val_loss="x"), lambda: table(heads=None), lambda: table(tags=[[1]] * 12)),
    *(pd.DataFrame, lambda: pd.DataFrame([[1]]), lambda: pd.DataFrame({"a": [[1]]}), lambda: table().T),
    *(lambda: pd.concat([table(), table()]), lambda: table().set_index(["fusion", "seed"])),
)
# Sane arguments of each function; a call has some of them.
COMPARING = {
    **{"baseline": {"heads": 2}, "metric": "val_loss", "by": ["fusion"], "where": "heads=2", "margin": 0.1},
    **{"mixed": True},
}
SANE: Mapping[str, Mapping[str, Any]] = {
    "run": {"fusion": "sum", "heads": 2, "seed": 1, "out_proj": True, "name": "a", "plugins": ["mine.py"]},
    "load": {"path": PILOT},
    "load_model": {"run": "sum-h4-d8x1-s0", "plugins": ["mine.py"]},
    "compare": {"rows": PILOT, **COMPARING},
    "report": {"target": PILOT, "out": "page.html", "charts": "figures", **COMPARING},
    "generate": {"prompt": "the", "tokens": 3, "temperature": 0.5, "top_k": 3, "seed": 1},
    "encode": {"text": "the"},
    "decode": {"ids": [1, 2]},
    "register": {"name": "other"},
}
REQUIRED = ("rows", "target", "run", "text", "ids", "name")
OFTEN = {"run": 2, "compare": 5, "generate": 3, "report": 1}
# Of a run; no long ones.
KEYS = apart("scale  train  train.lr  corpus.path  study  force  fusion.normalize  config_dir  nix  -cd")


@dataclass(frozen=True)
class Call:
    function: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        given = (f"{name}={_text(value)}" for name, value in self.arguments.items())
        return f"{self.function}({', '.join(given)})"


def _text(value: object) -> str:
    try:
        return ascii(" ".join(reprlib.repr(value).split()))[1:-1]
    except Exception:
        return type(value).__name__


def odd_call(draw: random.Random) -> Call:
    function = draw.choice([name for name in SANE for _ in range(OFTEN.get(name, 1))])
    sane = SANE[function]
    optional = [name for name in sane if name not in REQUIRED or function == "run"]
    names = [
        *(n for n in sane if n not in optional),
        *draw.sample(optional, draw.randrange(len(optional) + 1)),
    ]
    arguments = {name: sane[name] for name in names}
    for _ in range(draw.choice((1, 1, 1, 2))):
        others = [*sane, *(KEYS if function == "run" else ("nix",) if draw.random() < 0.05 else ())]
        arguments[draw.choice(others)] = draw.choice(ODD) if draw.random() < 0.3 else draw.choice(VALUES)()
    return Call(function, {**SMALL, **arguments} if function == "run" else arguments)


class Program:
    """This process, in a directory with a store and files of a user's, where calls are tried one by one."""

    def __init__(self, root: Path) -> None:
        os.chdir(root)
        os.environ["ABLATE_CACHE"] = str(root / "cache")
        for name, make in FILES.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            make(Path(name))
        Path("mine.py").write_text(SUM.format(name="mine", factor=1))
        ablate.run(fusion=["concat", "sum"], seed=[0, 1, 2], name=PILOT, **SMALL)
        self.model = ablate.load_model("sum-h4-d8x1-s0")
        ablate.report(PILOT, charts="figures")

    def trial(self, call: Call) -> Ending:
        before, began, said = state(), time.perf_counter(), ""
        faults, code = list[str](), 0
        try:
            with warnings.catch_warnings(record=True), no_later_than(LONGEST_S):
                said = _text(self._function(call.function)(**call.arguments))
        except (TypeError, ablate.ConfigError) as error:
            code, said = 2, f"{type(error).__name__}: {error}"
            if not str(error).strip() or len(str(error).splitlines()) != 1:
                faults.append("an error of more or less than one line")
            if isinstance(error, TypeError) and not _is_ours(error):
                faults.append(f"a TypeError from within: {error}")
        except subprocess.TimeoutExpired:
            faults.append(f"still running after {LONGEST_S:g} s")
        except Exception as error:
            faults.append(f"{type(error).__name__}: {error}")
        after = state()
        changed = [name for name in before if before[name] != after[name]]
        faults += [f"{name} changed" for name in changed]
        return Ending(code, said, "", time.perf_counter() - began, faults)

    def _function(self, name: str) -> Callable[..., Any]:
        if name == "register":
            return lambda **given: _withdrawn(register(**given))
        return getattr(ablate, name) if hasattr(ablate, name) else getattr(self.model, name)


def _withdrawn(decorate: Callable[[type[Fusion]], type[Fusion]]) -> None:
    """Nothing is registered: a call for each number would find the name taken."""


def _is_ours(error: TypeError) -> bool:
    """Whether it is about the arguments, rather than from somewhere deep in a library."""
    last = inspect.getinnerframes(error.__traceback__)[-1] if error.__traceback__ else None
    return last is None or Path(last.filename).name in ("arguments.py", "api.py", "inspect.py", "calls.py")
