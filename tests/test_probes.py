"""Probes against answers that were planted, and against chance on models that never learned."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from ablate.config.rules import ConfigError
from ablate.data.corpora.grammar import Word, words
from ablate.data.splits import Batch
from ablate.execution.run import PlacedRun, prepare
from ablate.execution.trained import in_float64
from ablate.model.models import Model, build_model, draw_weights, inputs_of_attention
from ablate.probes import grammar, outputs, patterns
from ablate.probes.measure import prediction
from ablate.probes.needed import deviating, gradient_norms, loss_added, loss_without, pruned, sensitivity
from ablate.probes.patterns import look, patterns_of
from ablate.training.circuit import induction, previous
from ablate.training.circuit import twice as repeated
from tests.helpers import SEEDS, make_config, make_spec

DRAWS = np.random.default_rng(0)
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


def test_concat_keeps_all_before_any_projection_and_no_more_than_its_rank_after():
    z = heads(5000)
    side_by_side = z.reshape(len(z), -1)
    assert outputs.linear_shares(side_by_side, [*z.transpose(1, 0, 2)]) == pytest.approx([1.0] * 4)
    assert outputs.dimensions_kept(side_by_side, z) == pytest.approx(20)
    low_rank = side_by_side @ DRAWS.standard_normal((20, 7)) @ DRAWS.standard_normal((7, 30))
    assert outputs.dimensions_kept(low_rank, z) == pytest.approx(7, abs=0.1)
    assert outputs.dimensions_kept(z.sum(1), z) == pytest.approx(5, abs=0.1)


def test_the_basis_of_a_head_is_arbitrary():
    z = heads(4000) @ DRAWS.standard_normal((4, 5, 5))[:, None][0]  # correlated dimensions
    fused = z.sum(1) + 0.3 * z[:, 0] ** 2
    turned = [z[:, head] @ DRAWS.standard_normal((5, 5)) + 3 for head in range(4)]
    before = outputs.linear_shares(fused, [*z.transpose(1, 0, 2)])
    assert outputs.linear_shares(fused, turned) == pytest.approx(before, abs=1e-6)
    moved = fused @ DRAWS.standard_normal((5, 5)) - 1
    assert outputs.linear_shares(moved, turned) == pytest.approx(before, abs=1e-6)
    assert outputs.bits_kept(fused, turned) == pytest.approx(
        outputs.bits_kept(fused, [*z.transpose(1, 0, 2)]), abs=1e-4
    )


def test_a_head_that_never_varies_keeps_nothing():
    z = heads(2000, 2)
    z[:, 1] = 7.0
    assert outputs.linear_shares(z[:, 0], [z[:, 0], z[:, 1]]) == pytest.approx([1.0, 0.0])


@pytest.mark.slow
def test_an_mlp_finds_what_no_line_does():
    x = DRAWS.standard_normal((8000, 3))
    target = np.stack([np.abs(x[:, 0]), x[:, 1]], 1)
    (linear,), (curved,) = outputs.linear_shares(x, [target]), outputs.mlp_shares(x, [target])
    assert linear == pytest.approx(0.5, abs=0.03) and curved > 0.9
    (nothing,) = outputs.mlp_shares(x, [DRAWS.standard_normal((8000, 2))])
    assert nothing < 0.02


def test_bits_of_a_gaussian_channel():
    """Of a sum of two alike heads: ρ² = 1/2, half a bit a dimension; of a copy, the most there is."""
    z = heads(40_000, 2, 3)
    both = [z[:, 0], z[:, 1]]
    assert outputs.bits_kept(z.sum(1), both) == pytest.approx([1.5, 1.5], abs=0.05)
    assert outputs.bits_kept(z[:, 0], both) == pytest.approx([3 * outputs.MOST_BITS, 0], abs=0.01)


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


def test_ranks_and_angles_by_hand():
    n = 4000
    u = np.zeros((n, 3, 6))
    u[:, 0, :2] = DRAWS.standard_normal((n, 2))  # a plane
    u[:, 1, 2] = DRAWS.standard_normal(n)  # a line at right angles to it
    u[:, 2, 3] = u[:, 2, 2] = DRAWS.standard_normal(n)  # one at 45 degrees to that
    assert outputs.effective_ranks(u) == pytest.approx([2, 1, 1], abs=0.01)
    assert outputs.angles(u) == pytest.approx([90, 45, 45], abs=1e-3)
    assert outputs.angles(np.repeat(u[:, :1], 2, 1)) == pytest.approx([0, 0], abs=1e-3)
    assert outputs.angles(u[:, :1]) == [90.0]


def test_heads_are_told_apart_by_their_means_and_not_by_chance():
    u = DRAWS.standard_normal((3000, 4, 6)) + 5 * np.eye(4, 6)
    assert min(outputs.head_id_accuracy(u)) > 0.95
    nothing = DRAWS.standard_normal((3000, 4, 6))
    assert np.mean(outputs.head_id_accuracy(nothing)) == pytest.approx(0.25, abs=0.02)


def test_cka_of_equal_turned_and_independent_heads():
    one, other = DRAWS.standard_normal((2, 300, 8))
    turn = np.linalg.qr(DRAWS.standard_normal((8, 8)))[0]
    assert outputs.cka(np.stack([one, 3 * one @ turn], 1)) == pytest.approx([1, 1])
    assert outputs.cka(np.stack([one, other], 1)) == pytest.approx([0, 0], abs=0.05)
    few = DRAWS.standard_normal((20, 2, 300))  # where the biased one is near 1
    assert outputs.cka(few) == pytest.approx([0, 0], abs=0.2)


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
    assert patterns.first_position(one)[1:] == pytest.approx([1 / 6, 0, 1])
    distances = patterns.distances(one)
    assert distances[0] == pytest.approx(1) and distances[2] == 0
    assert distances[1] == pytest.approx(sum(1 / (t / 2) for t in range(1, 7)) / 6)
    assert distances[3] == pytest.approx(2)  # as far as can be
    for probe in (patterns.entropies, patterns.distances, patterns.divergences):  # 0.8 A − 0.2 A, say
        assert np.isnan(probe(0.6 * one)).all()
    but_first = patterns.entropies(one[:, :1], but_first=True), patterns.distances(one[:, :1], but_first=True)
    assert but_first == (pytest.approx([1]), pytest.approx([1]))


def test_divergence_and_rank_of_patterns():
    apart_ = torch.stack([shifted(0), shifted(1)])[None]
    assert patterns.divergences(apart_) == pytest.approx([math.log(2)] * 2)
    assert patterns.divergences(torch.stack([uniform(), uniform()])[None]) == pytest.approx([0, 0], abs=1e-12)
    assert patterns.divergences(uniform()[None, None]) == []
    rows = torch.stack([shifted(0), shifted(0), shifted(1), shifted(2)])[None]
    assert 2.2 < patterns.pattern_rank(rows) < 3.01
    assert patterns.pattern_rank(rows[:, :2]) == pytest.approx(1)


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


def test_of_two_equal_heads_either_stands_for_both():
    model = with_random_weights("fusion=sum")
    for name, weight in model.named_parameters():
        if name.endswith(("query.weight", "key.weight", "value.weight")):
            with torch.no_grad():
                weight[8:16] = weight[:8]
    some = batch(model)
    (layer, _) = look(model, some)
    assert outputs.cka(layer.written.flatten(0, 1).numpy()[:, :2]) == pytest.approx([1, 1])
    assert patterns.divergences(layer.patterns[:, :2]) == pytest.approx([0, 0], abs=1e-12)
    whole = loss_without(model, some, set())
    instead = {0: torch.tensor([0.0, 2.0, 1.0]).double(), 1: torch.ones(3).double()}
    with deviating(model, instead.__getitem__, some), torch.no_grad():
        assert model.loss(*some).item() == pytest.approx(whole, rel=1e-12)
    assert abs(loss_without(model, some, {(0, 0)}) - whole) > 1e-4
    assert model.loss(*some).item() == pytest.approx(whole, rel=1e-12)  # left as it was


def test_loss_added_is_that_of_a_head_at_its_mean():
    model = with_random_weights("fusion=concat")
    some = batch(model)
    found = loss_added(model, some)
    first = model.blocks[0].attention
    mean_V = first.read(*[inputs(model, some)[0].detach()] * 2)[:, :, 0].mean((0, 1))
    hook = first.fusion.register_forward_hook(
        lambda _, __, fused: torch.cat([mean_V.expand(5, 12, 8), fused[..., 8:]], -1)
    )
    with torch.no_grad():
        alone = model.loss(*some).item()
    hook.remove()
    assert found[0][0] == pytest.approx(alone - loss_without(model, some, set()), rel=1e-9)


def test_sensitivity_is_the_slope_of_a_rows_loss():
    model = with_random_weights("fusion=gated")
    some, step = batch(model, 1), 1e-5
    found = sensitivity(model, some)
    for layer, head in ((0, 1), (1, 2)):
        losses = []
        for sign in (-1, 1):
            factors = [torch.ones(3).double(), torch.ones(3).double()]
            factors[layer][head] += sign * step
            with deviating(model, factors.__getitem__, some), torch.no_grad():
                losses.append(model.loss(*some).item())
        assert found[layer][head] == pytest.approx(abs(losses[1] - losses[0]) / (2 * step), rel=1e-4)


def test_pruning_takes_the_cheapest_first_and_each_once():
    model = with_random_weights("fusion=sum", "model.layers=1")
    some = batch(model)
    order = [*pruned(model, some)]
    assert {(layer, head) for layer, head, _ in order} == {(0, 0), (0, 1), (0, 2)}
    alone = {head: loss_without(model, some, {(0, head)}) for head in range(3)}
    assert order[0][1:] == (min(alone, key=alone.__getitem__), min(alone.values()))
    assert order[-1][2] == loss_without(model, some, {(0, 0), (0, 1), (0, 2)})


def test_gradient_norms_are_of_the_weights_of_a_layer():
    model = with_random_weights("fusion=sum", "tie_qk=true")
    some = batch(model)
    norms = gradient_norms(model, some)
    model.loss(*some).backward()
    weight = model.get_parameter("blocks.1.attention.value.weight")
    assert weight.grad is not None
    assert norms[1]["value"] == pytest.approx(weight.grad.norm().item())
    assert norms[0].keys() == norms[1].keys() and norms[0]["query"] == norms[0]["key"]  # one weight
    assert "out_proj" not in gradient_norms(with_random_weights("out_proj=false"), some)[0]


@pytest.mark.parametrize("fusion", ["concat", "sum", "gated", "max", "head_norm"])
def test_what_heads_write_is_what_attention_adds(fusion: str):
    model = with_random_weights(f"fusion={fusion}", "model.bias=true")
    some = batch(model)
    for block, seen, x in zip(model.blocks, look(model, some), inputs(model, some), strict=True):
        attention = block.attention
        out = attention(x, x) - attention.out_proj.bias
        torch.testing.assert_close(seen.fused, out)
        assert seen.exact == (fusion != "max")
        if seen.exact:
            torch.testing.assert_close(seen.written.sum(2), out)
        assert seen.written.shape == (5, 12, 3, 24) and seen.patterns.shape == (5, 3, 12, 12)


def inputs(model: Model, some: Batch) -> list[torch.Tensor]:
    return [x for x, _, _ in inputs_of_attention(model, some.inputs)]


# --- chance ----------------------------------------------------------------------------------


def test_an_untrained_model_is_beyond_what_others_give_about_as_often_as_said():
    """The largest previous-token score of 40 models against the range of 20 others: 5 % each, 2 of 40."""
    model = model_of()
    tokens = torch.from_numpy(np.random.default_rng(0).integers(11, size=(8, 12)))

    def largest(seed: int) -> float:
        draw_weights(model, dict.fromkeys(SEEDS, seed))
        return max(max(previous(layer)) for layer in patterns_of(model, Batch(tokens, tokens)))

    low, high = prediction([largest(seed) for seed in range(100, 120)])
    outside = sum(not low <= largest(seed) <= high for seed in range(40))
    assert outside <= 7  # of a binomial with 40 and 0.05, beyond once in 2,000


def test_the_range_of_one_more_holds_as_often_as_it_says():
    inside = []
    for _ in range(2000):
        *others, one = DRAWS.standard_normal(21)
        low, high = prediction(others)
        inside.append(low <= one <= high)
    assert np.mean(inside) == pytest.approx(0.95, abs=0.02)


# --- texts whose letters are known -----------------------------------------------------------


class Knowing(torch.nn.Module):
    """A model that knows some letters of the text before it sees them, and nothing of the others."""

    def __init__(self, run: PlacedRun, known: np.ndarray) -> None:
        super().__init__()
        self.vocab = run.spec.vocab
        self.tokens = tokens = run.corpus.tokens("validation")
        self.known = known  # of the split's letters
        self.starts = {tokens[at : at + run.spec.context].tobytes(): at for at in range(len(tokens))}

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*rows.shape, self.vocab, dtype=torch.float64)
        for row, seen in zip(logits, rows.numpy(), strict=True):
            at = self.starts[seen.astype(self.tokens.dtype).tobytes()] + 1 + np.arange(len(seen))
            for place in np.flatnonzero(self.known[at]):
                row[place, self.tokens[at[place]]] = 100.0
        return logits


@pytest.fixture(scope="module")
def grammatical() -> PlacedRun:
    return prepare(make_config(*SIZES, "model.context=64", "corpus=grammar", "corpus.characters=40000"))


def of_validation(run: PlacedRun) -> list[Word]:
    """Its words, placed from the split's first letter."""
    begins = len(run.corpus.tokens("train"))
    return [
        replace(
            word,
            start=word.start - begins,
            stop=word.stop - begins,
            subject=word.subject and (word.subject[0] - begins, word.subject[1] - begins),
        )
        for word in words(run.config.corpus.options["seed"], 40_000)
        if word.start >= begins
    ]


@pytest.mark.parametrize("between", [0, 1])
def test_losses_are_of_the_letters_of_a_kind(grammatical, monkeypatch, between: int):
    tokens = grammatical.corpus.tokens("validation")
    known = np.zeros(len(tokens) + 64, bool)
    for word in of_validation(grammatical):
        if word.subject is not None and min(word.between, 2) == between:
            known[word.start : word.stop] = True
    flat = uniform(64)
    monkeypatch.setattr(grammar, "patterns_of", lambda _, batch: [flat.expand(len(batch.inputs), 1, 64, 64)])
    found = grammar.losses(grammar.read(grammatical, Knowing(grammatical, known)))  # pyright: ignore
    assert found.pop(f"verb_{between}") == pytest.approx(0)
    both = found.pop("noun_or_verb")
    assert 0 < both < math.log(grammatical.spec.vocab)  # some of them are such verbs
    assert [*found.values()] == pytest.approx([math.log(grammatical.spec.vocab)] * len(found))


def test_roles_of_tokens_of_several_letters_and_heads_that_look_at_all_of_them():
    """A token of bpe begins with the blank before its word. Recomputed verb by verb."""
    text = "corpus=grammar", "corpus.characters=30000", "corpus.tokenizer=bpe", "corpus.bpe_vocab=400"
    run = prepare(make_config(*SIZES, "model.context=64", *text))
    model = in_float64(run)
    lines = grammar.read(run, model)
    tokens, lengths = run.corpus.tokens("validation"), run.corpus.tokenizer.byte_lengths
    begins = lengths[run.corpus.tokens("train")].sum() + np.concatenate([[0], np.cumsum(lengths[tokens])])
    found, tagged = [], Counter[str]()
    (layer, *_) = patterns.patterns_of(model, lines.batch)
    for word in words(run.config.corpus.options["seed"], 30_000):
        if word.subject is None or word.subject[0] < begins[0] or word.start >= begins[-1]:
            continue
        verb, first, last = (
            int(np.flatnonzero(begins <= letter)[-1])
            for letter in (word.start, word.subject[0], word.subject[1] - 1)
        )
        row, query = divmod(verb - 1, 64)
        if row < len(layer):
            tagged[f"verb_{min(word.between, 2)}"] += 1
            if first >= 64 * row:
                found.append(layer[row, :, query, first - 64 * row : last + 1 - 64 * row].sum(-1))
    weights, *_ = grammar.on_subject(lines, np.random.default_rng(0))
    assert weights[0] == pytest.approx(torch.stack(found).mean(0).tolist(), abs=1e-12)
    assert {tag: int(lines.tags_RT[tag].sum()) for tag in tagged} == tagged
    short = grammar.read(prepare(make_config(*SIZES, "model.context=1", *text[:2])), model_of(vocab=40))
    assert not len(short.subjects) and short.tags_RT["else"].any()


def test_losses_without_a_head_are_split_by_role(grammatical):
    model = in_float64(grammatical)
    lines = grammar.read(grammatical, model)
    verbs = lines.tags_RT["verb_0"]
    lines = replace(lines, tags_RT={"verb_0": verbs, "else": ~verbs})
    whole = loss_added(model, lines.batch)
    for at in range(2):
        for head in range(3):
            of_verbs, of_others = grammar.losses_added(lines, model, (at, head)).values()
            assert of_verbs != of_others
            mean = of_verbs * verbs.mean() + of_others * (~verbs).mean()
            assert mean == pytest.approx(whole[at][head], abs=1e-12)


def test_a_head_that_looks_at_subjects_and_one_that_does_not(grammatical, monkeypatch):
    begins = {word.start: word.subject for word in of_validation(grammatical) if word.subject is not None}
    tokens = grammatical.corpus.tokens("validation")
    starts = {tokens[at : at + 64].tobytes(): at for at in range(0, len(tokens) - 64, 64)}

    def planted(model: Model, batch: Batch) -> list[torch.Tensor]:
        """Of two heads the first looks from a verb to its subject's first letter, at itself elsewhere."""
        found = uniform(64).repeat(len(batch.inputs), 2, 1, 1)
        for pattern, seen in zip(found, batch.inputs.numpy(), strict=True):
            pattern[0] = torch.eye(64)
            at = starts[seen.astype(tokens.dtype).tobytes()]
            for query in range(64):
                subject = begins.get(at + query + 1)
                if subject is not None and subject[0] >= at:
                    pattern[0, query] = torch.nn.functional.one_hot(torch.tensor(subject[0] - at), 64)
        return [found]

    monkeypatch.setattr(grammar, "patterns_of", planted)
    lines = grammar.read(grammatical, Knowing(grammatical, np.zeros(len(tokens) + 64, bool)))  # pyright: ignore
    weights, nulls, low, high = grammar.on_subject(lines, np.random.default_rng(0))
    ((found, spread),), ((null, spread_null),) = weights, nulls
    assert found == pytest.approx(1) and null < 0.5 and not low <= found <= high
    assert spread == pytest.approx(spread_null, abs=0.05)
