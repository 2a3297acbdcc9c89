"""Probes of an encoder-decoder: each kind of attention separately."""

import pytest

from ablate.data.corpus import open_corpus
from ablate.data.paired import Paired, batch_of
from ablate.model.models import build_model
from ablate.model.sizing import resolve_spec
from ablate.probes.patterns import look, real_at
from tests.helpers import SEEDS, call_cli, make_config


def test_padding_counts_in_no_probe():
    config = make_config("model=pair", "corpus=copy", "model.context=16", "corpus.held_out=40")
    corpus = open_corpus(config.corpus, as_pairs=True)
    model = build_model(resolve_spec(config, corpus.tokenizer.vocab_size), SEEDS)
    split = corpus.splits["validation"]
    batch = next(split.windows(context=16, windows=40))
    assert isinstance(split, Paired) and batch.source is not None
    lengths = [(row >= 0).sum().item() for row in batch.source]
    for heads in look(model, batch):
        counts = heads.real.sum(1).tolist()
        assert counts == [n if heads.site.kind == "encoder" else n + 1 for n in lengths]
    short = batch_of(split.pairs.held_out[:1], split.separator)
    assert real_at(model.sites()[0], short).all()


@pytest.mark.slow
def test_the_command_probes_pairs(tmp_path):
    small = ("model.d_model=16", "model.layers=1", "heads=2", "train.steps=4", "train.batch=4")
    pairs = ("model=pair", "corpus=reverse", "corpus.held_out=500", "train.eval_tokens=500")
    method = ("fusion=sum", "at=cross", "train.precision=bfloat16")
    assert call_cli("run", *pairs, *small, *method, "name=p", cwd=tmp_path).returncode == 0
    done = call_cli("probe", "p", "--format", "csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    kinds = ("cross 1", "encoder 1", "decoder 1")
    for words in (*kinds, "kept", "loss_added"):
        assert words in done.stdout, words
    assert call_cli("report", "p", cwd=tmp_path).returncode == 0
    assert "answer" in call_cli("sample", "sum-", "--prompt", "7 5", cwd=tmp_path).stdout
