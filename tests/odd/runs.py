"""Odd command lines of `ablate run`: sane overrides and options, some with odd values, some misspelt.

What would honestly take long is asked for with --dry-run only, which has to answer soon.
"""

import random
from collections.abc import Mapping, Sequence

from tests.odd.case import FILES, PILOT, SMALL, TEXT, Case
from tests.odd.words import ODD, apart, odd_for, perhaps_misspelt

Values = tuple[str, ...]

SETTINGS: Mapping[str, Values] = {
    "fusion": ("concat", "sum", "mean", "weighted_sum", "grouped"),
    "fusion.normalize": ("none", "variance"),
    "fusion.weights": ("free", "convex"),
    "fusion.per": ("head", "channel"),
    "fusion.groups": ("1", "2"),
    "out_proj": ("true", "false"),
    "match": ("none", "params", "flops"),
    "match_by": ("mlp", "value_width"),
    "seed": ("0", "1", "7"),
    "seeds.backbone": ("null", "3"),
    "seeds.fusion": ("null", "3"),
    "seeds.data": ("null", "3"),
    "model": ("tiny",),
    "model.bias": ("true", "false"),
    "model.dropout": ("0.0", "0.1"),
    "train": ("default", "nanogpt"),
    "train.lr": ("1e-3", "0.01"),
    "train.warmup": ("0", "0.5"),
    "train.min_lr_ratio": ("0", "1"),
    "train.weight_decay": ("0", "0.1"),
    "train.beta1": ("0.9",),
    "train.beta2": ("0.99",),
    "train.eps": ("1e-8",),
    "train.clip": ("null", "1.0"),
    "train.precision": ("float32", "bfloat16"),
    "train.save": ("model", "none"),
    "train.checkpoint_every": ("null", "1"),
    "train.linear": ("auto", "mkl", "onednn"),
    "corpus.encoding": ("utf-8", "latin-1"),
    "corpus.errors": ("strict", "replace"),
    "corpus.seed": ("0", "1"),
    "corpus.tokenizer": ("char", "byte"),
    "corpus.splits": ("[0.8,0.1,0.1]", "[0.5,0.5,0]"),
    "name": ("mine", PILOT),
    "size": ("full",),
    "device": ("auto", "cpu"),
    "force": ("false", "true", "stale"),
    "hydra/launcher": ("auto", "basic"),
    "hydra.launcher.workers": ("1", "auto"),
    "hydra.launcher.threads": ("1", "auto"),
    "hydra.launcher.timeout": ("60", "null"),
    "hydra.mode": ("RUN", "MULTIRUN"),
}
# The keys that decide how long a run takes.
SIZES: Mapping[str, Values] = {
    "heads": ("1", "2", "4"),
    "value_width": ("auto", "narrow", "wide", "4"),
    "key_width": ("auto", "4"),
    "model.d_model": ("8", "16"),
    "model.layers": ("1", "2"),
    "model.context": ("8", "16"),
    "model.mlp_hidden": ("auto", "8"),
    "train.steps": ("1", "3"),
    "train.batch": ("1", "3"),
    "train.eval_every": ("1", "2"),
    "corpus.characters": ("5000", "9000"),
    "corpus.bpe_vocab": ("300",),
}
# What stands only with the value of another, or with no commas.
PARTICULAR = apart(
    """
    fusion.weights  fusion.per  fusion.groups  corpus.seed  corpus.characters  corpus.bpe_vocab
    hydra/launcher  hydra.launcher.workers  hydra.launcher.threads  hydra.launcher.timeout  hydra.mode
    """
)
LONG_SWEEPS = (
    *("seed=range(0,100000)", "seed=range(0,1000000000)", "seed=range(0,3,0)", "seed=0,1,2,3,4,5,6,7,8,9"),
    *("heads=range(1,64)", "train.lr=" + ",".join(f"{i}e-5" for i in range(1, 400))),
)
TEXTS: Sequence[Values] = (
    TEXT,
    TEXT,
    (),
    ("corpus=pydoc",),
    ("corpus=file", "corpus.path=book.txt"),
    ("corpus=file", "corpus.path=-"),
    ("corpus=file", "corpus.path=notes*/*", "corpus.tokenizer=bpe", "corpus.bpe_vocab=300"),
    ("corpus=file", 'corpus.path="notes (old)/*.md"'),
)
STUDIES: Sequence[Values] = (
    *(("-cd", "own", "study=deep"), ("study=heads", "size=demo")),
    *(("study=fusion",), ("study=arms",), ("study=tuned",), ("study=tuned", "size=demo"), ("study=null",)),
)
QUICK_STUDIES = 2  # the first of them
OF_A_STUDY: Mapping[str, Values] = {
    "study.seeds": ("[0]", "[0,1]"),
    "study.metric": ("val_loss", "test_loss"),
    "study.margin": ("0.01",),
    "study.where": ("[heads <= 2]", "[]"),
    "study.primary": ("[]",),
    "study.factors": ("{heads: [1,2]}",),
    "study.develop": ("[0,1]",),
    "study.tune": ("train.lr",),
    "study.extend": ("1",),
    "study.kind": ("grid", "tuned"),
    "study.question": ("Why?",),
    "study.demo": ("{}",),
}
# What may stand in the place of KEY=VALUE.
FORMS = apart(
    """
    {key}  ={value}  {key}=  {key}=={value}  {key}:{value}  {key} = {value}  {key}= {value}  +{key}={value}
    ++{key}={value}  ~{key}  ~{key}={value}  {key}@x={value}  {key}@:x={value}  {key}.nix={value}
    nix.{key}={value}  .{key}={value}  {key}.={value}  {key}..x={value}  {key}=[{value}]
    {key}={{a: {value}}}  {key}={value},{value}  {key}={value},nix  {key}=',{value}'  {key}=choice({value})
    {key}=choice()  {key}=range(0,3)  {key}=range(3)  {key}=range(3,0)  {key}=interval(0,1)  {key}=glob(*)
    {key}=glob(c*)  {key}=glob()  {key}=sort({value},1)  {key}=shuffle({value},1)  {key}=tag(a,{value})
    {key}=int({value})  {key}=str({value})  {key}=json_str({value})  {key}=extend_list({value})
    {key}=${{seed}}  {key}=${{{key}}}  {key}=???  {key}=null  /{key}={value}  {key}/x={value}
    hydra.{key}={value}  study.{key}={value}
    """
)
OPTIONS_OF_HYDRA = apart(
    """
    --cfg  -c  --info  -cd  --config-dir  -cn  --config-name  -cp  --config-path  -p  --package
    --experimental-rerun
    """
)
FLAGS_OF_HYDRA = apart("-m  --multirun  -r  --run  --resolve  --hydra-help  -sc  --  -h  --version")
VALUES_OF_HYDRA = apart(
    """
    job  hydra  all  defaults  defaults-tree  config  plugins  searchpath  own  mine  model  train  _global_
    book.txt  runs  own/study
    """
)


def _quoted(value: str) -> str:
    """As Hydra reads any text."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def run(draw: random.Random) -> Case:
    is_dry = draw.random() < 0.6
    words: list[str] = [*draw.choice(TEXTS)]
    known = {**SETTINGS, **SIZES} if is_dry else SETTINGS
    if draw.random() < 0.25:
        words += draw.choice(STUDIES if is_dry else STUDIES[:QUICK_STUDIES])
        known = {**known, **OF_A_STUDY}
    general = [key for key in known if key not in PARTICULAR]
    sane = draw.sample(general, draw.choice((0, 1, 1, 2, 3)))
    words += [f"{key}={draw.choice(known[key])}" for key in sane]
    if draw.random() < 0.3:
        swept = draw.sample(general, draw.choice((1, 2)) if is_dry else 1)
        words += ["-m", *(f"{key}={','.join(known[key][:3])}" for key in swept)]
    match draw.randrange(10):
        case 0 | 1 | 2:
            key = draw.choice([*known])
            value = odd_for(draw, known[key][0])
            words.append(f"{key}={draw.choice((value, value, _quoted(value)))}")
        case 3 | 4:
            key = draw.choice([*known])
            value = draw.choice((*known[key], odd_for(draw, known[key][0])))
            words.append(draw.choice(FORMS).format(key=key, value=value))
        case 5:
            words += [draw.choice(OPTIONS_OF_HYDRA), draw.choice((*VALUES_OF_HYDRA, *ODD))]
        case 6:
            words.insert(draw.randrange(len(words) + 1), draw.choice(FLAGS_OF_HYDRA))
        case 7 if is_dry and draw.random() < 0.3:
            words += ["-m"] * draw.choice((0, 1, 1)) + [draw.choice(LONG_SWEEPS)]
    words = perhaps_misspelt(draw, words)
    words = [*SMALL, *words, "--dry-run"] if is_dry else [*words, *SMALL]
    piped = draw.choice((b"", b"a", b"The cat sat on the mat.\n" * 99, b"\xff\xfe\x00"))
    return Case(("run", *words), piped, FILES, finished=draw.random() < 0.3)
