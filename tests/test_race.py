"""`ablate race`: what it runs and reads, what it says of it, and that nothing which is killed changes it."""

import csv
import itertools
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from ablate.race import metric
from ablate.race.verdict import doubts
from tests.helpers import ROOT, call_cli

# A loss that scatters by its seed, and from one key to another, reckoned by the shell alone.
RUN = "n=$(({seed}+%s)); echo loss: $(({seed} * 7 %% 5 + %s)).$((n * n * 7919 %% 8999 + 1000))"
HOW_MANY = "give two to eight that differ, or --null"
LOWER = ("--metric", "loss", "--lower-is-better")


def side(shift: int, key: str = "") -> str:
    return RUN % (sum(map(ord, key)) or shift, shift)


def race(*words: str, cwd: Path, code: int) -> str:
    """Its output and its errors."""
    done = call_cli("race", *words, cwd=cwd)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def answered(*words: str, cwd: Path, code: int) -> dict[str, Any]:
    done = call_cli("race", *words, "--format", "json", cwd=cwd)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def rows(cwd: Path, of: str = "*") -> list[dict[str, str]]:
    (table,) = cwd.glob(f"runs/races/{of}/results.csv")
    with table.open(newline="") as file:
        return [*csv.DictReader(file)]


def refusal(*words: str, cwd: Path) -> str:
    done = call_cli("race", *words, cwd=cwd)
    assert done.returncode == 2 and done.stdout == ""
    return done.stderr.splitlines()[-1]


# --- what a run says ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, value",
    [
        ("loss: 3\nMETRIC loss=1.5e-05\n", 1.5e-05),
        ("step 3 train_loss=2 loss = -.5  \n", -0.5),
        ('loss=9\n{"step": 3, "loss": 2.5E+3, "best_loss": 1}\nbye', 2500),
        ("loss: 1\r50 % loss: 2\rloss: \x1b[1m3\x1b[0m\n", 3),
        ("loss: 1\nbest_loss: 0\nval/loss: 0\nloss: 2 of 3\nloss: 1,000\n", 1),
        ("{'loss': 1.5, 'epoch': 2}\nloss=7, epoch 3\n", 1.5),
        ("loss: nothing", None),
    ],
)
def test_the_metric_is_what_is_said_last(text, value, tmp_path):
    (tmp_path / "log.txt").write_text(text)
    assert metric.read(tmp_path, "loss", "") == value


@pytest.mark.parametrize("text", ["loss=1\nloss=NaN", '{"loss": NaN}', '{"loss": null}', "loss: -nan"])
def test_what_is_no_number_is_told_from_nothing(text, tmp_path):
    (tmp_path / "log.txt").write_text(text)
    assert str(metric.read(tmp_path, "loss", "")) == "nan"
    (tmp_path / "log.txt").write_text("loss: -Infinity")
    assert metric.read(tmp_path, "loss", "") == -np.inf


@pytest.mark.parametrize(
    "pattern", [r"val loss ([\d.]+)", "val loss", r"val loss \S+", r"[\d.e-]+$", r"step \d+:.+ val loss"]
)
def test_a_pattern_finds_whole_numbers(pattern, tmp_path):
    (tmp_path / "log.txt").write_text(
        "step 0: train loss 1, val loss 2.5\nstep 10: train loss 1.2, val loss 1.25e-3\n"
    )
    assert metric.read(tmp_path, "metric", pattern) == 1.25e-3


def test_files_of_a_run(tmp_path):
    (tmp_path / "a.csv").write_text("step,loss\n1,3\n2,2e-1\n3,\n")
    (tmp_path / "a.json").write_text(json.dumps({"loss": 0.25, "other": {"x": 1}}, indent=1))
    assert [metric.read(tmp_path, "loss", name) for name in ("a.csv", "a.json", "b.csv")] == [0.2, 0.25, None]


# --- verdicts, by exit codes --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, code, verdict",
    [
        ((side(5), side(4), *LOWER), 0, "better"),
        ((side(4), side(5), *LOWER), 10, "worse"),
        ((side(4), side(5), *LOWER[:2], "--higher-is-better"), 0, "better"),
        ((side(4), side(4, "b"), *LOWER, "--margin", "2"), 11, "equivalent"),
        ((side(4), side(4, "b"), *LOWER, "--seeds", "7"), 12, "undecided"),
        ((side(4), side(4, "b"), side(5), side(3), *LOWER, "--seeds", "7"), 12, "undecided"),
        ((side(5), side(4), side(6), *LOWER), 0, "better"),
    ],
)
def test_exit_codes_say_the_verdict(words, code, verdict, tmp_path):
    assert f" is {verdict}: loss " in race(*words, cwd=tmp_path, code=code)


@pytest.mark.slow
def test_runs_take_turns_and_end_at_the_look_that_decides(tmp_path):
    noted = f"echo {{seed}}%s >> {tmp_path}/order; "
    both = [noted % "a" + side(5), noted % "b" + side(4)]
    out = race(*both, *LOWER, "-n", "a", "-n", "b", cwd=tmp_path, code=0)
    assert "nan" not in out
    assert " ".join((tmp_path / "order").read_text().split()) == "0a 0b 1b 1a 2a 2b 3b 3a 4a 4b 5b 5a"
    assert out.count(" on average, ") == 6 and "6 of at most 24 pairs" in out and "6 seeds of 24: b " in out
    assert [*rows(tmp_path)[0]] == ["method", "seed", "loss", "seconds", "status"]
    table = "runs/races/a-b/results.csv"
    done = call_cli("compare", table, "--by", "method", "--baseline", "method=a", *LOWER, cwd=tmp_path)
    assert "method=b saves" in done.stdout and "6 paired seeds" in done.stdout
    (tmp_path / table).write_text("edited")
    found = answered(*both, *LOWER, "-n", "a", "-n", "b", cwd=tmp_path, code=0)
    assert found["rows"][1]["verdict"] == "better" and len(found["answer"]) == 2
    assert len((tmp_path / "order").read_text().split()) == len(rows(tmp_path)) == 12


def test_words_in_braces(tmp_path):
    words = "echo '{seed} {slot} {other}' > {out}/said; " + side(5)
    given = ["--jobs", "3", "--seeds", "3", "-n", "a", "-n", "b"]
    race(words, words + " #", *LOWER, *given, cwd=tmp_path, code=12)
    said = [path.read_text().split() for path in sorted(tmp_path.glob("runs/races/a-b/runs/a-*/said"))]
    assert [one[0] for one in said] == ["0", "1", "2"] and {one[1] for one in said} <= {"0", "1", "2"}
    assert {one[2] for one in said} == {"{other}"}


def test_prepare_and_warm_up(tmp_path):
    noted = f"echo {{seed}} >> {tmp_path}/order; "
    given = ("--prepare", f"echo p >> {tmp_path}/order", "--warmup", "1", "--seeds", "2")
    race(noted + side(5), noted + side(4), *LOWER, *given, cwd=tmp_path, code=12)
    assert " ".join((tmp_path / "order").read_text().split()) == "p 2 p 2 p 0 p 0 p 1 p 1"
    assert len(rows(tmp_path)) == 4


@pytest.mark.slow
def test_time_ends_a_race_with_the_share_of_its_look(tmp_path, monkeypatch):
    """By a clock on which each pair takes a second."""
    both = (side(4), side(4, "b"), *LOWER, "-n", "a", "-n", "b")
    monkeypatch.setattr("ablate.race.verdict.time", SimpleNamespace(monotonic=itertools.count().__next__))
    ended = answered(*both, "--time", "10s", cwd=tmp_path, code=12)
    plan = json.loads((tmp_path / "runs/races/a-b/race.json").read_text())
    assert plan["looks"] == [6, 8, 9, 12, 16, 24] and len(rows(tmp_path)) == 18
    values_SM = np.reshape([float(row["loss"]) for row in rows(tmp_path)], (9, 2))
    one, apart = ended["rows"][1], values_SM[:, 1] - values_SM[:, 0]
    half = scipy_stats.t.ppf(1 - 0.05 * (9 - 8) / 24 / 2, 8) * apart.std(ddof=1) / 3
    assert (one["low"], one["high"]) == pytest.approx((apart.mean() - half, apart.mean() + half))
    nothing = answered(
        side(4), side(4, "b"), *LOWER, "-n", "c", "-n", "d", "--time", "0s", cwd=tmp_path, code=12
    )
    assert nothing["rows"][1]["n"] == 0


@pytest.mark.slow
def test_tries_divide_the_level(tmp_path):
    both = (side(4), side(4, "b"), *LOWER, "--seeds", "6")
    widths = []
    for tries in ("1", "20"):
        row = answered(*both, "--tries", tries, "-n", "a", "-n", tries, cwd=tmp_path, code=12)["rows"][1]
        widths.append(row["high"] - row["low"])
    assert widths[1] / widths[0] == pytest.approx(
        scipy_stats.t.ppf(1 - 0.05 / 40, 5) / scipy_stats.t.ppf(0.975, 5)
    )


@pytest.mark.slow
def test_null_says_what_is_noise(tmp_path):
    assert "runs of one seed differ with sd 0" in race(side(4), "--null", *LOWER, cwd=tmp_path, code=12)


# --- failures -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_unequal_failures_take_the_verdict_and_what_diverges_is_told(tmp_path):
    odd = "[ {seed} = 2 ] && exit 1; [ {seed} = 3 ] && echo loss: inf && exit 0; "
    out = race(side(5), odd + side(4), *LOWER, "--seeds", "8", cwd=tmp_path, code=12)
    assert "they failed or diverged at unequal numbers of seeds" in out and out.count("diverged at seed") == 1
    assert "6 of at most 8 pairs" in out  # A pair with a run that is lost has no value
    lost = [(row["seed"], row["loss"], row["status"]) for row in rows(tmp_path) if row["status"] != "done"]
    assert lost == [("2", "", "failed"), ("3", "inf", "diverged")]


@pytest.mark.slow
def test_two_failures_in_a_row_end_it_and_are_not_repeated(tmp_path):
    fails = f"echo . >> {tmp_path}/count; [ {{seed}} -gt 1 ] && echo why && exit 3; "
    both = (side(5), fails + side(4), *LOWER, "-n", "a", "-n", "b")
    line = refusal(*both, cwd=tmp_path)
    assert "b failed twice in a row" in line and line.endswith("ends: why")
    refusal(*both, cwd=tmp_path)
    assert (tmp_path / "count").read_text().count(".") == 5
    assert [row["seed"] for row in rows(tmp_path) if row["status"] == "failed"] == ["2", "3", "4"]


def test_without_a_seed(tmp_path):
    counts = f"echo . >> {tmp_path}/n; echo loss: $(wc -l < {tmp_path}/n)"
    both = (counts, "echo loss: 100", "--no-seed", *LOWER)
    race(*both, "--seeds", "2", cwd=tmp_path, code=12)
    assert [row["loss"] for row in rows(tmp_path)] == ["1.0", "100.0", "2.0", "100.0"]


# --- what ruins it ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_option_that_does_nothing_is_found(tmp_path):
    out = race(side(4), side(4) + " #", *LOWER, cwd=tmp_path, code=12)
    assert "every pair differs by the same: perhaps what differs does nothing" in out
    assert len(rows(tmp_path)) == 12


@pytest.mark.slow
def test_a_seed_that_never_arrives_is_found(tmp_path):
    out = race("echo loss: 3; : {seed}", side(1), *LOWER, cwd=tmp_path, code=12)
    assert "(one gave the same at every seed" in out and len(rows(tmp_path)) == 12
    race("echo loss: 9", side(1), *LOWER, "--no-seed", "-n", "known", cwd=tmp_path, code=0)


def test_doubts():
    scatter = np.random.default_rng(0).standard_normal((2, 12))
    values = pd.DataFrame(scatter, index=["a", "b"])
    assert doubts(values) == []
    far = values.copy()
    far.loc["b", 7] = 40
    assert doubts(far) == ["b: seed 7 is far from others: read both logs"]
    assert "drift" in doubts(values + 3 * np.arange(12))[0]


# --- bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, line",
    [
        ((side(1), "echo loss: 1", *LOWER), "echo loss: 1: put {seed} in, or give --no-seed"),
        (("no-such-program {seed}", side(1), *LOWER), "A: no such command; "),
        ((side(1), side(2), *LOWER, "-n", "a/b"), "a/b and B: name each with -n, without a /"),
        ((side(1), side(2), "--metric", "acc", "--lower-is-better"), "A: it gave no acc; "),
        (("echo acc: 1; echo loss; : {seed}", side(2), *LOWER), "log.txt ends: acc: 1"),
        ((side(1), side(2), *LOWER, "--seeds", "1"), "--seeds 1: "),
        ((side(1), side(1), *LOWER), f"2 commands: {HOW_MANY}"),
        ((side(1), *LOWER), f"1 command: {HOW_MANY}"),
        ((side(1), side(2), "--metric", "loss"), "missing option '--higher-is-better'"),
        ((side(1), side(2), "--lower-is-better"), "A: it gave no metric; "),
        ((side(1), side(2), *LOWER[2:], "--metric", "seconds"), "--metric seconds: the table has such"),
        ((side(1), side(2), *LOWER, "--pattern", "("), "--from/--pattern (: no regular expression (miss"),
        ((side(1), side(2), *LOWER, "--from", "a(.csv"), "A: it gave no loss by a(.csv; "),
        ((side(1), side(2), *LOWER, "--prepare", "false"), "--prepare failed before seed 0 of A; "),
        ((side(1), side(2), *LOWER, "--time", "5"), "--time 5: give a number and s, m, h or d"),
        ((side(1), side(2), *LOWER, "--margin", "inf"), "--margin inf: "),
    ],
)
def test_bad_input_is_one_line(words, line, tmp_path):
    assert line in refusal(*words, cwd=tmp_path)
    assert not [*tmp_path.glob("runs/races/*/results.csv")]


def test_another_race_is_refused_and_the_first_one_kept(tmp_path):
    (tmp_path / "t.py").write_text("")
    both = (side(5) + " # t.py", side(4), "-n", "a", "-n", "b", *LOWER, "--seeds", "2")
    race(*both, cwd=tmp_path, code=12)
    before = rows(tmp_path)
    assert "a-b has another race, with other margin and seeds" in refusal(
        *both[:-1], "3", "--margin", "1", cwd=tmp_path
    )
    (tmp_path / "t.py").write_text("pass")
    assert "another race, with other scripts" in refusal(*both, cwd=tmp_path)
    state = tmp_path / "runs/races/a-b/race.json"
    for text in ("", "[]", '{"runs": []}'):
        state.write_text(text)
        assert "race.json: can't be read (" in refusal(*both, cwd=tmp_path)
        assert state.read_text() == text and rows(tmp_path) == before


@pytest.mark.slow
def test_a_race_that_is_killed_25_times_ends_with_the_same_table():
    command = [sys.executable, "-m", "tests.killing", "races", "25"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "25 kills\n", done.stderr
