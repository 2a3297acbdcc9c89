"""The sizes of a model: turns `auto` into numbers, and refuses what can't be built."""

import dataclasses
from typing import Any

from ablate.config.rules import ConfigError, typed
from ablate.config.schema import (
    ENCODER_DECODER,
    STANDARD_FUSION,
    STANDARD_HEADS,
    STANDARD_SCORES,
    PartConfig,
    RunConfig,
)
from ablate.model import fusion, scores
from ablate.model.layers import STD
from ablate.model.spec import AttentionSpec, ModelSpec

SHARED = ("query_heads", "key_heads", "value_heads")
# The only allowed values of these keys for attention without queries and keys.
COMPARED = {
    "query_heads": "auto",
    "key_heads": "auto",
    "key_width": "auto",
    "tie_qk": False,
    "scale": "inside",
}


def sizes(config: RunConfig, vocab: int) -> ModelSpec:
    """The sizes that `config` asks for, before matching. Raises ConfigError for what can't be built."""
    model = config.model
    mlp_hidden = 4 * model.d_model if model.mlp_hidden == "auto" else model.mlp_hidden
    one = 1 if mlp_hidden == 0 else 2  # modules of a layer that write into the residual stream, as in GPT-2
    common: dict[str, Any] = {"vocab": vocab, "context": model.context, "mlp_hidden": mlp_hidden}
    if model.architecture != ENCODER_DECODER:
        _refuse_two_texts(config)
        return ModelSpec(**common, layers=model.layers, attention=_attention(config, one * model.layers))
    if config.wiring == "swapped":
        raise ConfigError(_swapped(config))
    if model.encoder_layers is None:
        raise ConfigError("model.encoder_layers=null: an encoder needs layers; give a number")
    writers = {
        "decoder": (one + 1) * model.layers,
        "encoder": one * model.encoder_layers,
        "cross": (one + 1) * model.layers,
    }
    at = {
        kind: _attention(config if config.at in ("all", kind) else _standard(config), count)
        for kind, count in writers.items()
    }
    if scores.method_of(at["cross"].scores)[0].by_position:
        raise ConfigError(
            f"scores={config.scores.name}: it compares positions, and those of a source are not those of its"
            " target; use at=encoder or at=decoder"
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


def _refuse_two_texts(config: RunConfig) -> None:
    """Raises ConfigError for keys that only an encoder-decoder has."""
    given = {"at": config.at, "wiring": config.wiring, "model.encoder_layers": config.model.encoder_layers}
    for key, value in given.items():
        if value not in ("all", "standard", None):
            raise ConfigError(
                f"{key}={value}: model={config.model.name} has no encoder; leave {key} out, or take"
                " model=pair"
            )


def _swapped(config: RunConfig) -> str:
    """The message that says why queries and keys can't come from the encoder and values from the decoder."""
    width = config.model.d_model // config.heads
    return (
        "wiring=swapped: queries and keys of a source of 7 tokens give patterns of 7 × 7, and values of a"
        f" target of 5 are 5 × {width}: 7 weights can't read 5 values; use wiring=standard, where queries"
        " come from the decoder, keys and values from the encoder (ablate verify shows it)"
    )


def _standard(config: RunConfig) -> RunConfig:
    """The config of the attentions that `at` leaves out: concat with out_proj and STANDARD_HEADS."""
    if config.model.d_model % STANDARD_HEADS:
        raise ConfigError(
            f"at={config.at}: the other attentions have {STANDARD_HEADS} heads, which do not divide"
            f" model.d_model={config.model.d_model}; take one that they divide, or at=all"
        )
    keys = ("query_heads", "key_heads", "value_heads", "value_width", "key_width")
    return dataclasses.replace(
        config,
        fusion=PartConfig(name=STANDARD_FUSION, options={"normalize": "none"}),
        scores=PartConfig(name=STANDARD_SCORES, options={}),
        heads=STANDARD_HEADS,
        tie_qk=False,
        scale="inside",
        value_proj=True,
        value_scale=1,
        out_proj=True,
        out_rank=None,
        **dict.fromkeys(keys, "auto"),
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
        f"heads={heads}: does not divide model.d_model={d}, as {key}={typed(getattr(config, key))} needs;"
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
    if config.tie_qk and query_heads != key_heads:
        raise ConfigError(
            f"tie_qk=true: query_heads={query_heads} and key_heads={key_heads} can't have one weight;"
            " give as many of both, or tie_qk=false"
        )
    if config.out_rank is not None and not config.out_proj:
        raise ConfigError(
            f"out_rank={config.out_rank}: with out_proj=false there is nothing to factor; use out_rank=null"
        )
    if config.value_scale == "matched" and config.out_proj:
        raise ConfigError(
            "value_scale=matched: it stands in for out_proj, where there is none; use out_proj=false, or"
            " value_scale=1"
        )
    return AttentionSpec(
        d_model=config.model.d_model,
        heads=config.heads,
        query_heads=query_heads,
        key_heads=key_heads,
        value_heads=value_heads,
        key_width=key_width,
        value_width=_value_width(config, slots=method.slots(config.heads, options)),
        tie_qk=config.tie_qk,
        scale=config.scale,
        value_proj=config.value_proj,
        # The factor by which out_proj would scale the branch: a sum over d_model entries of size STD.
        value_gain=STD * config.model.d_model**0.5 if config.value_scale == "matched" else 1.0,
        out_proj=config.out_proj,
        out_rank=config.out_rank,
        bias=config.model.bias,
        dropout=config.model.dropout,
        residual_scale=writers**-0.5,
        scores=PartConfig(name=config.scores.name, options=dataclasses.asdict(rule_options)),
        fusion=PartConfig(name=config.fusion.name, options=dataclasses.asdict(options)),
    )


def _heads(config: RunConfig, key: str) -> int:
    """How many sets of queries, keys or values there are. Raises ConfigError unless it divides heads."""
    asked, heads = getattr(config, key), config.heads
    if asked == "auto":
        return heads
    if heads % asked == 0:
        return asked
    divisors = [number for number in range(1, heads + 1) if heads % number == 0]
    near = sorted(sorted(divisors, key=lambda number: abs(number - asked))[:2])
    raise ConfigError(
        f"{key}={asked}: does not divide heads={heads}; use {key}={' or '.join(map(str, near))}"
    )


def _refuse_comparing(config: RunConfig) -> None:
    for key, nothing in COMPARED.items():
        if (asked := getattr(config, key)) != nothing:
            raise ConfigError(
                f"{key}={typed(asked)}: scores={config.scores.name} has no queries and keys;"
                f" use {key}={typed(nothing)}"
            )


def _value_width(config: RunConfig, slots: int) -> int:
    """The width of a head's output. Without out_proj the fused vector, slots·V wide, goes straight into the
    residual stream, so it has to be d wide. Without value_proj all heads together read d numbers."""
    d, asked = config.model.d_model, config.value_width
    if asked == "narrow" or (asked == "auto" and (config.out_proj or not config.value_proj)):
        width = narrow(config, "value_width")
    elif asked == "wide":
        width = d
    elif asked == "auto":
        width = max(1, d // slots)
    else:
        width = asked
    if not config.value_proj:
        _check_slices(config, width)
    if config.out_proj or slots * width == d:
        return width
    fits = d % slots == 0 and (config.value_proj or d // slots * config.heads == d)
    fitting = f"use value_width={d // slots} or" if fits else "no value_width fits, so use"
    raise ConfigError(
        f"value_width={asked}: with out_proj=false the fused heads go straight into the residual stream,"
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
