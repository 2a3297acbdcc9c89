"""From a config to the sizes of a model: `auto` and `match` become numbers, and what can't be built is
refused."""

from dataclasses import fields, replace
from typing import Any

from ablate.config.rules import ConfigError, as_override
from ablate.config.schema import STANDARD_FUSION, STANDARD_HEADS, AttentionConfig, RunConfig, identity_keys
from ablate.model import fusion, scores
from ablate.model.costs import COSTS, reference, relative_cost, standard_hidden
from ablate.model.parts import divisors
from ablate.model.spec import AttentionSpec, ModelSpec, standard

SHARED = ("key_heads", "value_heads")
# The only allowed values of these keys for attention without queries and keys.
COMPARED = {"key_heads": "auto", "key_width": "auto", "tie_qk": False, "scale": "inside"}
UNTURNED = 10_000.0  # stands for any model.rope_base where positions turn nothing
TOLERANCE = 0.01  # allowed relative difference between the cost of a matched model and its reference


def resolve_spec(config: RunConfig, vocab: int) -> ModelSpec:
    """The sizes that `config` asks for, with a vocabulary of `vocab` tokens.

    Sizes given as numbers are kept and checked, so resolving twice changes nothing. Raises ConfigError for
    what can't be built: widths that do not divide, a fused width that does not fit the residual stream, costs
    that can't be matched.
    """
    spec = sizes(config, vocab)
    if config.match == "none":
        return spec
    narrow(config, "match")  # the reference is narrow
    matched = _matched(config, spec)
    error = relative_cost(matched, config.match)
    if abs(error) <= TOLERANCE:
        return matched
    raise ConfigError(
        f"match={config.match}: the closest that a width of the MLP comes to the cost of {STANDARD_FUSION}"
        f" with out_proj is {error:+.1%}, at model.mlp_hidden={matched.mlp_hidden}, and {TOLERANCE:.0%} is"
        " allowed; use another number of heads, or match=none"
    )


def resolved(config: RunConfig, spec: ModelSpec) -> RunConfig:
    """`config` in canonical form: `auto` and `match` replaced by the resulting numbers, and as many key heads
    as heads written as auto."""
    base = config.model.rope_base if spec.position == "rope" else UNTURNED
    model = replace(config.model, mlp_hidden=spec.mlp_hidden, rope_base=base)
    attention = spec.chosen
    as_heads: Any = {key: "auto" for key in SHARED if getattr(config, key) == config.heads}
    return replace(
        config,
        **as_heads,
        model=model,
        value_width=attention.value_width,
        key_width=attention.key_width or "auto",  # 0 where there are no keys
        scores=attention.scores,
        fusion=attention.fusion,
    )


def sizes(config: RunConfig, vocab: int) -> ModelSpec:
    """The sizes that `config` asks for, before matching. Raises ConfigError for what can't be built."""
    model = config.model
    auto = model.mlp_hidden == "auto"
    hidden = standard_hidden(model.d_model, model.mlp) if auto else model.mlp_hidden
    _check_backbone(config)
    one = 1 if hidden == 0 else 2  # modules of a layer that write into the residual stream, as in GPT-2
    encoder_layers, writers = model.encoder_layers or 0, {"decoder": one * model.layers}
    if model.two_texts:
        decoder = (one + 1) * model.layers
        writers = {"decoder": decoder, "encoder": one * encoder_layers, "cross": decoder}
    at = {kind: _attention(config, count) for kind, count in writers.items()}
    for kind in {*writers} - {config.at} if config.at != "all" else ():
        at[kind] = replace(at[kind], **standard(model.d_model, STANDARD_HEADS))
    if model.two_texts:
        _check_cross(config, at["cross"])
    return ModelSpec(
        **{**vars(model), "mlp_hidden": hidden, "encoder_layers": encoder_layers},
        vocab=vocab,
        at=config.at,
        attention=at["decoder"],
        encoder=at.get("encoder"),
        cross=at.get("cross"),
    )


def _check_backbone(config: RunConfig) -> None:
    """Raises ConfigError for parts of a model that do not fit each other."""
    model = config.model
    for key, value in (("at", config.at), ("model.encoder_layers", model.encoder_layers)):
        if not model.two_texts and value not in ("all", None):
            raise ConfigError(
                f"{key}={value}: model={model.name} has no encoder; leave {key} out, or take model=pair"
            )
    if model.two_texts and model.encoder_layers is None:
        raise ConfigError("model.encoder_layers=null: an encoder needs layers; give a number")
    if config.at != "all" and model.d_model % STANDARD_HEADS:
        raise ConfigError(
            f"at={config.at}: the other attentions have {STANDARD_HEADS} heads, which do not divide"
            f" model.d_model={model.d_model}; take one that they divide, or at=all"
        )
    if model.mlp != "gelu" and model.mlp_hidden == 0:
        raise ConfigError(
            f"model.mlp={model.mlp}: model.mlp_hidden=0 leaves the MLPs out; use model.mlp_hidden=auto"
        )
    if model.position == "rope" and model.two_texts:
        raise ConfigError(
            f"model.position=rope: model={model.name} reads two texts, and no distance is defined between a"
            " position of one and a position of the other; use model.position=learned"
        )


def _check_cross(config: RunConfig, cross: AttentionSpec) -> None:
    """Raises ConfigError for a part that can't attend to another text."""
    if not scores.method_of(cross.scores)[0].order_free:
        raise ConfigError(
            f"scores={config.scores.name}: it may depend on positions, and those of a source are not those of"
            " its target; use at=encoder or at=decoder, or claim order_free"
        )
    if fusion.method_of(cross.fusion)[0].reads_values:
        raise ConfigError(
            f"fusion={config.fusion.name}: it reads the value of the token itself, and a cross-attention has"
            " values of the source alone; use at=encoder or at=decoder"
        )


def narrow(config: RunConfig, key: str) -> int:
    """d_model/heads. key: the key that asks for it, for messages. Raises ConfigError if it is not whole."""
    d, heads = config.model.d_model, config.heads
    if d % heads == 0:
        return d // heads
    near = [*[h for h in divisors(d) if h < heads][-1:], *[h for h in divisors(d) if h > heads][:1]]
    raise ConfigError(
        f"heads={heads}: does not divide model.d_model={d}, as {key}={as_override(getattr(config, key))}"
        f" needs; use heads={' or heads='.join(map(str, near))}, or give key_width and value_width as numbers"
    )


def _attention(config: RunConfig, writers: int) -> AttentionSpec:
    """writers: how many modules of its stack write into the residual stream."""
    rule, rule_options = scores.method_of(config.scores)
    method, options = fusion.method_of(config.fusion)
    key_heads, value_heads = (_heads(config, key) for key in SHARED)
    if rule.compares:
        key_width = narrow(config, "key_width") if config.key_width == "auto" else config.key_width
    else:
        _refuse_comparing(config)
        key_width = 0
    if (turned := config.model.position == "rope") and key_width % 2:
        raise ConfigError(
            f"model.position=rope: it turns channels of queries and keys in pairs, and a head has {key_width}"
            f" (key_width={as_override(config.key_width)}); use key_width={key_width + 1}"
        )
    if config.tie_qk and key_heads != config.heads:
        raise ConfigError(
            f"tie_qk=true: key_heads={key_heads} can't have the weight of as many queries as"
            f" heads={config.heads}; use key_heads=auto, or tie_qk=false"
        )
    if config.out_rank is not None and not config.out_proj:
        raise ConfigError(
            f"out_rank={config.out_rank}: with out_proj=false there is nothing to factor; use out_rank=null"
        )
    model, given = config.model, {of.name: getattr(config, of.name) for of in fields(AttentionConfig)}
    numbers = {
        "key_heads": key_heads,
        "value_heads": value_heads,
        "key_width": key_width,
        "value_width": _value_width(config, slots=method.slots(config.heads, options)),
        "scores": replace(config.scores, options=identity_keys(rule_options)),
        "fusion": replace(config.fusion, options=identity_keys(options)),
    }
    spec = AttentionSpec(
        **{**given, **numbers},
        d_model=model.d_model,
        bias=model.bias,
        dropout=model.dropout,
        residual_scale=writers**-0.5,
        rope_base=model.rope_base if turned else None,
    )
    spec.check_parts()
    return spec


def _heads(config: RunConfig, key: str) -> int:
    """How many sets of keys or values there are. Raises ConfigError unless it divides heads."""
    value, heads = getattr(config, key), config.heads
    if value == "auto":
        return heads
    if heads % value == 0:
        return value
    fitting = ", ".join(map(str, divisors(heads)))
    raise ConfigError(f"{key}={value}: does not divide heads={heads}; use one of {fitting}")


def _refuse_comparing(config: RunConfig) -> None:
    for key, nothing in COMPARED.items():
        if (value := getattr(config, key)) != nothing:
            raise ConfigError(
                f"{key}={as_override(value)}: scores={config.scores.name} has no queries and keys;"
                f" use {key}={as_override(nothing)}"
            )


def _value_width(config: RunConfig, slots: int) -> int:
    """The width of a head's output. Without out_proj the fused vector, slots·V wide, goes straight into the
    residual stream, so it has to be d wide."""
    d, given = config.model.d_model, config.value_width
    if given == "narrow" or (given == "auto" and config.out_proj):
        width = narrow(config, "value_width")
    elif given == "wide":
        width = d
    elif given == "auto":
        width = max(1, d // slots)
    else:
        width = given
    if config.out_proj or slots * width == d:
        return width
    fitting = "no value_width fits, so use" if d % slots else f"use value_width={d // slots} or"
    raise ConfigError(
        f"value_width={given}: with out_proj=false the fused heads go straight into the residual stream,"
        f" which takes model.d_model={d} numbers a token; fusion={config.fusion.name} heads={config.heads}"
        f" gives it {slots * width}; {fitting} out_proj=true"
    )


def _matched(config: RunConfig, spec: ModelSpec) -> ModelSpec:
    """`spec` with the MLP width that brings its cost closest to the reference's; one given as a number stays.

    The cost is linear in the width, so two points determine it.
    """
    if config.model.mlp_hidden != "auto":
        return spec
    cost = COSTS[config.match]
    at_1, at_2 = (cost(replace(spec, mlp_hidden=width)) for width in (1, 2))
    width = max(1, round(1 + (cost(reference(spec)) - at_1) / (at_2 - at_1)))
    return replace(spec, mlp_hidden=width)
