"""Studies on a small Ray cluster: two real nodes with host names and processes of their own."""

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from ablate.clusters.ray_cluster import Ray
from ablate.config import extras
from ablate.config.rules import ConfigError
from tests import ray_nodes
from tests.ray_nodes import RayNodes
from tests.sites import LONG, QUICK, REQUIRED, Site, come_to_the_bytes_of_a_pool, hear, lose_a_node

WHY_NOT = ray_nodes.missing()
absent = pytest.mark.skipif(WHY_NOT is not None and not REQUIRED, reason=f"Ray: {WHY_NOT}")
RAY = ("hydra/launcher=ray_cluster", f"hydra.launcher.address={RayNodes.address}")
TWO_JOBS = (*RAY, "hydra.launcher.jobs=2")


def on_nodes(test: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.slow(pytest.mark.cluster(absent(test)))


@pytest.fixture
def site(nodes, tmp_path) -> Iterator[Site]:
    here = Site(nodes, tmp_path)
    yield here
    here.close()


@on_nodes
def test_it_can_run_here():
    assert WHY_NOT is None


@on_nodes
def test_two_nodes_come_to_the_bytes_of_a_pool(site, tmp_path_factory):
    pairs = ("model=pair", "corpus=reverse", "corpus.held_out=30", "model.context=80")
    grid = ("-m", "fusion=concat,sum", "seed=0,1,2", "name=grid", *QUICK[3:], *pairs)
    come_to_the_bytes_of_a_pool(site, tmp_path_factory.mktemp("pool"), grid, *TWO_JOBS)


@on_nodes
def test_a_dead_node_loses_no_run(site):
    try:
        lose_a_node(site, *TWO_JOBS)
    finally:
        site.cluster.start_node("n2")


@on_nodes
def test_jobs_outlive_a_lost_command_the_next_one_attaches_and_ctrl_c_of_the_first_ends_them(site):
    grid = ("run", "-m", "seed=0,1", *LONG, *TWO_JOBS)
    lost = site.begin(*grid)
    site.until(lambda: len(site.under_way()) == 2)
    os.killpg(lost.pid, signal.SIGKILL)
    second = site.begin(*grid)
    hear(second, " running (n")  # one job, if it took both runs before the other began
    os.killpg(second.pid, signal.SIGINT)
    _, err = second.communicate(timeout=30)
    assert second.returncode == 130 and "started by another command, and left at work" in err
    assert len(site.arrays()) == 1 and len(site.under_way()) == 2
    short = site.run("run", "-m", "seed=0,1", *LONG, *TWO_JOBS, "hydra.launcher.wait=false")
    assert short.returncode == 0 and "no new job submitted, " in short.stderr, short.stderr


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:1", "host:port"])
def test_an_address_where_nothing_is(address, monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: name)
    with pytest.raises(ConfigError, match=rf"^hydra\.launcher\.address={address}: [^\n]+$"):
        _ray(address).require()


def test_without_ray(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    line = (
        r"^hydra/launcher=ray_cluster: needs ray, which is not installed; pip install 'ablate-heads\[ray\]'$"
    )
    with pytest.raises(ConfigError, match=line):
        _ray("auto").require()


def _ray(address: str) -> Ray:
    asked = {"cpus_per_task": None, "workers": "auto", "threads": "auto", "gpus_per_task": None}
    return Ray(address=address, jobs=1, wait=True, **asked)
