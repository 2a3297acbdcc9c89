"""Stored runs handed to other tools: trackers get settings, curves and results, transformers gets a model."""

import os

from ablate.training.events import Listener

TRACK = "ABLATE_TRACK"  # an environment variable: the tracker into which runs are logged as they go


def tracked(name: str, listener: Listener) -> Listener:
    """The listener of a run, which is logged first, if this command has a tracker."""
    if TRACK not in os.environ:
        return listener
    from ablate.export.trackers import logged

    return logged(name, listener)
