"""What ablate needs of Hydra that Hydra does not call public, all of it. tests/test_loading.py says what of
that has moved in another release."""

from hydra._internal.callbacks import Callbacks as Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl as ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path as create_config_search_path
