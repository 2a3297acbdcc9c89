"""Studies on a small SLURM of real daemons: two nodes with host names and processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests import slurm_cluster
from tests.helpers import CONCAT, but
from tests.sites import LONG, QUICK, REQUIRED, Site, come_to_the_bytes_of_a_pool, hear, lose_a_node
from tests.slurm_cluster import SlurmCluster

WHY_NOT = slurm_cluster.missing()
absent = pytest.mark.skipif(WHY_NOT is not None and not REQUIRED, reason=f"SLURM: {WHY_NOT}")
pytestmark = [pytest.mark.slow, pytest.mark.cluster, absent]


def on_cluster(test: Callable[..., None]) -> Callable[..., None]:
    """For a test of another file, which takes the fixture `site` from here."""
    return pytest.mark.slow(pytest.mark.cluster(absent(test)))


SLURM = ("hydra/launcher=slurm", "hydra.launcher.cpus_per_task=2", "hydra.launcher.timeout_min=5")
JOBS = "hydra.launcher.jobs"
TWO_JOBS = (*SLURM, f"{JOBS}=2")


class SlurmSite(Site):
    cluster: SlurmCluster

    def jobs(self) -> list[list[str]]:
        """The helpers of this directory's studies, queued or running: number, name, state, node, reason."""
        names = [array["name"] for array in self.arrays()]
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        return [job for job in self.cluster.squeue() if job[1] in names and job[2] not in over]

    def held(self) -> list[str]:
        """Those that were requeued, and wait for SLURM to let them begin."""
        return [job for job, _, state, _, why in self.jobs() if (state, why) == ("PENDING", "BeginTime")]

    def call(self, *argv: str) -> None:
        """A command of SLURM's."""
        subprocess.run(self.cluster.command(argv), env={**os.environ, **self.cluster.environment}, check=True)


@pytest.fixture
def site(cluster, tmp_path) -> Iterator[SlurmSite]:
    here = SlurmSite(cluster, tmp_path)
    yield here
    here.close()
    for name in sorted({array["name"] for array in here.arrays()}):
        here.call("scancel", f"--name={name}")


@pytest.fixture(scope="module")
def cut_off(cluster, tmp_path_factory) -> Iterator[SlurmSite]:
    """A run that takes longer than a minute, the shortest time limit; it goes on beside the other tests."""
    here = SlurmSite(cluster, tmp_path_factory.mktemp("limit"))
    only = "+hydra.launcher.additional_parameters.nodelist=n1"  # of which no test makes an end
    sizes = ("hydra.launcher.jobs=1", "hydra.launcher.cpus_per_task=1", "hydra.launcher.timeout_min=1")
    (here.directory / "slow.py").write_text(SLOW)
    slow = (
        "--plugin",
        "slow.py",
        "-m",
        "fusion=slow",
        *but(LONG, "train.steps=2200", "train.eval_every=2200"),
    )
    here.begin("run", *slow, *but(SLURM, *sizes), only)
    yield here
    here.close()


def test_it_can_run_here(cut_off):
    assert WHY_NOT is None


def test_two_nodes_come_to_the_bytes_of_a_pool(site, tmp_path_factory):
    grid = ("-m", "fusion=concat,sum", "seed=0,1,2", "name=grid", *QUICK)
    pool = tmp_path_factory.mktemp("pool")
    come_to_the_bytes_of_a_pool(site, pool, grid, *TWO_JOBS, python=sys.executable)
    settings = json.loads((site.directory / "runs/studies/grid/study.json").read_text())["machine"]
    assert settings["threads"] == 1 and settings["linear"] in ("mkl", "onednn")  # as a node decided
    assert not site.jobs()


def test_what_slurm_starts_again_goes_on_from_its_checkpoint(site):
    own = ("train.steps=700", "hydra.launcher.jobs=1", "hydra.launcher.wait=false")
    assert site.run("run", "-m", "seed=0", *but(LONG, *own), *SLURM).returncode == 0
    site.until(site.checkpoints)
    (array,) = site.arrays()
    site.cluster.scontrol("requeue", f"{array['job']}_0")
    site.until(site.held)
    assert not site.under_way()  # it gave its run back

    site.until(lambda: not site.cluster.has_step(str(array["job"])))  # SLURM starts no second one beside it
    for job in site.held():
        site.cluster.free(job)
    site.until(site.finished, within_s=150)
    assert "going on after step" in next(site.directory.glob("runs/store/[!.]*/log.txt")).read_text()


def test_one_cancelled_job_leaves_its_runs_to_others_and_when_all_are_new_ones_are_started(site):
    sweep = site.begin("run", "-m", "seed=range(0,4)", *but(LONG, "train.steps=300"), *TWO_JOBS)
    site.until(lambda: {"n1", "n2"} <= {*site.under_way().values()})
    job = site.arrays()[0]["job"]
    site.call("scancel", f"{job}_1")
    site.until(lambda: len({*site.under_way().values()}) == 1, within_s=5)
    site.call("scancel", job)
    _, err = sweep.communicate(timeout=60)
    assert sweep.returncode == 0, err
    assert len(site.arrays()) >= 2 and "CANCELLED" in str(site.arrays()[0]["seen"])


def test_a_run_that_fails_is_tried_once(site):
    (site.directory / "broken.py").write_text(BROKEN)
    done = site.run("run", "--plugin", "broken.py", "-m", "fusion=concat,broken", *QUICK, *SLURM)
    assert done.returncode == 1, done.stderr
    assert "RuntimeError: it breaks" in done.stderr
    assert "2 runs in" in done.stdout and len(site.arrays()) == 1


def test_ctrl_c_cancels_what_the_command_submitted_and_nothing_else(site):
    grid = ("run", "-m", "seed=0,1", *LONG, *TWO_JOBS)
    first = site.begin(*grid)
    site.until(site.under_way)
    second = site.begin(*grid)
    hear(second, "job ")
    os.killpg(second.pid, signal.SIGINT)
    _, err = second.communicate(timeout=30)
    assert second.returncode == 130 and "started by another command, and left at work" in err
    assert len(site.arrays()) == 1 and site.jobs()
    os.killpg(first.pid, signal.SIGINT)
    _, err = first.communicate(timeout=30)
    assert first.returncode == 130 and "cancelled" in err
    site.until(lambda: not site.jobs() and not site.under_way(), within_s=10)


def test_jobs_outlive_lost_commands_and_the_next_one_attaches(site):
    grid = ("run", "-m", "seed=0,1", *but(LONG, "train.steps=800"), *TWO_JOBS)
    endings = (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL)
    for sweep, ending in [(site.begin(*grid), ending) for ending in endings]:
        hear(sweep, "job ")
        os.killpg(sweep.pid, ending)
        sweep.communicate(timeout=30)
        assert site.jobs()
    done = site.run(*grid)
    assert done.returncode == 0, done.stderr
    assert len(site.arrays()) == 1 and "submitted" not in done.stderr


def test_two_commands_at_once_submit_once(site):
    grid = ("run", "-m", "seed=range(0,4)", *QUICK, *TWO_JOBS)
    both = [site.begin(*grid) for _ in range(2)]
    (one, _), (other, _) = (process.communicate(timeout=120) for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert sum(len(array["seen"]) for array in site.arrays()) == 2
    assert one == other


def test_without_waiting_and_the_same_command_again(site):
    grid = ("run", "-m", "seed=0,1", *QUICK, *SLURM, "hydra.launcher.jobs=1")
    done = site.run(*grid, "hydra.launcher.wait=false")
    assert done.returncode == 0 and "1 job submitted" in done.stderr, done.stderr
    site.until(lambda: len(site.finished()) == 2)
    done = site.run(*grid, "hydra.launcher.wait=false")
    assert done.returncode == 0 and "2 runs in" in done.stdout
    assert "submitted" not in done.stderr and "2 runs had finished" in done.stderr


SLOW = CONCAT.format(name="slow", line="time.sleep(0.02)")  # it needs little of the processor
BROKEN = CONCAT.format(name="broken", line='if len(z) == 4: raise RuntimeError("it breaks")')
REFUSED = [
    ("hydra.launcher.jobs=0", "hydra.launcher.jobs=0: a whole number from 1 to 1,000"),
    ("hydra.launcher.jobs=-1", "hydra.launcher.jobs=-1: a whole number from 1 to 1,000"),
    ("hydra.launcher.jobs=many", "hydra.launcher.jobs=many: a whole number from 1 to 1,000"),
    (f"{JOBS}=30", "at most 20 here, SLURM's MaxArraySize"),
    ("hydra.launcher.partition=nope", "hydra.launcher.partition=nope: sbatch: "),
    ("hydra.launcher.cpus_per_task=64", "the largest node of SLURM has 4 cores"),
    ("corpus.path=-", "corpus.path=-: other machines can't read it"),
]


@pytest.mark.parametrize(("override", "line"), REFUSED)
def test_what_can_not_be_is_one_line_and_nothing_is_submitted(site, cut_off, override, line):
    corpus = ("corpus=file",) if override.startswith("corpus.") else ()
    done = site.run(
        "run", "-m", "seed=range(0,40)", *QUICK[2:], *(corpus or QUICK[:2]), *but(SLURM, override)
    )
    assert done.returncode == 2 and line in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not site.arrays()
    beside = {array["name"] for array in cut_off.arrays()}  # the run that goes on meanwhile
    queued = {job[1] for job in site.cluster.squeue() if job[2] in ("PENDING", "RUNNING")}
    assert not {name for name in queued - beside if name.startswith("ablate-")}


# The last ones: what SLURM still has to tell a node that was dead may end its next job.
def test_a_dead_node_loses_no_run(site):
    try:
        lose_a_node(site, *TWO_JOBS)
    finally:
        time.sleep(3)  # what SLURM still has to tell the node would end its next job
        site.cluster.start_node("n2")
        site.cluster.wait_until_idle()


def test_a_node_that_does_not_see_the_directory_is_named(site):
    site.cluster.kill_node("n2")
    time.sleep(3)
    site.cluster.start_node("n2", hidden=site.directory)
    site.cluster.wait_until_idle()
    only = "+hydra.launcher.additional_parameters.nodelist=n2"
    done = site.run("run", "-m", "seed=0,1", *QUICK, *SLURM, only)
    assert done.returncode == 1 and "3 starts without progress; the last job: n2 " in done.stderr
    assert f"no answer from it in {site.directory}" in done.stderr


def test_what_a_time_limit_ends_goes_on_in_another_job(cut_off):
    (sweep,) = cut_off.begun
    _, err = sweep.communicate(timeout=150)
    assert sweep.returncode == 0, err
    assert len(cut_off.arrays()) >= 2 and "TIMEOUT" in str(cut_off.arrays()[0])
    assert "going on after step" in next(cut_off.directory.glob("runs/store/[!.]*/log.txt")).read_text()
