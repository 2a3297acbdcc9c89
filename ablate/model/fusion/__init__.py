"""Fusion methods: one file each, found by name."""

from ablate.model.fusion.base import Fusion, HeadShape, Options, build, method_of, methods, register

__all__ = ["Fusion", "HeadShape", "Options", "build", "method_of", "methods", "register"]
