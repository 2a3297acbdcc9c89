"""From a config to the sizes of a model: `auto` and `match` become numbers, and what can't be built is
refused."""

import dataclasses
from typing import Any

from ablate.config.identity import identity_keys
from ablate.config.read import introduced
from ablate.config.rules import ConfigError, as_override
from ablate.config.schema import (
    STANDARD_FUSION,
    STANDARD_HEADS,
    ModelConfig,
    PartConfig,
    RunConfig,
)
from ablate.model import fusion, readout, scores
from ablate.model.attention import check_parts
from ablate.model.costs import COSTS, reference, relative_cost
from ablate.model.layers import STD
from ablate.model.spec import GPT2, AttentionSpec, ModelSpec, standard, standard_hidden

SHARED = ("query_heads", "key_heads", "value_heads")
# The only allowed values of these keys for attention without queries and keys.
COMPARED = {
    "query_heads": "auto",
    "key_heads": "auto",
    "key_width": "auto",
    "tie_qk": False,
    "query_proj": True,
    "scale": "inside",
    "kv_rank": None,
}
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
    _check_match(config)
    matched = _matched(config, spec)
    error = relative_cost(matched, config.match)
    if abs(error) <= TOLERANCE:
        return matched
    mlp = f"mlp_hidden={matched.mlp_hidden}"
    at = mlp if config.match_by == "mlp" else f"value_width={matched.chosen.value_width}"
    raise ConfigError(
        f"match={config.match}: the closest that match_by={config.match_by} comes to the cost of"
        f" {STANDARD_FUSION} with out_proj is {error:+.1%}, at {at}, and"
        f" {TOLERANCE:.0%} is allowed; nearest that can be matched: {_nearest_match(config, vocab)}"
    )


def resolved(config: RunConfig, spec: ModelSpec) -> RunConfig:
    """`config` in canonical form: `auto` and `match` replaced by the resulting numbers, and as many key heads
    as heads written as auto."""
    base = config.model.rope_base if spec.position == "rope" else introduced(ModelConfig)["rope_base"]
    model = dataclasses.replace(config.model, mlp_hidden=spec.mlp_hidden, rope_base=base)
    match_by = config.match_by if config.match != "none" else "mlp"  # without a match it has no effect
    attention = spec.chosen
    as_heads: Any = {key: "auto" for key in SHARED if getattr(config, key) == config.heads}
    return dataclasses.replace(
        config,
        **as_heads,
        model=model,
        value_width=attention.value_width,
        key_width=attention.key_width or "auto",  # 0 where there are no keys
        kv_norm=config.kv_norm if config.kv_rank else introduced(RunConfig)["kv_norm"],
        rope_width=attention.rope_width if config.kv_rank else introduced(RunConfig)["rope_width"],
        scores=_deciding(config.scores, scores),
        fusion=_deciding(config.fusion, fusion),
        match_by=match_by,
    )


def _deciding(part: PartConfig, kind: Any) -> PartConfig:
    """The part with only the options that belong to the identity. kind: the package of the part."""
    _, options = kind.method_of(part)
    return PartConfig(name=part.name, options=identity_keys(options))


def sizes(config: RunConfig, vocab: int) -> ModelSpec:
    """The sizes that `config` asks for, before matching. Raises ConfigError for what can't be built."""
    model = config.model
    mlp_hidden = standard_hidden(model.d_model, model.mlp) if model.mlp_hidden == "auto" else model.mlp_hidden
    _check_backbone(model, mlp_hidden)
    one = 1 if mlp_hidden == 0 else 2  # modules of a layer that write into the residual stream, as in GPT-2
    parts = {key: getattr(model, key) for key in GPT2}
    common: dict[str, Any] = {"vocab": vocab, "context": model.context, "mlp_hidden": mlp_hidden, **parts}
    if not model.two_texts:
        for key, value in (("at", config.at), ("model.encoder_layers", model.encoder_layers)):
            if value not in ("all", None):
                raise ConfigError(
                    f"{key}={value}: model={model.name} has no encoder; leave {key} out, or take model=pair"
                )
        return ModelSpec(**common, layers=model.layers, attention=_attention(config, one * model.layers))
    if model.encoder_layers is None:
        raise ConfigError("model.encoder_layers=null: an encoder needs layers; give a number")
    writers = {
        "decoder": (one + 1) * model.layers,
        "encoder": one * model.encoder_layers,
        "cross": (one + 1) * model.layers,
    }
    others = [kind for kind in writers if config.at not in ("all", kind)]
    if others and model.d_model % STANDARD_HEADS:
        raise ConfigError(
            f"at={config.at}: the other attentions have {STANDARD_HEADS} heads, which do not divide"
            f" model.d_model={model.d_model}; take one that they divide, or at=all"
        )
    at = {kind: _attention(config, count) for kind, count in writers.items()}
    for kind in others:
        at[kind] = dataclasses.replace(at[kind], **standard(model.d_model, STANDARD_HEADS))
    if not scores.method_of(at["cross"].scores)[0].order_free:
        raise ConfigError(
            f"scores={config.scores.name}: it may depend on positions, and those of a source are not those of"
            " its target; use at=encoder or at=decoder, or claim order_free"
        )
    if fusion.method_of(at["cross"].fusion)[0].reads_values:
        raise ConfigError(
            f"fusion={config.fusion.name}: it reads the value of the token itself, and a cross-attention has"
            " values of the source alone; use at=encoder or at=decoder"
        )
    return ModelSpec(
        **common,
        layers=model.layers,
        attention=at["decoder"],
        encoder_layers=model.encoder_layers,
        encoder=at["encoder"],
        cross=at["cross"],
        at=config.at,
    )


def _check_backbone(model: ModelConfig, mlp_hidden: int) -> None:
    """Raises ConfigError for parts of a backbone that do not fit each other."""
    if model.mlp != "gelu" and not mlp_hidden:
        raise ConfigError(
            f"model.mlp={model.mlp}: model.mlp_hidden=0 leaves the MLPs out; use model.mlp_hidden=auto"
        )
    if model.position == "rope" and model.two_texts:
        raise ConfigError(
            f"model.position=rope: model={model.name} reads two texts, and no distance is defined between a"
            " position of one and a position of the other; use model.position=learned"
        )


def narrow(config: RunConfig, key: str) -> int:
    """d_model/heads. key: the key that asks for it, for messages. Raises ConfigError if it is not whole."""
    d, heads = config.model.d_model, config.heads
    if d % heads == 0:
        return d // heads
    below = next(h for h in range(min(heads, d), 0, -1) if d % h == 0)
    above = next((h for h in range(heads + 1, d + 1) if d % h == 0), None)
    near = [below] if above is None else [below, above]
    raise ConfigError(
        f"heads={heads}: does not divide model.d_model={d}, as {key}={as_override(getattr(config, key))}"
        f" needs;"
        f" use heads={' or heads='.join(map(str, near))}, or give key_width and value_width as numbers"
    )


def _attention(config: RunConfig, writers: int) -> AttentionSpec:
    """writers: how many modules of its stack write into the residual stream."""
    rule, rule_options = scores.method_of(config.scores)
    method, options = fusion.method_of(config.fusion)
    rule.rules(config.heads, rule_options)  # raises if the options do not fit the number of heads
    query_heads, key_heads, value_heads = (_heads(config, key) for key in SHARED)
    if rule.compares:
        key_width = narrow(config, "key_width") if config.key_width == "auto" else config.key_width
    else:
        _refuse_comparing(config)
        query_heads, key_heads, key_width = 1, 1, 0
    if (turned := config.model.position == "rope") and key_width % 2 and not config.kv_rank:
        raise ConfigError(
            f"model.position=rope: it turns channels of queries and keys in pairs, and a head has {key_width}"
            f" (key_width={as_override(config.key_width)}); use key_width={key_width + 1}"
        )
    if config.tie_qk and query_heads != key_heads:
        raise ConfigError(
            f"tie_qk=true: query_heads={query_heads} and key_heads={key_heads} can't have one weight;"
            " give as many of both, or tie_qk=false"
        )
    _check_queries(config, query_heads, key_width)
    _check_latent(config)
    _check_readout(config)
    spec = AttentionSpec(
        d_model=config.model.d_model,
        heads=config.heads,
        query_heads=query_heads,
        key_heads=key_heads,
        value_heads=value_heads,
        key_width=key_width,
        value_width=_value_width(config, slots=method.slots(config.heads, options)),
        tie_qk=config.tie_qk,
        query_proj=config.query_proj,
        scale=config.scale,
        value_proj=config.value_proj,
        kv_rank=config.kv_rank,
        kv_norm=config.kv_norm and config.kv_rank is not None,
        rope_width=_rope_width(config, key_width),
        # The factor by which out_proj would scale the branch: a sum over d_model entries of size STD.
        value_gain=STD * config.model.d_model**0.5 if config.value_scale == "matched" else 1.0,
        out_proj=config.out_proj,
        out_rank=config.out_rank,
        bias=config.model.bias,
        dropout=config.model.dropout,
        residual_scale=writers**-0.5,
        rope_base=config.model.rope_base if turned else None,
        scores=PartConfig(name=config.scores.name, options=identity_keys(rule_options)),
        fusion=PartConfig(name=config.fusion.name, options=identity_keys(options)),
    )
    check_parts(spec)
    return spec


def _check_readout(config: RunConfig) -> None:
    """Raises ConfigError for a readout that is not there, and for keys that do not go with it."""
    if isinstance(config.out_proj, str):
        readout.method_of(config.out_proj)
    if config.out_rank is not None and config.out_proj is not True:
        raise ConfigError(
            f"out_rank={config.out_rank}: with out_proj={as_override(config.out_proj)} there is nothing to"
            " factor; use out_rank=null"
        )
    if config.value_scale == "matched" and config.out_proj:
        why = "it stands in for out_proj, where there is none"
        if config.out_proj is not True:
            why = f"with out_proj={config.out_proj} values start matched already"
        raise ConfigError(f"value_scale=matched: {why}; use out_proj=false, or value_scale=1")


def _check_queries(config: RunConfig, query_heads: int, key_width: int) -> None:
    """Raises ConfigError unless, without query_proj, the queries are slices of the input."""
    if config.query_proj:
        return
    if config.tie_qk:
        raise ConfigError(
            "query_proj=false: with tie_qk=true keys have the weight of the queries, and there is none; give"
            " one of the two"
        )
    d = config.model.d_model
    if query_heads * key_width != d:
        fits = f"use key_width={d // query_heads}" if d % query_heads == 0 else "use query_heads=1"
        raise ConfigError(
            f"query_proj=false: {query_heads} queries of key_width={key_width} would read"
            f" {query_heads * key_width} numbers, and the input has model.d_model={d}; {fits}"
        )


def _check_latent(config: RunConfig) -> None:
    """Raises ConfigError for keys that do not go with kv_rank."""
    if config.kv_rank is None:
        return
    alike = {key: ("auto", config.heads) for key in ("key_heads", "value_heads")}
    for key, allowed in {**alike, "tie_qk": (False,), "value_proj": (True,)}.items():
        if (value := getattr(config, key)) not in allowed:
            raise ConfigError(
                f"kv_rank={config.kv_rank}: all keys and values are made of one latent, so there is no"
                f" {key}={as_override(value)}; use {key}={as_override(allowed[0])}, or kv_rank=null"
            )


def _rope_width(config: RunConfig, key_width: int) -> int:
    """How many channels of a head are turned beside a latent: by default half of them, an even number. Raises
    ConfigError."""
    given = config.rope_width
    if config.kv_rank is None or config.model.position != "rope":
        if given not in ("auto", 0):
            lacking = "kv_rank" if config.kv_rank is None else "model.position=rope"
            raise ConfigError(
                f"rope_width={given}: it says what positions turn beside a latent, and there is no {lacking};"
                " use rope_width=auto"
            )
        return 0
    width = max(2, key_width // 4 * 2) if given == "auto" else given
    most = (key_width - 1) // 2 * 2
    if width % 2 or width > most:
        raise ConfigError(
            f"rope_width={given}: channels are turned in pairs, and a head of key_width={key_width} leaves at"
            f" least one to the latent; use rope_width={min(width - width % 2, most)}"
        )
    return width


def _heads(config: RunConfig, key: str) -> int:
    """How many sets of queries, keys or values there are. Raises ConfigError unless it divides heads."""
    value, heads = getattr(config, key), config.heads
    if value == "auto":
        return heads
    if heads % value == 0:
        return value
    divisors = [number for number in range(1, heads + 1) if heads % number == 0]
    near = sorted(sorted(divisors, key=lambda number: abs(number - value))[:2])
    raise ConfigError(
        f"{key}={value}: does not divide heads={heads}; use {key}={' or '.join(map(str, near))}"
    )


def _refuse_comparing(config: RunConfig) -> None:
    for key, nothing in COMPARED.items():
        if (value := getattr(config, key)) != nothing:
            raise ConfigError(
                f"{key}={as_override(value)}: scores={config.scores.name} has no queries and keys;"
                f" use {key}={as_override(nothing)}"
            )


def _value_width(config: RunConfig, slots: int) -> int:
    """The width of a head's output. Without out_proj the fused vector, slots·V wide, goes straight into the
    residual stream, so it has to be d wide; so it is by default with a readout in its place. Without
    value_proj all heads together read d numbers."""
    d, given = config.model.d_model, config.value_width
    if given == "narrow" or (given == "auto" and (config.out_proj is True or not config.value_proj)):
        width = narrow(config, "value_width")
    elif given == "wide":
        width = d
    elif given == "auto":
        width = max(1, d // slots)
    else:
        width = given
    if not config.value_proj:
        _check_slices(config, width)
    if config.out_proj or slots * width == d:
        return width
    fits = d % slots == 0 and (config.value_proj or d // slots * config.heads == d)
    fitting = f"use value_width={d // slots} or" if fits else "no value_width fits, so use"
    raise ConfigError(
        f"value_width={given}: with out_proj=false the fused heads go straight into the residual stream,"
        f" which takes model.d_model={d} numbers a token; fusion={config.fusion.name} heads={config.heads}"
        f" gives it {slots * width}; {fitting} out_proj=true"
    )


def _check_slices(config: RunConfig, width: int) -> None:
    """Raises ConfigError unless, without value_proj, each head can read its own slice of the input."""
    d, heads = config.model.d_model, config.heads
    if heads * width != d:
        raise ConfigError(
            f"value_proj=false: heads={heads} of value_width={width} would read {heads * width} numbers, and"
            f" the input has model.d_model={d}; use value_width=auto, or value_proj=true"
        )
    if config.value_heads not in ("auto", heads):
        raise ConfigError(
            f"value_proj=false: each of heads={heads} reads a slice of its own, and value_heads="
            f"{config.value_heads} would share them; use value_heads=auto, or value_proj=true"
        )


def _check_match(config: RunConfig) -> None:
    narrow(config, "match")  # the reference is narrow
    if config.match_by == "mlp":
        return
    if not (config.out_proj is True and config.value_proj):
        key = "value_proj" if config.out_proj is True else "out_proj"
        stream = "input" if config.out_proj is True else "residual stream"
        raise ConfigError(
            f"match_by=value_width: with {key}={as_override(getattr(config, key))} the {stream} fixes the"
            f" value width; use match_by=mlp, or {key}=true"
        )
    standard = standard_hidden(config.model.d_model, config.model.mlp)
    if config.model.mlp_hidden not in ("auto", standard):
        raise ConfigError(
            f"model.mlp_hidden={config.model.mlp_hidden}: match_by=value_width matches to the standard MLP,"
            f" of {standard}; leave it at auto, or use match_by=mlp"
        )
    if config.value_width in ("narrow", "wide"):
        raise ConfigError(
            f"value_width={config.value_width}: match_by=value_width chooses the value width;"
            " leave it at auto, or use match_by=mlp"
        )


def _matched(config: RunConfig, spec: ModelSpec) -> ModelSpec:
    """`spec` with the width that brings its cost closest to the reference's; a width given as a number stays.

    The cost is linear in either width, so two points determine it.
    """
    given = config.model.mlp_hidden if config.match_by == "mlp" else config.value_width
    if given != "auto":
        return spec
    cost = COSTS[config.match]
    at_1, at_2 = (cost(_with_width(spec, config.match_by, value)) for value in (1, 2))
    value = max(1, round(1 + (cost(reference(spec)) - at_1) / (at_2 - at_1)))
    return _with_width(spec, config.match_by, value)


def _with_width(spec: ModelSpec, match_by: str, width: int) -> ModelSpec:
    if match_by == "mlp":
        return dataclasses.replace(spec, mlp_hidden=width)
    return spec.with_chosen(value_width=width)


def _nearest_match(config: RunConfig, vocab: int) -> str:
    """Advice on what can be matched: the other width to match by, else the nearest number of heads."""
    others = [dataclasses.replace(config, match_by=by) for by in ("mlp", "value_width")]
    heads = [config.heads + sign * away for away in range(1, 64) for sign in (-1, 1)]
    for other in others + [dataclasses.replace(config, heads=h) for h in heads if h > 0]:
        try:
            _check_match(other)
            if abs(relative_cost(_matched(other, sizes(other, vocab)), other.match)) <= TOLERANCE:
                return f"heads={other.heads} match_by={other.match_by}"
        except ConfigError:
            continue
    return "none; use match=none"
