"""The report: what it says, and that it fetches and executes nothing."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import ablate
from ablate.analysis import stats
from ablate.analysis.load import Results, Source, read
from ablate.analysis.question import ask
from ablate.config.contrast import Contrast
from ablate.reporting import charts, html, paper
from ablate.reporting.cells import contrast_table
from ablate.reporting.figures import write_chart
from ablate.reporting.next import repeated
from ablate.reporting.page import Page, gather
from ablate.reporting.words import GROUPED
from ablate.store.record import Choice, StudyRecord
from tests.helpers import ROOT, SIMULATED, call_cli, compared, write_study
from tests.synthetic import small_study, synthetic_probes, synthetic_study
from tests.test_compare import of_cells

pytestmark = pytest.mark.usefixtures("two_seeds_decide")

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u2028|\u2029"
PARTS = ("answer", "compared", "doubts", "heads", "repeat", "paper")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """A report of which every text tries to break out: study, question, fusion, corpus, path, error."""
    root = tmp_path_factory.mktemp("report") / "runs"
    store = synthetic_study(
        root,
        name="".join(filter(str.isprintable, HOSTILE.replace("/", ""))),
        question=f"Does it {HOSTILE}?",
        fusions=("concat", "weighted_sum", HOSTILE),
        heads=(4,),
        out_proj=(True,),
        rates=(0.002, 0.004),
        seeds=2,
        diverging=(1,),
        corpus=HOSTILE,
    )
    (name,) = store.study_names()
    synthetic_probes(store)
    return ablate.report(store.root / "studies" / name)


@pytest.mark.slow
def test_no_text_runs_and_nothing_is_fetched(page):
    html = page.read_text(encoding="utf-8")
    assert "<script" not in html and "<img" not in html and "default-src 'none'; style-src" in html
    assert "\u2028" not in html and "script-src" not in html and "javascript" not in html.lower()
    tags = " ".join(re.findall(r"<[^>]*>", html))
    fetched = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?([^\"') >]+)", tags)
    assert all(one.startswith(("data:", "#")) for one in fetched), fetched
    assert [*re.findall(r'<section id="(\w+)"', html)] == [*PARTS]


@pytest.mark.slow
def test_it_opens_quietly_on_a_telephone_in_light_and_dark(browser, page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for scheme in ("light", "dark"):
        complaints: list[str] = []
        tab = browser.new_page(viewport={"width": 400, "height": 800}, color_scheme=scheme)
        tab.on("console", lambda message: complaints.append(message.text))  # noqa: B023
        tab.on("request", lambda r: r.url.startswith(("file:", "data:")) or complaints.append(r.url))  # noqa: B023
        tab.goto(page.resolve().as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") <= 400
        text = tab.locator("svg text").first.evaluate("node => getComputedStyle(node).fill")
        ink = tab.locator("body").evaluate("node => getComputedStyle(node).color")
        assert text == ink and not complaints
        assert not axe.Axe().run(tab).response["violations"]
        tab.close()


@pytest.mark.slow
def test_it_is_read_in_a_minute(tmp_path):
    """Six arms: at most 90 kB, and 700 words but for what is folded."""
    fusions = ("concat", "sum", "mean", "weighted_sum", "gated", "grouped")
    store = synthetic_study(tmp_path / "runs", fusions=fusions, heads=(4,), out_proj=(True,), seeds=16)
    synthetic_probes(store)
    path = ablate.report(store.root / "studies" / "synthetic")
    html = path.read_text(encoding="utf-8")
    assert len(html.encode()) <= 90_000
    assert "--why" not in html
    ticks = re.findall(r"<text[^>]*>(−?\d\.\d+)</text>", html)
    assert {*ticks} == {"0.00", "0.05", "0.10", "0.15"}  # not all −0.0 and 0.1
    shown = re.sub(r"<(style|svg|details|pre)\b.*?</\1>", "", html, flags=re.S)
    assert len(re.sub(r"<[^>]+>", " ", shown).split()) <= 700


@pytest.mark.slow
def test_the_same_charts_as_files(tmp_path):
    study = small(tmp_path).page.parent
    ablate.report(study, charts=tmp_path / "figures")
    files = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert files == [
        f"synthetic-{stem}.{suffix}"
        for stem in ("curves", "intervals-planned", "seeds")
        for suffix in ("pdf", "png", "svg")
    ]
    starts = {".png": b"\x89PNG", ".svg": b"<svg ", ".pdf": b"%PDF"}
    for path in (tmp_path / "figures").iterdir():
        assert path.read_bytes().startswith(starts[path.suffix])
    svg = ElementTree.parse(tmp_path / "figures" / "synthetic-curves.svg").getroot()
    assert svg.get("width") == "237.6pt" and svg.get("viewBox", "").startswith("0 0 237.6 ")  # 3.3 inches


def test_notes_stand_whole_below_a_chart(tmp_path, monkeypatch):
    monkeypatch.setattr("vl_convert.vegalite_to_pdf", str.encode)
    figure = {"height": 20, "config": {}, "mark": "point", "data": {"values": [{}]}}
    write_chart(figure, tmp_path / "one", "a text that repeats itself, " * 9)
    said = [(tmp_path / f"one.{format}").read_text("utf-8").count("itself") for format in ("pdf", "svg")]
    assert said == [9, 0]  # SVG is for those who change it


def test_what_all_rows_share_stands_in_the_caption():
    frame = pd.DataFrame({"variant": ["a", "b"], "n": ["6", "6"], "loss": [1.0, 2.0]})
    shown = html.table(frame.assign(nothing=None), "Losses")
    assert (shown["names"], shown["caption"]) == (["variant", "loss"], "Losses; in each row: n = 6")
    assert shown["rows"] == [("a", "1.0000"), ("b", "2.0000")]


def test_a_table_of_a_task_has_right_answers_and_that_of_arms_what_they_set():
    names = (ROOT / "docs" / "results" / name for name in ("votes", "later"))
    votes, later = (contrast_table(gather(read(name)).comparison, long=True) for name in names)
    four = votes.set_index("variant").loc["four"].to_dict()
    assert round(four["test_acc"], 4) == 0.9909 and four["settings"] == "heads=4 context=17"
    assert "settings" in later and "test_acc" not in later
    mine = pd.DataFrame({"method": [*"abab"], "seed": [0, 0, 1, 1], "my_loss": range(4), "my_exact": 0.5})
    assert "my_acc" not in contrast_table(ablate.compare(mine, metric="my_loss"), long=True)


def test_a_difference_of_two_groups_has_no_interval_anywhere():
    apart = {"concat": [0] * 6, "sum": [0.5, 0.51, 0.49, 0.5, 0.1, 0.102], "mean": [*[0.5, 0.51, 0.49] * 2]}
    apart["mean"][5] = 0.1
    losses = [({"fusion": one}, np.add([3.0, 3.01, 3.03, 3.02, 3.0, 3.04], of)) for one, of in apart.items()]
    page: Any = SimpleNamespace(comparison=compared(of_cells(losses)))
    (figure, _), table = charts._differences(page), paper.differences(page.comparison)
    points = figure.data.set_index("label")["low"]
    assert points.isna().to_dict() == {"sum\n(two groups of seeds)": True, "mean": False} and len(points) == 3
    cells = table.frame.set_index("variant")["difference"]
    assert cells["sum"] == "+0.500 in 4 of 6, +0.101 in 2†" and cells["mean"].startswith("+0.435† [")
    assert GROUPED in table.caption and "A point each where seeds are in two groups." in figure.about


GRID = of_cells(
    (
        {"fusion": fusion, "heads": heads},
        [3 + heads * (fusion == "sum") + seed * heads * len(fusion) % 7 / 100 for seed in range(6)],
    )
    for fusion in ("concat", "sum")
    for heads in (2, 4, 8)
)


def test_charts_call_variants_as_the_table_does_and_in_its_order(tmp_path):
    page: Any = SimpleNamespace(comparison=compared(GRID))
    differences, seeds = charts._differences(page)
    below = contrast_table(page.comparison).query("verdict != 'baseline'")["variant"].tolist()
    assert differences.data["label"].tolist() == seeds.data["label"].unique().tolist() == below
    assert {*below} == {"sum heads=2", "sum heads=4", "sum heads=8"}  # one baseline, but for what they share
    title = '"Validation loss: difference to concat at equal heads", "(nats per token; lower is better)"'
    assert title in json.dumps(differences.spec)
    study = gather(small(tmp_path, seeds=3))
    assert {*data_of(study, "curves")["label"]} == {*data_of(study, "seeds")["label"]}


def test_charts_call_baselines_that_are_arms_by_their_names():
    page = gather(read(ROOT / "docs" / "results" / "later"), ask(baseline="fusion=sum"))
    assert data_of(page, "intervals-exploratory")["label"].tolist() == [
        "concat_bare\n− wide\n(8 seeds)",
        "concat\n− sum_equal\n(6 seeds)",
    ]


def test_a_single_variant_differs_in_nothing():
    page = gather(read(pd.DataFrame({"method": ["a"], "seed": [0], "loss": [1.0]})), ask(by="method"))
    assert page.title == "results: 1 variant" and page.methods.startswith(
        "We train 1 variant. We report loss"
    )


@pytest.mark.slow
def test_of_many_comparisons_each_has_its_sentence_with_all_of_its_reason(tmp_path):
    means = {"base": 1.0, "a": 1.1, "b": 1.2, "c": 1.3}
    noise = {name: [seed**2 * (at + 1) % 7 / 90 for seed in range(6)] for at, name in enumerate(means)}
    losses = {name: [mean + of for of in noise[name]] for name, mean in means.items()}
    losses |= {"same": losses["base"], "still": [2.0] * 6}
    rows = [(name, seed, loss) for name, of in losses.items() for seed, loss in enumerate(of)]
    table = pd.DataFrame(rows, columns=["method", "seed", "loss"])
    how: Any = {"by": "method", "baseline": "method=base", "higher_is_better": False}
    page = ablate.report(table, out=tmp_path / "page.html", **how).read_text(encoding="utf-8")
    for said in ("--fixed method=still takes it", "method changes nothing here", "c costs 0."):
        assert page.count(said) == 1, said


def test_differences_stand_over_the_levels_between_which_they_are_compared():
    page: Any = SimpleNamespace(comparison=compared(GRID, within="heads"))
    between, seeds = charts._differences(page)
    of = ["heads=2", "heads=4", "heads=8", "heads=4 − heads=2", "heads=8 − heads=2", "heads=8 − heads=4"]
    assert between.data["label"].tolist() == [f"sum − concat:\n{levels}" for levels in of]
    assert between.data["diff"].tolist() == pytest.approx([2, 4, 8, 2, 6, 4], abs=0.1)
    assert between.data["verdict"].tolist() == ["each level"] * 3 + ["higher"] * 3
    assert len(seeds.data) == 36 and "Each level at 98.33 %." in between.about


def small(tmp_path: Path, **given) -> Results:
    return read(small_study(tmp_path / "runs", **given).root / "studies" / "synthetic")


TABLE = (
    "fusion,heads,out_proj,seed,val_loss\nconcat,4,true,0,2.0\nconcat,4,true,1,2.1\nsum,4,true,0,2.2\n"
    "sum,4,true,1,2.31\n"
)


@pytest.mark.parametrize(
    "option, place, reason",
    [
        ("--out", "mine.csv", "ends in .html"),
        ("--out", "folder.html", "ends in .html"),
        ("--charts", "mine.csv", "name a directory"),
        ("--charts", "mine.csv/figures", "can't be written"),
    ],
)
def test_a_place_for_something_else_is_refused_at_once(tmp_path, command, monkeypatch, option, place, reason):
    (tmp_path / "mine.csv").write_text(TABLE)
    (tmp_path / "folder.html").mkdir()
    monkeypatch.setattr("ablate.reporting.html.gather", lambda *_, **__: pytest.fail("refused too late"))
    code, printed, said = command("report", "mine.csv", option, place)
    assert (code, printed) == (2, "") and said.count("\n") == 1 and reason in said
    assert (tmp_path / "mine.csv").read_text() == TABLE


def data_of(page: Page, key: str) -> pd.DataFrame:
    return next(figure.data for chart in charts.CHARTS for figure in chart(page) if figure.key == key)


@pytest.mark.slow
def test_what_it_says(tmp_path):
    store = synthetic_study(tmp_path / "runs", heads=(1, 2, 4), seeds=3, diverging=(7,))
    subject = read(store.root / "studies" / "synthetic")
    page = gather(subject)
    assert page.title.startswith("synthetic: 24 variants that differ in fusion, heads and out_proj")
    assert sum("against concat" in answer for answer in page.answer.findings) <= 3
    assert [line.partition(":")[0] for line in page.notes].count("diverged") == 1
    assert "AdamW (β1 = 0.9" in page.methods and "3 are" not in page.methods
    assert f"code {subject.rows['code'][0]}" in page.methods
    keys = [figure.key for chart in charts.CHARTS for figure in chart(page)]
    assert keys == ["intervals-planned", "seeds", "curves"]


@pytest.mark.slow
def test_curves_are_the_runs_own(tmp_path):
    subject = small(tmp_path, seeds=3)
    curves = data_of(gather(subject), "curves").query("step == 500")
    losses = subject.rows.pivot(index="seed", columns="fusion", values="val_loss")
    apart = (losses["sum"] - losses["concat"]).to_numpy()
    low, high = scipy.stats.ttest_1samp(apart, 0).confidence_interval(0.95)
    found = curves[["n", "mean", "low", "high"]].to_numpy().tolist()
    assert found == [pytest.approx([3, apart.mean(), low, high])]
    other = replace(subject, rows=subject.rows.assign(seed_data=subject.rows["seed"], seed=0))
    by_data = data_of(gather(other), "curves").query("step == 500")
    assert by_data[["n", "mean", "low", "high"]].to_numpy().tolist() == found  # pairs as the comparison does


@pytest.fixture(scope="module")
def at_three_rates(tmp_path_factory) -> Results:
    """Two arms; sum at 0.008 diverged at seed 0."""
    rates = (0.002, 0.004, 0.008)
    return small(tmp_path_factory.mktemp("rates"), rates=rates, seeds=4, diverging=(20,))


def _of(results: Results, record: StudyRecord) -> Results:
    """The results as those of a study with this record."""
    (source,) = results.sources or [Source(Path(), None)]
    return replace(results, sources=[replace(source, stored=record)])


def _tuned(subject: Results, column: str = "lr") -> Results:
    """The same as a tuned study: seeds 0 and 1 develop. column: what is tuned."""
    rows = subject.rows
    rows = rows[(rows["seed"] < 2) | (rows["lr"] == 0.004)]
    develops = rows["seed"] < 2
    phase, role = (develops.map({True: of[0], False: of[1]}) for of in (("develop", "report"), ("", "tuned")))
    rows = rows.assign(phase=phase, role=role)
    other = {} if column == "lr" else {column: rows["lr"], "lr": 0.003}
    rows = rows.assign(tuned=f"train.{column}", layers=1, **other)
    record = replace(
        subject.record,
        kind="tuned",
        metric="test_loss",
        primary=[Contrast(baseline={"fusion": "concat"})],
        declared={"tune": f"train.{column}", "develop": ["0", "1"]},
        runs=[*rows["run_id"]],
        chosen={f"fusion={fusion}": Choice("0.004") for fusion in ("concat", "sum")},
    )
    return replace(_of(subject, record), rows=rows)


@pytest.mark.slow
@pytest.mark.parametrize("column", ["lr", "weight_decay"])
def test_a_tuned_study_says_how_values_were_chosen(at_three_rates, column):
    page = gather(_tuned(at_three_rates, column))
    assert contrast_table(page.comparison, long=True)[column].tolist() == ["0.004"] * 2
    for said in (
        "We compare 2 variants that differ in fusion.",
        f"own train.{column}, chosen on the validation split and on development seeds (0, 1)",
        "powers of two (0.002, 0.004, 0.008)",
        "0.004 for fusion=concat",
        "; 1 layer, width 64",
        "We report test_loss",
    ):
        assert said in page.methods


@pytest.mark.slow
def test_what_is_not_there_is_said(tmp_path):
    subject = small(tmp_path, seeds=3)
    record, store = subject.record, subject.sources[0].store
    assert store is not None
    write_study(store, replace(record, runs=[*record.runs, "f" * 16]))
    shutil.rmtree(next(iter(store.directories(record.runs[:1]).values())))
    page = gather(read(subject.page.parent))
    assert "only 5 of 7 runs" in page.answer.health
    assert "the study is not finished: 5 of 7 runs" in page.answer.findings[0]
    assert any(line.startswith("missing: ") for line in page.notes)


def test_every_verdict_has_a_colour_and_a_shape():
    assert {*charts.VERDICTS} > {*stats.VERDICTS} and len({*charts.VERDICTS.values()}) == 7


@pytest.mark.slow
def test_the_command_to_reproduce_makes_the_same_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def command_of(name: str) -> str:
        command = gather(read(name)).command
        done = call_cli(*shlex.split(command)[1:], "--dry-run", cwd=tmp_path)
        runs = re.search(r"(\d+) runs, (\d+) of them finished", done.stdout)
        assert runs and runs[1] == runs[2] == str(len(read(name).rows)), done.stdout + done.stderr
        return command

    swept = {"fusion": ["concat", "sum"], "out_proj": [True, False], "seed": [0, 1], "heads": 2}
    simulated = {key: value for key, _, value in (word.partition("=") for word in SIMULATED)}
    ablate.run(**swept, **simulated, name="mine")
    command_of("mine")
    assert len(read("mine").rows) == 8

    study = ("study=fusion", "heads=2,3", "fusion=concat,sum", "seed=0", "name=other")
    assert call_cli("run", *study, *SIMULATED, cwd=tmp_path).returncode == 0
    assert command_of("other").startswith("ablate run study=fusion heads=2,3 ")


def test_the_command_of_a_study_is_what_was_typed_with_all_that_it_grew_to(tmp_path):
    subject = small(tmp_path, seeds=3)
    typed = ["-m", "heads=4", "fusion=sum", "seed=range(2)", "name=synthetic"]
    grown = replace(subject.record, typed=typed)
    assert repeated(grown) == "ablate run -m heads=4 fusion=concat,sum name=synthetic seed=0,1,2"
    tuned = replace(grown, declared={"develop": ["0"]})
    assert repeated(tuned).endswith(" seed=1,2")  # development seeds are the study's own
    of_yaml = replace(grown, typed=["study=tuned", "name=synthetic"])
    assert repeated(of_yaml) == "ablate run study=tuned name=synthetic"  # whose seeds are the YAML's
    assert repeated(replace(grown, typed=[])) == ""


def test_it_is_about_one_study(command):
    code, printed, said = command("report", "one", "two s")
    assert (code, printed) == (2, "")
    assert said == "ablate: a report is about one study; ablate compare one 'two s' compares several\n"
