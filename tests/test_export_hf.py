"""Runs that are a GPT-2, in transformers: equal logits, equal ids. Every other run is refused with what GPT-2
lacks for it."""

import contextlib
from pathlib import Path

import pytest
import torch
import yaml

import ablate
from ablate.export.hf import lacks
from tests.helpers import call_cli, make_spec

TEXT = "Ärger, naïve café 日本, it's\tthe cat's  hat.\r\n\nTwo  spaces! 😀 "
TINY = ("corpus=file", "corpus.path=t.txt", "train.steps=4", "train.batch=2", "train.lr=0.05")
TINY += ("model.layers=2", "model.d_model=16", "model.context=32", "heads=4", "train.eval_tokens=64")
TINY += ("corpus.tokenizer=bpe", "corpus.bpe_vocab=300")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("hf")
    # Letters of every kind; some byte pairs more often than others.
    (path / "t.txt").write_text(TEXT * 200, encoding="utf-8", newline="")
    return path


def trained(place: Path, *overrides: str) -> str:
    """Train a run; its name."""
    with contextlib.chdir(place), pytest.MonkeyPatch.context() as patch:
        patch.delenv("ABLATE_RUNS", raising=False)
        typed = dict(override.split("=") for override in (*TINY, *overrides))
        (run_id,) = ablate.run(**{key: yaml.safe_load(value) for key, value in typed.items()}).run_id
        (directory,) = Path("runs/store").glob(f"*-{run_id[:8]}")
    return directory.name


def refused(place: Path, *arguments: str) -> str:
    """The one line with which the export is refused."""
    done = call_cli("export", *arguments, "--to", "hf", cwd=place)
    assert (done.returncode, done.stdout) == (2, "") and len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


KINDS_OF_RUN = ([], ["model.bias=true"])
LLAMA = ["model.position=rope", "model.norm=rms", "model.mlp=swiglu"]
KINDS_OF_RUN += (
    [*LLAMA, "key_heads=2", "value_heads=2", "key_width=8", "value_width=8", "model.rope_base=500"],
)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", KINDS_OF_RUN, ids=" ".join)
def test_transformers_computes_the_same_with_the_same_ids(place, overrides):
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    name = trained(place, *overrides)
    done = call_cli("export", name, "--to", "hf", "--out", f"of-{name}", cwd=place)
    assert done.stdout == f"hf: {name} in of-{name}: written\n", done.stderr
    theirs = transformers.AutoModelForCausalLM.from_pretrained(place / f"of-{name}").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(place / f"of-{name}")
    ours = ablate.load_model(place / "runs/store" / name)
    ours.eval()

    ids = ours.encode(TEXT * 3)
    assert tokenizer(TEXT * 3)["input_ids"] == ids.flatten().tolist()
    assert tokenizer.decode(ids.flatten()) == ours.decode(ids.flatten()) == TEXT * 3
    tokens = torch.randint(0, len(tokenizer), (3, 32))
    with torch.no_grad():
        logits = theirs(tokens).logits
        torch.testing.assert_close(logits, ours(tokens), rtol=0, atol=1e-5)
    assert logits.std() > 0.01  # the model has learned something
    prompt = ours.decode(ids[:4])
    made = theirs.generate(ours.encode(prompt)[None], max_new_tokens=20, do_sample=False, pad_token_id=0)
    assert ours.generate(prompt, tokens=20, temperature=0) == ours.decode(made[0])

    assert f"of-{name}: exists; delete it, or name another" in refused(place, name, "--out", f"of-{name}")


LACKING = [
    ("tiny", "fusion=sum", "fusion=sum normalize=none, but concat"),
    ("tiny", "key_heads=2", "key_heads=2, but 4"),
    ("tiny", "scores=talking", "scores=talking, but softmax"),
    ("modern", "key_width=8", "value_width=16, but 8"),
    ("modern", "model.mlp=relu2", "model.mlp=relu2, but swiglu"),
    ("modern", "model.position=none", "model.position=none, but rope"),
]


@pytest.mark.parametrize(("model", "override", "reason"), LACKING)
def test_what_gpt2_and_a_llama_lack_is_named(model, override, reason):
    assert lacks(make_spec(f"model={model}", "heads=4", override)) == [reason]


def test_heads_of_a_llama_divide_the_width():
    one_width = "model.d_model=16", "key_width=4", "value_width=4"
    assert lacks(make_spec("model=modern", *one_width, "heads=3")) == ["heads=3, which do not divide d_model"]
    assert lacks(make_spec("model=modern", *one_width, "heads=2")) == []


@pytest.mark.parametrize(
    "overrides", [("heads=4",), ("heads=1",), ("heads=4", "model.bias=true"), ("model=modern", "heads=2")]
)
def test_what_gpt2_has_is_not_named(overrides):
    assert lacks(make_spec("fusion=concat", *overrides)) == []


@pytest.mark.slow
def test_a_run_that_is_no_gpt2_is_refused_with_the_way_to_its_model(place):
    name = trained(place, "fusion=sum", "out_proj=false", "scores=talking")
    line = refused(place, name)
    for part in ("fusion=sum", "out_proj=false", "scores=talking", f"ablate.load_model('{name}')"):
        assert part in line
    assert not (place / "runs/exports").exists()


def test_a_run_without_its_model_or_bpe_is_refused(place):
    letters = trained(place, "corpus.tokenizer=char")
    assert "take a run with corpus.tokenizer=bpe" in refused(place, letters)
    bare = trained(place, "train.save=none", "seed=3")
    assert "it kept no weights" in refused(place, bare)
    assert "no finished run begins with it" in refused(place, "nothing")
