"""`ablate probe`: over a study's runs, its files, and the section of the report that is made of them."""

import io
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

import ablate
from ablate.analysis.load import read
from ablate.analysis.probes import COLUMNS, FIRST, over_seeds
from ablate.compute.arithmetic import onednn
from ablate.config.rules import ConfigError
from ablate.data.corpus import open_corpus
from ablate.data.examples import Examples, batch_of
from ablate.data.splits import Batch
from ablate.execution.run import prepare
from ablate.execution.trained import in_float64
from ablate.model.fusion import methods
from ablate.model.models import build_model
from ablate.model.sizing import resolve_spec
from ablate.probes.measure import measure
from ablate.probes.patterns import look, patterns_of, real_at
from ablate.probes.study import looks
from ablate.reporting.page import gather
from tests.helpers import SEEDS, call_cli, fork_cli, make_config
from tests.synthetic import small_study, synthetic_probes

QUICK = ("model.d_model=16", "heads=2", "model.context=16", "train.steps=10", "train.eval_every=10")
GRAMMAR = ("corpus=grammar", "corpus.characters=20000")
LARGEST = """
from ablate.methods import Fusion, register

@register("largest")
class Largest(Fusion):
    def forward(self, z_BTHV, x_BTC):
        return z_BTHV.amax(-2)
"""
PLUGIN = ("--plugin", "largest.py")
CONCAT, SUM = (f"fusion={fusion} heads=4 out_proj=true" for fusion in ("concat", "sum"))


def probed(largest: dict[str, list[float]]) -> tuple[pd.DataFrame, pd.Series]:
    """Two heads of one layer, for each run of each variant."""
    rows, variant = [], {}
    for name, of_runs in largest.items():
        for number, value in enumerate(of_runs):
            variant[f"{name}{number}"] = name
            for head, shown in enumerate((value, 0.0), 1):
                rows.append((f"{name}{number}", 1, head, "previous", shown, 0.1, None, True))
    return pd.DataFrame(rows, columns=[*COLUMNS]), pd.Series(variant)


def test_summaries_are_over_seeds_and_sorted_heads():
    values, variant = probed({"a": [0.6, 0.8], "b": [0.2, 0.2]})
    table = over_seeds(values, variant).set_index("variant")
    assert table.loc["a", "largest"] == pytest.approx(0.7) and table.loc["a", "smallest"] == 0
    assert table.loc["a", "median"] == pytest.approx(0.35) and table.loc["a", "n"] == 2
    assert (table.at["a", "largest_low"], table.at["a", "largest_high"]) == (0.6, 0.8)
    assert table.loc["b", "untrained"] == 0.1


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Path:
    """Where there is a study of sum and a method that is no sum of heads, at two seeds."""
    cwd = tmp_path_factory.mktemp("two")
    (cwd / "largest.py").write_text(LARGEST)
    common = ("-m", *QUICK, *GRAMMAR, "model.layers=1", "name=two", "seed=0,1", "hydra/launcher=basic")
    assert call_cli("run", *PLUGIN, *common, "fusion=sum,largest", cwd=cwd).returncode == 0
    return cwd


@pytest.mark.slow
def test_a_study_is_probed_beside_its_results(two: Path):
    done = call_cli("probe", "two", *PLUGIN, "--all", cwd=two)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(two / "runs/studies/two/probes.csv")
    assert {*table["probe"]} == {*FIRST, "write_rank", "head_id_accuracy", "entropy"}
    assert table["run_id"].nunique() == 4
    kept = table[table["probe"] == "kept"]
    assert kept["value"].between(0, 1).all() and kept[["null", "untrained"]].notna().all(axis=None)
    of_largest = table[table["run_id"].isin(ids(two, "largest"))]
    assert not of_largest[of_largest["probe"].isin(["write_rank", "loss_added"])]["exact"].any()
    assert call_cli("probe", ids(two, "sum")[0], cwd=two).returncode == 0
    some = fork_cli("probe", "two", "--where", "seed=0", "--out", "some.csv", cwd=two)
    assert some.returncode == 1 and some.stderr.endswith("some runs are left out, for the reasons above\n")
    refused = fork_cli("probe", "two", "--where", "fusion=largest", cwd=two)  # which has loaded no plugin
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1, refused.stderr
    assert "add --plugin largest.py" in refused.stderr and "for 1 other run" in refused.stderr
    brief = call_cli("probe", "two", "--where", "fusion=sum", cwd=two)
    header, line, *others = brief.stdout.splitlines()
    assert not others[1:] and {*header.split()} >= {"layer", "n", "kept", "loss_added", "distance"}
    largest = kept[kept["run_id"].isin(ids(two, "sum"))].groupby("run_id")[["value", "untrained"]].max()
    assert "{:.3g} ({:.3g})".format(*largest.mean()) in line
    again = call_cli("probe", "two", "--where", "fusion=sum", "--format", "csv", cwd=two)
    assert again.returncode == 0  # a program gets every probe, and only the table
    assert {*pd.read_csv(io.StringIO(again.stdout))["probe"]} == {*table["probe"]}
    assert len(pd.read_csv(two / "runs/studies/two/probes.csv")) == len(table)


@pytest.mark.slow
def test_where_heads_look_in_a_text_of_ones_own(two: Path):
    (two / "own.txt").write_text("the cat\nthe dog")
    done = call_cli("probe", "two", *PLUGIN, "--text", "own.txt", cwd=two)
    assert done.returncode == 0, done.stderr
    assert {Path(picture).name[:3] for picture in done.stdout.splitlines()} == {"sum", "lar"}
    for picture in map(Path, done.stdout.splitlines()):
        svg, name = (two / picture).with_suffix(".svg").read_text(), picture.name.partition("-")[0]
        assert f"fusion={name}" in svg and "own.txt" in svg and "head 2" in svg and "⏎" in svg
    directory = (two / "runs/store").glob("sum-*").__next__()
    weights = looks(directory, "the cat")
    assert weights.groupby(["layer", "head", "query"])["weight"].sum().between(1 - 1e-9, 1 + 1e-9).all()
    model = ablate.load_model(directory).double()
    seen = patterns_of(model.network, Batch(model.encode("the cat")[None], model.encode("the cat")[None]))
    last = weights.query("layer == 1 and head == 2").tail(7)["weight"].to_numpy()
    assert last == pytest.approx(seen[0][0, 1, 6].numpy())
    for text, line in (("t", "fewer than two tokens"), ("T", "not among the")):
        (two / "own.txt").write_text(text)
        assert line in call_cli("probe", "two", *PLUGIN, "--text", "own.txt", cwd=two).stderr
    assert "none: " in call_cli("probe", "two", *PLUGIN, "--text", "none", cwd=two).stderr


def ids(where: Path, fusion: str) -> list[str]:
    rows = pd.read_csv(where / "runs/studies/two/results.csv", dtype={"run_id": str})
    return rows[rows["fusion"] == fusion]["run_id"].tolist()


def test_a_model_is_looked_at_in_float64_whatever_its_product_takes(monkeypatch):
    monkeypatch.setattr("ablate.execution.networks.arithmetic", lambda *_: (onednn, "fused"))
    run = prepare(make_config(*QUICK, *GRAMMAR))
    tokens = torch.zeros(1, 16, dtype=torch.int64)
    assert in_float64(run)(tokens).dtype == torch.float64


def test_a_fusion_that_has_no_value_for_a_head_at_0_is_probed_without(monkeypatch):
    unit = lambda self, z_BTHV, x_BTC: (z_BTHV / z_BTHV.norm(dim=-1, keepdim=True)).flatten(-2)  # noqa: E731
    monkeypatch.setattr(methods()["concat"], "forward", unit)
    run = prepare(make_config(*QUICK, *GRAMMAR))
    assert {one.probe for one in measure(run, in_float64(run))} == {*FIRST, "entropy"} - {"loss_added"}


@pytest.mark.slow
def test_what_can_not_be_probed_says_why(tmp_path: Path):
    call_cli("run", *QUICK, *GRAMMAR, "train.save=none", "name=bare", cwd=tmp_path)
    call_cli("run", *QUICK, *GRAMMAR, "train.lr=1e30", "train.clip=null", "name=lost", cwd=tmp_path)
    call_cli("run", *QUICK, "corpus=grammar", "corpus.characters=1200", "name=short", cwd=tmp_path)
    for target, words in (
        ("bare", "kept no weights"),
        ("short", "tokens are too few to predict from 16 dimensions: it takes 160"),
        ("lost", "lost: diverged, so there is nothing to probe"),
        ("nothing", "no finished run begins with it"),
    ):
        done = call_cli("probe", target, cwd=tmp_path)
        assert done.returncode == 2 and words in done.stderr, done.stderr


# --- pairs: each kind of attention by itself -------------------------------------------------------------


def test_padding_counts_in_no_probe():
    config = make_config("model=pair", "corpus=copy", "model.context=16", "corpus.held_out=40")
    corpus = open_corpus(config.corpus, as_pairs=True)
    model = build_model(resolve_spec(config, corpus.tokenizer.vocab_size), SEEDS)
    split = corpus.splits["validation"]
    batch = next(split.windows(context=16, windows=40))
    assert isinstance(split, Examples) and batch.source is not None
    lengths = [(row >= 0).sum().item() for row in batch.source]
    for heads in look(model, batch):
        counts = heads.real.sum(1).tolist()
        assert counts == [n if heads.site.kind == "encoder" else n + 1 for n in lengths]
    short = batch_of(split.held_out[:1])
    assert real_at(model.sites()[0], short).all()


@pytest.mark.slow
def test_the_command_probes_pairs(tmp_path):
    small = ("model.d_model=16", "model.layers=1", "heads=2", "train.steps=2", "train.batch=4")
    pairs = ("model=pair", "corpus=reverse", "corpus.held_out=120", "train.eval_tokens=120")
    method = ("fusion=sum", "at=cross", "train.precision=bfloat16")
    assert call_cli("run", *pairs, *small, *method, "name=p", cwd=tmp_path).returncode == 0
    done = call_cli("probe", "p", "--format", "csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    kinds = ("cross 1", "encoder 1", "decoder 1")
    for words in (*kinds, "kept", "loss_added"):
        assert words in done.stdout, words
    assert call_cli("report", "p", cwd=tmp_path).returncode == 0
    assert "answer" in call_cli("sample", "sum-", "--prompt", "7 5", cwd=tmp_path).stdout


# --- the report --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    store = small_study(tmp_path_factory.mktemp("probed") / "runs", seeds=3)
    synthetic_probes(store)
    return store.root / "studies" / "synthetic"


@pytest.mark.slow
def test_the_report_has_a_section_of_what_was_probed(study: Path):
    heads = gather(read(study)).heads
    assert [*heads] == ["variant", "layer", "n", "kept", "previous", "induction", "loss_added"]
    cells = heads.set_index(["variant", "layer"])["previous"]
    cell = cells["sum", 1]
    assert float(cell.split()[0]) == pytest.approx(0.9, abs=0.03) and cell.endswith("(0.1)")


@pytest.mark.slow
def test_without_probes_it_has_none(tmp_path: Path, study: Path):
    other = tmp_path / "runs"
    shutil.copytree(study.parents[1], other)
    (other / "studies/synthetic/probes.csv").unlink()
    assert gather(read(other / "studies/synthetic")).heads.empty
    (other / "studies/synthetic/probes.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match=r"probes\.csv: no file of ablate probe; move it away"):
        gather(read(other / "studies/synthetic"))
