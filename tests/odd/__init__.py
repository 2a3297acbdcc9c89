"""Odd command lines and odd files, drawn from a seed, and what may come of them.

tests/test_fuzz.py tries some, benchmarks/fuzz.py as many as one likes.
"""
