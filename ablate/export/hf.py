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

from ablate.config.rules import ConfigError, as_override
from ablate.config.schema import GPT2, LLAMA
from ablate.data.tokenizers import Bpe, Byte, Char, Numbers, Tokenizer
from ablate.execution.trained import TrainedModel, load_model
from ablate.files.atomic import explained, make_once
from ablate.model.layers import RMSNorm
from ablate.model.shape import form
from ablate.model.sizing import resolve_spec
from ablate.model.spec import ModelSpec, standard
from ablate.store.columns import Status
from ablate.store.run_files import as_json
from ablate.store.store import Store


def export(target: str, out: str | None) -> str:
    """Write a run as a model directory; returns a line that says where. Raises ConfigError.

    target: a run, by a prefix of its id or name.
    """
    store = Store()
    model = load_model(run := store.find(target), code=True)
    row, spec = model.stored.row, resolve_spec(model.config, model.tokenizer.vocab_size)
    if row["status"] != Status.DONE:
        raise ConfigError(f"{run.name}: {row['status']} ({row.get('error')}); take a run that is done")
    if missing := lacks(spec):
        theirs = "Llama" if backbone(spec) is LLAMA else "GPT-2"
        raise ConfigError(
            f"{run.name}: no {theirs}, with {', '.join(missing)}; ablate.load_model({run.name!r}) gives the"
            " model in Python"
        )
    place = Path(out) if out else store.root / "exports" / "hf" / run.name
    with explained(place):
        if make_once(place, _files(model, spec)):
            return f"hf: {run.name} in {place}: written"
    raise ConfigError(f"{place}: exists; delete it, or name another directory with --out")


def backbone(spec: ModelSpec) -> Mapping[str, str]:
    """GPT2 or LLAMA: that which has more parts in common with the model."""
    return max(GPT2, LLAMA, key=lambda parts: sum(getattr(spec, key) == part for key, part in parts.items()))


def lacks(spec: ModelSpec) -> list[str]:
    """What the model has and its backbone in transformers has not, as KEY=VALUE, but what that has."""
    if spec.encoder is not None:
        return ["model.architecture=encoder-decoder"]
    a, parts = spec.attention, backbone(spec)
    theirs = standard(spec.d_model, a.heads)
    if parts is LLAMA:  # whose heads may share keys and values, and have any one width
        shared = {
            f"{of}_{size}": getattr(a, f"key_{size}")
            for of in ("key", "value")
            for size in ("heads", "width")
        }
        theirs, parts = theirs | shared, {**parts, "bias": False}
    theirs |= {"fusion": "concat", "scores": "softmax"}
    ours = {**vars(a), "fusion": form(a), "scores": a.scores.name}
    wrong = [(key, ours[key], of) for key, of in theirs.items()]
    wrong += [(f"model.{key}", getattr(spec, key), of) for key, of in parts.items()]
    lines = [f"{key}={as_override(is_)}, but {as_override(of)}" for key, is_, of in wrong if is_ != of]
    lines += ["model.mlp_hidden=0"] if not spec.mlp_hidden else []
    return lines + ([f"heads={a.heads}, which do not divide d_model"] if spec.d_model % a.heads else [])


def gpt2_weights(ours: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Our weights by the names of transformers, whose Conv1D, c_…, holds a weight as (inputs, outputs). A
    bias that is not there is 0."""
    names = {"wte": ["token"], "wpe": ["position"], "ln_f": ["norm"]}
    for i in range(layers):
        mine, its = f"blocks.{i}", f"h.{i}"
        names[f"{its}.ln_1"], names[f"{its}.ln_2"] = [f"{mine}.norm_1"], [f"{mine}.norm_2"]
        names[f"{its}.attn.c_attn"] = [f"{mine}.attention.{part}" for part in ("query", "key", "value")]
        names[f"{its}.attn.c_proj"] = [f"{mine}.attention.out_proj"]
        names[f"{its}.mlp.c_fc"], names[f"{its}.mlp.c_proj"] = [f"{mine}.mlp.up"], [f"{mine}.mlp.down"]
    theirs = {}
    for its, parts in names.items():
        weights = [ours[f"{part}.weight"] for part in parts]
        biases = [
            ours.get(f"{part}.bias", torch.zeros(len(w))) for part, w in zip(parts, weights, strict=True)
        ]
        weight = torch.cat(weights)
        theirs[f"transformer.{its}.weight"] = (weight.T if ".c_" in its else weight).contiguous()
        if its not in ("wte", "wpe"):
            theirs[f"transformer.{its}.bias"] = torch.cat(biases)
    return theirs


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
    return {f"{its}.weight": ours[f"{mine}.weight"] for its, mine in names.items()}


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


def _files(model: TrainedModel, spec: ModelSpec) -> dict[str, bytes]:
    tokenizer = model.tokenizer
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
