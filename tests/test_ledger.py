"""The ledger: entries and their freeze, verdicts by hand, what does not fit, and two entries rerun small."""

import functools
import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from scipy.stats import t as student

from ablate.analysis.frames import frame
from ablate.config.identity import digest
from ablate.config.rules import ConfigError
from ablate.execution.execute import describe
from ablate.execution.run import PlacedRun, prepare
from ablate.ledger import testing
from ablate.ledger.entry import (
    CLAIMS,
    FROZEN,
    Claim,
    Entry,
    find_claim,
    find_entry,
    read_claim,
    read_claims,
    read_entries,
    read_frozen,
)
from ablate.ledger.freeze import freeze, require_frozen
from ablate.ledger.judge import RESULTS, Verdict, judge, judged, keep
from ablate.ledger.page import PAGE, faults, page, state
from ablate.store.record import Choice, PlannedLooks, Role, StudyRecord, as_plain
from ablate.store.store import Store
from ablate.study.study import Study
from tests.helpers import ROOT, call_cli, make_config, make_record, reseal

REPLICATED, NOT, UNDECIDED = Verdict.REPLICATED, Verdict.NOT, Verdict.UNDECIDED
WRITTEN = {
    **{"sentence": "Gates help.", "published": "−0.04 nats", "settings": {"heads": 8}},
    "source": {"cite": "A (2025), B", "url": "https://example.org/b", "read": "the abstract was read"},
    "arms": {"concat": {"fusion": "concat"}, "gated": {"fusion": "gated"}, "uniform": {"scores": "uniform"}},
    **{"lr": [0.006, 0.012], "margin": 0.01, "seeds": [4, 8]},
    "predictions": [{"contrast": "gated - concat", "expect": "below"}],
}
PRIMARY = {
    "gated - concat": {"vary": "fusion", "baseline": "concat", "where": {"scores": "softmax"}},
    "uniform - concat": {"vary": "scores", "baseline": "softmax", "where": {"fusion": "concat"}},
}


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def filed(name: str = "001-gates", **changes: Any) -> Any:
    """The entry, or of a withdrawn one the claim."""
    content = {key: value for key, value in {**WRITTEN, **changes}.items() if value is not None}
    file = CLAIMS / f"{name}.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return read_claim(file)


def commit() -> None:
    """A repository with the entries."""
    me = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "claims"), (*me, "commit", "-qm", "Entries")):
        subprocess.run(["git", *words], check=True)


def frozen_here() -> list[Entry]:
    """All entries, frozen as one batch."""
    commit()
    freeze(read_entries(), {})
    return read_entries()


def expecting(expect: str, **more: Any) -> dict[str, Any]:
    return {"predictions": [{"contrast": "gated - concat", "expect": expect, **more}]}


@functools.cache
def untrained(*arm: str) -> PlacedRun:
    return prepare(
        make_config("corpus=grammar", "corpus.characters=5000", "model.context=16", "heads=8", *arm)
    )


def made(entry: Entry, losses: dict[str, list[float]]) -> tuple[pd.DataFrame, StudyRecord]:
    """The rows and the record of a study whose arms have these losses at the first reporting seeds."""
    rows, roles = list[dict[str, Any]](), {}
    for arm, values in losses.items():
        run = untrained(*(f"{key}={value}" for key, value in entry.arms[arm].items()))
        for k, loss in enumerate(values):
            row = describe(run.with_seeds(replace(run.config, seed=entry.seed(k))))
            own = {"phase": "report", "role": "tuned", "tuned": "train.lr"}
            ended = {"status": "done", "test_loss": loss} if np.isfinite(loss) else {"status": "diverged"}
            rows.append({**row, **ended, **own})
            roles[row["run_id"]] = Role(**own, values={"tuned": [arm]})
    contrasts = [*dict.fromkeys(one.contrast for one in entry.predictions)]
    looks = PlannedLooks(at=entry.seeds, seeds=entry.reporting_seeds, contrasts=len(contrasts))
    record = make_record(
        **{"name": entry.name, "kind": "tuned", "runs": [*roles], "roles": roles, "looks": looks},
        **{"primary": [PRIMARY[name] for name in contrasts], "metric": "test_loss", "margin": entry.margin},
        **{"declared": {"tune": "train.lr"}, "claim": entry.digest},
    )
    return frame(json.loads(json.dumps(rows))), record


def kept(one: Entry, losses: dict[str, list[float]]) -> Path:
    """The directory with the results of the entry."""
    rows, record = made(one, losses)
    study = Path("study")
    study.mkdir(exist_ok=True)
    rows.to_csv(study / "results.csv", index=False)
    (study / "study.json").write_text(json.dumps(as_plain(record)), encoding="utf-8")
    keep(one, study)
    return RESULTS / one.name


def four(middle: float, by: float = 0.001) -> list[float]:
    """Four losses around a middle, whose interval at 97.5 % is ±0.0019 for by=0.001."""
    return [2 + middle + by * one for one in (-1, -0.5, 0.5, 1)]


def losses_of(gated: float = -0.02) -> dict[str, list[float]]:
    """Of all arms. gated: its middle, against concat."""
    return {"concat": [2.0] * 4, "gated": four(gated), "uniform": [2.5] * 4}


# --- entries ----------------------------------------------------------------------------------------


def test_what_is_frozen_never_changes(monkeypatch):
    """Whatever becomes of the code that reads entries. All fourteen of the first edition stay as texts."""
    monkeypatch.chdir(ROOT)
    claims, frozen = read_claims(), read_frozen()
    for one in claims:
        require_frozen(one, frozen)
    withdrawn = [one for one in claims if not isinstance(one, Entry)]
    assert {state(one, None, frozen) for one in withdrawn} == {"withdrawn: first edition"}
    of_all = "434862ab8d08061a360803089aec55aef7369f6229ca6582ca91bc4b5d692091"
    assert len(withdrawn) == 14 and digest(sorted(one.digest for one in withdrawn)) == of_all
    assert faults() == []


def test_the_digest_is_of_what_an_entry_says_not_of_how_and_gives_the_seeds():
    one = filed()
    drawn = hashlib.sha256(f"{one.digest}:3".encode()).digest()
    assert one.seed(3) == int.from_bytes(drawn[:8], "big") % 2**31
    assert one.study["seeds"] == [one.seed(k) for k in range(8)] and one.study["looks"] == [4, 8]
    path = CLAIMS / "001-gates.yaml"
    path.write_text("# words\n" + yaml.safe_dump(WRITTEN, sort_keys=True), encoding="utf-8")
    assert read_claim(path).digest == one.digest
    changes: tuple[dict[str, Any], ...]
    changes = ({"margin": 0.02}, {"seeds": [4]}, {"sentence": "Gates harm."}, expecting("above"))
    others = [filed(**change) for change in changes]
    assert len({one.digest, *(other.digest for other in others)}) == 5
    assert others[0].seed(3) != one.seed(3)
    path.write_text("digest: 0\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(ConfigError, match="digest: it follows from the file"):
        read_claim(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predictions": []}, "without one there is no rule for a verdict"),
        ({"predictions": None}, "predictions: this key is missing"),
        ({"published": None}, "published: this key is missing"),
        ({"source": {"cite": "A", "url": "here", "read": "all"}}, "source.url=here: write the address"),
        (expecting("below", contrast="gate - concat"), "gate is no arm; there is"),
        (expecting("below", contrast="gated - concat - uniform"), "name two arms, as gated - concat"),
        (expecting("below", contrast="gated"), "name two arms, as gated - concat"),
        (expecting("less"), "expect=less: not a choice"),
        (expecting("below", published=0.04), "published=0.04 is not below 0"),
        (expecting("below", bound=0.04), "expect=below has no bound"),
        (expecting("at_most", published=0.04), "expect=at_most takes a bound; leave published out"),
        ({"seeds": [8, 8]}, r"seeds=\[8,8\]: looks are numbers of seeds, each above the one before"),
        ({"seeds": []}, r"seeds=\[\]: a claim has a last look"),
        ({"arms": {"a-b": {"fusion": "sum"}}}, r"arms=\[a-b\]: name them by letters"),
        ({"settings": {"haeds": 8}}, "write overrides, as {heads: 8}|no key of a run"),
        ({"sentance": "x"}, "sentance: no such key; did you mean sentence"),
        ({"develop": ["a"]}, "develop"),
    ],
)
def test_an_entry_that_is_not_whole_is_refused_in_a_line(change, message):
    with pytest.raises(ConfigError, match=message) as refused:
        filed(**change)
    assert str(refused.value).startswith("claims/001-gates.yaml: ")
    assert "\n" not in str(refused.value)


def test_names_and_numbers_of_files():
    filed()
    assert find_entry("1").name == "001-gates"
    with pytest.raises(ConfigError, match="7: no such entry; choices: 001"):
        find_entry("7")
    filed("001-again")
    with pytest.raises(ConfigError, match=r"001-gates\.yaml: 001-again has this number"):
        read_entries()
    (CLAIMS / "001-again.yaml").rename(CLAIMS / "again.yaml")
    with pytest.raises(ConfigError, match=r"again\.yaml: name it by a number and a word"):
        read_entries()
    shutil.rmtree(CLAIMS)
    with pytest.raises(ConfigError, match="no such directory here"):
        read_entries()


# --- the freeze -------------------------------------------------------------------------------------


def test_an_entry_is_frozen_once_and_a_changed_one_is_a_new_entry():
    one = filed()
    unfrozen = r"001-gates: not frozen, so it can't be run; ablate claims freeze 001"
    with pytest.raises(ConfigError, match=unfrozen):
        require_frozen(one, read_frozen())
    with pytest.raises(ConfigError, match=r"001-gates.yaml: .*; commit the entry, then freeze it"):
        freeze([one], {})
    commit()
    freeze([one], {})
    with pytest.raises(ConfigError, match=r"001-gates: frozen already, on 2.*; run it, or leave it out"):
        freeze([one], {})
    require_frozen(one, read_frozen())
    assert state(one, None, read_frozen()) == "frozen, not run yet"
    edited = filed(margin=0.02)
    assert state(edited, None, read_frozen()) == "edited after it was frozen"
    again = r"edited after it was frozen .* a new entry with the next number"
    frozen = read_frozen()
    for refuse in (lambda: freeze([edited], {}), lambda: require_frozen(edited, frozen)):
        with pytest.raises(ConfigError, match=again):
            refuse()


def test_entries_frozen_together_share_their_seeds_and_stand_or_fall_together():
    for name, margin in (("001-gates", 0.01), ("002-more", 0.02), ("003-alone", 0.01)):
        filed(name, margin=margin, note=name)
    commit()
    first, second, third = read_entries()
    batch = freeze([second, first], {second.name: 30})
    freeze([third], {})
    first, second, third = read_entries()
    assert first.batch == second.batch == batch == digest(sorted([first.digest, second.digest]))
    drawn = hashlib.sha256(f"{batch}:5".encode()).digest()
    assert first.seed(5) == second.seed(5) == int.from_bytes(drawn[:8], "big") % 2**31 != third.seed(5)
    assert read_frozen()[second.name].developed == 30 and third.batch != batch
    for one in (first, second, third):
        require_frozen(one, read_frozen())
    filed("002-more", margin=0.03)
    with pytest.raises(ConfigError, match=r"002-more: edited after it was frozen"):
        require_frozen(first, read_frozen())
    (CLAIMS / "002-more.yaml").unlink()
    with pytest.raises(ConfigError, match=r"002-more: frozen with 001-gates, but its file is gone"):
        require_frozen(first, read_frozen())
    require_frozen(third, read_frozen())


def test_an_entry_is_a_tuned_study_with_its_looks():
    entry = filed(settings={**SMALL, "corpus.characters": 5_000, "heads": 8})
    study = Study(testing.sweep_of(entry))
    looks = study.design.looks
    assert study.config and looks and (looks.at, looks.contrasts) == ([4, 8], 1)
    assert [*map(int, looks.seeds)] == entry.reporting_seeds
    assert [looks.contrast(pair) for pair in looks.pairs] == ["gated against concat"]
    assert [str(contrast) for contrast in study.config.primary] == ["gated - concat"]


@pytest.mark.slow
def test_the_verdicts_of_a_batch_are_counted_together():
    for name in ("001-gates", "002-more"):
        filed(name)
    commit()
    freeze(read_entries(), {"001-gates": 7})
    first, second = read_entries()
    # The interval of four seeds is ±0.0019 at 97.5 %, ±0.0025 at 98.75 %, and the margin is 0.01.
    kept(first, losses_of(-0.0031))
    kept(second, losses_of(-0.0129))
    assert "2 claims: of 2 verdicts, each of which holds with 95 %, 2 would hold at 95 % over" in page()
    kept(second, losses_of(-0.0078))
    text = page()
    assert "2 claims: of 2 verdicts, each of which holds with 95 %, 1 would hold at 95 % over" in text
    assert f"in batch `{first.batch[:16]}`" in text
    assert "Older than the freeze: 7 development rows of its arms." in text


# --- verdicts ---------------------------------------------------------------------------------------


def test_a_verdict_by_hand():
    """Four paired differences of mean −0.02 and sd 0.001·√(2.5/3), at level 1 − 0.05/2 for two looks."""
    entry = filed()
    found = judge(entry, *made(entry, losses_of()))
    half = student.isf(0.0125, 3) * 0.001 * np.sqrt(2.5 / 3) / 2
    (one,) = found.predictions
    assert (one.diff, one.low, one.high) == pytest.approx((-0.02, -0.02 - half, -0.02 + half))
    assert (one.contrast, one.n, found.n) == ("gated - concat", 4, 4)
    assert found.verdict is one.verdict is REPLICATED and not found.diverged


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
        ({"expect": "at_most", "bound": 0.05}, 0.04, REPLICATED),
        ({"expect": "at_most", "bound": 0.05}, 0.06, NOT),
        ({"expect": "at_most", "bound": 0.05}, 0.05, UNDECIDED),
        ({"expect": "at_least", "bound": 0.05}, -0.06, NOT),
        ({"expect": "within", "bound": 0.05}, -0.04, REPLICATED),
    ],
)
def test_verdicts(prediction, middle, verdict):
    entry = filed(predictions=[{"contrast": "gated - concat", **prediction}])
    assert judge(entry, *made(entry, losses_of(middle))).verdict is verdict


@pytest.mark.slow
def test_all_predictions_have_to_hold_and_one_that_fails_decides():
    more = [{"contrast": "uniform - concat", "expect": "above"}]
    entry = filed(predictions=WRITTEN["predictions"] + more)
    for gated, uniform, verdict in ((-0.02, 0.5, REPLICATED), (0.02, 0.5, NOT), (-0.02, -0.5, NOT)):
        found = judge(entry, *made(entry, losses_of(gated) | {"uniform": four(uniform)}))
        half = student.isf(0.0125 / 2, 3) * 0.001 * np.sqrt(2.5 / 3) / 2
        assert found.verdict is verdict
        assert [one.high - one.low for one in found.predictions] == pytest.approx([2 * half] * 2)


@pytest.mark.slow
def test_a_diverged_run_leaves_it_undecided():
    entry = filed()
    losses = losses_of() | {"gated": [*four(-0.02)[:3], np.inf]}
    rows, record = made(entry, {arm: losses[arm] for arm in ("concat", "uniform")})
    at_every_rate = replace(record, chosen={"gated": Choice(None, "no value: all diverged")})
    for given in (made(entry, losses), (rows, at_every_rate)):
        found = judge(entry, *given)
        assert (found.verdict, found.diverged) == (UNDECIDED, ["gated"])


@pytest.mark.parametrize("expect", ["below", "within"])
def test_without_an_interval_it_is_undecided(expect):
    entry = filed(**expecting(expect))
    found = judge(entry, *made(entry, losses_of() | {"gated": [1.9, 1.9, 1.9, 1.9]}))
    assert found.verdict is UNDECIDED and np.isnan(found.predictions[0].low)


def test_a_date_in_an_entry_is_a_value_like_any():
    text = CLAIMS / "001-gates.yaml"
    filed(settings={"heads": 8, "corpus.path": "DATE"})
    text.write_text(text.read_text().replace("DATE", "2024-01-01"))
    assert len(find_entry("1").digest) == 64


@pytest.mark.parametrize("content", ["[]", '{"001-gates": {}}', '{"001-gates": 3}', "{"])
def test_a_damaged_freeze_is_refused_in_a_line(content):
    filed()
    FROZEN.write_text(content)
    with pytest.raises(ConfigError, match=r"frozen\.json: not readable .* restore it"):
        read_frozen()


def test_rows_of_two_versions_of_other_seeds_or_of_some_arms_are_refused():
    entry = filed()
    rows, record = made(entry, losses_of())
    rows = rows.assign(parts="a")
    judge(entry, rows, record)
    with pytest.raises(ConfigError, match=r"its rows come from 2 versions of its code.* force=stale"):
        judge(entry, rows.assign(parts=["b", *rows["parts"][1:]]), record)
    with pytest.raises(ConfigError, match=r"older version of the numerics .* force=stale"):
        judge(entry, rows.assign(status=["stale", *rows["status"][1:]]), record)
    assert record.looks
    with pytest.raises(ConfigError, match="its reporting seeds are not those of the entry's batch"):
        judge(entry, rows, replace(record, looks=replace(record.looks, seeds=[1, 2, 3, 4])))
    with pytest.raises(ConfigError, match="1 run without a result; ablate claims run 001 goes on from there"):
        judge(entry, rows.drop(5), record)


# --- what does not fit ------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_does_not_fit_is_named():
    one = filed()
    assert faults() == [] and not page()
    directory = kept(one, losses_of())
    assert "not frozen" in faults()[0]
    (one,) = frozen_here()
    kept(one, losses_of())
    assert faults() == [f"{PAGE}: not what the files give; ablate claims page writes it"]
    head = "# Our claims\n\nWhy we test them.\n\n"
    PAGE.write_text(page().replace("# The ledger\n\n", head), encoding="utf-8")
    PAGE.write_text(text := page(), encoding="utf-8")
    assert text.startswith(f"{head}| | claim |")
    assert faults() == [] and "**Replicated at this scale.** Its intervals hold together with 95 %" in text
    assert "| `gated - concat` | -0.0200 [-0.0219, -0.0181] | 4 | holds |" in text

    table = directory / "results.csv"
    whole = table.read_text(encoding="utf-8")
    *others, last = whole.splitlines(keepends=True)
    pairs = ((",report,", ",develop,"), (f",{torch.__version__},", ",2.0.1,"))
    of_phase, of_code = (whole.replace(last, last.replace(*pair)) for pair in pairs)
    for damaged, line in (
        ("".join(others), "lacks 1 of the 12 runs that study.json lists"),
        (whole + last, "has a run twice, or in another phase or role"),
        (of_phase, "has a run twice, or in another phase"),
        (of_code, "001-gates: these rows come from 2 programs"),
    ):
        table.write_text(damaged, encoding="utf-8")
        assert line in faults()[0]
    table.write_text(whole, encoding="utf-8")
    assert faults() == []

    filed(sentence="Gates help a lot.")
    assert "edited after it was frozen" in faults()[0]
    (CLAIMS / "001-gates.yaml").unlink()
    assert faults()[0] == "001-gates: frozen, but its file is gone; restore it"


@pytest.mark.slow
def test_results_of_another_entry_are_refused():
    one, other = filed(), filed("002-gates", margin=0.02)
    directory = kept(one, losses_of())
    shutil.copytree(directory, directory.parent / other.name)
    with pytest.raises(ConfigError, match="its runs were made for digest"):
        judged(other)


# --- withdrawn --------------------------------------------------------------------------------------


def withdraw(name: str = "001-gates") -> Claim:
    frozen = json.loads(FROZEN.read_text())
    frozen[name] |= {"withdrawn": "first edition", "reason": "its text repeats itself"}
    FROZEN.write_text(json.dumps(frozen))
    return find_claim(name)


@pytest.mark.parametrize("format", ["table", "csv", "json", "md"])
def test_a_withdrawn_claim_is_listed_and_shown_and_not_run(tmp_path, format):
    filed()
    frozen_here()
    assert type(claim := withdraw()) is Claim
    listed = call_cli("claims", "--format", format, cwd=tmp_path)
    assert listed.returncode == 0 and "withdrawn: first edition" in listed.stdout and not listed.stderr
    shown = call_cli("claims", "show", "001", cwd=tmp_path)
    assert "\nwithdrawn: first edition: its text repeats itself\n" in shown.stdout
    assert claim.sentence in shown.stdout and claim.digest in shown.stdout
    for words in (("run", "001"), ("run", "001", "--trial"), ("run", "001", "--dry-run"), ("freeze", "001")):
        refused = call_cli("claims", *words, cwd=tmp_path)
        assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and not refused.stdout
        assert "001-gates: withdrawn with the first edition, since its text repeats itself" in refused.stderr


def test_a_withdrawn_claim_is_on_no_page_and_keeps_its_digest(tmp_path):
    filed()
    frozen_here()
    withdraw()
    assert page() == "" and faults() == []
    written = call_cli("claims", "page", cwd=tmp_path)
    assert written.returncode == 0 and "nothing to write to docs/ledger.md" in written.stdout
    filed("002-more")
    commit()
    freeze(read_entries(), {})
    assert find_claim("1").name == "001-gates" and "001-gates" not in page()
    filed(margin=0.5)
    assert "001-gates: edited after it was frozen" in faults()[0]


# --- runs -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_unfrozen_entry_is_not_run_and_only_launchers_may_be_chosen(tmp_path):
    filed(settings={**SMALL, "corpus.characters": 20_000, "heads": 4})
    refused = call_cli("claims", "run", "001", cwd=tmp_path)
    assert refused.returncode == 2 and "001-gates: not frozen" in refused.stderr
    refused = call_cli("claims", "run", "001", "train.steps=3", cwd=tmp_path)
    assert refused.returncode == 2 and "train.steps=3: a claim is run as it was frozen" in refused.stderr
    listed = call_cli("claims", cwd=tmp_path)
    assert listed.returncode == 0 and "001-gates  not frozen" in listed.stdout
    commit()
    frozen = call_cli("claims", "freeze", "001", cwd=tmp_path)
    assert frozen.returncode == 0 and "001-gates: frozen" in frozen.stdout
    wrong = call_cli("claims", "check", cwd=tmp_path)
    assert wrong.returncode == 1 and "ablate claims page writes it" in wrong.stderr


def test_an_entry_that_can_not_be_run_is_not_frozen(tmp_path):
    filed(settings={**SMALL, "corpus.characters": 20_000, "heads": 7})
    refused = call_cli("claims", "freeze", "001", cwd=tmp_path)
    assert refused.returncode == 2 and "heads=7: does not divide" in refused.stderr
    assert not FROZEN.exists()


SMALL = {"model.context": 16, "train.batch": 2, "train.steps": 6, "train.eval_every": 3, "corpus": "grammar"}


@pytest.mark.slow
def test_an_entry_is_run_looked_at_again_and_judged(tmp_path):
    """At two looks; then from its rows the same verdict, and the same runs."""
    settings = {**SMALL, "corpus.characters": 20_000, "heads": 4}
    rule = {"margin": 1e-6, "develop": [0], "extend": 0}
    one = filed(settings=settings, seeds=[2, 3], **rule)
    commit()
    quick = [f"{key}={value}" for key, value in settings.items()]
    before = ("run", "fusion=gated", "match=none", *quick, "name=before")
    assert call_cli(*before, "seed=5", cwd=tmp_path).returncode == 0
    known = call_cli("claims", "freeze", "001", cwd=tmp_path)
    assert known.returncode == 2 and "is a run of one of its arms at seed 5" in known.stderr, known.stderr
    shutil.rmtree("runs")
    assert call_cli(*before, "seed=0", cwd=tmp_path).returncode == 0
    frozen = call_cli("claims", "freeze", "001", cwd=tmp_path)
    assert (
        frozen.returncode == 0 and "1 development row of its arms, older than the freeze" in frozen.stdout
    ), frozen.stderr
    shutil.rmtree("runs")
    one = find_entry("001")
    done = call_cli("claims", "run", "001", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = judged(one)
    assert found is not None and f"001-gates: {found.verdict}" in done.stdout.splitlines()
    assert call_cli("claims", "page", cwd=tmp_path).returncode == 0
    assert call_cli("claims", "check", "--ids", cwd=tmp_path).stdout == "the ledger fits\n"
    again = call_cli("claims", "run", "001", cwd=tmp_path)
    assert again.returncode == 0 and again.stdout == done.stdout
    table = RESULTS / "001-gates" / "results.csv"
    rows = pd.read_csv(table, dtype=str, keep_default_na=False)
    last_run = rows[rows["seed"] == str(one.seed(found.n - 1))]["run_id"].iloc[0]
    (lost,) = Store().directories([last_run]).values()
    shutil.rmtree(lost)  # as if its last look had been interrupted
    resumed = call_cli("claims", "run", "001", cwd=tmp_path)
    assert resumed.returncode == 0 and resumed.stdout == done.stdout, resumed.stderr
    (old,) = Store().directories([last_run]).values()
    reseal(old, numerics=0)  # as if the numerics had changed
    stale = call_cli("claims", "run", "001", cwd=tmp_path)
    assert stale.returncode == 2 and "ablate claims run with force=stale" in stale.stderr
    renewed = call_cli("claims", "run", "001", "force=stale", cwd=tmp_path)
    assert renewed.returncode == 0 and renewed.stdout == done.stdout, renewed.stderr
    compared = call_cli("compare", "docs/results/001-gates", "--baseline", "fusion=concat", cwd=tmp_path)
    assert compared.returncode == 0 and "gated" in compared.stdout, compared.stderr
    rows.assign(batch="3").to_csv(table, index=False)
    edited = call_cli("claims", "check", "--ids", cwd=tmp_path)
    assert edited.returncode == 1 and "other settings or seeds than the run_id stands for" in edited.stderr


@pytest.mark.slow
def test_a_trial_makes_the_runs_that_an_entry_asks_for(tmp_path):
    entry = filed(settings={**SMALL, "corpus.characters": 20_000, "heads": 4})
    done = call_cli("claims", "run", "001", "--trial", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    runs = len(entry.arms) * (
        len(entry.lr) * len(testing.OF_TRIAL["develop"]) + len(testing.OF_TRIAL["seeds"])
    )
    found = re.search(r"(\d+) runs of a trial, which shows nothing of the result", done.stdout)
    assert found and runs <= int(found[1]) <= runs + 2 * len(
        entry.arms
    )  # half-octaves where curves are steep
    assert Store().study_names() == [f"trial-{entry.name}"]  # so the claim itself can be run
