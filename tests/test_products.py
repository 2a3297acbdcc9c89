"""Matrix products and attention: the fast way computes what the plain one does."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from ablate.compute import fastest
from ablate.compute.fastest import PRODUCTS, agrees, onednn, rounded, works
from ablate.data.splits import Batch, Stream
from ablate.execution.place import TOLERANCE, fastest_attention, is_exact
from ablate.execution.run import build_group, prepare
from ablate.model.attend import CAUSAL, EVERYTHING, FORMULATIONS
from ablate.model.models import build_model
from ablate.model.scores.windows import Near
from ablate.training.events import Step
from ablate.training.group import Alone
from ablate.training.train import Member, Training
from tests.helpers import QUICK, make_config, make_spec
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


@pytest.mark.slow
@needs_onednn
def test_training_by_either_product_gives_the_same_losses_to_four_digits():
    overrides = ("model=nano", "train=nanogpt", "train.steps=50", "train.eval_every=50")
    config, spec = make_config(*overrides), make_spec(*overrides, vocab=11)
    losses = {}
    for name, product in PRODUCTS.items():
        model = build_model(spec, config.resolved_seeds())
        calls = []
        model.use(product=lambda x, w, b, p=product, calls=calls: calls.append(1) or p(x, w, b))
        splits = {"train_split": Stream(TOKENS), "validation_split": Stream(TOKENS[:100])}
        members = [Member(config.train, data_seed=0)]
        training = Training(Alone(model, config.train.precision), members, **splits, context=spec.context)
        losses[name] = [event.loss_M.item() for event in training.events() if isinstance(event, Step)]
        assert len(calls) > 50 * 25  # six products a block, and the logits
    assert losses["onednn"] == pytest.approx(losses["mkl"], rel=5e-5)


def test_a_product_that_is_not_exact_does_not_count_as_working():
    assert works(F.linear)
    assert not works(lambda x, w, b: F.linear(x, w, b) * 1.0001)
    assert not works(lambda x, w, b: F.linear(x, w.detach(), b) + 0 * w.sum())

    def missing(*_):
        raise AttributeError("no such operator")

    assert not works(missing)


@pytest.mark.parametrize("product", [F.linear, pytest.param(onednn, marks=needs_onednn)])
def test_bfloat16_is_multiplied_in_float32_and_rounded_once(product):
    shapes = ((3, 400, 29), (41, 29), (41,), (3, 400, 41))
    half = 2.0**-8  # of a number in bfloat16, what rounding it changes at most
    assert agrees(rounded(product), F.linear, shapes, torch.bfloat16, half)
    x, weight, bias = (torch.randn(shape).bfloat16() for shape in shapes[:3])
    exact = F.linear(x.double(), weight.double(), bias.double())
    assert rounded(product)(x, weight, bias).dtype == torch.bfloat16
    assert rounded(product)(x, weight, bias).ne(exact.bfloat16()).float().mean() < 0.001  # sums in the middle


@needs_onednn
def test_onednn_is_mapped_by_the_batched_product():
    x, weight, bias = (
        torch.randn(shape, requires_grad=True) for shape in ((4, 2, 3, 5), (4, 11, 5), (4, 11))
    )
    mapped = torch.vmap(onednn)(x, weight, bias)
    alone = torch.stack([F.linear(*each) for each in zip(x, weight, bias, strict=True)])
    grad = torch.randn_like(alone)
    for one, other in zip(
        (mapped, *torch.autograd.grad(mapped, (x, weight, bias), grad)),
        (alone, *torch.autograd.grad(alone, (x, weight, bias), grad)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("has_products", [True, False])
def test_a_processor_without_bfloat16_products_multiplies_in_float32(has_products, monkeypatch):
    monkeypatch.setattr("ablate.execution.place.bfloat16_is_faster", lambda: has_products)
    run = prepare(make_config(*QUICK, "train.precision=bfloat16", "train.linear=mkl"))
    assert run.linear == ("torch" if has_products else "mkl")
    types = set()
    monkeypatch.setitem(PRODUCTS, "mkl", lambda x, w, b: types.add(w.dtype) or F.linear(x, w, b))
    for group in (build_group([run]), build_group([run, run])):
        tokens = torch.zeros(len(group.models), 1, run.spec.context, dtype=torch.long)
        loss_M, grads_MP = group.losses_and_gradients(Batch(tokens, tokens))
        assert (
            group.computed.dtype == torch.bfloat16 and loss_M.isfinite().all() and grads_MP.isfinite().all()
        )
    assert types == (set() if has_products else {torch.float32})


@pytest.fixture
def cleared(tmp_path, monkeypatch):
    """A cache of its own, and nothing remembered in this process."""
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path))
    choices = (fastest.fastest_product, fastest.bfloat16_is_faster, fastest_attention)
    for choice in choices:
        choice.cache_clear()
    yield tmp_path
    for choice in choices:
        choice.cache_clear()


def forget(cache: Path) -> None:
    for entry in cache.glob("fastest-*"):
        shutil.rmtree(entry)


def test_the_choice_is_made_once_and_remembered(cleared):
    timed = []

    def contestants(**seconds: float):
        return {name: lambda s=s, n=name: timed.append(n) or s for name, s in seconds.items()}

    assert fastest.fastest("which", contestants(plain=1.0, other=0.5)) == "other"
    assert len(timed) == 2 * fastest.ROUNDS
    assert fastest.fastest("which", contestants(plain=0.5, other=1.0)) == "other"
    assert len(timed) == 2 * fastest.ROUNDS
    assert fastest.fastest("something else", contestants(plain=0.5, other=1.0)) == "plain"
    assert fastest.fastest("which", contestants(plain=1.0, abacus=0.5)) == "abacus"  # among others
    for path in cleared.glob("fastest-*/meta.json"):
        path.write_text("{")  # a damaged file
    assert fastest.fastest("which", contestants(plain=0.5, other=1.0)) == "plain"


def test_of_two_processes_that_time_at_once_the_first_decides(cleared):
    def slow() -> float:
        assert fastest.fastest("which", {"plain": lambda: 1.0, "other": lambda: 0.5}) == "other"
        return 2.0

    assert fastest.fastest("which", {"plain": lambda: 1.0, "other": slow}) == "other"


@pytest.mark.parametrize(("other", "choice"), [(0.5, "other"), (0.99, "plain"), (1.5, "plain")])
def test_another_way_is_taken_where_it_is_well_ahead(cleared, other, choice):
    assert fastest.fastest("which", {"plain": lambda: 1.0, "other": lambda: other}) == choice


def test_what_is_hopeless_is_not_timed_again(cleared):
    timed = []
    late = [9.0, *[0.5] * 6]  # its first call has to load something
    seconds = {"plain": [1.0] * 7, "slow": [9.0] * 7, "late": late}

    def contestant(name: str):
        return lambda: timed.append(name) or seconds[name].pop(0)

    assert fastest.fastest("which", {name: contestant(name) for name in seconds}) == "late"
    assert Counter(timed) == {"plain": 7, "late": 7, "slow": 2}


def test_a_product_that_does_not_work_is_not_taken(cleared, monkeypatch):
    monkeypatch.setattr(fastest, "_seconds", lambda product, _: 0.5 if product is onednn else 1.0)
    monkeypatch.setattr(fastest, "works", lambda product: product is not onednn)
    assert fastest.fastest_product() == "mkl"
    fastest.fastest_product.cache_clear()
    forget(cleared)
    monkeypatch.setattr(fastest, "works", lambda _: True)
    assert fastest.fastest_product() == "onednn"


def test_a_processor_without_bfloat16_products_is_known_by_their_time(cleared, monkeypatch):
    for half, faster in ((0.5, True), (3.0, False)):
        monkeypatch.setattr(fastest, "_seconds", lambda _, dtype, h=half: h if dtype.itemsize == 2 else 1.0)
        fastest.bfloat16_is_faster.cache_clear()
        forget(cleared)
        assert fastest.bfloat16_is_faster() is faster


@pytest.mark.parametrize("name", FORMULATIONS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_formulations_of_attention_agree_with_float64(name, dtype):
    assert is_exact(FORMULATIONS[name], dtype)
    assert not is_exact(lambda q, *rest: FORMULATIONS[name](1.1 * q, *rest), dtype)


@pytest.mark.parametrize("mask", [CAUSAL, EVERYTHING, Near(CAUSAL, (2, 5, 40))])
def test_formulations_mask_alike(mask):
    q, k, v = (torch.randn(2, 3, 13, width, dtype=torch.float64) for width in (4, 4, 6))
    read = {name: attend(q, k, v, mask, 0.0, 0.7) for name, attend in FORMULATIONS.items()}
    torch.testing.assert_close(read["fused"], read["unfused"])
    torch.testing.assert_close(read["float32"].float(), read["fused"].float())


def test_formulations_drop_the_same_entries():
    q, k, v = (torch.randn(2, 3, 13, width) for width in (4, 4, 6))
    outputs = []
    for attend in FORMULATIONS.values():
        torch.manual_seed(3)
        outputs.append(attend(q, k, v, CAUSAL, 0.4, 0.7))
    for other in outputs[1:]:
        torch.testing.assert_close(other, outputs[0])
