"""Odd command lines of every command."""

import random
from collections.abc import Callable, Mapping

from tests.odd.case import FILES, PILOT, Case
from tests.odd.runs import Values, run
from tests.odd.words import ODD, apart, odd_for, perhaps_misspelt

# --- the commands that read ---------------------------------------------------------------------

TARGETS = (
    *(
        PILOT,
        PILOT,
        PILOT,
        f"runs/studies/{PILOT}",
        f"runs/studies/{PILOT}/",
        f"runs/../runs/studies/{PILOT}",
    ),
    *(f"runs/studies/{PILOT}/results.csv", f"runs/studies/{PILOT}/study.json", "runs", "runs/results.csv"),
    *apart("table.csv  table.csv  ./table.csv  book.txt  own  own/mine.yaml  notes (old)  single  nix"),
)
CONDITIONS = apart("heads=4  fusion=sum  lr<0.01  val_loss>2  out_proj!=true  seed=0,1  train.lr<=1")
BASELINES = apart("fusion=concat  heads=2  fusion=concat,heads=4  out_proj=true  fusion=nix  nix=1  fusion")
METRICS = apart("val_loss  test_loss  val_acc  tokens_per_s  params  fusion  seed  run_id  nix")
FORMATS = apart("table  csv  json  md  latex  xml")
COMPARED: Mapping[str, Values] = {"--metric": METRICS, "--baseline": BASELINES}
READERS: Mapping[str, Mapping[str, Values]] = {
    "compare": {
        **COMPARED,
        "--by": ("fusion", "fusion,heads", "seed", "nix", "run_id"),
        "--where": CONDITIONS,
        "--margin": ("0.01", "1"),
        "--format": FORMATS,
        "--marginal": (),
        "--effects": (),
        "--mixed": (),
        "--cost": (),
        "--steps-to": ("3.0", "baseline", "0.1", "nix"),
    },
    "plan": {
        **COMPARED,
        "--where": CONDITIONS,
        "--difference": ("0.01", "0.5"),
        "--power": ("0.8", "0.95"),
        "--alpha": ("0.05", "0.1"),
        "--contrasts": ("1", "6"),
        "--budget": ("60", "0.5"),
        "--format": FORMATS[:4],
    },
    "report": {
        **COMPARED,
        "--margin": ("0.01", "1"),
        "--out": ("page.html", "figures/page.html", "book.txt", "table.csv", "own", ".", "own/mine.yaml"),
        "--charts": ("figures", "book.txt", "book.txt/figures"),
    },
    "runs": {"--format": FORMATS},
    "sample": {
        "--prompt": ("The ", "a", "S"),
        "--tokens": ("1", "20"),
        "--temperature": ("0", "1.0", "1000"),
        "--top-k": ("1", "5"),
        "--seed": ("0", "3"),
    },
}
RUNS = ("concat-h4-d8x1-s0", "concat-h4-d8x1-s1", "sum-h4-d8x1-s0", "sum", "nix")


def read(draw: random.Random) -> Case:
    command = draw.choices([*READERS], (8, 4, 2, 3, 3))[0]
    options = READERS[command]
    targets = RUNS if command == "sample" else TARGETS
    count = draw.choice((0, 2) + (1,) * (6 if command in ("compare", "plan") else 16))
    words = [draw.choice(targets if draw.random() < 0.9 else ODD) for _ in range(count)]
    for option in draw.sample([*options], min(len(options), draw.choice((0, 1, 1, 2, 3)))):
        values = options[option]
        if not values:
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
