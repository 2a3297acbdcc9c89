"""Export of one run as a GPT-2 or a Llama of Hugging Face's transformers: config, weights and tokenizer.

Only runs that compute exactly what one of them computes. Biases that a GPT-2 has and a run has not become
zeros; the weights are those after the last step, as ablate.load_model gives them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from ablate.analysis.load import find_source
from ablate.config.rules import ConfigError
from ablate.data.tokenizers import Bpe, Byte, Char, Numbers, Tokenizer
from ablate.execution.trained import TrainedModel, load_model
from ablate.files.atomic import explained, make_once
from ablate.model.attention import form
from ablate.model.layers import RMSNorm
from ablate.model.sizing import resolve_spec
from ablate.model.spec import GPT2, LLAMA, ModelSpec
from ablate.store.columns import Status
from ablate.store.run_files import as_json, read_finished


def export(target: str, out: str | None) -> str:
    """Write a run as a model directory; returns a line that says where. Raises ConfigError."""
    source = find_source(target, runs=True)
    if not (source.run and source.store):
        raise ConfigError(
            f"--to hf {target}: a study; name one of its runs, which ablate runs {target} lists"
        )
    name, row = source.run.name, read_finished(source.run)
    if row["status"] != Status.DONE:
        raise ConfigError(f"{name}: {row['status']} ({row.get('error')}); take a run that is done")
    model = load_model(source.run, code=True)
    spec = _spec(model)
    if missing := lacks(spec):
        theirs = "Llama" if backbone(spec) is LLAMA else "GPT-2"
        raise ConfigError(
            f"{name}: {theirs} has no {', no '.join(missing)}; ablate.load_model({name!r}) gives the model in"
            " Python"
        )
    place, files = Path(out) if out else source.store.root / "exports" / "hf" / name, _files(model)
    with explained(place):
        if make_once(place, files):
            return f"hf: {name} in {place}: written"
        if all((place / file).is_file() and (place / file).read_bytes() == files[file] for file in files):
            return f"hf: {name} in {place}: there already"
    raise ConfigError(f"{place}: exists, and is not this model; name another directory with --out")


def _spec(model: TrainedModel) -> ModelSpec:
    return resolve_spec(model.config, model.tokenizer.vocab_size)


def backbone(spec: ModelSpec) -> Mapping[str, str]:
    """GPT2 or LLAMA: that which has more parts in common with the model."""
    return max(GPT2, LLAMA, key=lambda parts: sum(getattr(spec, key) == part for key, part in parts.items()))


def lacks(spec: ModelSpec) -> list[str]:
    """What the model has and its backbone in transformers has not, as keys."""
    if spec.encoder is not None:
        return ["encoder (model.architecture=encoder-decoder)"]
    a, parts = spec.attention, backbone(spec)
    if parts is LLAMA:
        own = {
            f"value_heads={a.value_heads} beside key_heads={a.key_heads}": a.value_heads != a.key_heads,
            f"value_width={a.value_width} beside key_width={a.key_width}": a.value_width != a.key_width,
            f"heads={a.heads}, which do not divide d_model": spec.d_model % a.heads != 0,
            "model.bias=true": spec.bias,
        }
    else:
        kinds = {f"{kind}_heads": getattr(a, f"{kind}_heads") for kind in ("key", "value")}
        own = {f"{key}={count}, as each head has its own": count != a.heads for key, count in kinds.items()}
        for key, width in (("key_width", a.key_width), ("value_width", a.value_width)):
            own[f"{key}={width}, but d_model/heads"] = width * a.heads != a.d_model
    wrong = {
        **{
            f"model.{key}={getattr(spec, key)}, but {of}": getattr(spec, key) != of
            for key, of in parts.items()
        },
        f"fusion={a.fusion.name}, as it concatenates heads": form(a) != "concat",
        f"scores={a.scores.name}, but softmax": a.scores.name != "softmax",
        "tie_qk=true": a.tie_qk,
        f"scale={a.scale}, but inside": a.scale != "inside",
        "out_proj=false": not a.out_proj,
        f"out_rank={a.out_rank}": a.out_rank is not None,
        "model.mlp_hidden=0": not spec.mlp_hidden,
        **own,
    }
    return [line for line, is_so in wrong.items() if is_so]


def gpt2_weights(ours: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Our weights by the names of transformers, whose Conv1D holds a weight as (inputs, outputs). A bias that
    is not there is 0."""
    theirs = {
        "transformer.wte.weight": ours["token.weight"],
        "transformer.wpe.weight": ours["position.weight"],
    }
    theirs |= _of(ours, "norm", "transformer.ln_f")
    for i in range(layers):
        mine, its = f"blocks.{i}", f"transformer.h.{i}"
        parts = [_of(ours, f"{mine}.attention.{part}", part) for part in ("query", "key", "value")]
        qkv = {
            kind: torch.cat([v for p in parts for k, v in p.items() if k.endswith(kind)]) for kind in KINDS
        }
        theirs |= {f"{its}.attn.c_attn.weight": qkv["weight"].T, f"{its}.attn.c_attn.bias": qkv["bias"]}
        for name, as_named in (
            ("attention.out_proj", "attn.c_proj"),
            ("mlp.up", "mlp.c_fc"),
            ("mlp.down", "mlp.c_proj"),
        ):
            of = _of(ours, f"{mine}.{name}", f"{its}.{as_named}")
            theirs |= {key: value.T if value.dim() == 2 else value for key, value in of.items()}
        theirs |= _of(ours, f"{mine}.norm_1", f"{its}.ln_1") | _of(ours, f"{mine}.norm_2", f"{its}.ln_2")
    return {name: value.detach().contiguous() for name, value in theirs.items()}


KINDS = ("weight", "bias")


def _of(ours: Mapping[str, Tensor], name: str, as_named: str) -> dict[str, Tensor]:
    weight = ours[f"{name}.weight"]
    bias = ours.get(f"{name}.bias")
    return {
        f"{as_named}.weight": weight,
        f"{as_named}.bias": weight.new_zeros(len(weight)) if bias is None else bias,
    }


def llama_weights(ours: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Our weights by the names of transformers."""
    names = {"model.embed_tokens": "token", "model.norm": "norm"}
    for i in range(layers):
        mine, its = f"blocks.{i}", f"model.layers.{i}"
        for its_norm, our_norm in (("input_layernorm", "norm_1"), ("post_attention_layernorm", "norm_2")):
            names[f"{its}.{its_norm}"] = f"{mine}.{our_norm}"
        for part in ("query", "key", "value", "out_proj"):
            names[f"{its}.self_attn.{part[0]}_proj"] = f"{mine}.attention.{part}"
        for part in ("gate", "up", "down"):
            names[f"{its}.mlp.{part}_proj"] = f"{mine}.mlp.{part}"
    return {f"{its}.weight": ours[f"{mine}.weight"].detach().contiguous() for its, mine in names.items()}


def _config(spec: ModelSpec) -> dict[str, Any]:
    a = spec.attention
    sizes = (spec.context, spec.d_model, spec.layers, a.heads, spec.mlp_hidden)
    if backbone(spec) is GPT2:
        names = ("n_positions", "n_embd", "n_layer", "n_head", "n_inner")
        return {
            **{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]},
            **dict(zip(names, sizes, strict=True)),
            "activation_function": "gelu",  # the exact one
            "layer_norm_epsilon": nn.LayerNorm(1).eps,
            **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), spec.dropout),
        }
    names = ("max_position_embeddings", "hidden_size", "num_hidden_layers", "num_attention_heads")
    return {
        **{"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
        **dict(zip((*names, "intermediate_size"), sizes, strict=True)),
        **{"num_key_value_heads": a.key_heads, "head_dim": a.key_width, "attention_dropout": spec.dropout},
        **{"hidden_act": "silu", "rms_norm_eps": RMSNorm.eps},
        "rope_theta": a.rope_base,  # where transformers before version 5 has the base
        "rope_parameters": {"rope_type": "default", "rope_theta": a.rope_base},
    }


def _files(model: TrainedModel) -> dict[str, bytes]:
    spec, tokenizer = _spec(model), model.tokenizer
    tokens = {"bos_token_id": None, "eos_token_id": None}
    config: dict[str, Any] = {
        **_config(spec),
        "vocab_size": tokenizer.vocab_size,
        "tie_word_embeddings": True,
        "dtype": "float32",
        **tokens,
    }
    of_tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": spec.context,
        "clean_up_tokenization_spaces": False,
    }
    weights = (llama_weights if backbone(spec) is LLAMA else gpt2_weights)(model.state_dict(), spec.layers)
    return {
        "config.json": as_json(config),
        "generation_config.json": as_json(tokens),
        "tokenizer_config.json": as_json(of_tokenizer),
        "tokenizer.json": _tokenizer(tokenizer).to_str(pretty=True).encode(),
        "model.safetensors": safetensors.torch.save(weights, {"format": "pt"}),
    }


def _tokenizer(tokenizer: Tokenizer) -> Any:
    """The tokenizer as one of Hugging Face's library, with the same ids."""
    from tokenizers import Regex, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Theirs

    match tokenizer:
        case Bpe():
            theirs = Theirs.from_str(tokenizer.state["model"])
        case Char():  # without a token for unknown characters, which are an error, as in ablate
            theirs = Theirs(models.WordLevel({c: i for i, c in enumerate(tokenizer.alphabet)}))
            theirs.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
            theirs.decoder = decoders.Fuse()
        case Byte():
            theirs = Theirs(models.BPE(dict(zip(_letters(), range(256), strict=True)), []))
            theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            theirs.decoder = decoders.ByteLevel()
        case Numbers():
            theirs = Theirs(models.WordLevel({str(i): i for i in range(tokenizer.vocab_size)}))
            theirs.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        case _:
            raise AssertionError("only pairs have another, and no decoder reads them")
    return theirs


def _letters() -> list[str]:
    """The letter of the byte-level alphabet for each byte: itself if it prints, else one above 255."""
    printing = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printing else next(others)) for byte in range(256)]
