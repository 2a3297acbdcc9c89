"""Stored runs handed to other tools: trackers get settings, curves and results, transformers gets a model.

Public is what an exporter of one's own needs (docs/export.md).
"""

from ablate.export.exporter import ExportedRun, Exporter, Point

__all__ = ["ExportedRun", "Exporter", "Point"]
