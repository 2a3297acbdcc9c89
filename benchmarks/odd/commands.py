"""Odd command lines: sane ones of every command, with odd values, some misspelt.

What would honestly take long is asked for with --dry-run only, which has to answer soon.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from ablate.compose.configs import configs_dir, sections
from ablate.config.read import bare, dotted
from ablate.config.schema import RunConfig
from benchmarks.odd.trial import FILES, PILOT, SMALL, TEXT, Case
from benchmarks.odd.words import ODD, apart, odd_for, perhaps_misspelt

Values = tuple[str, ...]


def by_key(text: str) -> dict[str, Values]:
    """The values of each key in a text of entries such as `out_proj true false`, two spaces apart."""
    return {key: tuple(values) for key, *values in map(str.split, apart(text))}


# --- ablate run -----------------------------------------------------------------------------------

# The keys that decide how long a run takes.
SIZES = by_key(
    """
    heads 1 2 4  value_width auto narrow wide 4  key_width auto 4  model.d_model 8 16  model.layers 1 2
    model.context 8 16  model.mlp_hidden auto 8  train.steps 1 3  train.batch 1 3  train.eval_every 1 2
    corpus.characters 5000 9000  corpus.bpe_vocab 300
    """
)
CHOSEN_BY_ITSELF = ("corpus", "corpus.path", "study")


def _settings() -> dict[str, Values]:
    """The other keys, each with the choices of its group, the words of its type or its default, and with two
    values at least."""
    settings, types = {}, dotted(RunConfig)
    for key in (key for section in sections() for key in section.keys):
        if key.name in {*SIZES, *CHOSEN_BY_ITSELF} or key.name.startswith(("hydra", "study")):
            continue
        choices = [path.stem for path in sorted((configs_dir() / key.name).glob("*.yaml"))]
        values = choices or _words(types.get(key.name)) or [key.default or "null"]
        settings[key.name] = tuple(values) if len(values) > 1 else (*values, "1")
    return settings | by_key(
        """
        hydra/launcher auto basic  hydra.launcher.workers 1 auto  hydra.launcher.threads 1 auto
        hydra.launcher.timeout 60 null  hydra.mode RUN MULTIRUN  name mine pilot
        """
    )


def _words(hint: Any) -> list[str]:
    """The words among the values of a type, such as those of a Literal."""
    hint = bare(hint)
    if hint is bool:
        return ["true", "false"]
    if get_origin(hint) is Literal:
        return [str(word) for word in get_args(hint)]
    return [word for part in get_args(hint) for word in _words(part)]


SETTINGS = _settings()
# Keys that stand only with the value of another, or with no commas, begin so.
PARTICULAR = ("fusion.", "scores.", "corpus.", "hydra")
LONG_SWEEPS = (
    *("seed=range(0,100000)", "seed=range(0,1000000000)", "seed=range(0,3,0)", "seed=0,1,2,3,4,5,6,7,8,9"),
    *("heads=range(1,64)", "train.lr=" + ",".join(f"{i}e-5" for i in range(1, 400))),
)
TEXTS: Sequence[Values] = (
    TEXT,
    TEXT,
    (),
    ("corpus=docs",),
    ("corpus=file", "corpus.path=book.txt"),
    ("corpus=file", "corpus.path=-"),
    ("corpus=file", "corpus.path=notes*/*", "corpus.tokenizer=bpe", "corpus.bpe_vocab=300"),
    ("corpus=file", 'corpus.path="notes (old)/*.md"'),
)
STUDIES: Sequence[Values] = (
    *(("-cd", "own", "study=deep"), ("study=questions", "seed=0")),
    *(("study=fusion",), ("study=tuned",), ("study=null",)),
)
QUICK_STUDIES = 2  # the first of them
OF_A_STUDY = by_key(
    """
    study.seeds [0] [0,1]  study.metric val_loss test_loss  study.margin 0.01  study.where [heads<=2] []
    study.primary []  study.factors {heads:[1,2]}  study.develop [0,1]  study.tune train.lr  study.extend 1
    study.kind grid tuned  study.question Why?
    """
)
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
    --cfg  -c  -cd  --config-dir  -cn  --config-name  --info  --experimental-rerun
    """
)
FLAGS_OF_HYDRA = apart("-m  --multirun  --resolve  --hydra-help  -sc  --  -h  --version  --rehearse")
VALUES_OF_HYDRA = apart(
    """
    job  hydra  all  config  own  mine  model  train  _global_  book.txt  runs  own/study
    """
)


def _quoted(value: str) -> str:
    """As Hydra reads any text."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def run(draw: random.Random) -> Case:
    is_dry = draw.random() < 0.6
    words: list[str] = [*draw.choice(TEXTS)]
    values_of = {**SETTINGS, **SIZES} if is_dry else SETTINGS
    if draw.random() < 0.25:
        words += draw.choice(STUDIES if is_dry else STUDIES[:QUICK_STUDIES])
        values_of = {**values_of, **OF_A_STUDY}
    general = [key for key in values_of if not key.startswith(PARTICULAR)]
    sane = draw.sample(general, draw.choice((0, 1, 1, 2, 3)))
    words += [f"{key}={draw.choice(values_of[key])}" for key in sane]
    if draw.random() < 0.3:
        swept = draw.sample(general, draw.choice((1, 2)) if is_dry else 1)
        words += ["-m", *(f"{key}={','.join(values_of[key][:3])}" for key in swept)]
    match draw.randrange(10):
        case 0 | 1 | 2:
            key = draw.choice([*values_of])
            value = odd_for(draw, values_of[key][0])
            words.append(f"{key}={draw.choice((value, value, _quoted(value)))}")
        case 3 | 4:
            key = draw.choice([*values_of])
            value = draw.choice((*values_of[key], odd_for(draw, values_of[key][0])))
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


# --- the commands that read ---------------------------------------------------------------------

TARGETS = (
    *(PILOT, PILOT, PILOT, f"runs/studies/{PILOT}", f"runs/studies/{PILOT}/"),
    f"runs/../runs/studies/{PILOT}",
    *(f"runs/studies/{PILOT}/results.csv", f"runs/studies/{PILOT}/study.json", "runs", "runs/results.csv"),
    *apart("table.csv  table.csv  ./table.csv  book.txt  own  own/mine.yaml  notes (old)  single  nix"),
)
CONDITIONS = apart("heads=4  fusion=sum  lr<0.01  val_loss>2  out_proj!=true  seed=0,1  train.lr<=1")
BASELINES = apart("fusion=concat  heads=2  fusion=concat,heads=4  out_proj=true  fusion=nix  nix=1  fusion")
METRICS = apart("val_loss  test_loss  val_acc  tokens_per_s  params  fusion  seed  run_id  nix")
# Of each option; none for a flag.
VALUES: Mapping[str, Values] = {
    "--metric": METRICS,
    "--baseline": BASELINES,
    "--where": CONDITIONS,
    "--out": ("page.html", "figures/page.html", "book.txt", "table.csv", "own", ".", "own/mine.yaml"),
    "--prompt": ("The ", "a", "S"),
    **by_key(
        """
        --by fusion fusion,heads seed nix run_id  --margin 0.01 1  --format table csv json md latex xml
        --mixed  --difference 0.01 0.5
        --charts figures book.txt book.txt/figures  --tokens 1 20  --temperature 0 1.0 1000
        --seed 0 3
        """
    ),
}
READERS = by_key(
    """
    compare --metric --baseline --by --where --margin --format --mixed
    plan --metric --baseline --where --difference --format
    report --metric --baseline --margin --out --charts
    runs --format
    sample --prompt --tokens --temperature --seed
    """
)
RUNS = ("concat-h4-d8x1-s0", "concat-h4-d8x1-s1", "sum-h4-d8x1-s0", "sum", "nix")


def read(draw: random.Random) -> Case:
    command = draw.choices([*READERS], (8, 4, 2, 3, 3))[0]
    options = READERS[command]
    targets = RUNS if command == "sample" else TARGETS
    count = draw.choice((0, 2) + (1,) * (6 if command in ("compare", "plan") else 16))
    words = [draw.choice(targets if draw.random() < 0.9 else ODD) for _ in range(count)]
    for option in draw.sample(options, min(len(options), draw.choice((0, 1, 1, 2, 3)))):
        if not (values := VALUES[option]):
            words.append(option)
            continue
        value = draw.choice(values) if draw.random() < 0.6 else odd_for(draw, values[0])
        words += draw.choice(([option, value], [f"{option}={value}"]))
    words = perhaps_misspelt(draw, words)
    return Case((command, *words), files=FILES, finished=draw.random() < 0.9)


# --- the program --------------------------------------------------------------------------------

FLAGS = apart("--version  -h  --help  --show-completion  --nix  -m  -x  --  -  -hh  --version=1  -V")


def program(draw: random.Random) -> Case:
    words = [draw.choice((*READERS, *FLAGS, *ODD)) for _ in range(draw.choice((0, 1, 1, 2)))]
    return Case(tuple(perhaps_misspelt(draw, words)), files=FILES)


def odd_command(draw: random.Random) -> Case:
    make: Callable[[random.Random], Case] = draw.choices((run, read, program), (55, 40, 5))[0]
    return make(draw)
