"""Fusion methods: one file each, found by name."""

from ablate.model.fusion.base import Fusion, Options, method_of, methods, register

__all__ = ["Fusion", "Options", "method_of", "methods", "register"]
