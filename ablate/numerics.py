"""The version of what ablate computes, on which every result depends.

Raise it when a loss, a measure or a text may come out otherwise than before: results of an earlier version
are stale from then on. tests/test_golden.py fails then, and says so. Rows made before there was a version
have 0.
"""

NUMERICS = 3
