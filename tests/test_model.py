"""The language model: equal to the reference architecture, causal as a whole, open where it has to be."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.model.lm import LM, build_model, decayed
from tests.helpers import PRIMES, make_spec

SEEDS = {"backbone": 5, "fusion": 5, "data": 5}


def gpt2_weights(model: LM, layers: int) -> dict[str, Tensor]:
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


@pytest.mark.parametrize("fusion", ["concat", "sum"])
def test_attention_is_its_equation(fusion):
    """Against loops over batch, head and time, in float64."""
    spec = make_spec(f"fusion={fusion}", *PRIMES)
    attention = build_model(spec, SEEDS).double().blocks[0].attention
    x_BTC = torch.randn(2, 13, 11, dtype=torch.float64)
    weights = {name: param.detach() for name, param in attention.named_parameters()}
    expected = torch.zeros_like(x_BTC)
    for b in range(2):
        for t in range(13):
            heads = []
            for h in range(3):
                q = weights["query.weight"][7 * h : 7 * (h + 1)] @ x_BTC[b, t]
                keys = x_BTC[b, : t + 1] @ weights["key.weight"][7 * h : 7 * (h + 1)].T
                values = x_BTC[b, : t + 1] @ weights["value.weight"][5 * h : 5 * (h + 1)].T
                heads.append(torch.softmax(keys @ q / 7**0.5, 0) @ values)
            fused = torch.cat(heads) if fusion == "concat" else torch.stack(heads).sum(0)
            expected[b, t] = weights["out_proj.weight"] @ fused
    torch.testing.assert_close(attention(x_BTC, x_BTC), expected, rtol=0, atol=1e-12)


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
    assert block.mlp.up.weight.std().item() == pytest.approx(0.02, rel=0.02)
    for writer in ("mlp.down.weight", "attention.out_proj.weight"):
        assert block.get_parameter(writer).std().item() == pytest.approx(0.02 / 8**0.5, rel=0.02)
    without = build_model(make_spec("model=nano", "out_proj=false"), SEEDS).blocks[0].attention
    assert without.value.weight.std().item() == pytest.approx(0.02 / 8**0.5, rel=0.02)


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

    def attend(q, k, v, dropout=0.0):
        calls["attend"] += 1
        mask = torch.ones(13, 13).tril().log()
        return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5 + mask, -1) @ v

    model.use(product=product, attend=attend)
    torch.testing.assert_close(model(tokens), before)
    assert calls == {"product": 2 * (4 + 2) + 1, "attend": 2}  # q, k, v, out; up, down; the output layer


def test_queries_and_sources_may_differ():
    attention = build_model(make_spec(*PRIMES), SEEDS).blocks[0].attention
    x, source = torch.randn(2, 13, 11), torch.randn(2, 13, 11)
    assert not torch.allclose(attention(x, source), attention(x, x))
    assert not torch.allclose(attention(x, source), attention(source, source))


def test_members_can_be_stacked_and_mapped():
    """A later engine trains a group as one: forward and backward run under torch.func.vmap."""
    spec = make_spec("fusion=weighted_sum", *PRIMES)
    members = [build_model(spec, {**SEEDS, "backbone": seed}) for seed in (1, 2, 3)]
    stacked, _ = torch.func.stack_module_state(members)
    tokens = torch.randint(0, 59, (2, 13))
    members[0].use(attend=lambda q, k, v, dropout=0.0: torch.softmax(q @ k.mT, -1) @ v)

    def logits(params):
        return torch.func.functional_call(members[0], params, (tokens,))

    mapped = torch.func.vmap(torch.func.grad(lambda params: logits(params).square().sum()))(stacked)
    params = {name: param.detach() for name, param in members[0].named_parameters()}
    alone = torch.func.grad(lambda params: logits(params).square().sum())(params)
    for name, grad in alone.items():
        torch.testing.assert_close(mapped[name][0], grad, rtol=1e-3, atol=1e-5)
