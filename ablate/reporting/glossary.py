"""Explanations of the terms in a report: as tooltips in the text, and as a list at its end."""

import re

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
    "what attention is worth": "How much worse the baseline does if its heads average all earlier tokens"
    " instead of choosing.",
    "baseline": "What a variant is compared with: the same in all but one thing.",
}
# Patterns of the terms as they appear in sentences and tables.
SPELLINGS = {
    "nats": "nats",
    "perplexity": "perplexity",
    "paired seeds?": "paired seeds",
    "simultaneous|intervals?|low, high": "interval",
    "margin": "margin",
    "p_holm|Holm": "p_holm",
    "verdict|equivalent|undecided": "verdict",
    "parametrization": "parametrization",
    "what attention is worth": "what attention is worth",
    "baseline": "baseline",
}
_TERMS = re.compile("|".join(rf"\b(?P<t{i}>{words})\b" for i, words in enumerate(SPELLINGS)))


def explained(text: str) -> Markup:
    """The text as HTML: text between backticks becomes code, and each term gets its meaning as a tooltip at
    its first occurrence."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # an unpaired backtick
        return _with_tooltips(text)
    code = Markup("<code>{}</code>").format
    return Markup("").join(code(piece) if i % 2 else _with_tooltips(piece) for i, piece in enumerate(pieces))


def _with_tooltips(text: str) -> Markup:
    parts, end, told = [], 0, set[str]()
    for found in _TERMS.finditer(text):
        term = [*SPELLINGS.values()][int((found.lastgroup or "t0")[1:])]
        if term in told:
            continue
        told.add(term)
        parts += [
            escape(text[end : found.start()]),
            Markup('<abbr title="{}">{}</abbr>').format(GLOSSARY[term], found[0]),
        ]
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])
