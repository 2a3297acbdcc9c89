"""Corpora: one file each, found by name."""
