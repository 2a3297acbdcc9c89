"""The language model: equal to the reference architecture, causal as a whole, open where it has to be."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ablate import rng
from ablate.model.attend import fused
from ablate.model.attention import Attention
from ablate.model.blocks import Model
from ablate.model.build import build_model, decayed, draw_weights
from ablate.model.fusion import Fusion
from ablate.model.layers import Linear
from ablate.model.lm import LM
from ablate.model.masks import CAUSAL, EVERYTHING, Mask
from ablate.model.sharing import head_shape
from tests.helpers import PRIMES, make_spec

SEEDS = {"backbone": 5, "fusion": 5, "data": 5}


def gpt2_weights(model: Model, layers: int) -> dict[str, Tensor]:
    """Our weights by Hugging Face's names; its Conv1D holds a weight as (inputs, outputs)."""
    ours = {name: param.detach() for name, param in model.named_parameters()}
    theirs = {
        "transformer.wte.weight": ours["token.weight"],
        "transformer.wpe.weight": ours["position.weight"],
    }
    for kind in ("weight", "bias"):
        theirs[f"transformer.ln_f.{kind}"] = ours[f"norm.{kind}"]
        for i in range(layers):
            mine, its = f"blocks.{i}", f"transformer.h.{i}"
            qkv = torch.cat([ours[f"{mine}.attention.{part}.{kind}"] for part in ("query", "key", "value")])
            theirs[f"{its}.attn.c_attn.{kind}"] = qkv.T
            theirs[f"{its}.attn.c_proj.{kind}"] = ours[f"{mine}.attention.out_proj.{kind}"].T
            theirs[f"{its}.mlp.c_fc.{kind}"] = ours[f"{mine}.mlp.up.{kind}"].T
            theirs[f"{its}.mlp.c_proj.{kind}"] = ours[f"{mine}.mlp.down.{kind}"].T
            theirs[f"{its}.ln_1.{kind}"] = ours[f"{mine}.norm_1.{kind}"]
            theirs[f"{its}.ln_2.{kind}"] = ours[f"{mine}.norm_2.{kind}"]
    return theirs


@pytest.mark.filterwarnings("ignore")  # of another package's import
@pytest.mark.parametrize("heads", [1, 4])
def test_concat_with_out_proj_is_gpt2(heads):
    from transformers import GPT2Config, GPT2LMHeadModel

    spec = make_spec("model=nano", "model.bias=true", f"heads={heads}", vocab=65)
    model = build_model(spec, SEEDS)
    for param in model.parameters():  # biases and norms start at constants, which would hide a swap
        param.data += 0.05 * torch.randn_like(param)
    config = GPT2Config(
        vocab_size=65,
        n_positions=spec.context,
        n_embd=spec.d_model,
        n_layer=spec.layers,
        n_head=heads,
        activation_function="gelu",  # the exact one
    )
    reference = GPT2LMHeadModel(config).eval()
    missing = reference.load_state_dict(gpt2_weights(model, spec.layers), strict=False)
    assert missing.missing_keys == ["lm_head.weight"] and not missing.unexpected_keys  # tied
    tokens = torch.randint(0, 65, (3, 61))
    with torch.no_grad():
        ours, theirs = model.eval()(tokens), reference(tokens).logits
    assert theirs.std() > 0.1
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def make_attention(mask: Mask, *overrides: str) -> Attention:
    attention = Attention(make_spec(*PRIMES, *overrides).attention, mask)
    draw_weights(attention, SEEDS)
    return attention.double()


MASKS = pytest.mark.parametrize(
    "mask, T, S", [(CAUSAL, 13, 13), (EVERYTHING, 13, 17)], ids=["causal", "every"]
)


@MASKS
@pytest.mark.parametrize("fusion", ["concat", "sum"])
def test_attention_is_its_equation(fusion, mask, T, S):
    """Against loops over batch, head and time, in float64."""
    attention = make_attention(mask, f"fusion={fusion}")
    x_BTC = torch.randn(2, T, 11, dtype=torch.float64)
    source_BSC = torch.randn(2, S, 11, dtype=torch.float64)
    weights = {name: param.detach() for name, param in attention.named_parameters()}
    expected = torch.zeros_like(x_BTC)
    for b in range(2):
        for t in range(T):
            seen = source_BSC[b, : t + 1] if mask == CAUSAL else source_BSC[b]
            heads = []
            for h in range(3):
                q = weights["query.weight"][7 * h : 7 * (h + 1)] @ x_BTC[b, t]
                keys = seen @ weights["key.weight"][7 * h : 7 * (h + 1)].T
                values = seen @ weights["value.weight"][5 * h : 5 * (h + 1)].T
                heads.append(torch.softmax(keys @ q / 7**0.5, 0) @ values)
            fused = torch.cat(heads) if fusion == "concat" else torch.stack(heads).sum(0)
            expected[b, t] = weights["out_proj.weight"] @ fused
    torch.testing.assert_close(attention(x_BTC, source_BSC), expected, rtol=0, atol=1e-14)


@MASKS
def test_a_query_depends_on_what_its_mask_lets_it_see_and_on_nothing_else(mask, T, S):
    attention = make_attention(mask)
    x_BTC = torch.randn(2, T, 11, dtype=torch.float64)
    source_BSC = torch.randn(2, S, 11, dtype=torch.float64, requires_grad=True)
    seen_T = []
    for t in range(T):
        (grad_BSC,) = torch.autograd.grad(attention(x_BTC, source_BSC)[:, t].sum(), source_BSC)
        seen_T.append(grad_BSC.abs().amax(dim=(0, 2)) > 0)
    expected = [[mask == EVERYTHING or s <= t for s in range(S)] for t in range(T)]
    assert torch.stack(seen_T).tolist() == expected


def test_a_causal_mask_refuses_queries_and_keys_of_other_positions():
    with pytest.raises(ValueError, match="not 13 and 17") as refusal:
        make_attention(CAUSAL)(torch.randn(2, 13, 11).double(), torch.randn(2, 17, 11).double())
    assert "\n" not in str(refusal.value)


def test_a_mask_as_booleans_is_what_the_fast_path_computes():
    class Spelled(Mask):
        def visible(self, queries, sources, device=None):
            return torch.tensor([[s <= t for s in range(sources)] for t in range(queries)])

    q, k, v = (torch.randn(2, 3, 13, width, dtype=torch.float64) for width in (7, 7, 5))
    spelled, fast = (fused(q, k, v, mask, 0.0, 0.3) for mask in (Spelled(), CAUSAL))
    torch.testing.assert_close(spelled, fast, rtol=0, atol=1e-14)


def test_weights_are_drawn_from_the_stream_of_the_part_that_holds_them():
    class Gated(Fusion):
        stream = "gates"

        def __init__(self, shape, options):
            super().__init__(shape, options)
            self.gate = Linear(shape.d_model, shape.heads, bias=False)

        @classmethod
        def slots(cls, heads, options):
            return heads

        def forward(self, z_BTHV, x_BTC):
            return (z_BTHV * self.gate(x_BTC).sigmoid()[..., None]).flatten(-2)

    spec = make_spec(*PRIMES)
    model, seeds = LM(spec), {"backbone": 5, "gates": 7}
    model.blocks[1].attention.fusion = Gated(head_shape(spec.attention), options=None)
    draw_weights(model, seeds)
    for name, stream in (("fusion.gate", "gates"), ("query", "backbone")):
        weight = model.get_parameter(f"blocks.1.attention.{name}.weight")
        draw = rng.normal(seeds[stream], stream, f"blocks.1.attention.{name}.weight", tuple(weight.shape))
        torch.testing.assert_close(weight.detach(), 0.02 * torch.from_numpy(draw))


def test_the_whole_model_is_causal():
    model = build_model(make_spec(*PRIMES), SEEDS)
    tokens = torch.randint(0, 59, (2, 13))
    changed = tokens.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 59
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert (before[:, 7:] - after[:, 7:]).abs().amin(dim=(0, 2)).min() > 0


def test_starts_near_the_loss_of_guessing():
    model = build_model(make_spec("model=nano"), SEEDS)
    tokens = torch.randint(0, 59, (16, 64))
    assert model.loss(tokens, tokens.roll(1, 1)).item() == pytest.approx(
        torch.tensor(59.0).log().item(), abs=0.1
    )


def test_residual_writers_start_at_gpt2s_scale():
    model = build_model(make_spec("model=nano"), SEEDS)
    block = model.blocks[0]
    assert block.get_parameter("mlp.up.weight").std().item() == pytest.approx(0.02, rel=0.02)
    for writer in ("mlp.down.weight", "attention.out_proj.weight"):
        assert block.get_parameter(writer).std().item() == pytest.approx(0.02 / 8**0.5, rel=0.02)
    alone = build_model(make_spec("model=nano", "model.mlp_hidden=0"), SEEDS).blocks[0].attention
    assert alone.get_parameter("out_proj.weight").std().item() == pytest.approx(0.02 / 4**0.5, rel=0.02)
    without = build_model(make_spec("model=nano", "out_proj=false"), SEEDS).blocks[0].attention
    assert without.get_parameter("value.weight").std().item() == pytest.approx(0.02 / 8**0.5, rel=0.02)


def test_only_weights_of_linear_layers_and_embeddings_decay():
    spec = make_spec("fusion=weighted_sum", "fusion.per=channel", "model.bias=true", "model.layers=1")
    kept = {name for name, pulled in decayed(build_model(spec, SEEDS)).items() if not pulled}
    layer = "blocks.0."
    assert kept == {
        layer + "attention.fusion.alpha",
        *(f"{layer}attention.{part}.bias" for part in ("query", "key", "value", "out_proj")),
        *(f"{layer}mlp.{part}.bias" for part in ("up", "down")),
        *(f"{layer}norm_{i}.{kind}" for i in (1, 2) for kind in ("weight", "bias")),
        "norm.weight",
        "norm.bias",
    }


def test_products_and_attention_can_be_replaced():
    model = build_model(make_spec(*PRIMES), SEEDS)
    tokens = torch.randint(0, 59, (2, 13))
    before, calls = model(tokens), {"product": 0, "attend": 0}

    def product(x, weight, bias):
        calls["product"] += 1
        return F.linear(x, weight, bias)

    def own_attend(q, k, v, mask, dropout, scale):
        calls["attend"] += 1
        scores = scale * q @ k.mT + mask.visible(13, 13).log()
        return torch.softmax(scores, -1) @ v

    model.use(product=product, attend=own_attend)
    torch.testing.assert_close(model(tokens), before)
    assert calls == {"product": 2 * (4 + 2) + 1, "attend": 2}  # q, k, v, out; up, down; the output layer


def test_members_can_be_stacked_and_mapped():
    """A later engine trains a group as one: forward and backward run under torch.func.vmap."""
    spec = make_spec("fusion=weighted_sum", *PRIMES)
    members = [build_model(spec, {**SEEDS, "backbone": seed}) for seed in (1, 2, 3)]
    stacked, _ = torch.func.stack_module_state(members)
    tokens = torch.randint(0, 59, (2, 13))
    members[0].use(attend=lambda q, k, v, mask, dropout, scale: torch.softmax(q @ k.mT, -1) @ v)

    def logits(params):
        return torch.func.functional_call(members[0], params, (tokens,))

    mapped = torch.func.vmap(torch.func.grad(lambda params: logits(params).square().sum()))(stacked)
    params = {name: param.detach() for name, param in members[0].named_parameters()}
    alone = torch.func.grad(lambda params: logits(params).square().sum())(params)
    for name, grad in alone.items():
        torch.testing.assert_close(mapped[name][0], grad, rtol=1e-3, atol=1e-5)
