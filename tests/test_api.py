"""The Python face: the same results as the commands, and the page about it runs as it stands."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import ablate
from ablate.api import as_overrides
from ablate.config.rules import ConfigError
from ablate.store.store import Store
from tests.helpers import ROOT, call_cli
from tests.synthetic import synthetic_study


@pytest.fixture
def study(tmp_path, monkeypatch):
    """runs/studies/synthetic in the working directory."""
    monkeypatch.chdir(tmp_path)
    synthetic_study(tmp_path / "runs", heads=(2, 4), out_proj=(True,), seeds=4)
    return tmp_path


@pytest.mark.parametrize(
    ("keys", "overrides"),
    [
        ({"fusion": "sum", "heads": 8}, ["fusion=sum", "heads=8"]),
        ({"out_proj": False, "train": {"clip": None}}, ["out_proj=false", "train.clip=null"]),
        ({"train.lr": 1e-4, "seed": [0, 1]}, ["-m", "train.lr=0.0001", "seed=0,1"]),
        ({"fusion": {"name": "sum", "normalize": "variance"}}, ["fusion=sum", "fusion.normalize=variance"]),
        ({"name": "7"}, ['name="7"']),
        ({"corpus": {"name": "file", "path": Path("a b.txt")}}, ["corpus=file", 'corpus.path="a b.txt"']),
    ],
)
def test_keywords_are_overrides(keys, overrides):
    assert as_overrides(keys) == overrides


@pytest.mark.parametrize("text", ["a b", "1e3", 'q"q', r"back\slash", "a=b,[c]", "é"])
def test_hydra_reads_every_text_back(text):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    (override,) = as_overrides({"name": text})
    assert OverridesParser.create().parse_override(override).value() == text


@pytest.mark.slow
def test_compare_says_what_the_command_says(study):
    comparison = ablate.compare("synthetic")
    done = call_cli("compare", "synthetic", cwd=study)
    shown, printed = (text.splitlines() for text in (str(comparison), done.stdout + done.stderr))
    assert [line for line in shown if line] == [line for line in printed if line]


@pytest.mark.slow
def test_a_comparison_shows_itself_escaped(study):
    rows = ablate.load("synthetic").assign(fusion=lambda r: r["fusion"].replace("mean", "<b>mean</b>"))
    html = ablate.compare(rows)._repr_html_()
    assert "&lt;b&gt;mean&lt;/b&gt;" in html and "<b>" not in html
    assert html.count("<table") == html.count("<caption") == 2


@pytest.mark.slow
def test_a_trained_model_is_a_torch_module_with_its_tokenizer(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    keys = {"corpus": "grammar", "corpus.characters": 9000, "train.steps": 3, "device": "cpu"}
    (row,) = ablate.run(fusion="sum", heads=2, **keys).itertuples()
    (directory,) = (tmp_path / "runs" / "store").glob("sum-*")
    model = ablate.load_model(str(row.run_id)[:8])
    weights = load_file(directory / "model.safetensors")
    assert not model.training and model.state_dict().keys() == weights.keys()
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())

    ids = model.encode("the dog")
    assert ids.dtype == torch.int64 and model.decode(ids) == "the dog"
    assert model(ids[None]).shape == (1, 7, model.tokenizer.vocab_size)
    text = model.generate("the ", tokens=11, temperature=0)
    assert text == ablate.load_model(directory).generate("the ", tokens=11, temperature=1e-9)
    assert text.startswith("the ") and len(text) == 4 + 11
    with pytest.raises(ConfigError, match="no run is in this directory"):
        ablate.load_model(tmp_path)


@pytest.mark.slow
def test_rows_come_in_the_order_asked_with_presets_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABLATE_RUNS", str(tmp_path / "kept"))
    (tmp_path / "own/train").mkdir(parents=True)
    (tmp_path / "own/train/short.yaml").write_text("defaults: [default]\nsteps: 3\nbatch: 2\n")
    keys = {"corpus": "grammar", "corpus.characters": 9000, "model.d_model": 8, "heads": 2, "train": "short"}
    asked = {"fusion": ["sum", "concat"], "seed": [3, 1, 2], "hydra/launcher": "basic"}
    rows = ablate.run(config_dir=tmp_path / "own", **keys, **asked)
    order = [(fusion, seed) for fusion in asked["fusion"] for seed in asked["seed"]]
    assert [*zip(rows["fusion"], rows["seed"], strict=True)] == order
    assert rows["steps"].tolist() == [3] * 6 and len(Store().finished()) == 6
    assert not (tmp_path / "runs").exists() and len(ablate.load()) == 6
    name = f"sum-h2-d8x2-s3-{rows['run_id'][0][:8]}"
    assert ablate.load_model(name)(torch.zeros(1, 4, dtype=torch.long)).shape[:2] == (1, 4)
    with pytest.raises(ConfigError, match="-cd nowhere: there is no such directory"):
        ablate.run(config_dir="nowhere")


@pytest.mark.slow
def test_the_notebook_page_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "notebook.md").read_text(encoding="utf-8")
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), {})
    shown = capsys.readouterr().out
    assert "did you mean sum?" in shown and "verdict" in shown
    assert (tmp_path / "demo.html").exists() and [*(tmp_path / "figures").glob("*-curves.pdf")]


# --- arguments ----------------------------------------------------------------------------------

REFUSED = [
    (ablate.run, {"fusion": {"sum"}}, "fusion: set is no value of a key; give text or numbers"),
    (ablate.run, {"--cfg": "job"}, "--cfg: no such key; ablate keys shows them all"),
    (ablate.run, {"heads=2 seed": 1}, "heads=2 seed: no such key"),
    (ablate.run, {"plugins": "mine.py"}, "mine.py: No such file or directory; name a Python"),
    (ablate.compare, {"rows": "synthetic", "margin": -1}, "--margin -1: give one above 0"),
]


@pytest.mark.parametrize(("function", "given", "error"), REFUSED, ids=lambda _: "")
def test_an_argument_that_can_not_be_is_refused_in_one_line(study, function, given, error):
    with pytest.raises((TypeError, ConfigError)) as raised:
        function(**given)
    assert str(raised.value).startswith(error) and len(str(raised.value).splitlines()) == 1


@pytest.mark.slow
def test_what_a_model_is_asked_for_is_checked_like_the_options_of_sample(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    small = {"corpus": "grammar", "corpus.characters": 9000, "train.steps": 2, "model.d_model": 16}
    (run,) = ablate.run(heads=2, **small)["run_id"]
    model: Any = ablate.load_model(run)
    for given, line in (
        ({"tokens": -5}, "tokens=-5: must be at least 1"),
        ({"temperature": math.nan}, "temperature=nan: expected a finite number"),
        ({"prompt": ""}, "the prompt is empty; give at least one character"),
    ):
        with pytest.raises(ConfigError, match=f"^{re.escape(line)}$"):
            model.generate(**given)
    code, _, said = command("sample", run, "--temperature", "nan")
    assert code == 2 and said.startswith("ablate: --temperature nan: ")
