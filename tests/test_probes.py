"""Probes against answers that were planted, and against chance on models that never learned."""

import math

import numpy as np
import pytest
import torch

from ablate.config.rules import ConfigError
from ablate.data.splits import Batch
from ablate.model.fusion import methods
from ablate.model.models import Model, build_model, inputs_of_attention
from ablate.probes import outputs, patterns
from ablate.probes.needed import loss_added
from ablate.probes.patterns import induction, look, patterns_of, previous
from ablate.probes.patterns import twice as repeated
from tests.helpers import SEEDS, make_spec

DRAWS = np.random.default_rng(0)
PAIRS = ((1, 2), (0, 2), (0, 1))  # the other heads of three
SIZES = ("model.d_model=24", "heads=3", "model.context=12", "model.layers=2")


def model_of(*overrides: str, vocab: int = 11) -> Model:
    return build_model(make_spec(*SIZES, *overrides, vocab=vocab), SEEDS).double().eval()


def with_random_weights(*overrides: str) -> Model:
    """With weights that do something, where those of the start are near 0."""
    model = model_of(*overrides)
    with torch.no_grad():
        for param in model.parameters():
            param.add_(0.3 * torch.from_numpy(DRAWS.standard_normal(param.shape)))
    return model


def heads(n: int = 20_000, H: int = 4, V: int = 5) -> np.ndarray:
    return DRAWS.standard_normal((n, H, V))


# --- what is kept ----------------------------------------------------------------------------


def test_of_independent_heads_a_sum_keeps_one_in_h():
    z = heads()
    assert outputs.linear_shares(z.sum(1), [*z.transpose(1, 0, 2)]) == pytest.approx([0.25] * 4, abs=0.02)


def test_of_heads_of_other_size_it_keeps_their_share_of_the_variance():
    sizes = np.array([1.0, 2.0, 3.0, 0.5])
    z = heads() * sizes[:, None]
    found = outputs.linear_shares(z.sum(1), [*z.transpose(1, 0, 2)])
    assert found == pytest.approx(sizes**2 / (sizes**2).sum(), abs=0.02)


def test_concat_keeps_all_before_any_projection():
    z = heads(5000)
    side_by_side = z.reshape(len(z), -1)
    assert outputs.linear_shares(side_by_side, [*z.transpose(1, 0, 2)]) == pytest.approx([1.0] * 4)


def test_the_basis_of_a_head_is_arbitrary():
    z = heads(4000) @ DRAWS.standard_normal((4, 5, 5))[:, None][0]  # correlated dimensions
    fused = z.sum(1) + 0.3 * z[:, 0] ** 2
    turned = [z[:, head] @ DRAWS.standard_normal((5, 5)) + 3 for head in range(4)]
    before = outputs.linear_shares(fused, [*z.transpose(1, 0, 2)])
    assert outputs.linear_shares(fused, turned) == pytest.approx(before, abs=1e-6)
    moved = fused @ DRAWS.standard_normal((5, 5)) - 1
    assert outputs.linear_shares(moved, turned) == pytest.approx(before, abs=1e-6)


def test_a_head_that_never_varies_keeps_nothing():
    z = heads(2000, 2)
    z[:, 1] = 7.0
    assert outputs.linear_shares(z[:, 0], [z[:, 0], z[:, 1]]) == pytest.approx([1.0, 0.0])


def test_shuffled_heads_know_nothing_of_each_other():
    z = np.repeat(DRAWS.standard_normal((3000, 1, 4)), 3, 1)  # three copies
    apart_ = outputs.shuffled(z, np.random.default_rng(0))
    assert outputs.linear_shares(z.sum(1), [z[:, 0]])[0] == pytest.approx(1)
    assert outputs.linear_shares(apart_.sum(1), [apart_[:, 0]])[0] == pytest.approx(1 / 3, abs=0.05)
    assert sorted(apart_[:, 1, 0]) == sorted(z[:, 1, 0])


def test_too_few_tokens_say_how_many_it_takes():
    with pytest.raises(ConfigError, match=r"300 tokens are too few .* 64 dimensions: it takes 640"):
        outputs.require_tokens(300, 64)
    outputs.require_tokens(640, 64)


# --- what is apart ---------------------------------------------------------------------------


def test_ranks_by_hand():
    n = 4000
    u = np.zeros((n, 3, 6))
    u[:, 0, :2] = DRAWS.standard_normal((n, 2))  # a plane
    u[:, 1, 2] = DRAWS.standard_normal(n)  # a line at right angles to it
    u[:, 2, 3] = u[:, 2, 2] = DRAWS.standard_normal(n)  # one at 45 degrees to that
    assert outputs.effective_ranks(u) == pytest.approx([2, 1, 1], abs=0.01)


def test_heads_are_told_apart_by_their_means_and_not_by_chance():
    u = DRAWS.standard_normal((3000, 4, 6)) + 5 * np.eye(4, 6)
    assert min(outputs.head_id_accuracy(u)) > 0.95
    nothing = DRAWS.standard_normal((3000, 4, 6))
    assert np.mean(outputs.head_id_accuracy(nothing)) == pytest.approx(0.25, abs=0.02)


# --- patterns --------------------------------------------------------------------------------


def uniform(T: int = 7) -> torch.Tensor:
    return (torch.ones(T, T).tril() / torch.arange(1, T + 1)[:, None]).double()


def shifted(back: int, T: int = 7) -> torch.Tensor:
    """Looks `back` positions back, or at the first."""
    place = (torch.arange(T) - back).clamp_min(0)
    return torch.eye(T).double()[place]


def test_patterns_by_hand():
    one = torch.stack([uniform(), shifted(1), shifted(0), shifted(99)])[None]
    assert patterns.entropies(one) == pytest.approx([1, 0, 0, 0])
    assert previous(one) == pytest.approx([sum(1 / t for t in range(2, 8)) / 6, 1, 0, 1 / 6])
    distances = patterns.distances(one)
    assert distances[0] == pytest.approx(1) and distances[2] == 0
    assert distances[1] == pytest.approx(sum(1 / (t / 2) for t in range(1, 7)) / 6)
    assert distances[3] == pytest.approx(2)  # as far as can be
    for probe in (patterns.entropies, patterns.distances, patterns.divergences):  # 0.8 A − 0.2 A, say
        assert np.isnan(probe(0.6 * one)).all()


def test_divergence_of_patterns():
    apart_ = torch.stack([shifted(0), shifted(1)])[None]
    assert patterns.divergences(apart_) == pytest.approx([math.log(2)] * 2)
    assert patterns.divergences(torch.stack([uniform(), uniform()])[None]) == pytest.approx([0, 0], abs=1e-12)
    assert patterns.divergences(uniform()[None, None]) == []


def test_a_head_that_copies_the_token_before_and_one_of_induction():
    """Weights set by hand: layer 1 looks one position back, and writes what it reads beside the token; layer
    2 looks for its own token there, and so at what came after it before."""
    vocab, T = 40, 16
    spec = make_spec(
        *("model.d_model=96", "heads=1", f"model.context={T}", "model.layers=2", "model.mlp_hidden=0"),
        vocab=vocab,
    )
    model = build_model(spec, SEEDS).double().eval()
    # Places 0 to 39: the token; 40 to 79: the token before; 80 to 95: the position.
    with torch.no_grad():
        for param in model.parameters():
            param.zero_()
        for norm in (*(block.norm_1 for block in model.blocks), model.norm):
            norm.get_parameter("weight").fill_(1.0)
        model.token.weight[:, :vocab] = torch.eye(vocab)
        model.get_parameter("position.weight")[:, 80:] = torch.eye(T)
        first, second = (block.attention for block in model.blocks)
        for t in range(1, T):  # the query of t is the key of t − 1
            first.get_parameter("query.weight")[80 + t - 1, 80 + t] = 10
            first.get_parameter("key.weight")[80 + t - 1, 80 + t - 1] = 10
        first.get_parameter("value.weight")[:vocab, :vocab] = torch.eye(vocab)
        first.get_parameter("out_proj.weight")[40 : 40 + vocab, :vocab] = torch.eye(vocab)
        second.get_parameter("query.weight")[:vocab, :vocab] = 10 * torch.eye(vocab)
        second.get_parameter("key.weight")[:vocab, 40 : 40 + vocab] = 10 * torch.eye(vocab)
        # Position 0 has itself before it, and is not to be looked at.
        second.get_parameter("query.weight")[95, 81:], second.get_parameter("key.weight")[95, 80] = 10, -10
    twice = repeated(vocab, T, 50, np.random.default_rng(0))
    assert torch.equal(twice[:, :8], twice[:, 8:]) and all(len({*row}) == 8 for row in twice[:, :8].tolist())
    before, found = patterns_of(model, Batch(twice, twice))
    assert previous(before)[0] > 0.99 > 0.5 > previous(found)[0]
    assert induction(found)[0] > 0.99 > 0.5 > induction(before)[0]


# --- what is needed --------------------------------------------------------------------------


def batch(model: Model, rows: int = 5) -> Batch:
    tokens = torch.from_numpy(DRAWS.integers(len(model.token.weight), size=(rows, 13)))
    return Batch(tokens[:, :-1], tokens[:, 1:])


def test_of_two_equal_heads_either_is_needed_as_much():
    model = with_random_weights("fusion=sum")
    for name, weight in model.named_parameters():
        if name.endswith(("query.weight", "key.weight", "value.weight")):
            with torch.no_grad():
                weight[8:16] = weight[:8]
    some = batch(model)
    (layer, _) = patterns_of(model, some)
    assert patterns.divergences(layer[:, :2]) == pytest.approx([0, 0], abs=1e-12)
    with torch.no_grad():
        whole = model.loss(*some).item()
        (one, other, _), _ = loss_added(model, some)
        assert one == pytest.approx(other, rel=1e-9) and abs(one) > 1e-4
        assert model.loss(*some).item() == whole  # left as it was


def test_loss_added_is_that_of_a_head_at_its_mean():
    model = with_random_weights("fusion=concat")
    some = batch(model)
    found = loss_added(model, some)
    first = model.blocks[0].attention
    mean_V = first.look(*[inputs(model, some)[0].detach()] * 2).heads_BTHV[:, :, 0].mean((0, 1))
    hook = first.fusion.register_forward_hook(
        lambda _, __, fused: torch.cat([mean_V.expand(5, 12, 8), fused[..., 8:]], -1)
    )
    with torch.no_grad():
        alone = model.loss(*some).item()
    hook.remove()
    assert found[0][0] == pytest.approx(alone - model.loss(*some).item(), rel=1e-9)


@pytest.mark.parametrize("fusion", ["concat", "gated", "head_norm", "exclusive", "weighted_sum"])
def test_what_heads_write_is_what_attention_adds(fusion: str):
    model = with_random_weights(f"fusion={fusion}", "model.bias=true")
    some = batch(model)
    for block, seen, x in zip(model.blocks, look(model, some), inputs(model, some), strict=True):
        attention = block.attention
        out = attention(x, x) - attention.out_proj.bias
        torch.testing.assert_close(seen.fused, out)
        torch.testing.assert_close(seen.written.sum(2), out)
        assert seen.exact and seen.written.shape == (5, 12, 3, 24)
    assert {one.shape for one in patterns_of(model, some)} == {(5, 3, 12, 12)}


def test_of_heads_that_do_not_add_up_the_change_without_each_counts(monkeypatch):
    """By what is computed, and not by what a method says of itself: here of one that was a sum."""
    monkeypatch.setattr(methods()["sum"], "forward", lambda self, z_BTHV, x_BTC: z_BTHV.amax(-2))
    model = with_random_weights("fusion=sum")
    for block, seen in zip(model.blocks, look(model, batch(model)), strict=True):
        largest, others = seen.read.amax(-2), [seen.read[..., [b, c], :].amax(-2) for b, c in PAIRS]
        lost = torch.stack([largest - other.clamp_min(0) for other in others], -2)
        torch.testing.assert_close(seen.written, block.attention.out_proj(lost))
        assert not seen.exact


def inputs(model: Model, some: Batch) -> list[torch.Tensor]:
    return [x for x, _, _ in inputs_of_attention(model, some.inputs)]
