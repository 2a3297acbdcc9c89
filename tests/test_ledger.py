"""The ledger: entries and their freeze, verdicts by hand, what does not fit, and two entries rerun small."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import t as student

from ablate.config.identity import digest
from ablate.config.rules import ConfigError
from ablate.ledger import testing
from ablate.ledger.check import faults
from ablate.ledger.entry import Entry, Filed, find_entry, read_entries, read_entry, weights_of
from ablate.ledger.frozen import freeze, read_frozen, require_frozen
from ablate.ledger.judge import Verdict, judge
from ablate.ledger.page import page, state
from ablate.ledger.results import judged_again, keep
from ablate.store.columns import csv_text
from ablate.store.record import Choice, Role, StudyRecord, as_plain
from ablate.store.store import Store
from tests.helpers import ROOT, make_record, run_cli
from tests.test_compare import ROW

REPLICATED, NOT, UNDECIDED = Verdict.REPLICATED, Verdict.NOT, Verdict.UNDECIDED
WRITTEN = {
    **{"sentence": "Gates help.", "fusion": True, "published": "−0.04 nats", "settings": {"heads": 8}},
    "source": {"cite": "A (2025), B", "url": "https://example.org/b", "read": "the abstract was read"},
    "arms": {"concat": {"fusion": "concat"}, "gated": {"fusion": "gated"}, "uniform": {"scores": "uniform"}},
    **{"yardstick": "uniform - concat", "lr": [0.006, 0.012], "margin": 0.01, "seeds": [4, 8]},
    "predictions": [{"contrast": "gated - concat", "expect": "below"}],
}


def filed(path: Path, name: str = "001-gates", **changes: Any) -> Filed:
    content = {key: value for key, value in {**WRITTEN, **changes}.items() if value is not None}
    file = path / "claims" / f"{name}.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return Filed(name, read_entry(file))


def made(entry: Entry, losses: dict[str, list[float]]) -> tuple[pd.DataFrame, StudyRecord]:
    """The rows and the record of a study whose arms have these losses at the first reporting seeds."""
    rows, roles = [], {}
    for arm, values in losses.items():
        for k, loss in enumerate(values):
            run_id = hashlib.sha256(f"{arm}{k}".encode()).hexdigest()[:16]
            status = "done" if np.isfinite(loss) else "diverged"
            role = {"phase": "report", "role": "tuned", "tuned": "train.lr"}
            rows.append(
                {"run_id": run_id, "seed": entry.seed(k), "status": status, "test_loss": loss, **role}
            )
            values = {"tuned": [arm]}
            roles[run_id] = Role(phase="report", role="tuned", tuned="train.lr", values=values)
    seeds = sorted({entry.seed(k) for values in losses.values() for k in range(len(values))})
    record = make_record(
        name="001-gates", kind="tuned", seeds=seeds, runs=[row["run_id"] for row in rows], roles=roles
    )
    return pd.DataFrame(rows), replace(record, claim=entry.digest)


def kept(path: Path, one: Filed, losses: dict[str, list[float]]) -> Path:
    """Results of the entry, kept under `path`."""
    rows, record = made(one.entry, losses)
    study = path / "study"
    study.mkdir(exist_ok=True)
    full = [{**ROW, **row} for row in rows.to_dict("records")]
    (study / "results.csv").write_text(csv_text(full), encoding="utf-8")
    (study / "study.json").write_text(json.dumps(as_plain(record)), encoding="utf-8")
    keep(one, study, path / "results")
    return path / "results" / one.name


def four(middle: float, by: float = 0.001) -> list[float]:
    """Four losses around a middle, whose interval at 97.5 % is ±0.0027 for by=0.001."""
    return [2 + middle + by * one for one in (-1, -0.5, 0.5, 1)]


# --- entries ----------------------------------------------------------------------------------------


def test_every_entry_here_is_whole_and_frozen():
    entries = read_entries(ROOT / "claims")
    frozen = read_frozen(ROOT / "claims")
    assert len(entries) >= 12 and sum(one.entry.fusion for one in entries) >= 6
    for one in entries:
        require_frozen(one, frozen)
        assert not {one.entry.seed(k) for k in range(100)} & {int(seed) for seed in one.entry.develop}


def test_the_ledger_here_fits(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert faults() == []


def test_the_digest_is_of_what_an_entry_says_not_of_how(tmp_path):
    one = filed(tmp_path)
    path = tmp_path / "claims" / "001-gates.yaml"
    path.write_text("# words\n" + yaml.safe_dump(WRITTEN, sort_keys=True), encoding="utf-8")
    assert read_entry(path).digest == one.entry.digest
    assert filed(tmp_path, extend=3).entry.digest == one.entry.digest  # a default
    others = [
        filed(tmp_path, margin=0.02),
        filed(tmp_path, seeds=[4]),
        filed(tmp_path, sentence="Gates harm."),
        filed(tmp_path, predictions=[{"contrast": "gated - concat", "expect": "above"}]),
    ]
    assert len({one.entry.digest, *(other.entry.digest for other in others)}) == 5


def test_seeds_follow_from_the_digest(tmp_path):
    entry = filed(tmp_path).entry
    drawn = hashlib.sha256(f"{entry.digest}:3".encode()).digest()
    assert entry.seed(3) == int.from_bytes(drawn[:8], "big") % 2**31
    assert entry.study(8)["seeds"][:4] == entry.study(4)["seeds"]
    assert filed(tmp_path, margin=0.02).entry.seed(3) != entry.seed(3)


@pytest.mark.parametrize(
    ("contrast", "weights"),
    [
        ("a - b", {"a": 1, "b": -1}),
        ("a - b - c + d", {"a": 1, "b": -1, "c": -1, "d": 1}),
        (" a+a - b - c", {"a": 2, "b": -1, "c": -1}),
    ],
)
def test_a_contrast_is_arms_with_signs(contrast, weights):
    assert weights_of(contrast) == weights


@pytest.mark.parametrize("contrast", ["a", "a - a", "a - b + c", "a -", "2*a - b", "(a - b)", ""])
def test_what_is_no_contrast(contrast):
    with pytest.raises(ConfigError, match=r"write arms with as many − as \+"):
        weights_of(contrast)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predictions": []}, "without one there is no rule for a verdict"),
        ({"predictions": None}, "predictions: this key is missing"),
        ({"published": None}, "published: this key is missing"),
        ({"source": {"cite": "A", "url": "here", "read": "all"}}, "source.url=here: write the address"),
        ({"predictions": [{"contrast": "gate - concat", "expect": "below"}]}, "gate is no arm; there is"),
        ({"predictions": [{"contrast": "gated - concat", "expect": "less"}]}, "expect=less: not a choice"),
        (
            {"predictions": [{"contrast": "gated - concat", "expect": "below", "published": 0.04}]},
            "published=0.04 is not below 0",
        ),
        (
            {"predictions": [{"contrast": "gated - concat", "expect": "below", "bound": 0.04}]},
            "expect=below has no bound",
        ),
        (
            {"yardstick": None, "predictions": [
                {"contrast": "gated - concat", "expect": "at_most", "of_attention": 0.02}]},
            "yardstick: of_attention needs it",
        ),
        ({"seeds": [8, 8]}, r"seeds=\[8,8\]: write growing numbers"),
        ({"arms": {"a-b": {"fusion": "sum"}}}, r"arms=\[a-b\]: name them by letters"),
        ({"settings": {"haeds": 8}}, "write overrides, as {heads: 8}|no key of a run"),
        ({"sentance": "x"}, "sentance: no such key; did you mean sentence"),
        ({"develop": ["a"]}, "develop"),
    ],
)  # fmt: skip
def test_an_entry_that_is_not_whole_is_refused_in_a_line(tmp_path, change, message):
    with pytest.raises(ConfigError, match=message) as refused:
        filed(tmp_path, **change)
    assert str(refused.value).startswith(f"{tmp_path}/claims/001-gates.yaml: ")
    assert "\n" not in str(refused.value)


def test_names_and_numbers_of_files(tmp_path):
    filed(tmp_path)
    assert find_entry("1", tmp_path / "claims").name == "001-gates"
    with pytest.raises(ConfigError, match="7: no such entry; there is 001"):
        find_entry("7", tmp_path / "claims")
    filed(tmp_path, "001-again")
    with pytest.raises(ConfigError, match=r"001-gates\.yaml: 001-again has this number"):
        read_entries(tmp_path / "claims")
    (tmp_path / "claims" / "001-again.yaml").rename(tmp_path / "claims" / "again.yaml")
    with pytest.raises(ConfigError, match=r"again\.yaml: name it by a number and a word"):
        read_entries(tmp_path / "claims")
    with pytest.raises(ConfigError, match="no such directory here"):
        read_entries(tmp_path / "nowhere")


# --- the freeze -------------------------------------------------------------------------------------


def test_an_entry_is_frozen_once_and_a_changed_one_is_a_new_entry(tmp_path):
    one, claims = filed(tmp_path), tmp_path / "claims"
    with pytest.raises(
        ConfigError, match=r"001-gates: not frozen, so it can't be run; ablate claims freeze 001"
    ):
        require_frozen(one, read_frozen(claims))
    assert freeze(one, claims) and not freeze(one, claims)
    require_frozen(one, read_frozen(claims))
    assert state(one, None, read_frozen(claims)) == "frozen, not run yet"
    edited = filed(tmp_path, margin=0.02)
    assert state(edited, None, read_frozen(claims)) == "edited after it was frozen"
    for refuse in (lambda: freeze(edited, claims), lambda: require_frozen(edited, read_frozen(claims))):
        with pytest.raises(
            ConfigError, match=r"edited after it was frozen .* a new entry with the next number"
        ):
            refuse()


# --- verdicts ---------------------------------------------------------------------------------------


def test_a_verdict_by_hand(tmp_path):
    """Four paired differences of mean −0.02 and sd 0.001·√(2.5/3), at level 1 − 0.05/2 for two looks."""
    entry = filed(tmp_path).entry
    found = judge(entry, *made(entry, {"concat": [2.0] * 4, "gated": four(-0.02), "uniform": [2.5] * 4}))
    half = student.isf(0.0125, 3) * 0.001 * np.sqrt(2.5 / 3) / 2
    (one,) = found.found
    assert (one.diff, one.low, one.high) == pytest.approx((-0.02, -0.02 - half, -0.02 + half))
    assert (one.n, one.share, found.worth) == (4, pytest.approx(-0.04), pytest.approx(0.5))
    assert found.verdict is one.verdict is REPLICATED and found.level == 0.975


@pytest.mark.parametrize(
    ("prediction", "middle", "verdict"),
    [
        ({"expect": "below"}, -0.02, REPLICATED),
        ({"expect": "below"}, -0.002, NOT),  # within the margin
        ({"expect": "below"}, 0.02, NOT),
        ({"expect": "below"}, -0.0125, REPLICATED),
        ({"expect": "below", "published": -0.04}, -0.011, REPLICATED),
        ({"expect": "below", "published": -0.06}, -0.011, UNDECIDED),  # less than a quarter
        ({"expect": "below", "published": -0.06, "share": 0.1}, -0.011, REPLICATED),
        ({"expect": "above"}, 0.02, REPLICATED),
        ({"expect": "above", "published": 0.2}, 0.02, UNDECIDED),
        ({"expect": "above"}, -0.02, NOT),
        ({"expect": "within"}, 0.005, REPLICATED),
        ({"expect": "within"}, 0.010, UNDECIDED),
        ({"expect": "within"}, 0.02, NOT),
        ({"expect": "within"}, -0.02, NOT),
        ({"expect": "within", "bound": 0.03}, -0.02, REPLICATED),
        ({"expect": "at_most"}, -0.5, REPLICATED),
        ({"expect": "at_most"}, 0.02, NOT),
        ({"expect": "at_least"}, 0.5, REPLICATED),
        ({"expect": "at_least"}, -0.02, NOT),
        ({"expect": "at_most", "of_attention": 0.1}, 0.04, REPLICATED),  # 10 % of 0.5
        ({"expect": "at_most", "of_attention": 0.1}, 0.06, NOT),
        ({"expect": "at_most", "of_attention": 0.1}, 0.05, UNDECIDED),
        ({"expect": "at_least", "of_attention": 0.1}, -0.06, NOT),
        ({"expect": "within", "of_attention": 0.1}, -0.04, REPLICATED),
    ],
)
def test_verdicts(tmp_path, prediction, middle, verdict):
    entry = filed(tmp_path, predictions=[{"contrast": "gated - concat", **prediction}]).entry
    losses = {"concat": [2.0] * 4, "gated": four(middle), "uniform": [2.5] * 4}
    assert judge(entry, *made(entry, losses)).verdict is verdict


def test_all_predictions_have_to_hold_and_one_that_fails_decides(tmp_path):
    both = [
        {"contrast": "gated - concat", "expect": "below"},
        {"contrast": "uniform - concat", "expect": "above"},
    ]
    entry = filed(tmp_path, predictions=both).entry
    for gated, uniform, verdict in (
        (-0.02, 0.5, REPLICATED),
        (0.02, 0.5, NOT),
        (-0.02, -0.5, NOT),
    ):
        losses = {"concat": [2.0] * 4, "gated": four(gated), "uniform": four(uniform)}
        found = judge(entry, *made(entry, losses))
        assert found.verdict is verdict and found.level == 1 - 0.05 / 4


def test_a_diverged_run_leaves_it_undecided(tmp_path):
    entry = filed(tmp_path).entry
    losses = {"concat": [2.0] * 4, "gated": [*four(-0.02)[:3], np.inf], "uniform": [2.5] * 4}
    found = judge(entry, *made(entry, losses))
    assert (found.verdict, found.diverged) == (UNDECIDED, ["gated"])


@pytest.mark.parametrize("uniform", [[2.5, 2.5, 2.5, np.inf], [2.0] * 4, [1.5] * 4])
def test_without_a_worth_of_attention_nothing_is_a_share_of_it(tmp_path, uniform):
    share = {"contrast": "gated - concat", "expect": "at_most", "of_attention": 0.1}
    entry = filed(tmp_path, predictions=[share]).entry
    found = judge(entry, *made(entry, {"concat": [2.0] * 4, "gated": four(-0.02), "uniform": uniform}))
    (one,) = found.found
    assert one.verdict is found.verdict is UNDECIDED and np.isnan(one.share)


def test_rows_of_two_versions_of_a_method_are_refused(tmp_path):
    entry = filed(tmp_path).entry
    losses = {"concat": [2.0] * 4, "gated": four(-0.02), "uniform": [2.5] * 4}
    rows, record = made(entry, losses)
    rows = rows.assign(fusion="concat", scores="softmax", parts="a")
    judge(entry, rows, record)
    rows.loc[0, "parts"] = "b"
    with pytest.raises(ConfigError, match=r"several versions of the code .* force=stale"):
        judge(entry, rows, record)


def test_a_date_in_an_entry_is_a_value_like_any(tmp_path):
    text = tmp_path / "claims" / "001-gates.yaml"
    filed(tmp_path, settings={"heads": 8, "corpus.path": "DATE"})
    text.write_text(text.read_text().replace("DATE", "2024-01-01"))
    assert len(find_entry("1", tmp_path / "claims").entry.digest) == 64


@pytest.mark.parametrize("content", ["[]", '{"001-gates": {}}', '{"001-gates": 3}', "{"])
def test_a_damaged_freeze_is_refused_in_a_line(tmp_path, content):
    filed(tmp_path)
    (tmp_path / "claims" / "frozen.json").write_text(content)
    with pytest.raises(ConfigError, match=r"frozen\.json: not readable .* restore it"):
        read_frozen(tmp_path / "claims")


def test_rows_of_other_seeds_or_of_some_arms_are_refused(tmp_path):
    entry = filed(tmp_path).entry
    losses = {"concat": [2.0] * 4, "gated": four(-0.02), "uniform": [2.5] * 4}
    rows, record = made(entry, losses)
    with pytest.raises(ConfigError, match="its reporting seeds are not the first 4, 8 of the entry's"):
        judge(entry, rows, replace(record, seeds=[1, 2, 3, 4]))
    with pytest.raises(ConfigError, match="arm gated: 1 of its 4 reporting runs have no result"):
        judge(entry, rows.drop(5), record)


# --- what does not fit ------------------------------------------------------------------------------


def test_what_does_not_fit_is_named(tmp_path):
    one, claims, results = filed(tmp_path), tmp_path / "claims", tmp_path / "results"
    ledger = tmp_path / "ledger.md"
    losses = {"concat": [2.0] * 4, "gated": four(-0.02), "uniform": [2.5] * 4}

    def said() -> list[str]:
        return faults(claims, results, ledger)

    ledger.write_text(page(claims, results), encoding="utf-8")
    assert said() == [] and "not frozen" in ledger.read_text(encoding="utf-8")
    directory = kept(tmp_path, one, losses)
    assert "not frozen" in said()[0]
    freeze(one, claims)
    assert said() == [f"{ledger}: not what the files give; ablate claims page writes it"]
    ledger.write_text(page(claims, results), encoding="utf-8")
    assert said() == [] and "**Replicated at this scale.** 4 paired seeds" in ledger.read_text(
        encoding="utf-8"
    )

    verdict = directory / "verdict.json"
    content = json.loads(verdict.read_text())
    verdict.write_text(json.dumps({**content, "verdict": NOT}))
    assert "verdict does not follow from results.csv" in said()[0]
    verdict.write_text(json.dumps(content))

    table = directory / "results.csv"
    whole = table.read_text(encoding="utf-8")
    table.write_text("\n".join(whole.splitlines()[:-1]) + "\n", encoding="utf-8")
    assert "lacks 1 of the 12 runs that study.json lists" in said()[0]
    table.write_text(whole, encoding="utf-8")
    lines = whole.splitlines(keepends=True)
    table.write_text("".join([*lines, lines[-1]]), encoding="utf-8")
    assert "has a run twice, or in another phase or role" in said()[0]
    table.write_text("".join([*lines[:-1], lines[-1].replace(",report,", ",develop,")]), encoding="utf-8")
    assert "has a run twice, or in another phase or role" in said()[0]
    table.write_text("".join([*lines[:-1], lines[-1].replace("c0de", "c1de")]), encoding="utf-8")
    assert "001-gates: its rows are of several versions of the code or of torch" in said()[0]
    table.write_text(whole, encoding="utf-8")
    assert said() == []

    filed(tmp_path, sentence="Gates help a lot.")
    assert "edited after it was frozen" in said()[0]
    (claims / "001-gates.yaml").unlink()
    assert said()[0] == "001-gates: frozen, but its file is gone; restore it"


def test_results_of_another_entry_are_refused(tmp_path):
    one, other = filed(tmp_path), filed(tmp_path, "002-gates", margin=0.02)
    losses = {"concat": [2.0] * 4, "gated": four(-0.02), "uniform": [2.5] * 4}
    directory = kept(tmp_path, one, losses)
    shutil.copytree(directory, directory.parent / other.name)
    with pytest.raises(ConfigError, match="its runs were made for digest"):
        judged_again(other, directory.parent)


# --- runs -------------------------------------------------------------------------------------------


def test_an_unfrozen_entry_is_not_run_and_only_launchers_may_be_chosen(tmp_path):
    filed(tmp_path)
    refused = run_cli("claims", "run", "001", cwd=tmp_path)
    assert refused.returncode == 2 and "001-gates: not frozen" in refused.stderr
    refused = run_cli("claims", "run", "001", "train.steps=3", cwd=tmp_path)
    assert refused.returncode == 2 and "train.steps=3: a claim is run as it was frozen" in refused.stderr
    listed = run_cli("claims", cwd=tmp_path)
    assert listed.returncode == 0 and "001-gates  not frozen" in listed.stdout
    frozen = run_cli("claims", "freeze", "001", cwd=tmp_path)
    assert frozen.returncode == 0 and "001-gates: frozen" in frozen.stdout
    wrong = run_cli("claims", "check", cwd=tmp_path)
    assert wrong.returncode == 1 and "ablate claims page writes it" in wrong.stderr


def test_an_entry_that_can_not_be_run_is_not_frozen(tmp_path):
    filed(tmp_path, settings={**SMALL, "corpus.characters": 20_000, "heads": 7})
    refused = run_cli("claims", "freeze", "001", cwd=tmp_path)
    assert refused.returncode == 2 and "heads=7: does not divide" in refused.stderr
    assert not (tmp_path / "claims" / "frozen.json").exists()


def _last_run(path: Path, one: Filed) -> str:
    """The run id of an arm at the last reporting seed."""
    rows = pd.read_csv(path / "docs" / "results" / one.name / "results.csv", dtype={"run_id": str})
    return str(rows[rows["seed"] == one.entry.seed(2)]["run_id"].iloc[0])


SMALL = {"model.context": 16, "train.batch": 2, "train.steps": 6, "train.eval_every": 3, "corpus": "grammar"}


@pytest.mark.slow
def test_an_entry_is_run_looked_at_again_and_judged(tmp_path):
    """Two looks; then from its rows the same verdict, and the same runs. Intervals that hold together for
    fifty predictions are so wide that two seeds decide none."""
    settings = {**SMALL, "corpus.characters": 20_000, "heads": 4}
    rule = {"predictions": 50 * WRITTEN["predictions"], "margin": 1e-6, "develop": [0], "extend": 0}
    one = filed(tmp_path, settings=settings, seeds=[2, 3], **rule)
    assert run_cli("claims", "freeze", "001", cwd=tmp_path).returncode == 0
    done = run_cli("claims", "run", "001", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("001-gates: ")]
    judged = judged_again(one, tmp_path / "docs" / "results")
    assert judged is not None
    assert told == f"001-gates: {judged.verdict}"
    assert run_cli("claims", "page", cwd=tmp_path).returncode == 0
    assert run_cli("claims", "check", "--runs", cwd=tmp_path).stdout == "the ledger fits\n"
    again = run_cli("claims", "run", "001", cwd=tmp_path)
    assert again.returncode == 0 and again.stdout == done.stdout
    assert judged.found[0].n == 3
    (lost,) = Store(tmp_path / "runs").directories([_last_run(tmp_path, one)]).values()
    shutil.rmtree(lost)  # as if the second look had been interrupted
    resumed = run_cli("claims", "run", "001", cwd=tmp_path)
    assert resumed.returncode == 0 and resumed.stdout == done.stdout, resumed.stderr
    (old,) = Store(tmp_path / "runs").directories([_last_run(tmp_path, one)]).values()
    result = {**json.loads((old / "result.json").read_text()), "code": "0" * 12}  # as if the code had changed
    files = result.pop("files")
    del result["seal"]
    sealed = {**result, "files": files, "seal": digest([result, files])}
    (old / "result.json").write_text(json.dumps(sealed))
    stale = run_cli("claims", "run", "001", cwd=tmp_path)
    assert stale.returncode == 2 and "ablate claims run with force=stale" in stale.stderr
    renewed = run_cli("claims", "run", "001", "force=stale", cwd=tmp_path)
    assert renewed.returncode == 0 and renewed.stdout == done.stdout, renewed.stderr
    compared = run_cli("compare", "docs/results/001-gates", "--baseline", "fusion=concat", cwd=tmp_path)
    assert compared.returncode == 0 and "gated" in compared.stdout, compared.stderr


def test_an_arm_that_diverges_at_every_rate_leaves_it_undecided(tmp_path):
    entry = filed(tmp_path).entry
    rows, record = made(entry, {"concat": [2.0] * 4, "uniform": [2.5] * 4})
    record = replace(record, chosen={"gated": Choice(None, "no value: all diverged")})
    found = judge(entry, rows, record)
    assert (found.verdict, found.diverged) == (UNDECIDED, ["gated"])


@pytest.mark.slow
@pytest.mark.parametrize("number", ["002", "006"])
def test_an_entry_of_ours_rerun_small_makes_the_runs_that_it_asks_for(number, tmp_path):
    shutil.copytree(ROOT / "claims", tmp_path / "claims")
    done = run_cli("claims", "run", number, "--trial", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    entry = find_entry(number, ROOT / "claims").entry
    arms = len(entry.arms)
    runs = arms * (len(entry.lr) * len(testing.TRIAL_DEVELOP) + len(testing.TRIAL_SEEDS))
    assert f"{runs} runs of a trial, which shows nothing of the result" in done.stdout
    names = Store(tmp_path / "runs").study_names()
    assert names == [f"trial-{find_entry(number, ROOT / 'claims').name}"]  # so the claim itself can be run
