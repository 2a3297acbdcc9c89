"""What may be said of Hydra: a few keys, by name, whatever they resolve to, at every level."""

import inspect
import json
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate.compose import private
from ablate.compose.configs import configs_dir
from ablate.compose.sweep import compose
from ablate.config.rules import ConfigError
from benchmarks.odd.configs import CANARY, Cage, odd_config

EVIL = {"_target_": "os.mkdir", "path": "made"}
CREATED = """${oc.create:"{'_target_':'os.mkdir','path':'made'}"}"""
CORE = "hydra._internal.core_plugins"
BASIC = f"{CORE}.basic_launcher.BasicLauncher"
PRIMARY, FUSION = ("-cn", "own"), ("fusion=own",)
GLOBAL = {"# @package": "_global_"}


def config(of_hydra: Mapping[str, Any], *defaults: Any, **other: Any) -> dict[str, Any]:
    return {"defaults": ["config", *defaults, "_self_"], "hydra": of_hydra, **other}


# A file of the directory own/, without .yaml, with its content; the words after -cd own; the key refused.
REFUSED: list[tuple[str, dict[str, Any], tuple[str, ...], str]] = [
    # What ran code, emptied a file or imported a package.
    (
        *("own", config({"hydra_logging": {"root": """${oc.create:"{'()':'os.mkdir','path':'made'}"}"""}})),
        *(PRIMARY, "hydra.hydra_logging"),
    ),
    ("own", config({"searchpath": ["pkg://canary"]}), PRIMARY, "hydra.searchpath"),
    (
        "own",
        config({"launcher": {"_target_": BASIC, "x": f"\\{CREATED}"}}),
        PRIMARY,
        "hydra.launcher._target_=",
    ),
    # At every level.
    (
        *("fusion/own", {**GLOBAL, "fusion": {"name": "sum"}, "hydra": {"callbacks": {"x": EVIL}}}, FUSION),
        "hydra.callbacks.x",
    ),
    (
        *("study/own", {**GLOBAL, "study": {"kind": "grid"}, "hydra": {"run": {"dir": "x"}}}, ("study=own",)),
        "hydra.run.dir=x: a config may not set it; leave it out, or type",
    ),
    ("own", config({}, "fusion/sum@hydra.callbacks.x"), PRIMARY, "hydra.callbacks.x"),
    # Shell, and variables of jobs.
    (
        *("own", config({"launcher": {"additional_parameters": {"prolog": "x"}}})),
        (*PRIMARY, "hydra/launcher=submitit_slurm", "+hydra.launcher.additional_parameters.reservation=mine"),
        "hydra.launcher.additional_parameters.prolog=x",
    ),
    ("own", config({"job": {"env_set": {"LD_PRELOAD": "x"}}}), PRIMARY, "hydra.job.env_set.LD_PRELOAD=x"),
]
TYPED = {
    "hydra/job_logging=default": "hydra/job_logging=default: of Hydra's keys, type hydra.launcher's alone",
    "-m hydra/launcher=basic +hydra.launcher.x={_target_:os.mkdir}": "Hydra can't compose this (TypeError",
    "~hydra.job_logging=x": "~hydra.job_logging=x: of Hydra's keys",
}


def written(directory: Path, name: str, content: Mapping[str, Any]) -> tuple[str, ...]:
    """Write a config, as JSON, which is YAML; what adds its directory."""
    path = directory / "own" / f"{name}.yaml"
    path.parent.mkdir(parents=True)
    header, values = content.get("# @package"), {key: content[key] for key in content if key[:1] != "#"}
    path.write_text(f"# @package {header}\n{json.dumps(values)}" if header else json.dumps(values))
    return ("-cd", "own")


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A working directory from which modules can be imported, with a thesis."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "canary.py").write_text(CANARY)
    (tmp_path / "thesis.txt").write_text("years of work")
    return tmp_path


@pytest.mark.parametrize("name, content, words, line", REFUSED, ids=lambda case: "")
def test_what_a_config_must_not_say_of_hydra(here, name, content, words, line):
    words = (*written(here, name, content), *words)
    before = {path: path.is_file() and path.read_bytes() for path in here.rglob("*")}
    with pytest.raises(ConfigError) as refused:
        compose(words)
    assert str(refused.value).startswith(line)
    assert {path: path.is_file() and path.read_bytes() for path in here.rglob("*")} == before


@pytest.mark.parametrize("words, line", TYPED.items())
def test_what_the_command_line_must_not_say_of_hydra(here, words, line):
    with pytest.raises(ConfigError) as refused:
        compose(words.split())
    assert str(refused.value).startswith(line)
    assert {path.name for path in here.iterdir()} == {"canary.py", "thesis.txt"}


def test_what_a_config_may_say_of_hydra(here):
    given = (*written(here, "own", config({"mode": "MULTIRUN"})), *PRIMARY)
    sweep = compose((*given, "-m", "heads=1,2", "key_width=${heads}", "hydra.launcher.workers=2"))
    assert sweep.launcher.workers == 2 and sweep.arguments == ("heads=1,2", "key_width=${heads}")
    variants = [sweep.configs((f"heads={heads}", *sweep.arguments[1:])) for heads in (1, 2)]
    assert [(of.heads, of.key_width) for of in variants] == [(1, 1), (2, 2)]


def test_a_config_may_lack_a_key_that_came_later(here):
    keys = yaml.safe_load((configs_dir() / "train/default.yaml").read_text("utf-8"))
    del keys["simulated"]
    words = (*written(here, "train/own", keys), "train=own", "train.simulated=null")
    assert compose(words).configs(()).train.simulated is None


def test_a_study_within_a_config_is_a_sweep(here):
    study = {"kind": "grid", "question": "Whose?", "factors": {"fusion": ["sum", "mean"]}}
    given = (*written(here, "own", config({"mode": "MULTIRUN"}, study=study)), *PRIMARY)
    with pytest.raises(ConfigError, match=r"^-cn own: a study is a sweep, so add -m$"):
        compose((*given, "train.steps=7"))
    assert compose((*given, "-m", "train.steps=7")).arguments == ("train.steps=7",)


def test_what_only_the_command_line_may_set_of_a_launcher(here):
    words = ("hydra.launcher.setup=['export A=b']", "+hydra.launcher.additional_parameters.reservation=mine")
    words = (*written(here, "own", config({})), *PRIMARY, "-m", "hydra/launcher=submitit_slurm", *words)
    slurm = vars(compose(words).launcher)["launcher"]
    assert slurm.params["setup"] == ["export A=b"]
    assert slurm.params["additional_parameters"] == {"reservation": "mine"}


@pytest.mark.slow
def test_plugins_of_hydras_in_the_working_directory_are_not_imported(here):
    (here / "hydra_plugins").mkdir()
    (here / "hydra_plugins" / "evil.py").write_text(CANARY)
    command = [sys.executable, "-m", "ablate", "run", "--cfg", "job"]
    subprocess.run(command, cwd=here, capture_output=True, check=True)
    assert not [*here.rglob("RAN")]


# --- Hydra itself ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, parts",
    [
        ("Callbacks", ()),
        ("ConfigLoaderImpl", ("config_search_path", "load_configuration", "_process_config_searchpath")),
        ("create_config_search_path", ("search_path_dir",)),
    ],
)
def test_what_is_private_in_hydra_is_where_ablate_looks_for_it(name, parts):
    thing = getattr(private, name)
    assert name in (names := {one for one in vars(private) if one[0] != "_"}) and len(names) == 3
    found = {*dir(thing), *inspect.signature(thing).parameters}
    assert {*parts} <= found, f"{name} of {thing.__module__} lacks {sorted({*parts} - found)} in this Hydra"


@pytest.mark.slow
def test_a_hostile_config_runs_nothing_and_writes_nothing(tmp_path, monkeypatch):
    """benchmarks/fuzz.py draws more of them."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    cage = Cage(tmp_path)
    for number in range(4):
        case = odd_config(random.Random(number))
        assert not cage.trial(case).faults, case.argv
