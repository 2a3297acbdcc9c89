"""Reading, checking and identifying a configuration."""

import dataclasses
import json
import re
from types import SimpleNamespace
from typing import Annotated, Any

import pytest

from ablate.compose.configs import Key, defaults_of, matching, sections
from ablate.config.read import read
from ablate.config.rules import ConfigError, as_level, as_override, flatten
from ablate.config.schema import PARTS, OutsideIdentity, RunConfig, identity_keys
from ablate.execution.attempt import describe
from ablate.execution.plugins import KINDS
from ablate.execution.run import Run
from ablate.model.sizing import resolve_spec, resolved
from ablate.store.columns import CONFIG_COLUMNS, SEED_COLUMNS
from tests.helpers import make_config


def as_read(config: RunConfig) -> dict[str, Any]:
    """The nested mapping that Hydra would compose for `config`."""
    plain = dataclasses.asdict(config)
    for part in ("fusion", "corpus"):
        plain[part] |= plain[part].pop("options")
    return plain


def identity(*overrides: str, text: str = "text") -> str:
    config = make_config(*overrides)
    return named(resolved(config, resolve_spec(config, 59)), text).run_id


def named(config: RunConfig, text: str = "text") -> Run:
    of: Any = SimpleNamespace(vocab=59, sha256=text)
    return Run(config, of, of)


@pytest.mark.parametrize(
    "override, parts",
    [
        ("heads=0", ("heads=0", "at least 1")),
        ("heads=4.5", ("heads=4.5", "a whole number")),
        ("out_proj=1", ("out_proj=1", "expected true or false")),
        ("train.lr=-0.001", ("train.lr=-0.001", "above 0")),
        ("seeds=3", ("seeds=3: type seed=0,1,2 with -m, or seeds.backbone",)),
        ("train.lr=nan", ("train.lr=nan", "a finite number")),
        ("train.min_lr_ratio=2", ("train.min_lr_ratio=2", "at most 1")),
        ("train.warmup=1", ("train.warmup=1", "below 1")),
        ("value_width=widest", ("value_width=widest", "auto", "narrow", "wide")),
        ("match=parms", ("match=parms", "did you mean params?")),
        ("device=mps", ("device=mps: use auto, cpu, cuda",)),
        ("name=../up", ("name=../up", "A-Z")),
        ("corpus.splits=[0.9,0.0,0.1]", ("corpus.splits=[0.9,0.0,0.1]", "validation")),
    ],
)
def test_wrong_values_are_refused_in_one_line(override, parts):
    with pytest.raises(ConfigError) as refusal:
        make_config(override)
    assert all(part in str(refusal.value) for part in parts), refusal.value
    assert "\n" not in str(refusal.value)


def test_unknown_and_missing_keys():
    plain = as_read(make_config())
    with pytest.raises(ConfigError, match=r"train\.stpes: no such key; did you mean train\.steps\?"):
        read(RunConfig, {**plain, "train": {**plain["train"], "stpes": 3}})
    with pytest.raises(ConfigError, match=r"model\.bias: this key is missing"):
        read(RunConfig, {**plain, "model": {k: v for k, v in plain["model"].items() if k != "bias"}})


def test_identity_is_stable():
    """It changes only with a line in the CHANGELOG: results on disk are found by it."""
    assert identity("train.steps=1000") == "96195636ce87fbab"


@pytest.mark.slow
def test_one_computation_one_identity():
    for same in ("value_width=narrow", "value_width=16", "key_width=16"):
        assert identity(same) == identity()
    alone = ("fusion=sum", "out_proj=false")
    assert identity(*alone) == identity(*alone, "value_width=wide")
    assert identity("model=nano") == identity("model.layers=4", "model.d_model=128")
    assert identity("train.lr=1e-3") == identity("train.lr=0.001")


@pytest.mark.parametrize(
    "override",
    ["name=mine", "device=cpu", "force=true", "train.save=none", "corpus=stdlib", "corpus.bpe_vocab=500"],
)
def test_what_does_not_matter_stays_out_of_the_identity(override):
    assert identity(override) == identity()


MATTERS = [
    *("fusion=sum", "fusion.normalize=variance", "heads=2", "out_proj=false", "key_width=3", "value_width=3"),
    *("match=params", "seed=1", "seeds.data=1", "seeds.backbone=1", "seeds.fusion=1", "model.d_model=32"),
    *("model.layers=3", "model.context=32", "model.mlp_hidden=9", "model.bias=true", "model.dropout=0.1"),
    *("train.steps=9", "train.batch=9", "train.lr=9", "train.warmup=0", "train.min_lr_ratio=0"),
    *("train.weight_decay=0", "train.beta1=0", "train.beta2=0", "train.eps=1", "train.clip=null"),
    *("train.eval_every=9", "train.precision=bfloat16", "corpus.tokenizer=byte"),
    "corpus.splits=[0.7,0.2,0.1]",
]


@pytest.mark.slow
def test_what_matters_is_in_the_identity_and_in_a_column(corpus_stub):
    """Else two rows of different runs would look like one variant."""
    seen, rows = {identity()}, []
    for override in MATTERS:
        seen.add(identity(override))
        config = make_config(override)
        rows.append(describe(corpus_stub(config)))
    assert len(seen) == len(MATTERS) + 1
    assert len({identity(text="other"), *seen}) == len(seen) + 1
    keys = [tuple(str(row.get(column)) for column in (*CONFIG_COLUMNS, *SEED_COLUMNS)) for row in rows]
    assert len(set(keys)) == len(keys)


@pytest.fixture
def corpus_stub():
    from ablate.data.corpus import open_corpus

    def prepared(config: RunConfig) -> Run:
        grammar = dataclasses.replace(config.corpus, name="grammar", options={"seed": 0, "characters": 3000})
        corpus = dataclasses.replace(open_corpus(grammar), sha256="text")
        spec = resolve_spec(config, 59)
        config = resolved(config, spec)
        return Run(config, spec, corpus)

    return prepared


def test_a_key_that_came_later_changes_no_id_at_its_default():
    later = ("optimizer", Annotated[str, OutsideIdentity(at_default=True)], "adamw")
    config = dataclasses.make_dataclass("Config", [("heads", int), later], frozen=True)
    assert identity_keys(config(4)) == {"heads": 4}
    assert identity_keys(config(4, "sgd")) == {"heads": 4, "optimizer": "sgd"}


# --- ablate keys: every key with its default and its comment, from the YAML ------------------------------


def test_every_key_is_listed_with_its_default_and_what_it_means():
    listed: dict[str, Key] = {}
    groups = {key.name: key.default for key in sections()[0].keys}
    for section in sections():
        assert all(key.about for key in section.keys), section
        group, _, name = section.choice.partition("=")
        if not group or groups[group] == name:
            listed |= {key.name: key for key in section.keys}
    config = flatten(as_read(make_config()))
    defaults = {name: as_level(listed[name].default.replace(" ", "")) for name in config}
    assert defaults == {name: as_level(as_override(value)) for name, value in config.items()}


def test_a_key_of_some_choices_is_listed_under_each_of_them():
    of = {section.choice: [key.name for key in section.keys] for section in sections()}
    for kind in PARTS:
        for name, method in KINDS[kind].methods().items():
            assert of[f"{kind}={name}"] == [
                f"{kind}.{key}" for key in defaults_of(kind, name, method.Options)
            ]
    assert of["model=nano"] == ["model.d_model", "model.layers"]  # a preset: what it has unlike the default


@pytest.mark.parametrize(
    "prefix, choices, names",
    [
        ("train.l", ["train=default", "train=nanogpt", "train=pairs", "train=study"], "train.lr"),
        ("fusion.per", ["fusion=gated", "fusion=weighted_sum"], "fusion.per"),
        ("fusion=gated", ["fusion=gated"], "fusion.per fusion.input fusion.activation fusion.reads"),
        ("model.dr", ["model=tiny"], "model.dropout"),
        ("hydra.launcher.thr", ["hydra/launcher=pool"], None),
        ("study.dev", [""], "study.develop"),
        ("study=tu", [""], "study=tuned"),
        ("seed", [""], "seed seeds.backbone seeds.fusion seeds.data"),
    ],
)
def test_keys_by_prefix(prefix, choices, names):
    found = matching(prefix)
    assert [section.choice for section in found] == choices
    if names:
        assert {key.name for section in found for key in section.keys} == {*names.split()}


@pytest.mark.parametrize(
    "prefix, line",
    [
        ("fusion.pre", "did you mean fusion.per"),
        ("dropout", "did you mean model.dropout?"),
        ("trian", "did you mean train"),
        ("fusion=gatde", "did you mean fusion=gated"),
        ("qqqqqq", "choices: at, corpus, device, "),
    ],
)
def test_an_unknown_prefix_names_the_nearest_keys(prefix, line):
    with pytest.raises(ConfigError, match=f"^{re.escape(prefix)}: no such key; {re.escape(line)}"):
        matching(prefix)


def test_the_command_shows_keys_as_a_table_and_as_rows(command):
    code, shown, _ = command("keys", "model.dropout")
    assert code == 0 and shown.splitlines()[0] == "model=tiny"
    assert re.search(r"model.dropout +0.0 +share of activations that are set to 0 in training", shown)
    rows = json.loads(command("keys", "fusion.per", "--format", "json")[1])["rows"]
    assert [row["choice"] for row in rows] == ["fusion=gated", "fusion=weighted_sum"]
    assert {row["default"] for row in rows} == {"head"}
    groups = command("keys", "scores", "--format", "csv")[1].splitlines()[1]
    assert (
        groups.startswith(",scores,softmax,") and "choices: differential, offsets, qk_norm, softmax" in groups
    )
    assert command("keys", "scores=qk_norm")[1] == "scores=qk_norm: has no keys of its own\n\n"


def test_names_are_readable_and_unique():
    config = make_config("fusion=sum", "heads=8", "out_proj=false", "seed=3")
    assert re.fullmatch("sum-h8-noproj-d64x2-s3-[0-9a-f]{8}", named(config).name)
