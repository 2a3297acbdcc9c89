"""Evaluate the identities and list them: equation, words, question, error, pass or fail."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ablate.config.rules import ConfigError
from ablate.model.masks import EVERYTHING
from ablate.verify.bench import Bench, Sizes
from ablate.verify.identities import IDENTITIES, NARROWER, Identity
from ablate.verify.variants import relative_error

EQUAL = 1e-10  # the largest error of an equation, relative to the largest entry
DIFFERENT = 1e-2  # the smallest error of two sides that are claimed to differ
PASS, FAIL = "pass", "FAIL"


@dataclass(frozen=True)
class Verdict:
    """error: relative to the largest entry; None if the sizes are too small for the identity."""

    name: str
    equation: str
    words: str
    question: str
    error: float | None
    verdict: str


def verify(sizes: Sizes, only: Sequence[str] = ()) -> list[Verdict]:
    """The verdict on each identity at these sizes. only: numbers or names to check. Raises ConfigError."""
    names = [identity.name for identity in sorted(IDENTITIES, key=_number)]
    for wanted in only:
        if not any(_is_meant(name, wanted) for name in names):
            numbers = list(dict.fromkeys(name.partition(" ")[0] for name in names))
            raise ConfigError(f"--only {wanted}: no such identity; choices: {', '.join(numbers)}")
    bench = Bench(sizes)
    chosen = [
        i
        for i in sorted(IDENTITIES, key=_number)
        if not only or any(_is_meant(i.name, wanted) for wanted in only)
    ]
    return [_judged(identity, bench) for identity in chosen]


def _number(identity: Identity) -> int:
    """The sort key of an identity: its number; those named after a method come last."""
    number = identity.name.partition(" ")[0]
    return int(number) if number.isdecimal() else len(IDENTITIES)


def _is_meant(name: str, wanted: str) -> bool:
    return wanted in (name, name.partition(" ")[0])


def _judged(identity: Identity, bench: Bench) -> Verdict:
    there = {"heads": bench.H, "T": bench.sizes.T, "value_width": bench.V, NARROWER: bench.C - bench.V}
    said = (identity.name, identity.equation, identity.words, identity.question)
    if lacking := [key for key, least in identity.least.items() if there[key] < least]:
        needs = [key if key == NARROWER else f"{key} ≥ {identity.least[key]}" for key in lacking]
        return Verdict(*said, None, f"needs {', '.join(needs)}")
    try:
        error = relative_error(*identity.sides(bench))
    except (AssertionError, RuntimeError):  # a broken method may return tensors of the wrong shape
        error = math.inf
    holds = error >= DIFFERENT if identity.differs else error <= EQUAL
    return Verdict(*said, error, PASS if holds else FAIL)


def shapes(sizes: Sizes) -> list[tuple[str, str]]:
    """Every tensor of the standard attention at these sizes, with its shape."""
    b, T = Bench(sizes), sizes.T
    query, out = (b.concat.get_parameter(f"{name}.weight").mT for name in ("query", "out_proj"))
    cross = b.attention(EVERYTHING)
    listed: list[tuple[str, Sequence[int]]] = [
        ("x", b.x.shape),
        ("W_Q, W_K of all heads", query.shape),
        ("W_V of all heads", b.concat.get_parameter("value.weight").mT.shape),
        ("Q_i, K_i of each head", (sizes.batch, b.H, T, b.K)),
        ("A_i of each head", b.concat.probabilities(b.x, b.x).shape),
        ("z_i of each head", b.z.shape),
        ("cat(Z)", (sizes.batch, T, b.H * b.V)),
        ("Σ z_i", (sizes.batch, T, b.V)),
        ("W_O of concat", out.shape),
        ("W_O of a sum", b.attention(fusion="sum").get_parameter("out_proj.weight").mT.shape),
        ("output", b.out(b.concat).shape),
        ("A_i across texts", cross.probabilities(b.x, b.source).shape),
        ("A_i, wiring=swapped", cross.probabilities(b.source, b.source).shape),
        ("V_i, wiring=swapped", (sizes.batch, b.H, T, b.V)),
    ]
    return [(name, " × ".join(map(str, shape))) for name, shape in listed]
