"""Ladders: what is run next, from simulated rows; a prediction that precedes its runs; what is refused."""

import contextlib
import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate.compose.sweep import compose
from ablate.config.rules import ConfigError
from ablate.launch.pool import train_or_wait
from ablate.store.columns import Row
from ablate.store.record import Predicted, frozen
from ablate.store.store import Store, StoreError
from ablate.study import launchers
from ablate.study.config import Overrides
from ablate.study.growth import grown
from ablate.study.ladder_design import LadderDesign
from ablate.study.loop import Loop
from ablate.study.study import Study
from benchmarks import kills
from tests.helpers import CONCAT, but, call_cli, make_record

SIZES = {"a": (16, 1), "b": (32, 1), "c": (48, 1), "d": (64, 1), "e": (80, 1)}  # width, layers
DECLARED: dict[str, Any] = {
    **{"kind": "ladder", "question": "Does it survive?", "rungs": ["a", "b", "c"], "tokens": 2.0},
    **{"seeds_a_rung": [3, 3, 2], "seeds": [10, 11, 12], "develop": [0], "extend": 1, "epochs": 1000},
    "arms": {
        "concat": {"fusion": "concat"},
        "sum": {"fusion": "sum"},
        "plain": {"fusion": "concat", "out_proj": False},
    },
    **{"baseline": "concat", "tune": "train.lr", "factors": {"train.lr": [0.005, 0.01, 0.02]}},
    **{"metric": "test_loss", "margin": 0.01},
}
SETTINGS = ("corpus=grammar", "corpus.characters=8000", "train.batch=2", "train.save=none")


def with_rungs(place: Path) -> Path:
    """A directory of configs with small rungs."""
    rungs = place / "conf" / "model" / "rung"
    rungs.mkdir(parents=True)
    (place / "conf" / "study").mkdir()
    for name, (width, layers) in SIZES.items():
        keys = f"name: {name}\nd_model: {width}\nlayers: {layers}\ncontext: 16\n"
        (rungs / f"{name}.yaml").write_text(f"defaults: [/model/tiny@_here_, _self_]\n{keys}")
    return place / "conf"


@pytest.fixture
def conf(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ABLATE_RUNS", raising=False)
    return with_rungs(tmp_path)


def declare(conf: Path, **changes: Any) -> None:
    """Write study/small.yaml. changes: of DECLARED; None leaves a key out."""
    study = {key: value for key, value in (DECLARED | changes).items() if value is not None}
    text = yaml.safe_dump({"name": "small", "study": study, "hydra": {"mode": "MULTIRUN"}}, sort_keys=False)
    (conf / "study" / "small.yaml").write_text(f"# @package _global_\n{text}")


def ladder(conf: Path, *overrides: str, **changes: Any) -> Study:
    """The study that `ablate run study=small` asks for. changes: as `declare`."""
    declare(conf, **changes)
    sweep = compose(["-cd", str(conf), "study=small", *but(SETTINGS, *overrides)])
    assert sweep is not None
    return Study(sweep)


@pytest.fixture(scope="module")
def usual(tmp_path_factory) -> Study:
    """The study as it is declared, for tests that only ask its design: to compose its arms takes a second."""
    return ladder(with_rungs(tmp_path_factory.mktemp("usual")))


@pytest.fixture(scope="module")
def tall(tmp_path_factory) -> Study:
    """The same over five rungs."""
    place = with_rungs(tmp_path_factory.mktemp("tall"))
    return ladder(place, rungs=[*SIZES], seeds_a_rung=[3, 3, 3, 3, 2])


def at(run: Overrides) -> dict[str, str]:
    return dict(override.split("=", 1) for override in run)


def rows_of(
    best: Callable[[str, int], float], difference: Callable[[str, int], float] = lambda arm, size: 0.0
) -> Callable[[LadderDesign, Overrides], Row]:
    """Losses with a minimum at the rate `best`, by arm and size, which differ by `difference`."""

    def row(design: LadderDesign, run: Overrides) -> Row:
        rung, name = design.name(design.arm_of(run)).split(" ", 1)
        (size,) = (one.size for one in design.rungs if one.name == rung)
        off = math.log2(float(at(run)["train.lr"]) / best(name, size))
        loss = 2 + size**-0.1 + difference(name, size) + 0.05 * off**2 + 0.01 * int(at(run)["seed"])
        return {"status": "done", "val_loss": loss, "test_loss": loss}

    return row


def climbed(
    study: Study, row: Callable[[LadderDesign, Overrides], Row]
) -> tuple[dict[Overrides, Row], list[set[str]]]:
    """The rows of a whole ladder, and the rungs that were trained together."""
    design, rows, together = study.design, dict[Overrides, Row](), list[set[str]]()
    assert isinstance(design, LadderDesign)
    while proposed := design.propose(rows):
        assert not {*proposed} & {*rows}
        together.append({design.name(design.arm_of(run)).split()[0] for run in proposed})
        rows |= {run: row(design, run) for run in proposed}
    return rows, together


def rates(study: Study, rows: dict[Overrides, Row]) -> dict[str, tuple[float, str]]:
    """The chosen rate of each arm at each rung, and how it was chosen."""
    assert isinstance(study.design, LadderDesign)
    _, chosen = study.design.roles(rows, {})
    return {name: (float(choice.value or "nan"), choice.how) for name, choice in chosen.items()}


# --- the design -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_rungs_give_sizes_heads_and_steps(usual, conf):
    assert [rung.size for rung in usual.design.rungs] == [12 * 16**2, 12 * 32**2, 12 * 48**2]
    config = usual.run_of(usual.design.compared[-1]).config
    assert (config.model.d_model, config.heads, config.out_proj) == (48, 3, False)
    assert config.train.steps == math.ceil(2 * 12 * 48**2 / (2 * 16))
    one_head = ladder(conf, arms={"concat": {}, "one": {"heads": 1}})
    heads = [one_head.run_of(arm).config.heads for arm in one_head.design.compared]
    assert heads == [1, 1, 2, 1, 3, 1]


@pytest.mark.slow
def test_arms_are_tuned_below_checked_above_and_predicted_at_the_top(conf):
    study = ladder(conf, rungs=[*SIZES], seeds_a_rung=[3, 3, 2, 2, 2], tuned_rungs=2, checked_rungs=2)
    sizes = [rung.size for rung in study.design.rungs]

    def best(arm: str, size: int) -> float:
        falls = 0.01 * (size / sizes[0]) ** -0.25  # a straight line in logarithms
        return falls * (2 if arm == "sum" and size > sizes[2] else 1)  # which sums leave at d

    rows, together = climbed(study, rows_of(best))
    found = rates(study, rows)
    for rung in "ab":
        for arm in ("concat", "sum", "plain"):
            assert found[f"{rung} {arm}"][1] == "tuned"
    for number, rung in enumerate("cde", 2):
        value, how = found[f"{rung} concat"]
        assert value == pytest.approx(best("concat", sizes[number]), rel=0.01)
        assert how == ("predicted" if rung == "e" else "checked")
    assert found["d sum"] == (pytest.approx(best("sum", sizes[3]), rel=0.02), "tuned")
    assert found["e sum"][1] == "predicted" and found["e sum"][0] > 1.2 * found["e concat"][0]
    assert together[-1] == {"e"} and all("e" not in rungs for rungs in together[:-1])


def test_a_ladder_is_climbed_rung_by_rung_and_the_top_waits_for_every_result(usual):
    design, row = usual.design, rows_of(lambda arm, size: 0.01)
    assert isinstance(design, LadderDesign)
    rows, together = climbed(usual, row)
    assert together == sorted(together, key=min) and all(len(rungs) == 1 for rungs in together)
    assert [*design.propose(rows)] == [] and design.phase({})[0] == "rung a"
    at_work = {run: {"status": "running"} for run in design.propose({})}
    assert {design.name(design.arm_of(run))[0] for run in design.propose(at_work)} == {"b"}
    assert design.phase(at_work)[0] == "rung a"
    below = {run: of for run, of in rows.items() if not design.name(design.arm_of(run)).startswith("c")}
    assert design.prediction(below, {run: str(n) for n, run in enumerate(below)})
    lost = next(run for run in below if at(run)["seed"] == "11")
    for status in ("running", "failed", "missing"):
        assert design.propose(below | {lost: {"status": status}}) == []
        assert design.prediction(below | {lost: {"status": status}}, {}) is None
    assert "1 run below c without a result" in design.closing(below | {lost: {"status": "failed"}})[0]


@pytest.mark.slow
def test_a_grid_that_grows_is_among_the_runs_to_come(conf):
    study = ladder(conf, extend=2)
    rows, _ = climbed(study, rows_of(lambda arm, size: 0.05))
    assert len(rows) > sum(count for _, _, count in study.design.stages())
    phase = study.design.phase(rows)
    assert phase and phase[1] == f"about {len(rows)} runs"


def test_an_arm_that_diverges_at_a_rung_has_no_value_above(usual):
    falling = rows_of(lambda arm, size: 0.01)

    def row(design: LadderDesign, run: Overrides) -> Row:
        return {"status": "diverged"} if at(run).get("out_proj") == "false" else falling(design, run)

    rows, _ = climbed(usual, row)
    found = rates(usual, rows)
    assert math.isnan(found["c plain"][0]) and found["c sum"][0] > 0
    assert isinstance(usual.design, LadderDesign)
    prediction = usual.design.prediction(rows, {})
    assert prediction and prediction.of.keys() == {"sum"}


@pytest.mark.parametrize("difference", [0.0, 0.05, -0.02])
def test_a_constant_difference_is_predicted(tall, difference):
    row = rows_of(lambda arm, size: 0.01, lambda arm, size: difference if arm == "sum" else 0.0)

    def noisy(design: LadderDesign, run: Overrides) -> Row:
        of = row(design, run)
        scatter = 0.002 * math.sin(1e4 * sum(map(ord, "".join(run))))
        return of | {"test_loss": of["test_loss"] + scatter}

    rows, _ = climbed(tall, noisy)
    assert isinstance(tall.design, LadderDesign)
    prediction = tall.design.prediction(rows, {})
    assert prediction and prediction.rung == "e"
    of_sum = prediction.of["sum"]
    assert of_sum.low < difference < of_sum.high and abs(of_sum.difference - difference) < 0.003


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"rungs": ["a", "b"]}, r"study.rungs=\[a,b\]: 2 rungs; a prediction takes 3"),
        ({"rungs": ["b", "c", "d"], "tokens": 0.1}, ""),
        ({"rungs": ["c", "d", "e"]}, "2.8 times as many parameters at the top"),
        ({"rungs": ["b", "a", "c"]}, "not in growing order .b has 12,288 parameters, a has 3,072"),
        ({"rungs": ["a", "b", "r9"]}, "study.rungs: r9.*choices: .*a.*b"),
        ({"rungs": ["a", "e", "r9"]}, "study.rungs: r9: no such preset"),
        ({"seeds_a_rung": [3, 0, 2]}, r"study.seeds_a_rung=\[3,0,2\]: name at least 2 seeds"),
        ({"seeds_a_rung": [3, 3]}, r"seeds_a_rung=\[3,3\]: 2 numbers for 3 rungs, study.rungs=\[a,b,c\]"),
        (
            {"arms": {"concat": {}, "long": {"train.steps": 9}}},
            "study.arms: long sets train.steps, which its",
        ),
        ({"seeds_a_rung": [4, 3, 2]}, "study.seeds lists only 3"),
        ({"arms": {"concat": {}, "seven": {"heads": 7}}}, "seven at a: .*7"),
        ({"metric": "test_acc"}, "study.metric=test_acc: a ladder predicts losses in nats; use test_loss"),
        ({"baseline": "cat"}, "study.baseline=cat: no arm; did you mean concat"),
        ({"arms": {"concat": {}}}, "concat alone"),
        (
            {"epochs": 0.5},
            "of its 3,072 parameters.*epochs, more than study.epochs=0.5; it carries no rung; lower",
        ),
        (
            {"epochs": 6},
            "c reads .* tokens, 2 for each of its 27,648 .*the largest rung that it carries is b",
        ),
        ({"tuned_rungs": 3}, "study.tuned_rungs=3: the last of 3 rungs is predicted, so at most 2"),
        ({"tuned_rungs": 1}, "study.tuned_rungs=1: how many rungs tune each arm; a line takes 2"),
        (
            {"primary": [{"vary": "fusion", "baseline": "concat"}]},
            "study.primary: a ladder compares each arm",
        ),
        ({"looks": [2, 3]}, "study.looks: a ladder compares each arm"),
        ({"head_width": 12}, "study.head_width=12: it does not divide d_model=16 of model=rung/a"),
        ({"factors": {"train.lr": [0.005, 0.01], "heads": [1, 2]}}, "heads=1,2: a ladder compares its arms"),
    ],
)
def test_a_ladder_that_can_not_be_climbed_is_refused_in_one_line(conf, changes, line):
    given = contextlib.nullcontext() if not line else pytest.raises(ConfigError, match=line)
    with given as caught:
        ladder(conf, **changes)
    if caught:
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("heads=2", "heads=2: the rungs set it; leave it out"),
        ("train.steps=100", "train.steps=100: the rungs set it"),
        ("model=nano", "model=nano: the rungs set it"),
        ("seed=1,2", "seed=1,2: 3 seeds report"),
        ("train.batch=2,4", "train.batch=2,4: a ladder compares its arms"),
        ("study.metric=val_loss", "study.metric=val_loss: the validation split chooses"),
    ],
)
def test_what_the_command_line_may_not_change(conf, override, line):
    with pytest.raises(ConfigError, match=line):
        ladder(conf, override)


# --- through the command --------------------------------------------------------------------------

SWEEP = ["study=small", *SETTINGS, "train.checkpoint_every=5"]
COMMAND = ("run", "-cd", "conf", *SWEEP)
SHORT: dict[str, Any] = {
    **{"arms": {"concat": {}, "sum": {"fusion": "sum"}}, "extend": 0},
    **{"tokens": 0.2, "seeds_a_rung": [2, 2, 2], "seeds": [10, 11]},
}


@pytest.fixture(scope="module")
def climbed_once(tmp_path_factory) -> Path:
    """The directory of a ladder that was climbed, with its configs."""
    place = tmp_path_factory.mktemp("ladder")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ABLATE_RUNS", raising=False)
        declare(with_rungs(place), **SHORT)
        done = call_cli(*COMMAND, cwd=place)
    assert done.returncode == 0, done.stderr
    assert "(predicted) at c" in done.stderr
    return place


@pytest.fixture
def trained(climbed_once, tmp_path, monkeypatch) -> Path:
    """A copy of it, in which a test may change files."""
    shutil.copytree(climbed_once, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ABLATE_RUNS", raising=False)
    return tmp_path / "runs" / "studies" / "small" / "study.json"


@pytest.mark.slow
def test_the_same_command_again_changes_nothing(trained):
    before = trained.read_bytes()
    done = call_cli(*COMMAND, cwd=Path())
    assert done.returncode == 0 and "had finished before" in done.stderr, done.stderr
    assert trained.read_bytes() == before
    record = Store().read_study("small")
    assert record and record.prediction and record.prediction.is_intact
    assert [rung.name for rung in record.rungs] == ["a", "b", "c"]


def test_a_prediction_may_differ_in_its_last_digit_alone():
    """Another numpy rounds 0.04995 to 0.0499 or 0.05."""
    of = Predicted(difference=0.05, low=0.04, high=0.06)
    before = frozen("c", {"sum": of}, "rows")
    record = make_record(name="s", prediction=before)
    rounded = frozen("c", {"sum": replace(of, low=0.0399)}, "rows")
    assert rounded.agrees(before) and before.agrees(rounded) and rounded.digest != before.digest
    assert grown(record, replace(record, prediction=rounded)).prediction == before
    others = [
        frozen("c", {"sum": replace(of, low=0.0398)}, "rows"),
        frozen("c", {}, "rows"),
        frozen("c", {"mean": of}, "rows"),
        frozen("b", {"sum": of}, "rows"),
        frozen("c", {"sum": of}, "other rows"),
    ]
    for other in others:
        assert not other.agrees(before) and not before.agrees(other)
        with pytest.raises(StoreError, match="does not follow from the rows below it"):
            grown(record, replace(record, prediction=other))


@pytest.mark.slow
@pytest.mark.parametrize("is_digested", [False, True])
def test_a_prediction_that_was_changed_is_noticed(trained, is_digested):
    record = Store().read_study("small")
    assert record and record.prediction
    prediction = record.prediction
    other = replace(prediction.of["sum"], low=-1.0)
    changed = frozen(prediction.rung, {"sum": other}, prediction.rows)
    plain = json.loads(trained.read_text(encoding="utf-8"))
    plain["prediction"]["of"]["sum"]["low"] = -1.0
    if is_digested:
        plain["prediction"]["digest"] = changed.digest
    trained.write_text(json.dumps(plain), encoding="utf-8")
    done = call_cli(*COMMAND, cwd=Path())
    assert (done.returncode, done.stdout) == (2, "") and len(done.stderr.splitlines()) == 1, done.stderr
    assert "name=small: the prediction of c, frozen on 20" in done.stderr
    assert "does not follow from the rows below it" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("finished", [4, 0])
def test_a_top_that_began_before_its_prediction_is_refused(trained, finished):
    shutil.rmtree(trained.parent)
    if not finished:
        one, *others = Path("runs/store").glob("*-d48x1-*")
        one.rename(one.with_name(f".{one.name}.part"))
        for other in others:
            shutil.rmtree(other)
    done = call_cli(*COMMAND, cwd=Path())
    assert (done.returncode, done.stdout) == (2, "") and len(done.stderr.splitlines()) == 1, done.stderr
    began = "4 runs" if finished else "1 run"
    assert f"c: {began} of it began before it was predicted, as " in done.stderr


@pytest.mark.slow
def test_a_ladder_takes_no_other_seeds(trained):
    before = trained.read_bytes()
    done = call_cli(*COMMAND, "study.seeds=[20,21]", cwd=Path())
    assert (done.returncode, done.stdout) == (2, "") and len(done.stderr.splitlines()) == 1, done.stderr
    assert "name=small: its rungs, their seeds or their steps were others" in done.stderr
    assert trained.read_bytes() == before


@pytest.mark.slow
def test_the_prediction_is_stored_before_a_run_of_the_top_begins(trained, monkeypatch):
    record = json.loads(trained.read_text(encoding="utf-8"))
    trained.write_text(json.dumps(record | {"prediction": None}), encoding="utf-8")
    below, *_ = Path("runs/store").glob("*-d32x1-*")
    for directory in (below, *Path("runs/store").glob("*-d48x1-*")):
        shutil.rmtree(directory)
    seen, placed = list[bool](), launchers.placed_here

    def looking(runs: Any, settings: Any) -> Any:
        runs = [*runs]
        if runs:
            record = Store().read_study("small")
            seen.append(any(run.config.heads == 3 for run in runs))
            assert record and (record.prediction is not None) == seen[-1]
        return placed(runs, settings)

    monkeypatch.setattr(launchers, "placed_here", looking)
    monkeypatch.setattr(launchers, "train_all", _train_in_turn)
    sweep = compose(["-cd", "conf", *SWEEP])
    assert sweep is not None
    Loop(sweep).run(lambda: None)
    assert seen == [False, True]


def _train_in_turn(runs: Any, known: Any, *, listen: Any, request_runs: Any, **_: Any) -> dict[str, str]:
    """Train these runs and those that follow, in this process."""
    while runs:
        for run in runs:
            train_or_wait(run, listen(run.name), known=known[run.name])
        runs = request_runs(1)
    return {}


@pytest.mark.slow
def test_a_dry_run_tells_time_and_memory_of_each_rung(conf, command):
    Path("mine.py").write_text(CONCAT.format(name="mine", line="pass"))
    declare(conf, **SHORT | {"arms": {"concat": {}, "of my own": {"fusion": "mine"}}})
    code, out, err = command("run", "--plugin", "mine.py", *COMMAND[1:], "--dry-run")
    assert code == 0, err
    for rung, runs in (("a", 10), ("b", 10), ("c", 4)):
        assert re.search(
            rf"^{rung}: [\d,]+ parameters, [\d,]+ tokens a run; {runs} runs, each about .* MB", out, re.M
        )
    assert "all of them: about" in out and "\n6 runs first; " in out
    assert "phase " not in out  # rungs are its phases


@pytest.mark.slow
def test_a_ladder_that_is_killed_comes_to_the_same_prediction(climbed_once, tmp_path, start, monkeypatch):
    shutil.copytree(climbed_once / "conf", tmp_path / "conf")
    monkeypatch.setattr(kills, "start", lambda root, sweep: start("run", "-cd", "conf", *sweep, cwd=root))
    number, _ = kills.kill_again_and_again(tmp_path, SWEEP, kills=1, longest_s=1, seed=0, commands=2)
    assert number == 1
    calm, _ = kills.state(climbed_once)
    assert "studies/small/study.json" in calm
    assert kills.differing(calm, kills.state(tmp_path)[0]) == []
