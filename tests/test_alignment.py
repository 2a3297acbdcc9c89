"""Probes of an encoder-decoder: planted alignments, and each kind of attention separately."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional

from ablate.data.corpus import open_corpus
from ablate.data.paired import Paired
from ablate.model.models import EncoderDecoder, build_model
from ablate.model.sizing import resolve_spec
from ablate.probes.alignment import Alignment, aligned, error_rate, read
from ablate.probes.needed import deviating, loss_without, pruned, sensitivity
from ablate.probes.patterns import look, real_at
from tests.helpers import SEEDS, call_cli, make_config

COPY = ("model=pair", "corpus=copy", "model.context=16", "corpus.held_out=40")


def untrained(*overrides: str):
    config = make_config(*COPY, *overrides)
    corpus = open_corpus(config.corpus, config.model)
    model = build_model(resolve_spec(config, corpus.tokenizer.vocab_size), SEEDS).double().eval()
    assert isinstance(model, EncoderDecoder)
    return corpus, model


@torch.no_grad()
def planted(model: EncoderDecoder) -> None:
    """Make head 1 of the first cross-attention look at the position that it predicts: positions are one-hot,
    and nothing else is in the residual stream."""
    for site in model.sites():
        site.attention.get_parameter("out_proj.weight").zero_()
    for block in (*model.encoder, *model.blocks):
        block.get_parameter("mlp.down.weight").zero_()
    model.token.weight.zero_()
    one_hot = 10 * torch.eye(*model.get_parameter("position.weight").shape, dtype=torch.float64)
    model.get_parameter("position.weight").copy_(one_hot)
    model.get_parameter("source_position.weight").copy_(one_hot)
    width = model.blocks[0].cross.spec.key_width
    for projection in ("query", "key"):
        weight = model.blocks[0].cross.get_parameter(f"{projection}.weight")
        weight.zero_()
        weight[:width, :width] = 2 * torch.eye(width, dtype=torch.float64)


def test_a_planted_alignment_is_found_and_none_elsewhere():
    corpus, model = untrained()
    before = read(corpus, model)
    assert max(aligned(before, 0)) < 0.5 and min(error_rate(before, 0)) > 0.3
    planted(model)
    alignments = read(corpus, model)
    weights = aligned(alignments, 0)
    assert weights[0] > 0.99 and max(weights[1:]) < 0.6
    assert error_rate(alignments, 0)[0] == 0


def test_alignment_errors_by_hand():
    gold_TS = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0]], bool)  # sure; possible; of nothing
    weights_HTS = np.array(
        [[[0.8, 0.1, 0.1], [0.2, 0.2, 0.6], [1, 0, 0]], [[0.1, 0.9, 0.0], [0.6, 0.3, 0.1], [1, 0, 0]]]
    )
    alignments = [Alignment(gold_TS, [weights_HTS])]
    assert aligned(alignments, 0) == pytest.approx([(0.8 + 0.8) / 2, (0.1 + 0.4) / 2])
    # A: two links, S: one. Head 1 hits both, of which one is sure; head 2 none.
    assert error_rate(alignments, 0) == pytest.approx([1 - (1 + 2) / 3, 1])
    # The diagonal has letter 0 on 0 and 1 on 1: both right.
    assert aligned(alignments, None) == [1.0] and error_rate(alignments, None) == [0.0]


def test_tokens_that_are_no_letters_have_no_alignment():
    numbers = ("corpus=numbers", "corpus.tokenizer=byte", "model.context=200")
    corpus, model = untrained(*numbers)
    assert read(corpus, model) == []  # ü, ö and ß are two bytes


def test_sensitivity_weighs_each_row_alike():
    corpus, model = untrained()
    batch = next(corpus.splits["validation"].windows(context=16, windows=40))
    positions = batch.target_positions
    assert positions is not None
    row, R = positions // batch.inputs.shape[1], len(batch.inputs)
    factors = [torch.ones(R, 4, dtype=torch.float64, requires_grad=True) for _ in model.sites()]
    with deviating(model, factors.__getitem__, batch):
        logits = model(batch.inputs, positions, batch.source)
    losses = functional.cross_entropy(logits, batch.targets.flatten()[positions], reduction="none")
    assert len(row.bincount().unique()) > 1
    of_rows = [losses[row == one].mean() for one in range(R)]
    wanted = [
        grad.abs().mean(0).tolist() for grad in torch.autograd.grad(torch.stack(of_rows).sum(), factors)
    ]
    for of_site, found in zip(wanted, sensitivity(model, batch), strict=True):
        assert found == pytest.approx(of_site, rel=1e-9)


def test_padding_counts_in_no_probe():
    corpus, model = untrained("fusion=sum", "at=cross")
    split = corpus.splits["validation"]
    batch = next(split.windows(context=16, windows=40))
    assert isinstance(split, Paired) and batch.source is not None
    lengths = [(row >= 0).sum().item() for row in batch.source]
    for heads in look(model, batch):
        counts = heads.real.sum(1).tolist()
        assert counts == [n if heads.site.kind == "encoder" else n + 1 for n in lengths]
    short = split.layout.batch(split.pairs.held_out[:1])
    assert real_at(model.sites()[0], short).all()


def test_each_kind_is_pruned_by_itself():
    corpus, model = untrained("heads=2")
    batch = next(corpus.splits["validation"].windows(context=16, windows=8))
    order = [*pruned(model, batch)]
    assert len(order) == 12 and len({(at, head) for at, head, _ in order}) == 12
    kinds = [model.sites()[at].kind for at, _, _ in order]
    assert kinds == ["encoder"] * 4 + ["decoder"] * 4 + ["cross"] * 4
    for kind in ("encoder", "decoder", "cross"):
        gone = {(at, head) for at, head, _ in order if model.sites()[at].kind == kind}
        last = [loss for at, _, loss in order if model.sites()[at].kind == kind][-1]
        assert loss_without(model, batch, gone) == pytest.approx(last)


@pytest.mark.slow
def test_the_command_probes_pairs(tmp_path):
    small = ("model.d_model=16", "model.layers=1", "heads=2", "train.steps=4", "train.batch=4")
    pairs = ("model=pair", "corpus=numbers", "corpus.held_out=500", "train.eval_tokens=500")
    method = ("fusion=max", "at=cross", "train.precision=bfloat16", "train.probe_every=2")
    assert call_cli("run", *pairs, *small, *method, "name=p", cwd=tmp_path).returncode == 0
    (tmp_path / "line.txt").write_text("zwei\ttwo\n", encoding="utf-8")
    done = call_cli("probe", "p", "--prune", "--text", "line.txt", "--format", "csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    kinds = ("cross 1", "encoder 1", "decoder 1")
    for words in (*kinds, "aligned", "alignment_errors", "kept", "loss_added", "pruned"):
        assert words in done.stdout, words
    maps = json.loads((tmp_path / "runs/studies/p/probes-text.json").read_text())
    (of_run,) = maps.values()
    assert of_run["layers"] == ["cross 1"] and of_run["tokens"] == ["t", "w", "o", "end"]
    assert of_run["keys"] == [*"zwei"] and np.shape(of_run["patterns"]) == (1, 2, 4, 4)
    assert call_cli("report", "p", cwd=tmp_path).returncode == 0
    assert "translation" in call_cli("sample", "max-", "--prompt", "zwei", cwd=tmp_path).stdout
