"""What has been loaded in the process that fork_cli forks: all of ablate, and what commands load late."""

import contextlib
import gc
import importlib
import pkgutil

import altair
import platformdirs
import pydantic.json_schema
import pydantic.type_adapter
import safetensors.numpy
import scipy.stats
import vl_convert

import ablate
from ablate.store.provenance import machine
from tests.helpers import composed_once, make_config, not_flushed

__all__ = ["altair", "platformdirs", "pydantic", "safetensors", "scipy", "vl_convert"]

for module in pkgutil.walk_packages(ablate.__path__, "ablate."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
quick = contextlib.ExitStack()
quick.enter_context(not_flushed())
quick.enter_context(composed_once())
make_config()  # Hydra finds its plugins
machine()  # it reads all of ablate's code, and asks git
gc.freeze()  # no command looks for garbage in all this, or copies its pages
