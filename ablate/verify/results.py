"""The verdict on each identity, as `ablate verify` reports it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ablate.config.rules import ConfigError, did_you_mean
from ablate.phrases import error_line
from ablate.store.provenance import plugin_files
from ablate.verify.attentions import Bench, relative_error
from ablate.verify.identities import IDENTITIES, Identity

EQUAL = 1e-10  # the largest error of an equation, relative to the largest entry
DIFFERENT = 1e-2  # the smallest error of two sides that are claimed to differ
PASS, FAIL = "pass", "FAIL"


@dataclass(frozen=True)
class IdentityResult:
    """error: relative to the largest entry; None if nothing could be compared. crash: why not: the error that
    was raised, in one line."""

    name: str
    equation: str
    words: str
    question: str
    error: float | None
    verdict: str
    crash: str = ""


def verify(only: Sequence[str] = (), bench: Bench | None = None) -> list[IdentityResult]:
    """The verdict on each identity. only: numbers, names or questions to check. Raises ConfigError."""
    ordered = sorted(IDENTITIES, key=lambda i: int(i.number) if i.number.isdecimal() else len(IDENTITIES))
    names = {name for identity in ordered for name in _called(identity)}
    for wanted in only:
        if wanted not in names:
            of = {identity.question for identity in ordered} if wanted[:1] in ("Q", "q") else names
            raise ConfigError(f"--only {wanted}: no such identity{did_you_mean(wanted, of)}")
    bench, chosen = bench or Bench(), [i for i in ordered if not only or {*_called(i)} & {*only}]
    return [_judged(identity, bench) for identity in chosen]


def _called(identity: Identity) -> tuple[str, str, str]:
    return identity.name, identity.number, identity.question


def _judged(identity: Identity, bench: Bench) -> IdentityResult:
    described = (identity.name, identity.equation, identity.words, identity.question)
    try:
        error = relative_error(*identity.sides(bench))
    except Exception as crash:  # a broken method may return tensors of the wrong shape
        return IdentityResult(*described, None, FAIL, error_line(crash, plugin_files()))
    if math.isinf(error):
        return IdentityResult(*described, None, FAIL, "the result has numbers that are not finite")
    holds = error >= DIFFERENT if identity.differs else error <= EQUAL
    return IdentityResult(*described, error, PASS if holds else FAIL)
