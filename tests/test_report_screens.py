"""What a reader sees of a report at once, and what after scrolling a little: measured in a browser."""

import re
from pathlib import Path

import pytest

import ablate
from tests.synthetic import synthetic_probes, synthetic_study

SCREEN = {"width": 1400, "height": 900}
NARROW = {"width": 400, "height": 800}

# A reader's question: within how many screens it is answered, where, and what stands there.
QUESTIONS = {
    "Is sum worse than concat?": (1, ".found", r"[Ss]um costs"),
    "By how much?": (1, ".found", r"[Ss]um costs 0\.\d+ nats \(0\.\d+ to 0\.\d+\)"),
    "Can I trust it?": (
        1,
        "#answer li",
        r"8 paired seeds; all 3 intervals hold together with 95 % confidence",
    ),
    "What would make it certain?": (1, "#answer li", r"ablate run study=synthetic 'seed=range\(0,16\)'"),
    "How long would that take?": (1, "#answer li", r"about \d+ (s|min) here"),
    "On which text, at which size?": (1, ".found", r"On pydoc \(2 layers, 64 wide, 500 steps\)"),
    "Which methods were compared?": (3, "#comparison tbody", r"weighted_sum"),
    "What does each cost?": (3, "#costs", r"Cost: [\d,]+ parameters, [\d,]+ FLOPs a token"),
    "How did training go?": (3, "#curves .chart", r""),
    "Did anything fail?": (3, "#failures", r"diverged"),
    "How do I repeat it?": (3, "#reproduce", r"ablate run"),
    "What do I cite?": (3, "#cite", r"CITATION.cff"),
}


@pytest.fixture(scope="module")
def tab(browser, tmp_path_factory):
    """The report of a study as it is shipped: four methods, eight seeds, one run that diverged."""
    root = tmp_path_factory.mktemp("report") / "runs"
    typed = ["study=synthetic"]
    store = synthetic_study(root, heads=(4,), out_proj=(True,), diverging=(30,), typed=typed, wall_s=30.0)
    synthetic_probes(store)
    page: Path = ablate.report(store.root / "studies" / "synthetic")
    tab = browser.new_page(viewport=SCREEN)
    tab.goto(page.resolve().as_uri())
    tab.wait_for_selector("html[data-drawn]")
    yield tab
    tab.close()


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_where_a_reader_looks(tab, question):
    tab.set_viewport_size(SCREEN)
    screens, place, words = QUESTIONS[question]
    found = tab.locator(place).filter(has_text=re.compile(words)).first
    box = found.bounding_box(timeout=1000)
    assert box["y"] + box["height"] <= screens * SCREEN["height"], box
    assert box["x"] >= 0 and box["x"] + box["width"] <= SCREEN["width"]


@pytest.mark.slow
def test_on_a_telephone_the_verdict_is_in_sight(tab):
    tab.set_viewport_size(NARROW)
    cells = tab.locator("#comparison table").first.locator("td[data-name=verdict]")
    for at in range(cells.count()):
        box = cells.nth(at).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= NARROW["width"], cells.nth(at).inner_text()
    assert tab.evaluate("document.documentElement.scrollWidth") == NARROW["width"]


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "schemes"), [(1, ["light"]), (8, ["light", "dark"])])
def test_axe_finds_no_violation(browser, tmp_path, seeds, schemes):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    store = synthetic_study(tmp_path / "runs", heads=(2, 4, 8), out_proj=(True,), seeds=seeds)
    synthetic_probes(store)
    page = ablate.report(store.root / "studies" / "synthetic")
    violations = []
    for scheme in schemes:
        # axe is a script of its own, which the page's policy would refuse.
        context = browser.new_context(viewport=SCREEN, color_scheme=scheme, bypass_csp=True)
        tab = context.new_page()
        tab.goto(page.resolve().as_uri())
        tab.wait_for_selector("html[data-drawn]")
        violations += axe.Axe().run(tab).response["violations"]
        context.close()
    assert [(found["id"], found["nodes"][0]["html"]) for found in violations] == []
