"""Export of one run as a GPT-2 or a Llama of Hugging Face's transformers: config, weights and tokenizer.

Only runs that compute exactly what one of them computes. Biases that a GPT-2 has and a run has not become
zeros; the weights are those after the last step, as ablate.load_model gives them, also with train.average.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from ablate.analysis.load import find_source
from ablate.config.identity import digest
from ablate.config.rules import ConfigError
from ablate.data.tokenizers import Bpe, Byte, Char, Numbers, Tokenizer, WithSeparator
from ablate.execution.trained import TrainedModel, load_model
from ablate.export import manifest
from ablate.export.exporter import HF
from ablate.files.atomic import explained
from ablate.files.owned import replace_file
from ablate.model.attention import form
from ablate.model.norm import RMSNorm
from ablate.model.sizing import resolve_spec
from ablate.model.spec import ModelSpec
from ablate.store.columns import Status
from ablate.store.run_files import read_finished

SEPARATOR = "<|separator|>"
EPS = 1e-5  # of PyTorch's layer norm


def export(target: str, out: str | None) -> str:
    """Write a run as a model directory; returns a line that says where. Raises ConfigError."""
    source = find_source(target, runs=True)
    if not (source.run and source.store):
        raise ConfigError(
            f"--to hf {target}: a study; name one of its runs, which ablate runs {target} lists"
        )
    directory = source.run
    row = read_finished(directory)
    if row["status"] != Status.DONE:
        raise ConfigError(f"{directory.name}: {row['status']} ({row.get('error')}); take a run that is done")
    model = load_model(directory, code=True)
    if missing := lacks(_spec(model)):
        theirs = "Llama" if backbone(_spec(model)) is LLAMA else "GPT-2"
        raise ConfigError(
            f"{directory.name}: {theirs} has no {', no '.join(missing)};"
            f" ablate.load_model({directory.name!r}) gives the model in Python"
        )
    place = Path(out) if out else source.store.root / "exports" / HF / directory.name
    files = _files(model)
    key, now = f"{HF}/{row['run_id']}", digest({name: data.hex() for name, data in files.items()})
    done = manifest.of_directory(place, HF)
    if done.written.get(key) == now and all((place / name).is_file() for name in files):
        return f"hf: {directory.name} in {place}: equal"
    done.clear()  # a directory holds one model, and none while it is written
    with explained(place):
        for name, data in files.items():
            replace_file(place / name, data)
    done.add(key, now)
    return f"hf: {directory.name} in {place}: written"


def _spec(model: TrainedModel) -> ModelSpec:
    return resolve_spec(model.config, model.tokenizer.vocab_size)


GPT2 = {"position": "learned", "norm": "layer", "mlp": "gelu"}
LLAMA = {"position": "rope", "norm": "rms", "mlp": "swiglu"}


def backbone(spec: ModelSpec) -> Mapping[str, str]:
    """GPT2 or LLAMA: that which has more parts in common with the model."""
    return max(GPT2, LLAMA, key=lambda parts: sum(getattr(spec, key) == part for key, part in parts.items()))


def lacks(spec: ModelSpec) -> list[str]:
    """What the model has and its backbone in transformers has not, as keys."""
    if spec.encoder is not None:
        return ["encoder (model.architecture=encoder-decoder)"]
    a, parts = spec.attention, backbone(spec)
    heads = {kind: getattr(a, f"{kind}_heads") for kind in ("query", "key", "value")}
    if parts is LLAMA:
        own = {
            f"query_heads={a.query_heads}, as each head has its own": a.query_heads != a.heads,
            f"value_heads={a.value_heads} beside key_heads={a.key_heads}": a.value_heads != a.key_heads,
            f"value_width={a.value_width} beside key_width={a.key_width}": a.value_width != a.key_width,
            "model.bias=true": spec.bias,
        }
    else:
        wide = {"key_width": a.key_width, "value_width": a.value_width}
        own = {f"{k}_heads={count}, as each head has its own": count != a.heads for k, count in heads.items()}
        own |= {f"{key}={w}, but d_model/heads": w * a.heads != a.d_model for key, w in wide.items()}
    wrong = {
        **{
            f"model.{k}={of}, but {part}": of != part for k, part in parts.items() if (of := getattr(spec, k))
        },
        f"fusion={a.fusion.name}, as it concatenates heads": form(a) != "concat",
        f"scores={a.scores.name}, but softmax": a.scores.name != "softmax",
        "tie_qk=true": a.tie_qk,
        f"scale={a.scale}, but inside": a.scale != "inside",
        "value_proj=false": not a.value_proj,
        "value_scale": a.scale == "inside" and a.gain != 1,
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
        names |= {
            f"{its}.input_layernorm": f"{mine}.norm_1",
            f"{its}.post_attention_layernorm": f"{mine}.norm_2",
        }
        for part, name in (("q", "query"), ("k", "key"), ("v", "value"), ("o", "out_proj")):
            names[f"{its}.self_attn.{part}_proj"] = f"{mine}.attention.{name}"
        names |= {f"{its}.mlp.{part}_proj": f"{mine}.mlp.{part}" for part in ("gate", "up", "down")}
    return {f"{its}.weight": ours[f"{mine}.weight"].detach().contiguous() for its, mine in names.items()}


def _gpt2_config(spec: ModelSpec) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_positions": spec.context,
        "n_embd": spec.d_model,
        "n_layer": spec.layers,
        "n_head": spec.attention.heads,
        "n_inner": spec.mlp_hidden,
        "activation_function": "gelu",  # the exact one
        "layer_norm_epsilon": EPS,
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), spec.dropout),
    }


def _llama_config(spec: ModelSpec) -> dict[str, Any]:
    base = spec.attention.rope_base
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": spec.context,
        "hidden_size": spec.d_model,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.attention.heads,
        "num_key_value_heads": spec.attention.key_heads,
        "head_dim": spec.attention.key_width,
        "intermediate_size": spec.mlp_hidden,
        "hidden_act": "silu",
        "rms_norm_eps": RMSNorm.eps,
        "rope_theta": base,  # where transformers before version 5 has the base
        "rope_parameters": {"rope_type": "default", "rope_theta": base},
        "attention_dropout": spec.dropout,
    }


def _files(model: TrainedModel) -> dict[str, bytes]:
    spec, tokenizer = _spec(model), model.tokenizer
    is_llama = backbone(spec) is LLAMA
    end = tokenizer.separator if isinstance(tokenizer, WithSeparator) else None
    tokens = {"bos_token_id": None, "eos_token_id": end}
    config: dict[str, Any] = {
        **(_llama_config(spec) if is_llama else _gpt2_config(spec)),
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
    weights = (llama_weights if is_llama else gpt2_weights)(model.state_dict(), spec.layers)
    return {
        "config.json": _json(config),
        "generation_config.json": _json(tokens),
        "tokenizer_config.json": _json(of_tokenizer | ({"eos_token": SEPARATOR} if end is not None else {})),
        "tokenizer.json": _tokenizer(tokenizer).to_str(pretty=True).encode(),
        "model.safetensors": safetensors.torch.save(weights, {"format": "pt"}),
    }


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


def _tokenizer(tokenizer: Tokenizer) -> Any:
    """The tokenizer as one of Hugging Face's library, with the same ids."""
    from tokenizers import Regex, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Theirs

    match tokenizer:
        case WithSeparator():
            theirs = _tokenizer(tokenizer.plain)
            theirs.add_special_tokens([SEPARATOR])
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
            raise AssertionError("every kind of tokenizer is above")
    return theirs


def _letters() -> list[str]:
    """The letter of the byte-level alphabet for each byte: itself if it prints, else one above 255."""
    printing = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printing else next(others)) for byte in range(256)]
