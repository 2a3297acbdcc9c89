"""Rules on scores, which turn queries and keys into attention patterns: one file each, found by name."""

from ablate.model.attend import masked_softmax
from ablate.model.parts import Options
from ablate.model.scores.base import Scores, forget, method_of, methods, register

__all__ = ["Options", "Scores", "forget", "masked_softmax", "method_of", "methods", "register"]
