"""The encoder-decoder: compared with PyTorch's own; masks, padding, and the sizes of its attentions."""

import numpy as np
import pytest
import torch
from torch import nn

from ablate.data.corpora import IGNORE_INDEX
from ablate.data.examples import PADDING, Example, batch_of
from ablate.execution.formulas import before_training
from ablate.execution.run import prepare
from ablate.model.attend import fused, unfused
from ablate.model.models import Model, build_model
from ablate.model.sizing import resolve_spec
from ablate.model.spec import ModelSpec
from tests.helpers import SEEDS, make_config
from tests.test_sizing import require_costs

PAIR = ("model=pair", "corpus=reverse")


def spec_of(*overrides: str, vocab: int = 23) -> ModelSpec:
    return resolve_spec(make_config(*PAIR, *overrides), vocab)


def model_of(*overrides: str) -> Model:
    """A model in float64 whose weights are so large that patterns are far from uniform."""
    model = build_model(spec_of("model.d_model=24", "model.context=13", *overrides), SEEDS).double().eval()
    assert model.encoder
    with torch.no_grad():
        for param in model.parameters():
            if param.dim() == 2:
                param.copy_(torch.randn_like(param) * 0.3)
    return model


def some_pairs(*lengths: tuple[int, int]) -> list[Example]:
    seeded = torch.Generator().manual_seed(0)
    drawn = [[torch.randint(1, 22, (n,), generator=seeded).numpy() for n in both] for both in lengths]
    return [Example.of_pair(source, target, 22) for source, target in drawn]


def a_batch(*lengths: tuple[int, int]):
    return batch_of(some_pairs(*lengths))


# --- it is PyTorch's ----------------------------------------------------------------------------


def _copied(ours: nn.Module, theirs: nn.Module, attentions: dict[str, str], norms: dict[str, str]) -> None:
    """The weights of a block, by the names that ours and theirs have."""
    for name, other in attentions.items():
        attention, own = getattr(ours, name), getattr(theirs, other)
        weights = (attention.get_parameter(f"{part}.weight") for part in ("query", "key", "value"))
        own.in_proj_weight.copy_(torch.cat([*weights]))
        own.out_proj.weight.copy_(attention.get_parameter("out_proj.weight"))
    for name, other in (norms | {"mlp.up": "linear1", "mlp.down": "linear2"}).items():
        theirs.get_parameter(f"{other}.weight").copy_(ours.get_parameter(f"{name}.weight"))


@torch.no_grad()
def _of_pytorch(model: Model, tokens_BT: torch.Tensor, source_BS: torch.Tensor) -> torch.Tensor:
    """torch.nn's encoder and decoder with the same weights."""
    d = model.token.weight.shape[1]
    options = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True, "bias": False}
    sizes = (d, 4, 4 * d)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(*sizes, **options),
        len(model.encoder),
        nn.LayerNorm(d, bias=False),
        enable_nested_tensor=False,
    )
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(*sizes, **options), len(model.blocks), nn.LayerNorm(d, bias=False)
    )
    encoder, decoder = encoder.double().eval(), decoder.double().eval()
    for ours, theirs in zip(model.encoder, encoder.layers, strict=True):
        _copied(ours, theirs, {"attention": "self_attn"}, {"norm_1": "norm1", "norm_2": "norm2"})
    attentions = {"attention": "self_attn", "cross": "multihead_attn"}
    norms = {"norm_1": "norm1", "norm_cross": "norm2", "norm_2": "norm3"}
    for ours, theirs in zip(model.blocks, decoder.layers, strict=True):
        _copied(ours, theirs, attentions, norms)
    encoder.get_parameter("norm.weight").copy_(model.get_parameter("encoder_norm.weight"))
    decoder.get_parameter("norm.weight").copy_(model.get_parameter("norm.weight"))
    padded_BS = source_BS < 0
    S, T = source_BS.shape[1], tokens_BT.shape[1]
    x = model.token.weight[source_BS.clamp(min=0)] + model.get_parameter("source_position.weight")[:S]
    y = model.token.weight[tokens_BT] + model.get_parameter("position.weight")[:T]
    future = nn.Transformer.generate_square_subsequent_mask(T, dtype=torch.float64)
    memory = encoder(x, src_key_padding_mask=padded_BS)
    out = decoder(y, memory, tgt_mask=future, memory_key_padding_mask=padded_BS)
    return out @ model.token.weight.T


def test_logits_are_those_of_pytorch():
    model = model_of("model.layers=2", "model.encoder_layers=3")
    with torch.no_grad():
        for norm in (m for m in model.modules() if isinstance(m, nn.LayerNorm)):
            norm.weight.copy_(1 + 0.3 * torch.randn_like(norm.weight))
    batch = a_batch((11, 7), (3, 12), (5, 1))
    assert batch.source is not None
    with torch.no_grad():
        ours = model(batch.inputs, None, batch.source)
    theirs = _of_pytorch(model, batch.inputs, batch.source)
    assert torch.allclose(ours, theirs, atol=1e-10, rtol=0)


@pytest.mark.parametrize("scores", ["softmax", "windows", "qk_norm", "uniform", "talking"])
def test_both_formulations_see_no_padding(scores):
    model = model_of(f"scores={scores}", *(("at=encoder",) if scores == "windows" else ()))
    batch = a_batch((11, 7), (3, 12))
    with torch.no_grad():
        found = []
        for attend in (fused, unfused):
            model.use(attend=attend)
            found.append(model.loss(*batch))
    assert torch.allclose(*found, atol=1e-12, rtol=0)


# --- padding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fusion", ["concat", "sum", "gated", "head_norm"])
def test_a_padded_batch_is_its_lines_one_by_one(fusion):
    pairs = some_pairs((11, 7), (3, 12), (5, 1), (11, 11))
    model = model_of(f"fusion={fusion}")
    with torch.no_grad():
        whole = model.loss(*batch_of(pairs)).item()
        one_by_one = [(model.loss(*batch_of([pair])).item(), len(pair.targets)) for pair in pairs]
    mean = sum(loss * count for loss, count in one_by_one) / sum(count for _, count in one_by_one)
    assert whole == pytest.approx(mean, abs=1e-6)


def test_rows_by_hand():
    pairs = [(np.array([4, 5]), np.array([6])), (np.array([7]), np.array([8, 9]))]
    two = batch_of([Example.of_pair(source, target, 0) for source, target in pairs])
    assert two.inputs.tolist() == [[0, 6, 0], [0, 8, 9]]
    assert two.targets.tolist() == [[6, 0, IGNORE_INDEX], [8, 9, 0]]
    assert two.source is not None and two.source.tolist() == [[4, 5], [7, PADDING]]
    assert two.target_positions is not None and two.target_positions.tolist() == [0, 1, 3, 4, 5]


# --- who sees what ------------------------------------------------------------------------------


def test_a_letter_depends_on_earlier_ones_and_on_its_own_source_alone():
    model = model_of()
    batch = a_batch((5, 6), (4, 3))
    embedded: list[torch.Tensor] = []
    hook = model.token.register_forward_hook(lambda _, __, out: embedded.append(out.requires_grad_()) or out)
    logits = model(batch.inputs, None, batch.source)
    hook.remove()
    source, target = embedded  # the encoder asks first
    of_source, of_target = torch.autograd.grad(logits[0, 2].sum(), (source, target))
    assert of_target[0, 3:].abs().max() == 0 and of_target[0, :3].abs().min(-1).values.min() > 0
    assert of_target[1].abs().max() == 0 and of_source[1].abs().max() == 0
    assert (of_source[0].abs().sum(-1) > 0).all()  # the encoder sees all of it


# --- which attention is which -------------------------------------------------------------------


@pytest.mark.parametrize("at", ["encoder", "decoder", "cross"])
def test_at_changes_that_attention_alone(at):
    keys = ("fusion=sum", "heads=8", "out_proj=false", "scores=qk_norm")
    spec, plain = spec_of(f"at={at}", *keys), spec_of()
    for kind, (found, _) in spec.kinds.items():
        if kind == at:
            assert (found.fusion.name, found.heads, found.out_proj) == ("sum", 8, False)
            assert found == spec.chosen
        else:
            assert found == plain.kinds[kind][0]
    every = spec_of(*keys)
    assert all(found.fusion.name == "sum" for found, _ in every.kinds.values())


def test_what_all_attentions_share_starts_alike():
    ours, theirs = (build_model(spec_of(f"at={at}", "fusion=sum"), SEEDS) for at in ("encoder", "cross"))
    other = dict(theirs.named_parameters())
    same = [name for name, param in ours.named_parameters() if other[name].shape == param.shape]
    assert all(torch.equal(ours.get_parameter(name), other[name]) for name in same)
    assert "blocks.0.cross.query.weight" in same and "encoder.0.mlp.up.weight" in same


ODD = ("model.d_model=16", "model.context=11", "model.encoder_layers=3")


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("at=cross", "fusion=sum"),
        ("heads=8", "out_proj=false", "model.bias=true"),
        ("model.mlp_hidden=0", "scores=talking"),
    ],
)
def test_costs_are_those_of_the_module(overrides):
    require_costs(spec_of(*ODD, *overrides), lambda model, tokens: model(tokens, None, tokens))


def test_a_row_says_where():
    row = before_training(prepare(make_config(*PAIR, "at=cross", "fusion=sum", "heads=2")))
    wanted = {"at": "cross", "fusion": "sum", "heads": 2, "key_width": 32}
    assert row.items() >= {**wanted, "architecture": "encoder-decoder", "encoder_layers": 2}.items()
    plain = before_training(prepare(make_config("corpus=grammar", "corpus.characters=5000")))
    assert (plain["at"], plain["architecture"], plain["encoder_layers"]) == ("all", "decoder", None)
