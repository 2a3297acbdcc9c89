"""Write what the golden runs and texts give: python -m tests.golden.renew.

What is equal within its tolerance stays as it is, since last digits differ between processors.
"""

import hashlib
import json
import math
import tempfile
from pathlib import Path
from unittest import mock

import torch

from ablate.data.corpus import Corpus, open_corpus
from ablate.execution import formulas
from ablate.execution.networks import build, finals, training
from ablate.execution.run import prepare
from ablate.store.columns import METRICS
from ablate.training.events import Evaluation, Step
from ablate.training.group import Group
from ablate.version import NUMERICS
from tests.helpers import make_config

FILE = Path(__file__).with_name("golden.json")

# All that decides a loss stands here, so that a default may change.
COMMON = (
    *("model.d_model=32", "model.context=32", "corpus.seed=0"),
    *("train.steps=10", "train.batch=8", "train.lr=3e-3", "train.warmup=0.05", "train.min_lr_ratio=0.1"),
    *("train.weight_decay=0.1", "train.beta2=0.99", "train.clip=1.0", "train.eval_every=5"),
    *("train.eval_tokens=null", "device=cpu"),
)
GRAMMAR = ("corpus=grammar", "corpus.characters=8000")
TASK = ("corpus.held_out=40", "corpus.vocabulary=16")
PAIRS = ("corpus=copy", *TASK, "model=pair")
# Every option of a method at something but its default; every option of the optimizer; every kind of
# task. In float64, but for two.
RUNS = {
    "concat": ("fusion=concat",),
    "sum, uniform": ("fusion=sum", "fusion.normalize=variance", "out_proj=false", "scores=uniform"),
    "mean, offsets": ("fusion=mean", "value_width=wide", "scores=offsets"),
    "weighted_sum, windows": (
        *("fusion=weighted_sum", "fusion.weights=convex", "fusion.per=channel"),
        *("scores=windows", "key_heads=1"),
    ),
    "grouped, talking": ("fusion=grouped", "fusion.groups=2", "heads=8", "scores=talking", "key_heads=1"),
    "rotate, matched by the MLP": ("fusion=sum", "fusion.order=rotate", "out_rank=5", "match=params"),
    "matched in FLOPs": ("fusion=sum", "match=flops", "scale=none"),
    "gated, qk_norm": ("fusion=gated", "fusion.per=channel", "value_heads=2", "scores=qk_norm"),
    "gated reads": ("fusion=gated", "fusion.reads=5"),
    "exclusive, optimizer": (
        *("fusion=exclusive", "fusion.drop=learned", "value_heads=2"),
        *("train.beta1=0.8", "train.eps=1e-4", "train.clip=null", "train.weight_decay=0"),
        *("train.warmup=0", "train.min_lr_ratio=1", "train.eval_tokens=640"),
    ),
    "differential, head_norm": (
        *("scores=differential", "fusion=head_norm", "fusion.gain=differential", "model.position=rope"),
    ),
    "hadamard, squared relu": (
        *("fusion=hadamard", "out_proj=false", "model.mlp=relu2", "model.norm=rms"),
        *("model.position=none", "model.bias=true"),
    ),
    "head_scale, model": (
        *("fusion=head_scale", "fusion.weights=convex", "out_proj=false", "model.bias=true"),
        *("model.dropout=0.1", "model.mlp_hidden=48", "scale=outside"),
    ),
    "head_norm, seeds": ("fusion=head_norm", "tie_qk=true", "seed=3", "seeds.backbone=1", "seeds.data=2"),
    "float32": ("train.precision=float32",),
    "bfloat16": ("train.precision=bfloat16",),
    "modern": ("model=modern", "model.rope_base=500", "key_heads=2", "value_heads=2"),
    "rotary": ("model.position=rope", "scores=qk_norm", "fusion=sum", "key_width=6", "match=params"),
    "reverse": ("corpus=reverse", *TASK),
    "induction": ("corpus=induction", *TASK, "corpus.vocabulary=32"),
    "mqar": ("corpus=mqar", *TASK, "corpus.examples=200", "corpus.filler=blank"),
    "votes": ("corpus=votes", *TASK, "corpus.voters=3"),
    "encoder-decoder": (*PAIRS, "at=cross", "fusion=mean", "model.encoder_layers=1"),
}
# Relative; of float32 and bfloat16 what other processors and another order of additions leave the same.
EXACT = 1e-9  # in float64
TOLERANCES = {"float32": 1e-4, "bfloat16": 3e-2}

# Texts as models read them, from fixed files.
TEXT = "".join(f"Line {n}: the {n * n} mice of room {n % 7} met — naïvely — again.\n\n" for n in range(300))
TASKS = ("copy", "reverse", "sort", "induction", "mqar", "votes")
TEXTS = {
    "char": ("corpus=file", "corpus.tokenizer=char", "corpus.split=position"),
    "byte": ("corpus=file", "corpus.tokenizer=byte", "corpus.split=position", "corpus.splits=[0.8,0.1,0.1]"),
    "bpe": ("corpus=file", "corpus.tokenizer=bpe", "corpus.bpe_vocab=300"),
    "paragraphs": ("corpus=file", "corpus.tokenizer=char", "corpus.unique=paragraph"),
    "documents": ("corpus=file", "corpus.tokenizer=char", "corpus.split=document"),
    "grammar": ("corpus=grammar", "corpus.characters=20000"),
    **{name: (f"corpus={name}", "corpus.held_out=40") for name in TASKS},
    "pairs": ("corpus=pairs", "model=pair", "corpus.tokenizer=char"),
    "docs": ("corpus=docs", "corpus.tokenizer=char"),
    "stdlib": ("corpus=stdlib", "corpus.tokenizer=char"),
}


def losses(name: str) -> dict[str, float]:
    """The training loss of every fifth step, and the columns of results at the end, by name."""
    words = RUNS[name]
    text = () if words[0].startswith("corpus=") else GRAMMAR
    run = prepare(make_config(*text, *COMMON, *words))
    model, config = build(run), run.config.train
    if name not in TOLERANCES:
        model = model.double()
    values, metrics, last = {}, [], None
    with training([run], Group([model], config.precision)) as steps:
        for event in steps.events():
            match event:
                case Step(step) if step % 5 == 0:
                    values[f"step {step}"] = event.loss_M.item()
                case Evaluation():
                    last = event
                    metrics.append(formulas.at_evaluation(event))
        (final,) = finals([run], steps)
    assert last is not None
    row = formulas.at_end(run, last, metrics, final)
    return values | {
        column: float(row[column])
        for column in METRICS
        if column not in ("tokens_per_s", "wall_s") and isinstance(row.get(column), int | float)
    }


def fingerprint(corpus: Corpus, context: int = 32) -> str:
    """12 hex digits over three batches of training and all other splits, as a model reads them."""
    digest = hashlib.sha256()
    for name, split in corpus.splits.items():
        training = name == "train"
        batches = (
            (split.batch(context=context, batch=4, seed=5, step=step) for step in (1, 2, 3))
            if training
            else split.windows(context=context, windows=8)
        )
        for tensor in (part for batch in batches for part in batch if part is not None):
            digest.update(str(tuple(tensor.shape)).encode() + tensor.to(torch.int64).numpy().tobytes())
    return digest.hexdigest()[:12]


def texts(directory: Path) -> dict[str, str]:
    """The fingerprint of each text, by name. directory: an empty one, where their files are laid."""
    library, modules = directory / "library", [*(f"m{n}.py" for n in range(60))]
    files = {f"documents/{n}.txt": TEXT[60 * n : 60 * n + 400] for n in range(60)} | {
        "text.txt": TEXT,
        "sources.txt": "".join(f"room {n}\n" for n in range(200)),
        "targets.txt": "".join(f"Raum {n * n}\n" for n in range(200)),
        "library/pydoc_data/topics.py": f"topics = {{'mice': {TEXT[:500]!r}}}\n",
        **{
            f"library/{name}": f'"""{TEXT[50 * n : 50 * n + 300]}"""\nN = {n}\n'
            for n, name in enumerate(modules)
        },
    }
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content, encoding="utf-8", newline="\n")
    paths = {"pairs": "sources.txt", "documents": "documents"}
    found = {}
    with (
        mock.patch("ablate.data.corpora.stdlib.root", lambda: library),
        mock.patch("ablate.data.corpora.docs.root", lambda: library),
        mock.patch("ablate.data.corpora.stdlib.sys.stdlib_module_names", {name[:-3] for name in modules}),
    ):
        for name, words in TEXTS.items():
            path, target = directory / paths.get(name, "text.txt"), f"corpus.target={directory}/targets.txt"
            own = {"corpus=file": [f"corpus.path={path}"], "corpus=pairs": [f"corpus.path={path}", target]}
            config = make_config(*words, *own.get(words[0], []))
            found[name] = fingerprint(open_corpus(config.corpus, config.model.two_texts))
    return found


def differing(found: dict[str, float], golden: dict[str, float], tolerance: float) -> list[str]:
    """What is not as it was: name, value before, value now."""
    return [
        f"{what}: was {golden.get(what)}, is {found.get(what)}"
        for what in {**golden, **found}
        if what not in found
        or what not in golden
        or not math.isclose(found[what], golden[what], rel_tol=tolerance, abs_tol=tolerance / 10)
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        before = json.loads(FILE.read_text(encoding="utf-8"))["losses"]
        now = {name: losses(name) for name in RUNS}
        for name, old in before.items():  # what is equal stays as it is, to the last digit
            for what in old.keys() & now.get(name, {}).keys():
                if not differing({what: now[name][what]}, {what: old[what]}, TOLERANCES.get(name, EXACT)):
                    now[name][what] = old[what]
        found = {"numerics": NUMERICS, "losses": now, "texts": texts(Path(directory))}
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8", newline="\n")
