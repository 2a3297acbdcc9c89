"""Studies: what they declare, which runs they come to, and what they do without running anything."""

import dataclasses
import functools
import itertools
import math
import random
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import hydra
import pandas as pd
import pytest
import yaml
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from ablate.analysis import stats
from ablate.analysis.load import read
from ablate.cli.train import show_estimate
from ablate.compose.composer import Composer, keys_of_a_run, to_run_config
from ablate.compose.configs import configs_dir
from ablate.compose.loading import Loader
from ablate.compose.sweep import HydraLauncher, Sweep, compose
from ablate.compute import limits
from ablate.config.conditions import Condition
from ablate.config.contrast import MARGIN, Contrast
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.execution.execute import execute
from ablate.execution.run import Run, prepare
from ablate.reporting.page import gather
from ablate.store.store import Store, StoreError
from ablate.study.config import Design, combinations
from ablate.study.estimate import total
from ablate.study.run import Outcome, run
from ablate.study.study import Study, one_of_each, read_declared, values_of
from tests.helpers import QUICK, ROOT, SIMULATED, but, call_cli, hydra_at, ignore, make_config, write_study

FILES = sorted((configs_dir() / "study").glob("*.yaml"))
STUDIES = [path.stem for path in FILES]


OWN = """# @package _global_
name: mine
study:
  kind: grid
  question: Whose?
  factors: {fusion: [sum, weighted_sum], fusion.weights: [free, convex]}
  seeds: [0]
  where: []
  primary: [{vary: fusion, baseline: sum}]
  metric: val_loss
  margin: 0.01
hydra: {mode: MULTIRUN}
"""


@functools.cache
def _composed(name: str) -> DictConfig:
    with hydra_at(configs_dir()):
        return hydra.compose("config", overrides=[f"study={name}"]).study


def as_written(name: str) -> dict:
    """The study of this file, to be read or changed."""
    study = OmegaConf.to_container(_composed(name))
    assert isinstance(study, dict)
    return study


def declared(name: str):
    return read_declared(as_written(name))


# --- grids ------------------------------------------------------------------------------------------


def test_combinations_and_proposals_by_hand():
    levels = {"fusion": ["sum", "mean"], "seed": ["0", "1"]}
    runs, design = combinations(levels), Design(levels)
    assert runs == [(f"fusion={fusion}", f"seed={seed}") for fusion in ("sum", "mean") for seed in (0, 1)]
    assert design.propose({}) == runs
    assert design.propose({runs[0]: {"status": "failed"}, runs[2]: {"status": "done"}}) == [runs[1], runs[3]]
    assert design.propose({run: {} for run in runs}) == []


@pytest.mark.slow
def test_runs_composed_fast_are_as_hydra_composes_them():
    hydras = Loader()
    config = hydras.load_configuration("config", overrides=[], run_mode=RunMode.MULTIRUN)
    compose, draw = Composer(hydras, "config", None), random.Random(0)
    levels = {
        "fusion": ["concat", "sum", "weighted_sum"],
        "model": ["tiny", "nano"],
        "heads": ["1", "2", "4"],
        "out_proj": ["true", "false"],
        "value_width": ["auto", "wide", "16"],
        "train": ["default", "nanogpt"],
        "train.lr": ["1e-3", "0.01"],
        "train.clip": ["null", "1"],
        "seeds.data": ["null", "7"],
        "corpus.splits": ["[0.8,0.1,0.1]", "[0.5,0.5,0]"],
        "name": ["null", "'a b'", "study-1", "s${heads}"],
        "model.d_model": ["64", "96"],
        "key_width": ["auto", "${model.layers}", "${heads}"],
        "train.eval_every": ["${train.steps}", "50"],
    }
    for _ in range(25):
        keys = draw.sample(list(levels), 6)
        cell = tuple(f"{key}={draw.choice(levels[key])}" for key in keys)
        if any(override == "name='a b'" for override in cell):
            with pytest.raises(ConfigError, match="name=a b"):
                compose(cell)
            continue
        assert compose(cell) == to_run_config(keys_of_a_run(hydras.load_sweep_config(config, [*cell]))), cell


def test_runs_that_choose_the_same_are_composed_once(monkeypatch):
    """Since Hydra takes 50 ms for each; plain values are set in what it made."""
    compose, made = Composer(Loader(), "config", None), list[object]()
    load = Loader.load_configuration
    monkeypatch.setattr(Loader, "load_configuration", lambda *a, **b: (made.append(a), load(*a, **b))[1])
    for fusion, heads, rate in itertools.product(("concat", "sum"), (1, 2, 4), ("1e-3", "0.01")):
        compose((f"fusion={fusion}", f"heads={heads}", f"train.lr={rate}"))
    assert len(made) == 2


# --- many runs --------------------------------------------------------------------------------------

OF_TWO_HEADS = [
    *(["seed=0"], ["seed=7"], ["seed=-3", "seeds.data=5"], ["seed=7", "seeds.data=null"]),
    *(["seeds.backbone=1", "seeds.fusion=2"], ["seeds={data: 4}", "seed=1"]),
    *(["corpus.seed=${seed}", "seed=7"], ["corpus.seed=${seed}", "seed=8"]),
]


# What arms or levels of a study give.
OWN_KEYS = {"sizes": ("train.steps",), "later": ("train.steps",), "votes": ("train.steps", "corpus")}


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """What a command of `ablate run -m` asks for, in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def sweep(*overrides: str) -> Sweep:
        has_text = any(one.startswith("corpus=") for one in overrides)
        quick = QUICK[2:5] if has_text else QUICK[:5]  # of the model of a study
        own = next((keys for study, keys in OWN_KEYS.items() if f"study={study}" in overrides), ())
        quick = [one for one in quick if not one.startswith(own)] if own else quick
        return (compose if "-cd" in overrides else composed_once)(("-m", *but(quick, *overrides)))

    return sweep


composed_once = functools.cache(compose)  # a sweep keeps what it has composed of its runs


@pytest.fixture
def planned(sweep, monkeypatch):
    """The outcome of a dry run that times nothing. primary: the contrasts, in place of those of the study."""
    monkeypatch.setattr("ablate.study.estimate.total", lambda *_: 1.0)

    def planned(*overrides: str, primary: list[Any] | None = None) -> Outcome:
        asked = sweep(*overrides)
        return run(
            asked if primary is None else replace(asked, study={**asked.study, "primary": primary}),
            dry_run=True,
        )

    return planned


def composed(study: Study, *cell: str) -> RunConfig:
    configs = study.sweep.configs
    return configs.by_variant((*QUICK, *cell))[1]


@pytest.mark.slow
def test_runs_that_differ_in_seeds_alone_are_as_each_by_itself(sweep):
    study = Study(sweep("seed=0,1", "corpus.characters=4000"))
    runs = []
    for cell in [*(["heads=2", *seeds] for seeds in OF_TWO_HEADS), ["heads=4", "seed=7"]]:
        config = composed(study, *cell)
        assert config == study.sweep.configs((*QUICK, *cell)), cell
        runs.append(study.run((*QUICK, *cell)))
        assert runs[-1] == prepare(config) and runs[-1].run_id == prepare(config).run_id, cell
    assert [count for _, count in one_of_each(runs)] == [2, 1, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        ("seed=range(0,1000000000)", "seed: more than 100,000 runs; sweep over a part"),
        ("seed=range(0,400) heads=range(1,500)", "seed × heads: more than 100,000 runs; sweep over"),
    ],
)
def test_a_sweep_that_is_too_large_is_refused_at_once(planned, overrides, line):
    with pytest.raises(ConfigError, match=re.escape(line)):
        planned(*overrides.split())


@pytest.mark.slow
def test_threads_are_the_share_of_the_runs_that_stand_side_by_side(planned, monkeypatch):
    def threads(*overrides: str) -> int:
        return planned("seed=0,1,2,3", "name=mine", *overrides).estimate.threads

    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(limits, "available_cores", lambda: 4)
    monkeypatch.setattr(Run, "step_flops", 1e12)
    assert (threads(), threads("hydra.launcher.workers=2"), threads("hydra/launcher=basic")) == (1, 2, 4)
    write_study(Store(), replace(planned("seed=0", "name=mine").estimate.record, threads=3))
    assert threads() == threads("hydra/launcher=basic") == 3
    with pytest.raises(StoreError, match=r"hydra\.launcher\.threads=2: this study was begun with 3"):
        threads("hydra.launcher.threads=2")


TUNES = "one learning rate, 0.01, .*`ablate run study=tuned` or `ablate duel` tunes each"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "lines"),
    [
        ("fusion=concat,sum seed=range(5)", ["only 5 seeds, and a verdict takes 6", TUNES]),
        (
            "fusion=concat,sum,mean heads=1,2 seed=range(6)",
            [r"^2 of 6 variants \(sum heads=1 = concat heads=1, mean heads=1 = concat heads=1\) are ", TUNES],
        ),
        ("fusion=concat,sum train.lr=0.01,0.02 seed=range(6)", []),
        ("study=fusion heads=2,4", ["^no contrast is planned at heads=2; ", "^all variants share"]),
    ],
)
def test_a_dry_run_says_what_will_keep_an_answer_away(planned, overrides, lines):
    remarks = planned(*overrides.split(), "train.precision=float32").remarks
    assert len(remarks) == len(lines)
    assert all(re.search(line, remark) for line, remark in zip(lines, remarks, strict=True))


@pytest.mark.slow
def test_a_dry_run_says_what_its_seeds_can_show(planned):
    """By hand: of a t-test with that many pairs, at the level of the last look and of all contrasts."""

    def shows(*overrides: str) -> float | None:
        return planned(*overrides, "train.steps=1000", "name=mine").estimate.difference

    def least(seeds: int, level: float) -> float:
        return float(stats.least_difference(seeds, 0.0147, level))

    assert shows("fusion=concat,sum", "seed=range(8)") == pytest.approx(least(8, 0.05))
    assert shows("fusion=concat,sum,mean", "seed=range(8)") == pytest.approx(least(8, 0.025))
    assert shows("fusion=concat,sum", "seed=range(5)") is None  # too few for a verdict
    assert shows("seed=range(8)") is None
    assert shows("study=fusion", "study.looks=[]") == pytest.approx(least(32, 0.05 / 3))
    assert shows("study=fusion") == pytest.approx(least(32, 0.05 / 3 / 2))  # half of it is spent before


def test_what_evaluation_takes_is_counted_by_its_tokens(monkeypatch):
    evaluated = ("train.eval_every=4", "train.eval_tokens=200")
    run = prepare(config := make_config(*QUICK, "train.steps=10", *evaluated))
    monkeypatch.setattr("ablate.study.estimate._time", lambda *_, **__: (2.0, 0.25))
    validation, test = (run.corpus.splits[name].size or 0 for name in ("validation", "test"))
    ends = 0.25 * (validation + test)
    assert total([(run, 3)], 1) == 3 * (20 + 0.25 * 200 * 4 + ends)
    whole = replace(run, config=replace(config, train=replace(config.train, eval_tokens=None)))
    assert total([(whole, 1)], 1) == 20 + 0.25 * (4 * validation + test)


# --- what a study declares --------------------------------------------------------------------------


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_declares_what_it_will_be_judged_by(name):
    study = declared(name)
    assert study.question.endswith("?") and (study.margin or 0) > 0
    assert study.primary or "seeds.data" in study.factors  # crossed seeds allow no test
    sizes = {key: len(levels) for key, levels in study.levels.items()}
    replicates = math.prod(size for key, size in sizes.items() if key.startswith("seed"))
    assert replicates >= (4 if study.looks == [] else 8) and min(sizes.values()) >= 1


NULL = object()  # a key that is there and empty; None: one that is not


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"factrs": {}}, "study.factrs: no such key; did you mean study.factors"),
        ({"factors": {"haeds": [1]}}, r"study.factors.haeds: no key of a run; did you mean heads\?"),
        ({"factors": {"seed": [1]}}, "study.factors.seed: it makes no arm"),
        ({"kind": []}, r"study.kind=\[\]: no such kind"),
        ({"where": NULL}, r"study.where=null: write a list, as \[heads <= 4\]"),
        ({"primary": ["fusion"]}, "study.primary: fusion: write an entry as {vary"),
        ({"metric": "valloss"}, "study.metric=valloss: no column of results; did you mean val_loss"),
        ({"arms": {"a": "sum"}}, "study.arms.a=sum: write what the arm sets, as {fusion: sum}"),
        ({"arms": {"a": {"heads": 1}}}, r"study.arms.a.heads: .* add the level to the factor: heads=.*,1"),
        ({"arms": {"a": {"scale": "both"}, "b": {"scale": "both"}}}, "a and b set the same"),
    ],
)
def test_a_study_that_is_not_whole_is_refused(change, message):
    study = {key: value for key, value in (as_written("fusion") | change).items() if value is not None}
    with pytest.raises(ConfigError, match=message):
        read_declared({key: None if value is NULL else value for key, value in study.items()})


def test_levels_come_back_as_they_were_declared():
    given = ["a,b.txt", "it's", "7", 7, 1e-05, True, None, [1, 2], "x y", "auto"]
    study = OmegaConf.to_container(OmegaConf.create(OWN))
    assert isinstance(study, dict)
    read = read_declared(study["study"] | {"factors": {"corpus.path": given}})
    parser = OverridesParser.create()
    levels = read.factors["corpus.path"]
    assert [parser.parse_override(f"corpus.path={level}").value() for level in levels] == given
    swept = parser.parse_override(f"corpus.path={','.join(levels)}")
    assert [*swept.sweep_string_iterator()][:3] == levels[:3]


# --- the primary contrasts --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_every_study_can_show_what_it_decided_on(planned, study, capsys):
    outcome = planned(f"study={study}")
    show_estimate(outcome.estimate, [])
    assert ("between two levels of model one of 0.0" in capsys.readouterr().out) is (study == "sizes")
    assert not [line for line in outcome.remarks if line.startswith("study.primary")]
    record = outcome.estimate.record
    if study not in ("questions", "votes"):  # which show more arms than they decide about
        in_contrasts = {side.arm.split()[0] for one in record.contrasts for side in one.sides}
        assert in_contrasts >= {*record.arms}


@pytest.mark.parametrize(
    ("primary", "line"),
    [
        ("{vary: fusion, baseline: concta}", "fusion=concta: no two runs of this study differ so"),
        ("{baseline: {fusion: sum, heads: 16}}", "fusion=sum and heads=16: no two runs of this study"),
        ("{vary: fusion, baseline: concat, where: {heads: [4, 5], layers: 3}}", "no two runs of this"),
        ("{vary: fuson, baseline: sum}", "no column fuson; did you mean fusion?"),
        ("{vary: heads, baseline: 1, where: {fused: 1}}", "no column fused"),
    ],
)
def test_a_contrast_that_no_runs_could_show_is_refused_before_any_is_made(planned, primary, line):
    with pytest.raises(ConfigError, match=r"^study\.primary: ") as refused:
        factors = ("study.factors.model=[tiny]", "study.factors.heads=[1,2,4,8]")
        planned("study=fusion", *factors, primary=[yaml.safe_load(primary)])
    assert line in str(refused.value)


@pytest.mark.slow
def test_what_is_decided_beforehand_may_change_until_there_are_results(planned):
    first = ("study=fusion", "seed=0", "name=mine")
    other = (*first, "study.primary=[{vary: fusion, baseline: sum}]", "study.margin=0.03")
    write_study(Store(), planned(*first).estimate.record)
    assert planned(*other).estimate.record.primary == [Contrast(baseline={"fusion": "sum"})]
    execute(prepare(make_config("corpus=study", "train=study", *QUICK[:5])), ignore)
    assert planned(*first).estimate.finished == 1
    with pytest.raises(StoreError, match=r"primary was .* and there are results since; give another name"):
        planned(*other)


# --- where ------------------------------------------------------------------------------------------

VALUES = values_of(dataclasses.asdict(make_config("fusion=sum", "heads=8")))
of_study = functools.partial(Condition, source="study.where:")
TRUE = [
    *("heads == 8", "heads = 8", "heads=8.0", "heads<=8", "heads>7", "model.d_model >= 64", "d_model=64"),
    *("fusion=mean,sum", "fusion != mean", "fusion!='mean'", "train.lr<0.02", "lr=1e-2", "out_proj == true"),
    *("seeds.data == null", "match != value_width", {"fusion": ["concat", "sum"], "model.d_model": 64}),
    {"corpus.splits": [[*VALUES["corpus.splits"]]]},
]
FALSE = ["heads <= 4", "heads!=8", "fusion != mean,sum", "lr > 1e-2", {"fusion": "sum", "heads": 4}]


def test_conditions_by_hand():
    assert [condition for condition in TRUE if of_study(condition).holds(VALUES) is not True] == []
    assert [condition for condition in FALSE if of_study(condition).holds(VALUES) is not False] == []


@pytest.mark.parametrize(
    "condition",
    [
        *("heads=8 or fusion=mean", "heads<=8 and lr=0.01", "not out_proj", "model.d_model % heads == 0"),
        *("2 < heads <= 8", "heads<x"),
    ],
)
def test_what_is_more_than_a_condition_is_refused_with_what_there_is(condition):
    line = (
        r"^study\.where: .*: not a condition; write K=V.*several are 'and', arms by name are 'or', and there"
    )
    with pytest.raises(ConfigError, match=line):
        of_study(condition).holds(VALUES)


# --- through the command line -----------------------------------------------------------------------


def test_a_mistake_in_a_condition_is_found_though_no_cell_gets_that_far():
    cells = [{"fusion": "concat", "heads": 4}, {"fusion": "grouped", "heads": 4, "fusion.groups": 2}]
    of_study("groups == 2").require_known(cells)  # one of them has it
    for wrong, why in (("heds == 2", "did you mean heads"), ("heads == ", "not a condition")):
        with pytest.raises(ConfigError, match=why):
            of_study(wrong).require_known(cells)


@pytest.mark.slow
def test_a_study_leaves_out_what_cannot_be_and_says_so(tmp_path):
    part = ("run", "study=fusion", "fusion=concat", "value_width=narrow", "key_width=auto,16", "seed=0")
    part += SIMULATED
    command = (*part, "heads=1,3,4", "study.where=['heads < 4']", "name=mine")
    done = call_cli(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 of 6 runs left out: not (heads < 4)" in done.stderr
    assert done.stderr.count("runs left out: heads=3: does not divide") == 2
    rows = pd.read_csv(tmp_path / "runs" / "studies" / "mine" / "results.csv")
    assert sorted(zip(rows["heads"], rows["key_width"], strict=True)) == [(1, 16), (1, 64)]
    record = Store(tmp_path / "runs").read_study("mine")
    assert record and record.question.startswith("Why concatenate")
    nothing = call_cli(*part, "heads=3", "name=none", cwd=tmp_path)
    assert nothing.returncode == 2 and "nothing to run" in nothing.stderr
    assert nothing.stderr.count("\n") == 1 and not (tmp_path / "runs" / "studies" / "none").exists()
    moved = call_cli(*command, "study.margin=0.5", cwd=tmp_path)
    assert moved.returncode == 2 and f"margin was {MARGIN} when the study began" in moved.stderr


@pytest.fixture
def own(tmp_path):
    """Studies of one's own: the command that runs one, made of its YAML."""

    def command(text: str, name: str = "mine") -> tuple[str, ...]:
        (tmp_path / "own" / "study").mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / "study" / f"{name}.yaml").write_text(text, encoding="utf-8")
        return ("run", "-cd", "own", f"study={name}", *SIMULATED)

    return command


@pytest.mark.slow
def test_a_study_of_ones_own_is_a_study_or_an_error(own, tmp_path):
    """Hydra would run one default run where a file lacks its first line or its last."""
    text = (configs_dir() / "study" / "fusion.yaml").read_text(encoding="utf-8")
    plain = re.sub(r"defaults:\n(  - .*\n)+", "", text)
    for lacking, line in (
        (text.replace("# @package _global_", ""), "@study."),
        (plain.replace("# @package _global_", ""), "declares no study"),
        ("", "declares no study"),
    ):
        done = call_cli(*own(lacking), cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "") and line in done.stderr, done.stderr
    (page,) = re.findall(r"(?s)```yaml\n(.*?)```", (ROOT / "docs" / "studies.md").read_text(encoding="utf-8"))
    modeless = (*own(text.replace("hydra: { mode: MULTIRUN }", "")), "seed=0")
    for command, size in ((modeless, "4 runs"), (own(page, "deep"), "36 runs")):
        done = call_cli(*command, "--dry-run", cwd=tmp_path)
        assert done.returncode == 0 and size in done.stdout, done.stderr


@pytest.mark.slow
def test_a_dry_run_tells_the_size_and_trains_nothing(tmp_path):
    done = call_cli("run", "study=fusion", "seed=0,1,2", *QUICK, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0 and not (tmp_path / "runs" / "studies").exists()
    assert "fusion: concat, sum, weighted_sum, mean\n" in done.stdout and "seeds: 0, 1, 2\n" in done.stdout
    assert "12 runs; " in done.stdout and "about " in done.stdout
    assert call_cli("run", "-m", "fusion=sum,mean", *SIMULATED, cwd=tmp_path).returncode == 0
    again = call_cli("run", "-m", "fusion=sum,mean,concat", *SIMULATED, "--dry-run", cwd=tmp_path)
    assert "3 runs, 2 of them finished; 1 at a time" in again.stdout


@pytest.mark.slow
def test_watching_shows_what_is_there(tmp_path):
    assert call_cli("run", "-m", "seed=0,1", *SIMULATED, cwd=tmp_path).returncode == 0
    command = [sys.executable, "-u", "-m", "ablate", "runs", "--watch"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "2 done\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_what_a_launcher_makes_at_once_and_that_a_job_of_slurm_has_cores_of_its_own():
    def hydras(launcher: Any = None, **given: Any) -> HydraLauncher:
        launcher = launcher or SimpleNamespace(**given)
        return HydraLauncher(launcher, OmegaConf.create(), cast(HydraContext, None))

    assert hydras(BasicLauncher()).workers == 1
    assert hydras(joblib={"n_jobs": 3}).workers == 3
    assert hydras(joblib={"n_jobs": -1}).workers is None
    assert hydras(_EXECUTOR="slurm", params={"cpus_per_task": 5}).cores_each == 5
    assert hydras(_EXECUTOR="slurm", params={"cpus_per_task": None}).cores_each == 1
    assert hydras(_EXECUTOR="local", params={"cpus_per_task": 5}).cores_each is None is hydras().cores_each


# --- named arms -------------------------------------------------------------------------------------

OF_ARMS = """# @package _global_
study:
  kind: grid
  question: Does the order of summed heads matter?
  factors: {heads: [2]}
  arms: {sum: {fusion: sum}, rotate: {fusion: sum, fusion.order: rotate}, low: {out_rank: 3}}
  seeds: [0, 1]
  primary: [{vary: fusion.order, baseline: none, where: {fusion: sum}}]
  metric: val_loss
hydra: { mode: MULTIRUN }
"""


@pytest.mark.slow
def test_named_arms_are_run_kept_and_repeated(own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = own(OF_ARMS, "order")
    done = call_cli(*command, cwd=tmp_path)
    assert done.returncode == 0 and "6 runs in runs/studies/order/results.csv" in done.stdout, done.stderr
    record = Store(tmp_path / "runs").read_study("order")
    assert record is not None
    assert record.arms["rotate"] == {"fusion": "sum", "fusion.order": "rotate"}
    assert not {"fusion", "fusion.order", "out_rank"} & record.fixed.keys()
    again = gather(read("order")).command
    done = call_cli(*shlex.split(again)[1:], "--dry-run", cwd=tmp_path)
    assert "6 runs, 6 of them finished" in done.stdout, done.stdout + done.stderr
    refused = call_cli(*command, "fusion=mean", cwd=tmp_path)
    assert refused.returncode == 2 and "fusion: the arms of this study set it" in refused.stderr
    refused = call_cli(*own(OF_ARMS.replace("out_rank: 3", "out_rank: 2"), "order"), cwd=tmp_path)
    assert refused.returncode == 2 and "arms was " in refused.stderr, refused.stderr
