"""The lowest loss that a model of corpus=grammar can reach: the entropy of its text.

    python benchmarks/grammar.py

A lower bound on the loss of any model, in nats per character.
"""

import math

import numpy as np

from ablate.data.corpora import grammar


def entropy_per_character() -> float:
    """The entropy rate of the text in nats per character: entropy of a sentence / its expected length.

    Both are sums over a derivation. The expected contribution of a symbol X with all that it expands to is

        E[X] = own[X] + Σ_rules p(rule) Σ_{Y in rule} E[Y],   own = entropy of the choice of rule, or length

    which is one linear equation for each head. Sentences are independent and end in ".\\n", which occurs
    nowhere else, so the ratio is the rate. See: Soule, "Entropies of probabilistic grammars", 1974.
    """
    heads = list(grammar.GRAMMAR)
    below = np.zeros((len(heads), len(heads)))  # expected number of each head in the body of each head
    entropy, length = np.zeros(len(heads)), np.zeros(len(heads))
    for row, head in enumerate(heads):
        total = sum(weight for weight, _ in grammar.GRAMMAR[head])
        for weight, body in grammar.GRAMMAR[head]:
            p = weight / total
            entropy[row] -= p * math.log(p)
            for symbol in body:
                if symbol in grammar.GRAMMAR:
                    below[row, heads.index(symbol)] += p
                else:
                    length[row] += p * (len(symbol) + 1)  # with the space, or the full stop, after it
    expected = np.linalg.solve(np.eye(len(heads)) - below, np.stack([entropy, length], axis=1))
    sentence_entropy, sentence_length = expected[heads.index("sentence")]
    return float(sentence_entropy / (sentence_length + 1))  # the line end


if __name__ == "__main__":
    print(f"{entropy_per_character():.4f} nats per character")
