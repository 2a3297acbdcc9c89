"""Export of one run as a GPT-2 or a Llama of Hugging Face's transformers: config, weights and BPE tokenizer.

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
from ablate.data.tokenizers import Bpe
from ablate.execution.trained import TrainedModel, load_model
from ablate.files.atomic import explained, make_once
from ablate.model.layers import RMSNorm
from ablate.model.sizing import resolve_spec
from ablate.model.spec import GPT2, LLAMA, ModelSpec, standard
from ablate.store.columns import Status
from ablate.store.run_files import as_json, read_started
from ablate.store.store import Store

# What transformers calls a model, and the words in the names of our weights.
GPT2_NAMES = {
    **{"model": "transformer", "token": "wte", "position": "wpe", "norm": "ln_f", "blocks": "h"},
    **{"norm_1": "ln_1", "norm_2": "ln_2", "attention": "attn", "out_proj": "c_proj"},
    **dict.fromkeys(("query", "key", "value"), "c_attn"),
    **{"up": "c_fc", "down": "c_proj"},
}
LLAMA_NAMES = {
    **{"model": "model", "token": "embed_tokens", "blocks": "layers", "attention": "self_attn"},
    **{"norm_1": "input_layernorm", "norm_2": "post_attention_layernorm", "out_proj": "o_proj"},
    **{part: f"{part[0]}_proj" for part in ("query", "key", "value")},
    **{part: f"{part}_proj" for part in ("gate", "up", "down")},
}


def export(target: str, out: str | None) -> str:
    """Write a run as a model directory; returns a line that says where. Raises ConfigError.

    target: a run, by a prefix of its id or name.
    """
    store = Store()
    run = store.find(target)
    if own := [Path(name).name for name in read_started(run).get("part_files") or {}]:
        raise ConfigError(
            f"{run.name}: no GPT-2 and no Llama, with a method of {', '.join(own)};"
            f" ablate.load_model({run.name!r}, plugins={own}) gives the model in Python"
        )
    model = load_model(run, code=True)
    row, spec = model.stored.row, resolve_spec(model.config, model.tokenizer.vocab_size)
    if row["status"] != Status.DONE:
        raise ConfigError(f"{run.name}: {row['status']} ({row.get('error')}); take a run that is done")
    if missing := lacks(spec):
        theirs = "Llama" if backbone(spec) is LLAMA else "GPT-2"
        raise ConfigError(
            f"{run.name}: no {theirs}, with {', '.join(missing)}; ablate.load_model({run.name!r}) gives the"
            " model in Python"
        )
    if not isinstance(model.tokenizer, Bpe):
        raise ConfigError(f"{run.name}: its tokenizer isn't exported; take a run with corpus.tokenizer=bpe")
    place = Path(out) if out else store.root / "exports" / "hf" / run.name
    with explained(place):
        if make_once(place, _files(model, spec, model.tokenizer)):
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
        theirs |= dict.fromkeys(("key_heads", "value_heads"), a.key_heads)
        theirs |= dict.fromkeys(("key_width", "value_width"), a.key_width)
        parts = {**parts, "bias": False}
    theirs |= {"fusion": "concat", "scores": "softmax"}
    ours = {**vars(a), "fusion": a.form, "scores": a.scores.name}
    wrong = [(key, ours[key], of) for key, of in theirs.items()]
    wrong += [(f"model.{key}", getattr(spec, key), of) for key, of in parts.items()]
    lines = [f"{key}={as_override(is_)}, but {as_override(of)}" for key, is_, of in wrong if is_ != of]
    lines += ["model.mlp_hidden=0"] if not spec.mlp_hidden else []
    return lines + ([f"heads={a.heads}, which do not divide d_model"] if spec.d_model % a.heads else [])


def renamed(ours: Mapping[str, Tensor], words: Mapping[str, str]) -> dict[str, Tensor]:
    """Our weights by the names of transformers; those that get one name, as query, key and value of a GPT-2,
    are one."""
    theirs: dict[str, Tensor] = {}
    for name, weight in ours.items():
        its = ".".join([words["model"], *(words.get(word, word) for word in name.split("."))])
        theirs[its] = torch.cat([theirs[its], weight]) if its in theirs else weight
    return theirs


def gpt2_weights(ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our weights as a GPT-2 has them, whose Conv1D, c_…, holds a weight as (inputs, outputs). A bias that is
    not there is 0."""
    theirs = renamed(ours, GPT2_NAMES)
    for name, weight in [*theirs.items()]:
        if name.endswith("weight") and (".c_" in name or ".ln_" in name):
            theirs.setdefault(name.replace("weight", "bias"), torch.zeros(len(weight)))
            theirs[name] = weight.T.contiguous() if ".c_" in name else weight
    return theirs


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


def _files(model: TrainedModel, spec: ModelSpec, tokenizer: Bpe) -> dict[str, bytes]:
    ours = model.state_dict()
    weights = renamed(ours, LLAMA_NAMES) if backbone(spec) is LLAMA else gpt2_weights(ours)
    tokens = {"bos_token_id": None, "eos_token_id": None}
    config = {"vocab_size": tokenizer.vocab_size, "tie_word_embeddings": True, "dtype": "float32"}
    of_tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    return {
        "config.json": as_json(_config(spec) | config | tokens),
        "generation_config.json": as_json(tokens),
        "tokenizer_config.json": as_json({**of_tokenizer, "model_max_length": spec.context}),
        "tokenizer.json": tokenizer.state["model"].encode(),
        "model.safetensors": safetensors.torch.save(weights, {"format": "pt"}),
    }
