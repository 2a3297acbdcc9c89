"""corpus=grammar: a small English of known entropy, drawn from a probabilistic context-free grammar.

A sentence such as

    the ducks that the teacher near the rivers sees guard this house.

requires three different abilities of a model:

- agreement across distance: `ducks` chooses `guard` over `guards`, and nouns of the other number
  (`teacher`, `rivers`) stand in between, nested to any depth;
- ambiguous words: `watch`, `guard`, `duck`, `cook` and `train` are nouns after a determiner and
  verbs after a subject, so a word's role has to be read from its context;
- plain statistics: words and rules differ in weight, which even a bigram model can learn.

The best possible loss is known (tests/test_tasks.py). Each sentence has exactly one derivation (a noun
phrase takes at most one modifier, so no attachment is ambiguous), hence -log p(sentence) is the sum of -log p
over its rules.
"""

import bisect
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from ablate.config.rules import Count
from ablate.data.corpora import TextRecipe, register
from ablate.data.text import Document, Text

VERSION = 1  # raise it when the rules change: cached texts are found by it


@register("grammar")
@dataclass(frozen=True, kw_only=True)
class Grammar(TextRecipe):
    """English sentences of known entropy. seed: of the draws. characters: after which the text is cut."""

    seed: int
    characters: Count

    def text(self) -> Text:
        return Text(self._documents, ["grammar", VERSION, self.seed, self.characters])

    def _documents(self) -> list[Document]:
        stream = itertools.chain.from_iterable(sentence for sentence, _ in sentences(self.seed))
        return [Document("", "".join(itertools.islice(stream, self.characters)))]


# Each line is a head and its bodies; a body is a weight and symbols. A head may continue on another line. A
# line with # stands for two, with `one` or `many` in place of every #. A symbol that is not a head is a word.
RULES = """
sentence: 4 clause | 1 clause while clause
clause:   1 np-one vp-one | 1 np-many vp-many
np:       3 np-one | 2 np-many
np-#:     5 det-# noun-# | 2 det-# adjective noun-# | 4 det-# noun-# modifier-#
modifier-#: 5 preposition np | 2 that vp-# | 1 that np-one transitive-one | 1 that np-many transitive-many
vp-#:     4 transitive-# np | 3 intransitive-# | 1 intransitive-# adverb | 1 be-# adjective

det-one:  6 the | 3 a | 1 this | 1 every
det-many: 6 the | 1 these | 2 some | 1 many
adjective: 4 old | 3 small | 2 quiet | 1 red | 1 happy
adverb:   3 quietly | 2 again | 1 today
preposition: 4 near | 2 behind | 2 with | 1 under
be-one:   1 is
be-many:  1 are

noun-one:  4 dog | 4 cat | 3 teacher | 2 house | 1 river | 3 watch | 3 guard | 2 duck | 2 cook | 1 train
noun-many: 4 dogs | 4 cats | 3 teachers | 2 houses | 1 rivers | 3 watches | 3 guards | 2 ducks | 2 cooks
noun-many: 1 trains
transitive-one: 4 sees | 3 likes | 2 follows | 2 watches | 2 guards | 1 cooks | 1 trains
transitive-many: 4 see | 3 like | 2 follow | 2 watch | 2 guard | 1 cook | 1 train
intransitive-one: 3 sleeps | 2 runs | 2 waits | 1 ducks
intransitive-many: 3 sleep | 2 run | 2 wait | 1 duck
"""

Bodies = list[tuple[int, tuple[str, ...]]]


def read_rules(text: str) -> dict[str, Bodies]:
    """Each head with its bodies: (weight, symbols)."""
    lines = [line for line in text.splitlines() if line]
    numbered = [line.replace("#", n) for line in lines for n in (("one", "many") if "#" in line else ("",))]
    grammar: dict[str, Bodies] = {}
    for line in numbered:
        head, bodies = line.split(":")
        parts = map(str.split, bodies.split("|"))
        grammar.setdefault(head, []).extend((int(weight), tuple(body)) for weight, *body in parts)
    return grammar


GRAMMAR = read_rules(RULES)
STEPS = {head: [*itertools.accumulate(weight for weight, _ in bodies)] for head, bodies in GRAMMAR.items()}


def sentences(seed: int) -> Iterator[tuple[str, float]]:
    """An endless stream of sentences, each with its -log p in nats.

    A seed gives the same sentences on every machine and Python: all draws are `random()`, which Python keeps
    stable.
    """
    draw = random.Random(seed).random
    while True:
        words, nats, left = list[str](), 0.0, ["sentence"]
        while left:
            symbol = left.pop()
            if symbol not in GRAMMAR:
                words.append(symbol)
                continue
            reach = STEPS[symbol]
            weight, body = GRAMMAR[symbol][bisect.bisect(reach, draw() * reach[-1])]
            nats += math.log(reach[-1] / weight)
            left.extend(reversed(body))
        yield " ".join(words) + ".\n", nats
