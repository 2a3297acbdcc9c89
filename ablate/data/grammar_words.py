"""The role of each word of corpus=grammar: which noun a verb agrees with, and which words are ambiguous.

A verb agrees in number with its subject. Nouns of the other number may stand between them, which mislead a
model that goes by the last noun. Some words are noun and verb in one form, and only their place says which.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ablate.data.grammar import GRAMMAR, Node, derivations

VERBS = ("transitive", "intransitive", "be")


@dataclass(frozen=True)
class Word:
    """A word in the text. start, stop: its range of characters. is_two: whether its form is both a noun and a
    verb. subject: for a verb that agrees with a noun, the noun's range of characters. between: how many nouns
    of the other number are between the two."""

    start: int
    stop: int
    is_two: bool
    subject: tuple[int, int] | None = None
    between: int = 0


def words(seed: int, characters: int) -> Iterator[Word]:
    """The words of grammar.text(seed, characters), in order; the last one may be cut off."""
    start = 0
    for spelled, sentence, _ in derivations(seed):
        places = []
        for word in spelled:
            places.append((start, start + len(word)))
            start += len(word) + 1  # a space, or the full stop
        for place, about in zip(places, _roles(sentence), strict=True):
            if place[0] >= characters:
                return
            yield about.word(place, places)
        start += 1  # the line end


@dataclass
class _Role:
    """The role of one word. noun: its number, one or many, if it is a noun. subject: for a verb, the index of
    its noun among the words."""

    spelled: str
    noun: str = ""
    subject: int | None = None
    between: int = 0

    def word(self, place: tuple[int, int], places: list[tuple[int, int]]) -> Word:
        subject = None if self.subject is None else places[self.subject]
        return Word(*place, self.spelled in TWO, subject, self.between)


def _roles(sentence: Node) -> list[_Role]:
    roles: list[_Role] = []

    def walk(node: Node, subject: int | None) -> int | None:
        """Visit a subtree; returns the head noun of a noun phrase. subject: the noun that a verb in here
        agrees with, unless a noun phrase precedes it in the same body."""
        kind, _, number = node.symbol.partition("-")
        if not node.children:
            roles.append(_Role(node.symbol))
            return None
        for child in node.children:
            head = walk(child, subject)
            subject = head if child.symbol.partition("-")[0] in ("np", "noun") else subject
        if kind == "noun":
            roles[-1].noun = number
            return len(roles) - 1
        if kind in VERBS and subject is not None:
            wanted, nouns = roles[subject].noun, (role.noun for role in roles[subject + 1 : -1])
            roles[-1].subject, roles[-1].between = subject, sum(noun not in ("", wanted) for noun in nouns)
        return subject

    walk(sentence, None)
    return roles


def _forms(kinds: tuple[str, ...]) -> set[str]:
    heads = [head for head in GRAMMAR if head.partition("-")[0] in kinds]
    return {body[0] for head in heads for _, body in GRAMMAR[head]}


TWO = _forms(("noun",)) & _forms(VERBS)
