"""Matrix products: the fast one computes what the plain one does."""

import json

import pytest
import torch
import torch.nn.functional as F

from ablate.compute import fastest
from ablate.compute.products import PRODUCTS, onednn, works
from ablate.model.lm import build_model
from ablate.training.train import Step, train
from tests.helpers import make_config, make_spec
from tests.test_train import TOKENS

needs_onednn = pytest.mark.skipif(not works(onednn), reason="this PyTorch has no such operator")


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 5), (1, 5)])
def test_onednn_is_linear_in_value_and_gradients(shape, bias):
    x, weight, b = torch.randn(shape), torch.randn(11, 5), torch.randn(11) if bias else None
    grad = torch.randn(*shape[:-1], 11)

    def computed(product, dtype):
        inputs = [t.to(dtype).requires_grad_() for t in (x, weight, b) if t is not None]
        y = product(*inputs) if bias else product(*inputs, None)
        return y, *torch.autograd.grad(y, inputs, grad.to(dtype))

    for mine, exact in zip(computed(onednn, torch.float32), computed(F.linear, torch.float64), strict=True):
        torch.testing.assert_close(mine, exact.float(), rtol=1e-5, atol=1e-5)


@needs_onednn
def test_training_by_either_product_gives_the_same_losses_to_four_digits():
    overrides = ("model=nano", "train=nanogpt", "train.steps=50", "train.eval_every=50")
    config, spec = make_config(*overrides), make_spec(*overrides, vocab=11)
    losses = {}
    for name, product in PRODUCTS.items():
        model = build_model(spec, config.resolved_seeds())
        calls = []
        model.use(product=lambda x, w, b, p=product, calls=calls: calls.append(1) or p(x, w, b))
        events = train(
            model,
            config.train,
            train_tokens=TOKENS,
            validation_tokens=TOKENS[:100],
            context=spec.context,
            data_seed=0,
        )
        losses[name] = [event.loss.item() for event in events if isinstance(event, Step)]
        assert len(calls) > 50 * 25  # six products a block, and the logits
    assert losses["onednn"] == pytest.approx(losses["mkl"], rel=5e-5)


def test_a_product_that_is_not_exact_does_not_count_as_working():
    assert works(F.linear)
    assert not works(lambda x, w, b: F.linear(x, w, b) * 1.0001)
    assert not works(lambda x, w, b: F.linear(x, w.detach(), b) + 0 * w.sum())

    def missing(*_):
        raise AttributeError("no such operator")

    assert not works(missing)


def test_the_choice_is_made_once_and_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path))
    asked = []
    monkeypatch.setattr(fastest, "_time", lambda: asked.append(1) or "onednn")
    for _ in range(2):
        fastest.fastest_product.cache_clear()  # another process
        assert fastest.fastest_product() == "onednn"
    assert asked == [1]
    path = tmp_path / "fastest.json"
    path.write_text(json.dumps(dict.fromkeys(json.loads(path.read_text()), "abacus")))
    fastest.fastest_product.cache_clear()
    assert fastest.fastest_product() == "onednn" and len(asked) == 2
    fastest.fastest_product.cache_clear()


def test_the_faster_product_is_taken_where_it_is_ahead(monkeypatch):
    monkeypatch.setattr(fastest, "works", lambda _: True)
    for seconds, choice in ((0.5, "onednn"), (0.99, "mkl"), (1.5, "mkl")):
        monkeypatch.setattr(fastest, "_seconds", lambda p, s=seconds: s if p is onednn else 1.0)
        assert fastest._time() == choice
    monkeypatch.setattr(fastest, "works", lambda _: False)
    monkeypatch.setattr(fastest, "_seconds", lambda _: 0.5)
    assert fastest._time() == "mkl"
