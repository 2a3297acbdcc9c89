"""The versions of this program and of what it computes."""

__version__ = "0.2.0"
# Of what it computes, on which every result depends. Raise it when a loss, a measure or a text may come out
# otherwise than before: results of an earlier version are stale from then on. tests/test_golden.py says when.
# Rows made before there was a version have 0.
NUMERICS = 4
