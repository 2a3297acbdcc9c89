"""What may be said of Hydra: a few keys, by name, whatever they resolve to, at every level."""

import inspect
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ablate.compose import private
from ablate.compose.sweep import Sweep, compose
from ablate.config.rules import ConfigError
from benchmarks.odd.configs import CANARY

EVIL = {"_target_": "os.mkdir", "path": "made"}
CREATED = """${oc.create:"{'_target_':'os.mkdir','path':'made'}"}"""
CORE = "hydra._internal.core_plugins"
BASIC = f"{CORE}.basic_launcher.BasicLauncher"
NOTHING = "it has no effect here; leave it out"
TYPE_IT = "it can run commands, so only the command line may set it"
OF_RUNS = "ablate makes sweeps itself, and over keys of runs only; leave it out"
PRIMARY, FUSION = ("-cn", "own"), ("fusion=own",)
GLOBAL = {"# @package": "_global_"}


def config(of_hydra: Mapping[str, Any], *defaults: Any, **other: Any) -> dict[str, Any]:
    return {"defaults": ["config", *defaults, "_self_"], "hydra": of_hydra, **other}


def launcher(name: str | None, settings: Any, **of_hydra: Any) -> dict[str, Any]:
    return config({"launcher": settings, **of_hydra}, {"override hydra/launcher": name})


def logs(handler: Any) -> dict[str, Any]:
    return {"handlers": {"x": handler}, "root": {"handlers": ["x"]}}


# A file of the directory own/, without .yaml, with its content; the words after -cd own; what is refused.
REFUSED: list[tuple[str, dict[str, Any], tuple[str, ...], str]] = [
    # What ran code, emptied a file or imported a package.
    (
        *(
            "own",
            config({"hydra_logging": logs("""${oc.create:"{'()':'os.mkdir','path':'made'}"}""")}),
            PRIMARY,
        ),
        "hydra.hydra_logging",  # by its key, or since it can't be resolved
    ),
    (
        *("own", config({"searchpath": ["pkg://canary"]}), PRIMARY),
        "hydra.searchpath: pkg://canary: there is no such directory; correct it",
    ),
    (
        *("own", config({"job_logging": logs({"class": "logging.FileHandler", "filename": "thesis.txt"})})),
        *(PRIMARY, f"hydra.job_logging.root.handlers=[x]: {NOTHING}"),
    ),
    # Resolved, at any depth, or twice.
    (
        *("own", launcher(None, {"_target_": BASIC, "x": f"\\{CREATED}"}), PRIMARY),
        f"hydra.launcher.x={CREATED}: it would be run; leave it out",
    ),
    (
        *("own", launcher(None, {"_target_": BASIC, "x": [1, EVIL]}), PRIMARY),
        "hydra.launcher.x=[1,{_target_:os.mkdir,path:made}]: it would be run; leave it out",
    ),
    # At every level.
    (
        *("fusion/own", {**GLOBAL, "fusion": {"name": "sum"}, "hydra": {"callbacks": {"x": EVIL}}}, FUSION),
        f"hydra.callbacks.x._target_=os.mkdir: {NOTHING}",
    ),
    (
        *("study/own", {**GLOBAL, "study": {"kind": "grid"}, "hydra": {"run": {"dir": "x"}}}, ("study=own",)),
        "hydra.run.dir=x: it has no effect here; --runs DIR says where results lie",
    ),
    (
        *("own", config({}, {"override hydra/sweeper": "basic"}), PRIMARY),
        f"hydra.sweeper._target_={CORE}.basic_sweeper.BasicSweeper: {OF_RUNS}",
    ),
    (*("own", config({}, "fusion/sum@hydra.callbacks.x"), PRIMARY), f"hydra.callbacks.x.name=sum: {NOTHING}"),
    # By way of what is swept, which would be set in each job.
    *(
        (
            *("own", config({"mode": "MULTIRUN", "sweeper": {"params": {key: "x"}}}), PRIMARY),
            f"hydra.sweeper.params.{key}=x: {OF_RUNS}",
        )
        for key in ("+hydra.job.env_set.LD_PRELOAD", "hydra.launcher", "++hydra/job_logging")
    ),
    # Shell, variables of jobs and other machines.
    (
        *("own", launcher("submitit_slurm", {"setup": ["touch made"]}), PRIMARY),
        f"hydra.launcher.setup=[touch made]: {TYPE_IT}",
    ),
    (
        *("own", launcher("submitit_slurm", {"additional_parameters": {"prolog": "x"}})),
        (*PRIMARY, "+hydra.launcher.additional_parameters.reservation=mine"),
        f"hydra.launcher.additional_parameters.prolog=x: {TYPE_IT}",
    ),
    (
        *("own", launcher("submitit_slurm", {"partition": "a\ntouch made"}), PRIMARY),
        "hydra.launcher.partition=a touch made: it would be run; leave it out",
    ),
    ("own", launcher("joblib", {"temp_folder": "x"}), PRIMARY, f"hydra.launcher.temp_folder=x: {TYPE_IT}"),
    (
        *("own", launcher("joblib", {"n_jobs": 1}, job={"env_set": {"LD_PRELOAD": "x"}}), PRIMARY),
        f"hydra.job.env_set.LD_PRELOAD=x: {TYPE_IT}",
    ),
]
TYPED = {
    "hydra/job_logging=default": "hydra.job_logging",  # by its key, or since it can't be resolved
    "hydra/launcher=null": "hydra/launcher=null: name one of configs/hydra/launcher: auto, pool",
    "-m hydra/launcher=basic +hydra.launcher.x={_target_:os.mkdir}": "hydra.launcher.x._target_=os.mkdir: it",
    "~hydra.job_logging": "~hydra.job_logging: keys can't be removed",
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
    assert str(refused.value).startswith(f"{here / 'own' / name}.yaml: {line}")
    assert {path: path.is_file() and path.read_bytes() for path in here.rglob("*")} == before


@pytest.mark.parametrize("words, line", TYPED.items())
def test_what_the_command_line_must_not_say_of_hydra(here, words, line):
    with pytest.raises(ConfigError) as refused:
        compose(words.split())
    assert str(refused.value).startswith(line)
    assert {path.name for path in here.iterdir()} == {"canary.py", "thesis.txt"}


@pytest.mark.parametrize(
    "words",
    [
        *(
            ["--cfg", "hydra"],
            ["--cfg", "job", "-p", "model"],
            ["--cfg", "all", "--resolve"],
            ["--hydra-help"],
        ),
        *(["--info", "config"], ["--info", "defaults"], ["-m", "seed=0,1"]),
    ],
    ids=" ".join,
)
def test_whatever_is_asked_for_the_same_is_refused(here, words, capsys):
    given = written(here, "own", config({"callbacks": {"x": EVIL}}))
    with pytest.raises(
        ConfigError, match=r"^/.*own\.yaml: hydra\.callbacks\.x\._target_=os\.mkdir: it has no"
    ):
        compose([*given, *PRIMARY, *words])
    assert capsys.readouterr() == ("", "")


def sweep_of(*words: str) -> Sweep:
    sweep = compose(words)
    assert sweep is not None
    return sweep


def test_what_a_config_may_say_of_hydra(here):
    params = {"heads": "1,2", "key_width": "${heads}"}
    of_hydra = {"mode": "MULTIRUN", "searchpath": ["more", "file://more"], "sweeper": {"params": params}}
    content = launcher("pool", {"workers": 2, "threads": "${heads}"}, **of_hydra)
    (here / "more" / "train").mkdir(parents=True)
    (here / "more" / "train" / "quick.yaml").write_text("defaults: [default]\nsteps: 7\n")
    sweep = sweep_of(*written(here, "own", content), *PRIMARY, "train=quick")
    assert (sweep.launcher.workers, sweep.launcher.threads) == (2, 4)
    assert sweep.arguments == ("heads=1,2", "key_width=${heads}", "train=quick")
    variants = [sweep.configs((f"heads={heads}", *sweep.arguments[1:])) for heads in (1, 2)]
    assert [(of.heads, of.key_width, of.train.steps) for of in variants] == [(1, 1, 7), (2, 2, 7)]


def test_what_only_the_command_line_may_set_of_a_launcher(here):
    words = ("hydra.launcher.setup=['export A=b']", "+hydra.launcher.additional_parameters.reservation=mine")
    slurm = vars(sweep_of("-m", "seed=0,1", "hydra/launcher=submitit_slurm", *words).launcher)["launcher"]
    assert slurm.params["setup"] == ["export A=b"]
    assert slurm.params["additional_parameters"] == {"reservation": "mine"}
    joblib = pytest.importorskip("hydra_plugins.hydra_joblib_launcher.joblib_launcher")
    content = launcher("joblib", {"n_jobs": 2})
    given = sweep_of(*written(here, "own", content), *PRIMARY, "-m", "hydra.launcher.temp_folder=x").launcher
    assert type(vars(given)["launcher"]).__name__ == joblib.JoblibLauncher.__name__
    assert (
        vars(given)["launcher"].joblib | {"n_jobs": 2, "temp_folder": "x"} == vars(given)["launcher"].joblib
    )


def test_where_a_package_can_not_be_shown(here):
    for words in (["job", "-p", "hydra"], ["job", "-p", "study"], ["hydra", "-p", "nix"]):
        with pytest.raises(ConfigError, match=rf"^--package {words[2]}: it is not set; see ablate run --cfg"):
            compose(["--cfg", *words])


@pytest.mark.slow
def test_plugins_of_hydras_in_the_working_directory_are_not_imported(here):
    (here / "hydra_plugins").mkdir()
    (here / "hydra_plugins" / "evil.py").write_text(CANARY)
    command = [sys.executable, "-m", "ablate", "run", "--cfg", "job", "-p", "heads"]
    assert subprocess.run(command, cwd=here, capture_output=True, text=True, check=True).stdout == "4\n"
    assert not [*here.rglob("RAN")]


# --- Hydra itself ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, parts",
    [
        ("Callbacks", ()),
        ("ConfigLoaderImpl", ("config_search_path", "load_configuration", "_load_single_config")),
        ("ConfigRepository", ("load_config", "initialize_sources")),
        ("FileConfigSource", ("is_config", "load_config", "_normalize_file_name", "_get_header_dict")),
        ("Hydra", ("compose_config", "get_help", "show_cfg", "show_info", "get_sanitized_cfg")),
        ("create_config_search_path", ("search_path_dir",)),
    ],
)
def test_what_is_private_in_hydra_is_where_ablate_looks_for_it(name, parts):
    thing = getattr(private, name)
    assert name in (names := {one for one in vars(private) if one[0] != "_"}) and len(names) == 6
    found = {*dir(thing), *inspect.signature(thing).parameters}
    assert {*parts} <= found, f"{name} of {thing.__module__} lacks {sorted({*parts} - found)} in this Hydra"
