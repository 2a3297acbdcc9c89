"""Fusion methods: one file each, found by name."""

from ablate.model.fusion.base import Fusion, Normalized, Options, forget, method_of, methods, register

__all__ = ["Fusion", "Normalized", "Options", "forget", "method_of", "methods", "register"]
