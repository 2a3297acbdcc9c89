"""What has been loaded in the process that fork_cli forks: all of ablate, and what commands load late."""

import gc
import importlib
import pkgutil

import ablate
from ablate.store.provenance import machine
from tests.helpers import make_config, quick

LATE = ("altair", "platformdirs", "pydantic.json_schema", "pydantic.type_adapter", "safetensors.numpy")
for name in (*LATE, "scipy.stats", "vl_convert"):
    importlib.import_module(name)
for module in pkgutil.walk_packages(ablate.__path__, "ablate."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
kept = quick()
kept.__enter__()
make_config()  # Hydra finds its plugins
machine()  # it reads all of ablate's code, and asks git
gc.freeze()  # no command looks for garbage in all this, or copies its pages
