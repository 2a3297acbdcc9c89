"""The terms of a report: their meanings, and the places in its text from which they can be opened."""

import re
from collections.abc import Callable

from markupsafe import Markup, escape

GLOSSARY = {
    "nats": "The unit of a loss: −ln of the probability that the model gave to what came next. 0.01 nats less"
    " is 1 % less perplexity.",
    "perplexity": "exp of the loss: between how many equally likely tokens the model hesitates.",
    "paired seeds": "Runs of two variants with the same seed see the same batches and start alike, so their"
    " difference is taken seed by seed.",
    "interval": "Where the true difference lies, by the scatter over seeds. Simultaneous intervals hold all"
    " together, so that of many comparisons none is wrong by chance alone.",
    "margin": "A difference that makes no difference, named before anything was run. Within it two variants"
    " are called equivalent.",
    "p_holm": "How often chance alone would give such a difference, corrected by Holm for the number of"
    " comparisons in the table.",
    "verdict": "better, worse or equivalent, if the whole interval says so; else undecided, with the number"
    " of seeds that would decide it.",
    "parametrization": "How the same functions are written as weights, which decides where training starts"
    " and how it moves. Variants that can learn the same functions differ in nothing else.",
    "floor": "What arms of the same functions may differ by. What may be within it is no larger than what"
    " another parametrization may do.",
    "what attention is worth": "How much worse the baseline does if its heads average all earlier tokens"
    " instead of choosing.",
    "baseline": "What a variant is compared with: the same in all but one thing.",
}
# Patterns of the terms that are spelled in several ways.
SPELLINGS = {
    "paired seeds": "paired seeds?",
    "interval": "simultaneous|intervals?|low, high",
    "p_holm": "p_holm|Holm",
    "verdict": "verdict|equivalent|undecided",
}
_TERMS = re.compile("|".join(rf"\b({SPELLINGS.get(term, term)})\b" for term in GLOSSARY))


def explained(text: str) -> Markup:
    """The text as HTML: text between backticks becomes code, and each term, at its first occurrence, a button
    that opens its meaning (`anchor`)."""
    return coded(text, _with_buttons)


def coded(text: str, prose: Callable[[str], Markup] = escape) -> Markup:
    """The text as HTML: text between backticks becomes code. prose: makes HTML of what stands between."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # an unpaired backtick
        return prose(text)
    code = Markup("<code>{}</code>").format
    return Markup("").join(code(piece) if i % 2 else prose(piece) for i, piece in enumerate(pieces))


def anchor(term: str) -> str:
    """The id of the element with the meaning of a term."""
    return "term-" + re.sub(r"\W+", "-", term)


def occurring(text: str) -> list[str]:
    """The terms in a text."""
    found = {(match.lastindex or 1) - 1 for match in _TERMS.finditer(text)}
    return [term for at, term in enumerate(GLOSSARY) if at in found]


def _with_buttons(text: str) -> Markup:
    left = {*GLOSSARY}

    def button(match: re.Match[str]) -> str:
        term = [*GLOSSARY][(match.lastindex or 1) - 1]
        if term not in left:
            return match[0]
        left.remove(term)
        return f'<button type="button" class="term" popovertarget="{anchor(term)}">{match[0]}</button>'

    return Markup(_TERMS.sub(button, escape(text)))
