"""Hostile configs: every key of Hydra's own with what might run code or write a file, at every level at which
a config, or a word on the command line, can set it. Each has to end with 0 or with one line; nothing of it
may run, and no file be made or changed outside of the store.
"""

import json
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hydra.conf import HydraConf
from omegaconf import OmegaConf

from ablate.config.rules import as_value
from benchmarks.odd.trial import FILES, SMALL, TEXT, Case, Ending, Sandbox, holding
from benchmarks.odd.words import apart
from tests.helpers import call_cli

# What leaves a file where it lies when it is imported, or called. It can be imported by its name.
CANARY = """
import logging, pathlib
def run(*args, **named):
    pathlib.Path(__file__).with_name("RAN").write_text("")
    return logging.NullHandler()
Handler = Formatter = run
run()
"""


def _keys(node: Any, path: str = "hydra") -> list[str]:
    """All, of values and of blocks."""
    below = node.items() if isinstance(node, Mapping) else ()
    return [path, *(key for name, value in below for key in _keys(value, f"{path}.{name}"))]


KEYS = (
    *_keys(OmegaConf.to_container(OmegaConf.structured(HydraConf))),
    *apart("""
    hydra.callbacks.x  hydra.launcher.x  hydra.launcher._target_  hydra.launcher.workers  hydra.launcher.setup
    hydra.launcher.additional_parameters.x  hydra.launcher.partition  hydra.launcher.address
    hydra.launcher.n_jobs  hydra.launcher.temp_folder  hydra.launcher.submitit_folder  hydra.sweeper._target_
    hydra.hydra_logging.handlers.x  hydra.hydra_logging.root.handlers  hydra.hydra_logging.formatters.x
    hydra.job_logging.handlers.x  hydra.job_logging.root  hydra.job.env_set.PYTHONSTARTUP  hydra.x
    hydra.help.template
    """),
)
# Those that have been a way in.
TRIED = apart(
    """
    hydra.callbacks.x  hydra.launcher.x  hydra.launcher  hydra.searchpath  hydra.hydra_logging
    hydra.job_logging  hydra.hydra_logging.handlers.x  hydra.output_subdir  hydra.sweep.dir  hydra.job.env_set
    """
)
CALLS: tuple[dict[str, Any], ...] = (
    {"_target_": "canary.run"},
    {"_target_": "os.mkdir", "path": "MADE"},
    {"_target_": "builtins.open", "file": "book.txt", "mode": "w"},
    {"_target_": "pathlib.Path.write_text", "_args_": [{"_target_": "pathlib.Path", "_args_": ["MADE"]}, ""]},
    {
        "_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher",
        "x": {"_target_": "canary.run"},
    },
    {"_target_": "hydra_plugins.canary.run", "_partial_": True, "_convert_": "all"},
)
LOGGING = (
    {"()": "canary.run"},
    {"class": "canary.Handler"},
    {"class": "logging.FileHandler", "filename": "book.txt", "mode": "w"},
)
SETTINGS = [{"version": 1, "handlers": {"x": one}, "root": {"handlers": ["x"]}} for one in LOGGING]
PLAIN = (
    *apart("MADE  ../MADE  canary.run  pkg://canary  book.txt  MULTIRUN  ???  ${  ${nix}  ${hydra:job.num}"),
    *("", "a\ntouch MADE", True, 3, None, [], {}, ["pkg://canary"], ["own"], ["file://own", "nix"], {"x": 1}),
)
LAUNCHERS = (None, *apart("basic  joblib  submitit_local  submitit_slurm  pool  odd  nix"))
GROUPS = apart("job_logging  hydra_logging  sweeper  output  help  env  callbacks  hydra_help")


def _value(draw: random.Random) -> Any:
    """A value, perhaps such that it has to be resolved before one sees what it is."""
    value = draw.choice(draw.choice((CALLS, CALLS, LOGGING, SETTINGS, PLAIN)))
    if draw.random() < 0.15:
        value = draw.choice(([value], {"x": value}))
    if draw.random() < 0.4 and not isinstance(value, str):
        inner = json.dumps(json.dumps(value))
        kind = draw.choice(("oc.create", "oc.create", "oc.decode"))
        return draw.choice(("", "", "\\")) + f"${{{kind}:{inner}}}"
    return value


def _nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def _file(content: Mapping[str, Any], header: str = "") -> bytes:
    """JSON, which is YAML."""
    return (f"# @package {header}\n" * bool(header) + json.dumps(content)).encode()


PLACES = apart("primary  primary  group  package  moved  study  typed  factor  search")
STUDY = {"kind": "grid", "question": "Whose?", "seeds": [0], "primary": [], "metric": "val_loss"}


def odd_config(draw: random.Random) -> Case:
    key, value = draw.choice((draw.choice(KEYS), draw.choice(TRIED))), _value(draw)
    files: dict[str, bytes] = {}
    words, whole, defaults = ["-cd", "own"], ["config", "_self_"], list[Any]()
    if draw.random() < 0.4:
        launcher = draw.choice(LAUNCHERS)
        defaults.append({"override /hydra/launcher": launcher})
        if launcher == "odd":
            files["own/hydra/launcher/odd.yaml"] = _file(
                draw.choice((*CALLS, {"defaults": ["submitit_slurm"], "setup": ["touch MADE"]}))
            )
    if draw.random() < 0.15:
        defaults.append(
            {f"override /hydra/{draw.choice(GROUPS)}": draw.choice(("default", "none", "odd", None, "basic"))}
        )
        files["own/hydra/job_logging/odd.yaml"] = _file(draw.choice(SETTINGS))
    match draw.choice(PLACES):
        case "primary":
            files["own/odd.yaml"] = _file(
                {"defaults": [whole[0], *defaults, "_self_"], **_nested(key, value)}
            )
            words += ["-cn", "odd"]
        case "group":
            of_group = {"defaults": ["concat", *defaults]} if draw.random() < 0.5 else {"name": "concat"}
            files["own/fusion/odd.yaml"] = _file({**of_group, **_nested(key, value)}, "_global_")
            words += ["fusion=odd"]
        case "package":
            files["own/fusion/odd.yaml"] = _file(value if isinstance(value, dict) else {"x": value}, key)
            words += draw.choice((["fusion=odd"], ["-m", "fusion=odd,sum"]))
        case "moved":
            files["own/fusion/odd.yaml"] = _file(value if isinstance(value, dict) else {"x": value})
            moved = [{f"fusion@{key}": "odd"}, f"fusion/odd@{key}", f"hydra/launcher/joblib@{key}"]
            files["own/odd.yaml"] = _file({"defaults": [whole[0], draw.choice(moved), *defaults, "_self_"]})
            words += draw.choice((["-cn", "odd"], [f"+fusion@{key}=odd"], [f"fusion@{key}=odd"]))
        case "study":
            block = {"study": {**STUDY, "factors": {"heads": [1, 2]}}, "x": value}
            files["own/study/odd.yaml"] = _file(
                {"defaults": defaults, **block, **_nested(key, value)}, "_global_"
            )
            words += ["study=odd"]
        case "typed":
            plus, given = draw.choice(("", "+", "++", "~")), as_value(value)
            words = [f"{plus}{key}={given}", *draw.choice(([], [f"hydra/launcher={draw.choice(LAUNCHERS)}"]))]
        case "factor":
            block = {"study": {**STUDY, "factors": {key: [value], "heads": [1, 2]}}}
            files["own/study/odd.yaml"] = _file({"defaults": defaults, **block}, "_global_")
            words += ["study=odd"]
        case "search":
            paths = draw.choice((["pkg://canary"], ["file://other"], "${oc.create:'[\"pkg://canary\"]'}"))
            files["own/odd.yaml"] = _file({"defaults": whole, "hydra": {"searchpath": paths}})
            files["other/fusion/odd.yaml"] = _file(_nested(key, value), "_global_")
            words += ["-cn", "odd", "fusion=odd"]
    words += draw.choice(
        (
            *[["--dry-run"]] * 4,
            *[["-m", "seed=0,1", "--dry-run"]] * 3,
            ["-m", "seed=0,1", "hydra/launcher=basic", "--dry-run"],
            ["--cfg", "job"],
        )
    )
    canaries = dict.fromkeys(("canary/__init__.py", "own/canary.py"), CANARY.encode())
    made = {name: holding(content) for name, content in {**canaries, **files}.items()}
    return Case(("run", *TEXT, *SMALL, *words), files={"book.txt": FILES["book.txt"], **made})


class Cage(Sandbox):
    """A sandbox without a finished sweep, from whose working directory everything can be imported. Commands
    run in this process, as they train nothing."""

    def __init__(self, root: Path, call: Callable[..., Any] = call_cli) -> None:
        self.call = call
        self.pilot, self.cases, self.cache = root / "pilot", root / "cases", str(root / "cache")
        self.cases.mkdir(parents=True)
        sys.path.append(str(self.cases / "work"))

    def trial(self, case: Case) -> Ending:
        ending = super().trial(case)
        ending.faults.extend(["exit code 1, though nothing was to be run"] * (ending.code == 1))
        return ending
