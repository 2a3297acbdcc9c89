"""Stored runs handed to other tools: trackers get settings, curves and results, transformers gets a model."""
