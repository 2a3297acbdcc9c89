"""Head-fusion ablations: what a transformer gains from the way its attention heads are brought together."""

__version__ = "0.1.0"
