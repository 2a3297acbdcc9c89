"""The report: what it says, and how it behaves in a browser that may neither fetch nor run anything else."""

import re
import shlex
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import ablate
from ablate.analysis import stats
from ablate.analysis.compare import compare
from ablate.analysis.load import Results, Source, read
from ablate.config.contrast import Contrast
from ablate.phrases import cleaned
from ablate.reporting.charts import VERDICTS, figures
from ablate.reporting.commands import commands
from ablate.reporting.figures import write_charts
from ablate.reporting.html import comparison_html, comparison_table
from ablate.reporting.page import Page, gather
from ablate.store.record import Choice, StudyRecord
from tests.helpers import call_cli, write_study
from tests.synthetic import small_study, synthetic_probes, synthetic_study

pytestmark = pytest.mark.usefixtures("two_seeds_decide")

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u2028|\u2029"
SCREEN, NARROW = {"width": 1400, "height": 900}, {"width": 400, "height": 800}


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """A report of which every text tries to break out: study, question, fusion, corpus, path, error."""
    root = tmp_path_factory.mktemp("report") / "runs"
    store = synthetic_study(
        root,
        name="".join(filter(str.isprintable, HOSTILE.replace("/", ""))),
        question=f"Does it {HOSTILE}?",
        fusions=("concat", "weighted_sum", HOSTILE),
        heads=(1, 2, 4),
        rates=(0.002, 0.004),
        seeds=2,
        diverging=(1,),
        corpus=HOSTILE,
    )
    (name,) = store.study_names()
    synthetic_probes(store)
    return ablate.report(store.root / "studies" / name)


def show(tab, page: Path, wait_for: str = "html[data-drawn]"):
    tab.goto(page.resolve().as_uri())
    tab.wait_for_selector(wait_for)
    return tab


@pytest.fixture(scope="module")
def opens(browser, page):
    """Opens the page, and lists what it says or fetches unasked."""
    tabs = []

    def open_page(width: int = 1400, **options):
        complaints: list[str] = []
        tab = browser.new_page(viewport={**SCREEN, "width": width}, **options)
        tabs.append(tab)
        tab.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("dialog", lambda dialog: complaints.append(dialog.message) or dialog.dismiss())
        tab.on("request", lambda r: r.url.startswith(("file:", "data:")) or complaints.append(r.url))
        draws = options.get("java_script_enabled", True)
        return show(tab, page, wait_for="html[data-drawn]" if draws else "html"), complaints

    yield open_page
    for tab in tabs:
        tab.close()


@pytest.fixture
def opened(opens):
    """Opens the page for one test; what it says or fetches unasked is an error."""
    every = []

    def open_page(width: int = 1400, **options):
        tab, complaints = opens(width, **options)
        every.append((tab, complaints))
        return tab

    yield open_page
    for tab, complaints in every:
        tab.close()
        assert complaints == []


@pytest.fixture(scope="module")
def _wide(opens):
    return opens()


@pytest.fixture
def wide(_wide):
    """The page, opened once for all tests that take this: to draw it takes seconds."""
    tab, complaints = _wide
    yield tab
    assert complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_quietly_and_fits(opened, width, scheme):
    tab = opened(width, color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    widths = tab.evaluate(
        "[...document.querySelectorAll('.chart')].map("
        "c => [c.clientWidth, c.querySelector('svg').clientWidth])"
    )
    assert len(widths) >= 7 and all(0 < drawn <= place for place, drawn in widths)
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)")


@pytest.mark.slow
def test_no_text_runs(wide, page):
    assert "<script>alert(1)<script>" in wide.title()
    assert cleaned(HOSTILE) in wide.inner_text("h1")
    assert wide.locator("script").count() == 3  # the charts' data, their program, the page's own
    assert wide.locator("img").count() == 0
    html = page.read_text(encoding="utf-8")
    assert "<script>alert" not in html and "<img src=x" not in html


@pytest.mark.slow
def test_tables_sort_by_click_and_by_keyboard(wide):
    heads = wide.locator("table[data-sortable]").first.locator("th")
    means = wide.locator("table[data-sortable]").first.locator(
        "tbody tr td:nth-child({})".format(heads.all_inner_texts().index("mean") + 1)
    )
    mean = heads.nth(heads.all_inner_texts().index("mean"))
    before = means.all_inner_texts()
    assert mean.get_attribute("aria-sort") == "none"
    mean.locator("button").click()
    assert mean.get_attribute("aria-sort") == "ascending"
    assert means.all_inner_texts() == sorted(before, key=float)
    mean.locator("button").focus()
    wide.keyboard.press("Enter")
    assert mean.get_attribute("aria-sort") == "descending"
    assert means.all_inner_texts() == sorted(before, key=float, reverse=True)
    heads.first.locator("button").focus()
    wide.keyboard.press("Space")
    assert [heads.first.get_attribute("aria-sort"), mean.get_attribute("aria-sort")] == ["ascending", "none"]


@pytest.mark.slow
def test_charts_have_tooltips_and_no_text_of_theirs_runs(wide):
    wide.locator("[data-chart=cost-params] .mark-symbol.role-mark path").last.hover(force=True)
    tip = wide.locator("#vg-tooltip-element")
    tip.wait_for(state="visible")
    assert "variant" in tip.inner_text() and tip.locator("script, img").count() == 0


@pytest.mark.slow
def test_without_scripts_tables_stay(opened):
    tab = opened(java_script_enabled=False)
    assert tab.locator("figure details table").first.is_visible()
    assert "What limits this answer" in tab.inner_text("main")


# A reader's question: within how many screens it is answered, where, and what stands there.


@pytest.fixture(scope="module")
def tab(browser, tmp_path_factory):
    """The report of a study as it is shipped: four methods, eight seeds, one run that diverged."""
    root = tmp_path_factory.mktemp("report") / "runs"
    typed = ["study=synthetic"]
    store = synthetic_study(root, heads=(4,), out_proj=(True,), diverging=(30,), typed=typed, wall_s=30.0)
    synthetic_probes(store)
    with browser.new_page(viewport=SCREEN) as tab:
        yield show(tab, ablate.report(store.root / "studies" / "synthetic"))


@pytest.mark.slow
def test_on_a_telephone_nothing_of_the_answer_is_beside_the_screen(tab):
    tab.set_viewport_size(NARROW)
    for place in (".found", "#answer li"):
        found = tab.locator(place)
        assert found.count()
        for box in (found.nth(at).bounding_box() for at in range(found.count())):
            assert box["x"] >= 0 and box["x"] + box["width"] <= NARROW["width"], place
    heads = tab.locator("#comparison table").first.locator("th").all_inner_texts()
    assert [name.strip() for name in heads] == ["variant", "difference", "verdict", "n", "mean"]


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "schemes"), [(1, ["light"]), (8, ["light", "dark"])])
def test_axe_finds_no_violation(browser, tmp_path, seeds, schemes):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    store = synthetic_study(tmp_path / "runs", heads=(2, 4, 8), out_proj=(True,), seeds=seeds)
    synthetic_probes(store)
    page, violations = ablate.report(store.root / "studies" / "synthetic"), []
    # axe is a script of its own, which the page's policy would refuse.
    with browser.new_page(viewport=SCREEN, bypass_csp=True) as tab:
        for scheme in schemes:
            show(tab, page)
            tab.emulate_media(color_scheme=scheme)
            violations += axe.Axe().run(tab).response["violations"]
    assert [(found["id"], found["nodes"][0]["html"]) for found in violations] == []


def test_one_small_file(page):
    assert page.stat().st_size < 5e6
    html = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in html and "'unsafe-eval'" not in html
    head = html.partition("<body>")[0]
    assert "http://" not in head and "https://" not in head


@pytest.mark.slow
def test_the_same_charts_as_files(tmp_path):
    study = small(tmp_path).page.parent
    ablate.report(study, charts=tmp_path / "figures")
    files = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert files == [
        f"{stem}.{suffix}"
        for stem in ("curves", "intervals-primary", "seeds")
        for suffix in ("pdf", "png", "svg")
    ]
    starts = {".png": b"\x89PNG", ".svg": b"<svg ", ".pdf": b"%PDF"}
    for path in (tmp_path / "figures").iterdir():
        assert path.read_bytes().startswith(starts[path.suffix])
    ElementTree.parse(tmp_path / "figures" / "curves.svg")


def small(tmp_path: Path, **given) -> Results:
    return read(small_study(tmp_path / "runs", **given).root / "studies" / "synthetic")


TABLE = (
    "fusion,heads,out_proj,seed,val_loss\nconcat,4,true,0,2.0\nconcat,4,true,1,2.1\nsum,4,true,0,2.2\n"
    "sum,4,true,1,2.31\n"
)


@pytest.mark.parametrize(
    "option, place, reason",
    [
        *(("--out", place, "ends in .html") for place in ("mine.csv", "/", "", "folder.html")),
        ("--charts", "mine.csv", "can't be written"),
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
    return next(figure.data for figure in figures(page) if figure.key == key)


@pytest.mark.slow
def test_what_it_says(tmp_path):
    store = synthetic_study(tmp_path / "runs", heads=(1, 2, 4), seeds=3, diverging=(7,))
    subject = read(store.root / "studies" / "synthetic")
    page = gather(subject)
    assert page.subject.record.question == "Does it matter how heads are brought together?"
    assert sum("against concat" in answer for answer in page.answer.findings) <= 3
    assert [line.partition(":")[0] for line in page.failures] == ["diverged"]
    assert page.failures[0] not in page.notes
    assert len(page.commands) == 1
    assert "heads=1,2,4 out_proj=true,false" in page.commands[0] and "seed=0,1,2" in page.commands[0]
    assert page.facts["code"] == subject.rows["code"][0]
    assert "AdamW (β1 = 0.9" in page.methods and "3 are" not in page.methods
    values = page.hyperparameters.set_index("hyperparameter")["value"]
    assert values["heads"] == "1, 2, 4" and values["peak learning rate"] == "0.003"
    keys = [figure.key for figure in figures(page)]
    assert keys == [
        *("intervals-primary", "intervals-exploratory", "curves", "seeds", "cost"),
    ]


@pytest.mark.slow
def test_curves_are_the_runs_own(tmp_path):
    subject = small(tmp_path, seeds=3)
    curves = data_of(gather(subject), "curves")
    last = curves[curves["step"] == 500].set_index("variant")
    losses = subject.rows.groupby("fusion")["val_loss"].agg(["mean", "min", "max"])
    for name in ("concat", "sum"):
        drawn = last.loc[f"fusion={name} heads=4 out_proj=true"]
        assert [drawn["mean"], drawn["low"], drawn["high"]] == pytest.approx(list(losses.loc[name]))
    assert last["n"].tolist() == [3, 3]


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
    rows = rows.assign(tuned=f"train.{column}", **other)
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
    (line,) = page.failures
    assert line.startswith("diverged: fusion=sum") and f"{column}=0.008, a development run" in line
    figure = {figure.key: figure for figure in figures(page)}
    rates = figure["rates"].data
    (lost,) = rates[rates["mean"].isna()].to_dict("records")
    assert [lost["phase"], lost[column], lost["n"], lost["diverged"]] == ["develop", 0.008, 1, 1]
    assert lost["variant"] == "fusion=sum heads=4 out_proj=true" and len(rates) == 8
    for said in (
        "We compare 2 variants that differ in fusion.",
        f"own train.{column}, chosen on the validation split and on development seeds (0, 1)",
        "powers of two (0.002, 0.004, 0.008)",
        "0.004 for fusion=concat",
        "We report test_loss",
    ):
        assert said in page.methods
    words = "peak learning rate" if column == "lr" else "weight decay"
    assert figure["rates"].title == f"Loss against {words}"
    about = figure["rates"].about
    assert about.startswith("Mean val_loss") and "seeds diverged there" in about


@pytest.mark.slow
def test_what_is_not_there_is_said(tmp_path):
    subject = small(tmp_path, seeds=3)
    record, store = subject.record, subject.sources[0].store
    assert store is not None
    write_study(store, replace(record, runs=[*record.runs, "f" * 16]))
    shutil.rmtree(next(iter(store.directories(record.runs[:1]).values())))
    failures = gather(read(subject.page.parent)).failures
    assert [line.partition(":")[0] for line in failures] == ["missing", "not begun"]
    assert "2 of 7 runs" in failures[1]


@pytest.mark.slow
def test_charts_in_files_are_as_wide_as_a_column(tmp_path):
    (spec,) = (f.charts["seeds"] for f in figures(gather(small(tmp_path, seeds=3))) if f.key == "seeds")
    write_charts({"seeds": spec}, tmp_path / "figures")
    svg = ElementTree.parse(tmp_path / "figures" / "seeds.svg").getroot()
    assert svg.get("width") == "237.6pt" and svg.get("viewBox", "").startswith("0 0 237.6 ")  # 3.3 inches
    texts = [text for text in svg.iter() if text.get("font-size")]
    assert texts and {text.get("font-size") for text in texts} == {"8px"}  # a unit is a point
    png = (tmp_path / "figures" / "seeds.png").read_bytes()
    assert struct.unpack(">I", png[16:20]) == (990,)  # 300 dots an inch
    assert re.search(rb"/MediaBox ?\[0 0 237.6", (tmp_path / "figures" / "seeds.pdf").read_bytes())


def test_matched_variants_show_what_the_match_left(tmp_path):
    comparison = compare(small(tmp_path, match="params", match_error=0.002).rows)
    table = comparison_table(comparison, comparison.families[0])
    assert table.names.count("params") == 1
    assert table.rows[0][table.names.index("match_error")].text == "+0.2%"
    assert "+0.2%" in comparison_html(comparison, [])
    assert table.numeric[table.names.index("match_error")]


def test_every_verdict_has_a_colour_and_a_shape():
    low, high = np.array([[-3, -1], [-0.3, -0.1], [-0.1, 0.1], [-1, 1], [0.1, 0.3], [1, 3]]).T
    directions = (True, False, None)
    found = [stats.verdicts(low, high, margin=0.5, higher_is_better=better) for better in directions]
    assert {*np.concatenate(found)} == {*VERDICTS} and len({*VERDICTS.values()}) == len(VERDICTS)


@pytest.mark.slow
def test_a_csv_from_elsewhere(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text(TABLE)
    page = ablate.report(path)
    assert page == tmp_path / "results-report.html"
    html = page.read_text(encoding="utf-8")
    assert "sum is worse than concat" in html and "nan" not in html.partition("<script")[0]
    assert "no command to show" in html


@pytest.mark.slow
def test_the_command(tmp_path):
    small(tmp_path)
    done = call_cli("report", "synthetic", "--out", "page.html", "--margin", "0.5", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "page.html\n", "")
    assert "margin 0.5 nats" in (tmp_path / "page.html").read_text(encoding="utf-8")
    missing = call_cli("report", "synthetics", cwd=tmp_path)
    assert missing.returncode == 2 and "did you mean synthetic?" in missing.stderr


@pytest.mark.slow
def test_the_command_to_reproduce_makes_the_same_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def command_of(name: str) -> str:
        (command,) = gather(read(name)).commands
        done = call_cli(*shlex.split(command)[1:], "--dry-run", cwd=tmp_path)
        runs = re.search(r"(\d+) runs, (\d+) of them finished", done.stdout)
        assert runs and runs[1] == runs[2] == str(len(read(name).rows)), done.stdout + done.stderr
        return command

    swept = {"fusion": ["concat", "sum"], "out_proj": [True, False], "seed": [0, 1], "heads": 2}
    ablate.run(**swept, **{"corpus": "grammar", "corpus.characters": 5000, "train.steps": 2, "name": "mine"})
    command_of("mine")
    assert len(read("mine").rows) == 8

    study = ("study=fusion", "heads=2,3", "fusion=concat,sum", "seed=0", "name=other")
    small = ("corpus=grammar", "corpus.characters=5000", "train.steps=2")
    assert call_cli("run", *study, *small, cwd=tmp_path).returncode == 0
    assert command_of("other").startswith("ablate run study=fusion name=other")


def test_the_command_of_a_tuned_study_names_what_it_holds_to(tmp_path):
    subject = small(tmp_path, seeds=8)
    where = ["normalize == 'none'", "heads <= 4"]
    record, store = subject.record, subject.sources[0].store
    assert store is not None
    declared = {"tune": "train.lr", "develop": ["0", "1"], "extend": 2}
    record = replace(record, kind="tuned", study="tuned", declared=declared, where=where)
    write_study(store, replace(record, seeds=[*range(8)], fixed={"value_width": "auto"}))
    subject = read(subject.page.parent)
    varying = [16, *[20] * (len(subject.rows) - 1)]  # as a match makes it
    (command,) = commands(replace(subject, rows=subject.rows.assign(value_width=varying)))
    words = shlex.split(command)
    assert "seed=2,3,4,5,6,7" in words and "study.develop=[0,1]" in words and "value_width=auto" in words
    assert {"study.tune=train.lr", "study.extend=2", "study.margin=0.01"} <= {*words}
    assert "study.primary=[{baseline:{fusion:concat},where:{heads:4,out_proj:true}}]" in words
    assert """study.where=["normalize == 'none'","heads <= 4"]""" in words


def test_it_is_about_one_study(command):
    code, printed, said = command("report", "one", "two s")
    assert (code, printed) == (2, "")
    assert said == "ablate: a report is about one study; ablate compare one 'two s' compares several\n"
