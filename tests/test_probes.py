"""Probes against answers that were planted, and against chance on models that never learned."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from ablate.analysis.probes import PROBES, over_seeds, silent
from ablate.compute.products import onednn, works
from ablate.config.rules import ConfigError
from ablate.data.splits import Batch
from ablate.execution.kept import in_float64
from ablate.execution.prepare import prepare
from ablate.model.hooks import inputs_of_attention
from ablate.model.lm import LM, build_model, draw_weights
from ablate.probes import apart, patterns, shares
from ablate.probes.look import look
from ablate.probes.look import patterns as patterns_of
from ablate.probes.measure import prediction
from ablate.probes.needed import deviating, gradient_norms, loss_added, loss_without, pruned, sensitivity
from tests.helpers import make_config, make_spec, run_cli

DRAWS = np.random.default_rng(0)
SEEDS = {"backbone": 0, "fusion": 0, "data": 0}
SIZES = ("model.d_model=24", "heads=3", "model.context=12", "model.layers=2")


def model_of(*overrides: str, vocab: int = 11) -> LM:
    return build_model(make_spec(*SIZES, *overrides, vocab=vocab), SEEDS).double().eval()


def stirred(*overrides: str) -> LM:
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
    assert shares.linear_shares(z.sum(1), [*z.transpose(1, 0, 2)]) == pytest.approx([0.25] * 4, abs=0.02)


def test_of_heads_of_other_size_it_keeps_their_share_of_the_variance():
    sizes = np.array([1.0, 2.0, 3.0, 0.5])
    z = heads() * sizes[:, None]
    found = shares.linear_shares(z.sum(1), [*z.transpose(1, 0, 2)])
    assert found == pytest.approx(sizes**2 / (sizes**2).sum(), abs=0.02)


def test_concat_keeps_all_before_any_projection_and_no_more_than_its_rank_after():
    z = heads(5000)
    side_by_side = z.reshape(len(z), -1)
    assert shares.linear_shares(side_by_side, [*z.transpose(1, 0, 2)]) == pytest.approx([1.0] * 4)
    assert shares.dimensions_kept(side_by_side, z) == pytest.approx(20)
    low_rank = side_by_side @ DRAWS.standard_normal((20, 7)) @ DRAWS.standard_normal((7, 30))
    assert shares.dimensions_kept(low_rank, z) == pytest.approx(7, abs=0.1)
    assert shares.dimensions_kept(z.sum(1), z) == pytest.approx(5, abs=0.1)


def test_the_basis_of_a_head_is_arbitrary():
    z = heads(4000) @ DRAWS.standard_normal((4, 5, 5))[:, None][0]  # correlated dimensions
    fused = z.sum(1) + 0.3 * z[:, 0] ** 2
    turned = [z[:, head] @ DRAWS.standard_normal((5, 5)) + 3 for head in range(4)]
    before = shares.linear_shares(fused, [*z.transpose(1, 0, 2)])
    assert shares.linear_shares(fused, turned) == pytest.approx(before, abs=1e-6)
    moved = fused @ DRAWS.standard_normal((5, 5)) - 1
    assert shares.linear_shares(moved, turned) == pytest.approx(before, abs=1e-6)
    assert shares.bits_kept(fused, turned) == pytest.approx(
        shares.bits_kept(fused, [*z.transpose(1, 0, 2)]), abs=1e-4
    )


def test_a_head_that_never_varies_keeps_nothing():
    z = heads(2000, 2)
    z[:, 1] = 7.0
    assert shares.linear_shares(z[:, 0], [z[:, 0], z[:, 1]]) == pytest.approx([1.0, 0.0])


def test_an_mlp_finds_what_no_line_does():
    x = DRAWS.standard_normal((8000, 3))
    target = np.stack([np.abs(x[:, 0]), x[:, 1]], 1)
    (linear,), (curved,) = shares.linear_shares(x, [target]), shares.mlp_shares(x, [target])
    assert linear == pytest.approx(0.5, abs=0.03) and curved > 0.9
    (nothing,) = shares.mlp_shares(x, [DRAWS.standard_normal((8000, 2))])
    assert nothing < 0.02


def test_bits_of_a_gaussian_channel():
    """Of a sum of two alike heads: ρ² = 1/2, half a bit a dimension; of a copy, the most there is."""
    z = heads(40_000, 2, 3)
    found = shares.bits_kept(z.sum(1), [z[:, 0], z[:, 1]])
    assert found == pytest.approx([1.5, 1.5], abs=0.05)
    assert shares.bits_kept(z[:, 0], [z[:, 0], z[:, 1]]) == pytest.approx([3 * shares.MOST_BITS, 0], abs=0.01)


def test_shuffled_heads_know_nothing_of_each_other():
    z = np.repeat(DRAWS.standard_normal((3000, 1, 4)), 3, 1)  # three copies
    apart_ = shares.shuffled(z, np.random.default_rng(0))
    assert shares.linear_shares(z.sum(1), [z[:, 0]])[0] == pytest.approx(1)
    assert shares.linear_shares(apart_.sum(1), [apart_[:, 0]])[0] == pytest.approx(1 / 3, abs=0.05)
    assert sorted(apart_[:, 1, 0]) == sorted(z[:, 1, 0])


def test_too_few_tokens_say_how_many_it_takes():
    with pytest.raises(ConfigError, match=r"300 tokens are too few .* 64 dimensions: it takes 640"):
        shares.require_tokens(300, 64)
    shares.require_tokens(640, 64)


# --- what is apart ---------------------------------------------------------------------------


def test_ranks_and_angles_by_hand():
    n = 4000
    u = np.zeros((n, 3, 6))
    u[:, 0, :2] = DRAWS.standard_normal((n, 2))  # a plane
    u[:, 1, 2] = DRAWS.standard_normal(n)  # a line at right angles to it
    u[:, 2, 3] = u[:, 2, 2] = DRAWS.standard_normal(n)  # one at 45 degrees to that
    assert apart.effective_ranks(u) == pytest.approx([2, 1, 1], abs=0.01)
    assert apart.angles(u) == pytest.approx([90, 45, 45], abs=1e-3)
    assert apart.angles(np.repeat(u[:, :1], 2, 1)) == pytest.approx([0, 0], abs=1e-3)
    assert apart.angles(u[:, :1]) == [90.0]


def test_heads_are_told_apart_by_their_means_and_not_by_chance():
    u = DRAWS.standard_normal((3000, 4, 6)) + 5 * np.eye(4, 6)
    assert min(apart.told_apart(u, centred=False)) > 0.95
    assert np.mean(apart.told_apart(u, centred=True)) == pytest.approx(0.25, abs=0.02)
    nothing = DRAWS.standard_normal((3000, 4, 6))
    assert np.mean(apart.told_apart(nothing, centred=False)) == pytest.approx(0.25, abs=0.02)


def test_cka_of_equal_turned_and_independent_heads():
    one, other = DRAWS.standard_normal((2, 300, 8))
    turn = np.linalg.qr(DRAWS.standard_normal((8, 8)))[0]
    assert apart.cka(np.stack([one, 3 * one @ turn], 1)) == pytest.approx([1, 1])
    assert apart.cka(np.stack([one, other], 1)) == pytest.approx([0, 0], abs=0.05)
    few = DRAWS.standard_normal((20, 2, 300))  # where the biased one is near 1
    assert apart.cka(few) == pytest.approx([0, 0], abs=0.2)


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
    assert patterns.previous(one) == pytest.approx([sum(1 / t for t in range(2, 8)) / 6, 1, 0, 1 / 6])
    assert patterns.first_position(one)[1:] == pytest.approx([1 / 6, 0, 1])
    distances = patterns.distances(one)
    assert distances[0] == pytest.approx(1) and distances[2] == 0
    assert distances[1] == pytest.approx(sum(1 / (t / 2) for t in range(1, 7)) / 6)
    assert distances[3] == pytest.approx(2)  # as far as can be
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
            norm.weight.fill_(1.0)
        model.token.weight[:, :vocab] = torch.eye(vocab)
        model.position.weight[:, 80:] = torch.eye(T)
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
    twice = patterns.twice(vocab, T, 50, np.random.default_rng(0))
    assert torch.equal(twice[:, :8], twice[:, 8:]) and all(len({*row}) == 8 for row in twice[:, :8].tolist())
    before, found = patterns_of(model, twice)
    assert patterns.previous(before)[0] > 0.99 > 0.5 > patterns.previous(found)[0]
    assert patterns.induction(found)[0] > 0.99 > 0.5 > patterns.induction(before)[0]


# --- what is needed --------------------------------------------------------------------------


def batch(model: LM, rows: int = 5) -> Batch:
    tokens = torch.from_numpy(DRAWS.integers(len(model.token.weight), size=(rows, 13)))
    return Batch(tokens[:, :-1], tokens[:, 1:])


def test_of_two_equal_heads_either_stands_for_both():
    model = stirred("fusion=sum")
    for name, weight in model.named_parameters():
        if name.endswith(("query.weight", "key.weight", "value.weight")):
            with torch.no_grad():
                weight[8:16] = weight[:8]
    some = batch(model)
    (layer, _) = look(model, some.inputs)
    assert apart.cka(layer.written.flatten(0, 1).numpy()[:, :2]) == pytest.approx([1, 1])
    assert patterns.divergences(layer.patterns[:, :2]) == pytest.approx([0, 0], abs=1e-12)
    whole = loss_without(model, some, set())
    instead = {0: torch.tensor([0.0, 2.0, 1.0]).double(), 1: torch.ones(3).double()}
    with deviating(model, instead.__getitem__), torch.no_grad():
        assert model.loss(*some).item() == pytest.approx(whole, rel=1e-12)
    assert abs(loss_without(model, some, {(0, 0)}) - whole) > 1e-4
    assert model.loss(*some).item() == pytest.approx(whole, rel=1e-12)  # left as it was


def test_loss_added_is_that_of_a_head_at_its_mean():
    model = stirred("fusion=concat")
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
    model = stirred("fusion=gated")
    some, step = batch(model, 1), 1e-5
    found = sensitivity(model, some)
    for layer, head in ((0, 1), (1, 2)):
        losses = []
        for sign in (-1, 1):
            factors = [torch.ones(3).double(), torch.ones(3).double()]
            factors[layer][head] += sign * step
            with deviating(model, factors.__getitem__), torch.no_grad():
                losses.append(model.loss(*some).item())
        assert found[layer][head] == pytest.approx(abs(losses[1] - losses[0]) / (2 * step), rel=1e-4)


def test_pruning_takes_the_cheapest_first_and_each_once():
    model = stirred("fusion=sum", "model.layers=1")
    some = batch(model)
    order = [*pruned(model, some)]
    assert {(layer, head) for layer, head, _ in order} == {(0, 0), (0, 1), (0, 2)}
    alone = {head: loss_without(model, some, {(0, head)}) for head in range(3)}
    assert order[0][1:] == (min(alone, key=alone.__getitem__), min(alone.values()))
    assert order[-1][2] == loss_without(model, some, {(0, 0), (0, 1), (0, 2)})


def test_gradient_norms_are_of_the_weights_of_a_layer():
    model = stirred("fusion=sum", "tie_qk=true")
    some = batch(model)
    norms = gradient_norms(model, some)
    model.loss(*some).backward()
    weight = model.get_parameter("blocks.1.attention.value.weight")
    assert weight.grad is not None
    assert (
        norms[1]["value"] == pytest.approx(weight.grad.norm().item()) and norms[0].keys() == norms[1].keys()
    )
    assert norms[0]["query"] == norms[0]["key"]  # one weight
    assert "out_proj" not in gradient_norms(stirred("out_proj=false"), some)[0]


@pytest.mark.parametrize("fusion", ["concat", "sum", "gated", "max", "head_norm"])
def test_what_heads_write_is_what_attention_adds(fusion: str):
    model = stirred(f"fusion={fusion}", "model.bias=true")
    some = batch(model)
    for block, seen, x in zip(model.blocks, look(model, some.inputs), inputs(model, some), strict=True):
        attention = block.attention
        out = attention(x, x) - attention.out_proj.bias
        torch.testing.assert_close(seen.fused, out)
        assert seen.exact == (fusion != "max")
        if seen.exact:
            torch.testing.assert_close(seen.written.sum(2), out)
        assert seen.written.shape == (5, 12, 3, 24) and seen.patterns.shape == (5, 3, 12, 12)


def inputs(model: LM, some: Batch) -> list[torch.Tensor]:
    return inputs_of_attention(model, some.inputs)


# --- chance ----------------------------------------------------------------------------------


def test_an_untrained_model_is_beyond_what_others_give_about_as_often_as_said():
    """The largest previous-token score of 40 models against the range of 20 others: 5 % each, 2 of 40."""
    model = model_of()
    tokens = torch.from_numpy(DRAWS.integers(11, size=(8, 12)))

    def largest(seed: int) -> float:
        draw_weights(model, dict.fromkeys(SEEDS, seed))
        return max(max(patterns.previous(layer)) for layer in patterns_of(model, tokens))

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


def probed(largest: dict[str, list[float]]) -> tuple[pd.DataFrame, pd.Series]:
    """Two heads of one layer, for each run of each variant."""
    rows, variant = [], {}
    for name, of_runs in largest.items():
        for number, value in enumerate(of_runs):
            variant[f"{name}{number}"] = name
            for head, shown in enumerate((value, 0.0), 1):
                rows.append((f"{name}{number}", 10, 1, head, "previous", shown, 0.1, None, 0.0, 0.5, True))
    columns = [
        "run_id",
        "step",
        "layer",
        "head",
        "probe",
        "value",
        "untrained",
        "null",
        "low",
        "high",
        "exact",
    ]
    return pd.DataFrame(rows, columns=columns), pd.Series(variant)


def test_summaries_are_over_seeds_and_sorted_heads():
    values, variant = probed({"a": [0.6, 0.8], "b": [0.2, 0.2]})
    table = over_seeds(values, variant).set_index("variant")
    assert table.loc["a", "largest"] == pytest.approx(0.7) and table.loc["a", "smallest"] == 0
    assert table.loc["a", "median"] == pytest.approx(0.35) and table.loc["a", "n"] == 2
    half = 12.7062 * 0.1 * 2**0.5 / 2**0.5
    assert table.loc["a", "largest_high"] == pytest.approx(0.7 + half, abs=1e-3)
    assert table.loc["a", "beyond"] == 2 and table.loc["b", "beyond"] == 0


def test_a_probe_that_shows_nothing_is_a_line():
    assert silent(*probed({"a": [0.2, 0.3], "b": [0.4, 0.6, 0.1]})) == {"previous": (1, 5)}
    assert silent(*probed({"a": [0.2, 0.3], "b": [0.6, 0.6, 0.1]})) == {}


# --- the command -----------------------------------------------------------------------------

QUICK = ("model.d_model=16", "heads=2", "model.context=16", "train.steps=20", "train.eval_every=20")


def test_a_study_is_probed_beside_its_results(tmp_path: Path):
    common = ("-m", *QUICK, "corpus.characters=20000", "corpus=grammar", "name=two", "seed=0,1")
    run_cli("run", *common, "fusion=sum,max", cwd=tmp_path)
    done = run_cli("probe", "two", "--only", "kept,previous,loss_added", "--prune", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "runs/studies/two/probes.csv")
    assert {*table["probe"]} <= {*PROBES}
    assert table["run_id"].nunique() == 4 and {"kept", "pruned", "cka", "grad_query"} <= {*table["probe"]}
    kept = table[table["probe"] == "kept"]
    assert (
        kept["value"].between(0, 1).all() and kept["null"].notna().all() and kept["untrained"].notna().all()
    )
    of_max = table[table["run_id"].isin(ids(tmp_path, "max")) & table["probe"].isin(["cka", "loss_added"])]
    assert not of_max["exact"].any() and table[table["probe"] == "previous"]["low"].notna().all()
    one = ids(tmp_path, "sum")[0]
    assert run_cli("probe", one, "--only", "kept", cwd=tmp_path).returncode == 0
    again = run_cli("probe", "two", "--where", "fusion=sum", "--format", "csv", cwd=tmp_path)
    assert again.returncode == 0
    after = pd.read_csv(tmp_path / "runs/studies/two/probes.csv")
    assert after["run_id"].nunique() == 4 and len(after) < len(table)  # no pruning of two of them this time


def ids(where: Path, fusion: str) -> list[str]:
    rows = pd.read_csv(where / "runs/studies/two/results.csv", dtype={"run_id": str})
    return rows[rows["fusion"] == fusion]["run_id"].tolist()


@pytest.mark.skipif(not works(onednn), reason="this PyTorch has no such operator")
def test_a_model_is_looked_at_in_float64_whatever_its_product_takes():
    run = prepare(make_config(*QUICK, "train.linear=onednn"))
    assert run.linear == "onednn"
    tokens = torch.zeros(1, 16, dtype=torch.int64)
    assert in_float64(run)(tokens).dtype == torch.float64


def test_what_can_not_be_probed_says_why(tmp_path: Path):
    text = ("corpus=grammar", "corpus.characters=20000")
    run_cli("run", *QUICK, *text, "train.save=none", "name=bare", cwd=tmp_path)
    run_cli("run", *QUICK, *text, "train.lr=1e30", "train.clip=null", "name=lost", cwd=tmp_path)
    run_cli("run", *QUICK, "corpus=grammar", "corpus.characters=1200", "name=short", cwd=tmp_path)
    for target, words in (
        ("bare", "kept no weights"),
        ("short", "tokens are too few to predict from 16 dimensions: it takes 160"),
        ("lost", "no finished run has it"),
        ("nothing", "no finished run begins so"),
    ):
        done = run_cli("probe", target, cwd=tmp_path)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    done = run_cli("probe", "bare", "--only", "kep", cwd=tmp_path)
    assert "--only kep: no such probe; did you mean kept?" in done.stderr
