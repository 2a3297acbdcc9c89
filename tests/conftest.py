import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _a_cache_of_its_own(tmp_path_factory):
    """Tests share one cache of tokenized texts, apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
