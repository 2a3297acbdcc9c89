"""The size of the model as a factor: what each size sets, its own rates, and its own contrasts."""

import json
import shlex
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ablate.analysis.compare import Comparison
from ablate.analysis.load import read
from ablate.compose.sweep import compose
from ablate.config.rules import ConfigError
from ablate.execution.formulas import before_training
from ablate.reporting import charts
from ablate.reporting.cells import contrast_table
from ablate.reporting.next import next_steps, repeated
from ablate.store.columns import Row
from ablate.store.frames import frame
from ablate.study.config import Overrides
from ablate.study.study import Study
from ablate.study.tuned import TunedDesign
from tests.helpers import call_cli, compared

TEXT = ("corpus=grammar", "corpus.characters=5000", "train.precision=float32")
SIZES = ("rung/r2", "rung/r4", "rung/r6")
HEADS = {"rung/r2": "5", "rung/r4": "8", "rung/r6": "12"}
RATES = {"rung/r2": 0.02, "rung/r4": 0.012, "rung/r6": 0.007}  # the best at each size
EFFECTS = {"rung/r2": 0.2, "rung/r4": 0.0, "rung/r6": -0.2}  # of a sum


def sizes(*overrides: str, **changes: Any) -> Study:
    sweep = compose(["study=sizes", *TEXT, *overrides])
    assert sweep and sweep.study
    return Study(replace(sweep, study={**sweep.study, **changes}))


def sets(run: Overrides) -> dict[str, str]:
    return dict(override.split("=", 1) for override in run)


def outcome(run: Overrides) -> Row:
    """A run whose loss is a parabola in the rate, and that of a sum higher or lower by size."""
    of = sets(run)
    away = np.log2(float(of["train.lr"]) / RATES[of["model"]])
    loss = 2.5 - 0.1 * SIZES.index(of["model"]) + 0.05 * away**2
    loss += EFFECTS[of["model"]] * (of.get("fusion") == "sum")
    drawn = np.random.default_rng([int(of["seed"]), len(run), SIZES.index(of["model"])])
    noisy = of.get("heads") == "1" and int(of["seed"]) >= 100  # where it is decided last
    loss += (0.1 if noisy else 0.002) * drawn.normal()
    return {"status": "done", "val_loss": loss, "test_loss": loss}


def finished(study: Study) -> dict[Overrides, Row]:
    rows: dict[Overrides, Row] = {}
    while proposed := study.design.propose(rows):
        rows |= {run: outcome(run) for run in proposed}
    return rows


def of_study(study: Study) -> Comparison:
    """What `compare` makes of a finished study."""
    losses = finished(study)
    runs = study.ready([*losses])
    ids = {overrides: run.run_id for overrides, run in runs.items()}
    record = study.record(runs, losses, ids)
    rows = []
    for overrides, run in runs.items():
        role = record.roles[run.run_id]
        of_run = {"run_id": run.run_id, "phase": role.phase, "role": role.role, "tuned": role.tuned}
        rows.append({**json.loads(json.dumps(before_training(run))), **of_run, **losses[overrides]})
    return compared(frame(rows), records=[record])


@pytest.mark.slow
def test_each_size_has_heads_of_16_and_equally_many_tokens_a_parameter():
    study = sizes()
    tokens = []
    for arm in study.design.compared:
        config = study.run_of(arm).config
        assert config.heads == (1 if sets(arm).get("heads") == "1" else config.model.d_model // 16)
        weights = 12 * config.model.layers * config.model.d_model**2
        tokens.append(config.train.steps * config.train.batch * config.model.context / weights)
    assert len(tokens) == 9 and max(tokens) / min(tokens) < 1.001
    assert {study.design.name(arm) for arm in study.design.compared} == {
        f"{arm} model={size}" for arm in ("concat", "sum", "one_head") for size in SIZES
    }


@pytest.mark.slow
def test_each_arm_has_a_rate_of_its_own_at_each_size():
    study = sizes("study.looks=[]", "seed=100,101")
    assert isinstance(study.design, TunedDesign)
    chosen = study.design.found(finished(study)).choices
    for arm, choice in chosen.items():
        assert float(choice.value or 0) == pytest.approx(RATES[sets(arm)["model"]], rel=0.1)
    assert len(chosen) == 9


def test_the_contrast_of_two_arms_is_one_at_each_size():
    plan = sizes().design.plan
    names = [[f"{arm} - concat at model={size}" for size in SIZES] for arm in ("sum", "one_head")]
    within = [[f"({high}) - ({low})" for low, high in combinations(of_arm, 2)] for of_arm in names]
    expected = [name for of_arm in (*names, *within) for name in of_arm]
    assert plan and [contrast.name for contrast in plan.contrasts] == expected
    assert [weight for weight, _ in plan.contrasts[-1].sides] == [1, -1, -1, 1]
    of_heads = [contrast for contrast in plan.contrasts if contrast.name.startswith("one_head")]
    bases = [sets(contrast.sides[1][1])["heads"] for contrast in of_heads]
    assert bases == [str(heads) for heads in HEADS.values()]


def test_an_arm_that_is_null_is_left_out():
    study = sizes("study.arms={sum: null, mean: {fusion: mean}}", "study.primary=[mean - concat]")
    assert study.config and {*study.config.arms} == {"concat", "one_head", "mean"}
    unknown = r"^study.arms.summ=null: no arm of this study; did you mean sum\?"
    for given, why in ((".sum=null", "sum=null; give study.primary too"), ("={summ: null}", unknown)):
        with pytest.raises(ConfigError, match=why):
            sizes(f"study.arms{given}")


@pytest.mark.slow
def test_differences_are_of_each_size_and_never_pooled_over_sizes():
    comparison = of_study(sizes("study.looks=[6,8]", "seed=range(100,108)"))
    assert {one.seeds for one in comparison.findings} == {6, 8}
    every = comparison.table_of("planned").dropna(subset=["baseline"])
    primary = every[~every["variant"].str.contains(" - ")]
    between = every[every["fusion"] == "sum - concat"][["model", "diff", "verdict"]].to_numpy().tolist()
    r2, r4, r6 = (EFFECTS[size] for size in SIZES)
    expected = [["r4", r4 - r2], ["r6", r6 - r2], ["r6", r6 - r4]]
    for (size, apart, verdict), (at, effect) in zip(between, expected, strict=True):
        assert (size, verdict) == (at, "lower") and apart == pytest.approx(effect, abs=0.01)
    of_sum = primary[primary["fusion"] == "sum"].set_index("model")
    assert of_sum["n"].to_dict() == {"r2": 6, "r4": 8, "r6": 6}
    assert of_sum["verdict"].to_dict() == {"r2": "worse", "r4": "equivalent", "r6": "better"}
    differences = of_sum[["diff", "low", "high"]].astype(float).loc[["r2", "r4", "r6"]].to_numpy().tolist()
    for (middle, low, high), effect in zip(differences, EFFECTS.values(), strict=True):
        assert middle == pytest.approx(effect, abs=0.005) and low < effect < high
    bases = [comparison.variants[name].levels["model"] for name in primary["baseline"]]
    assert bases == primary["model"].tolist() and len(primary) == 6 and len(every) == 12
    names = [*contrast_table(comparison)["variant"]]
    for at, size in zip((0, 3, 6), ("r6", "r4", "r2"), strict=True):  # each size below a better one
        assert {*names[at : at + 3]} == {f"{arm} model={size}" for arm in ("concat", "sum", "one_head")}
        assert {f"{arm} - concat model={size}" for arm in ("sum", "one_head")} <= {*names[9:]}
    page: Any = SimpleNamespace(comparison=comparison)
    drawn = next(charts._differences(page)).data.set_index("label")[["diff", "low", "high"]]
    of_sum = [f"sum model={size[-2:]}\n({n} seeds)" for size, n in zip(SIZES, (6, 8, 6), strict=True)]
    assert drawn.loc[of_sum].to_numpy().tolist() == differences and len(drawn) == 12
    steps = next_steps(comparison.rows, [], comparison)
    assert not [step for step in steps if "differ in size" in step.reason]


@pytest.mark.parametrize(
    ("overrides", "changes", "line"),
    [
        (["model=rung/r2,nano"], {}, "model=nano: study.per_level says nothing of it; choose one of rung"),
        (["train.steps=5"], {}, "train.steps: the arms of this study set it; leave it out"),
        ([], {"per_level": {"heads": {"1": {"train.steps": 5}}}}, "study.per_level.heads: the study has no"),
        ([], {"per_level": {"model": 5}}, "study.per_level.model=5: write levels, as"),
    ],
)
def test_what_levels_may_not_set_is_refused(overrides, changes, line):
    with pytest.raises(ConfigError, match=line):
        sizes(*overrides, **changes)


@pytest.mark.slow
def test_a_study_of_sizes_is_trained_compared_and_repeated(tmp_path):
    steps = "{model:{rung/r2:{heads:5,train.steps:2},rung/r4:{heads:8,train.steps:4}}}"
    quick = ("study.develop=[0]", "study.extend=0", "train.lr=0.006,0.012", "seed=100,101", "train.batch=2")
    words = ("run", "study=sizes", "study.looks=[]", "name=s", *TEXT, *quick, f"study.per_level={steps}")
    words += ("train/simulated=losses",)
    words += ("model=rung/r2,rung/r4", "train.eval_every=2", "study.primary=[sum - concat]")
    done = call_cli(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(call_cli("compare", "s", "--format", "json", cwd=tmp_path).stdout)["rows"]
    pairs = [(row["model"], row["heads"]) for row in rows if row["baseline"] and row["family"] == "planned"]
    assert sorted(pairs) == [("r2", 5), ("r4", 8)]
    assert "sum model=r4" in call_cli("compare", "s", cwd=tmp_path).stdout
    again = repeated(read(tmp_path / "runs" / "studies" / "s").record)
    planned = call_cli(*shlex.split(again)[1:], "--dry-run", cwd=tmp_path)
    assert "12 runs first, 12 of them finished" in planned.stdout, planned.stderr
