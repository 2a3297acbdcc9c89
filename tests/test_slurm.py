"""Sweeps on a small SLURM of real daemons: two nodes with host names and processes of their own."""

import shlex
from collections.abc import Iterator

import pytest

from tests.helpers import but
from tests.machines import ABLATE, LONG, QUICK, Site
from tests.slurm_cluster import SlurmCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[SlurmCluster]:
    with SlurmCluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture
def site(cluster, tmp_path) -> Site:
    (tmp_path / "ours").mkdir()
    (tmp_path / "pool").mkdir()
    return Site(cluster, tmp_path / "ours")


def test_a_study_with_phases_comes_to_the_bytes_of_a_pool_by_submitit(site, tmp_path):
    study = ("run", "study=tuned", "fusion=concat,sum", "train.lr=0.006,0.012", "study.develop=[0]")
    study += ("seed=range(100,102)", "study.extend=0", "study.looks=null", *but(QUICK, "train.steps=20"))
    by_submitit = ("hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=5")
    done = site.run(*study, *by_submitit, "hydra.launcher.cpus_per_task=1")
    assert done.returncode == 0, done.stderr
    assert site.has_the_bytes_of_a_pool(tmp_path / "pool", *study)


def test_an_array_of_commands_shares_sixteen_runs_and_loses_none_with_a_node(site, tmp_path):
    """Four commands on two nodes, of which one is killed while it trains. It comes last: the node is gone."""
    sweep = ("run", "-m", "fusion=concat,sum", "seed=range(0,8)", "name=grid", "hydra.launcher.workers=2")
    sweep += (*LONG, "hydra.launcher.threads=1")
    cluster, command = site.cluster, shlex.join([*ABLATE, *sweep])
    array = ("--array=0-3", "--cpus-per-task=2", "--requeue", f"--chdir={site.directory}")
    cluster.ask("sbatch", *array, f"--output={cluster.directory}/task-%a.log", "--wrap", command)
    cluster.until(lambda: site.finished() and "n2" in site.under_way().values(), "nobody trains on n2")
    before = site.finished()
    cluster.kill_node("n2")
    cluster.until(lambda: len(site.finished()) == 16, "runs are missing", within_s=240)
    assert before.items() <= site.finished().items()
    assert any("going on after step" in log for log in site.logs())
    tasks = ("squeue", "-h", "-r", "-t", "all", "-o", "%T")
    cluster.until(lambda: cluster.ask(*tasks).split().count("COMPLETED") >= 2, "tasks do not end")
    assert site.has_the_bytes_of_a_pool(tmp_path / "pool", *sweep)
