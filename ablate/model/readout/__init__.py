"""Readouts, which write the fused heads into the residual stream: one file each, found by name."""

from ablate.model.readout.base import Readout, forget, method_of, methods, register

__all__ = ["Readout", "forget", "method_of", "methods", "register"]
