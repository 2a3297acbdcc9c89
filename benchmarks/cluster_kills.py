"""Kill helpers, nodes and commands of a sweep on a SLURM of real daemons; compare its bytes with a pool's.

    python benchmarks/cluster_kills.py --kills 30
    python benchmarks/cluster_kills.py --takeover    seconds from a node's death until its run is resumed

As root, with Debian's slurmctld, slurmd, slurm-client and munge. A lease expires after 5 s in the first case,
after two minutes, as everywhere else, in the second. Every metrics.csv and results.csv are compared byte by
byte, except for measured columns. Do not change the source tree meanwhile.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.helpers import but
from tests.sites import LONG, Site
from tests.slurm_cluster import SlurmCluster
from tests.test_slurm import SLURM, SlurmSite

SWEEP = ("run", "-m", "fusion=concat,sum", "heads=2,4", "seed=range(0,6)", *but(LONG, "train.steps=300"))
TWO_JOBS = (*SLURM, "hydra.launcher.jobs=2")


def kills(cluster: SlurmCluster, root: Path, count: int, chance: random.Random) -> None:
    (root / "pool").mkdir()
    pool = Site(cluster, root / "pool")
    done = pool.run(*SWEEP, timeout_s=1200)
    assert done.returncode == 0, done.stderr
    calm, made, killed = pool.tables(), 0, dict.fromkeys(("helper", "node", "command"), 0)
    while made < count:
        directory = Path(tempfile.mkdtemp(dir=root))
        site = SlurmSite(cluster, directory)
        command = site.begin(*SWEEP, *TWO_JOBS, python=sys.executable)
        while made < count and command.poll() is None:
            time.sleep(chance.uniform(1, 6))
            what = chance.choice([*killed])
            if what == "command":
                os.killpg(command.pid, signal.SIGKILL)
                command.communicate()
                command = site.begin(*SWEEP, *TWO_JOBS, python=sys.executable)
            elif what == "helper" and (jobs := [job for job in site.jobs() if job[2] == "RUNNING"]):
                site.call("scancel", chance.choice(["--signal=KILL", "--signal=TERM"]), jobs[0][0])
            elif what == "node":
                cluster.kill_node("n2")
                time.sleep(3)
                cluster.start_node("n2")
            else:
                continue
            made += 1
            killed[what] += 1
        _, err = command.communicate(timeout=1200)
        assert command.returncode == 0, err
        assert site.tables() == calm, "the tables differ"
        print(f"{made} kills so far ({killed}); tables equal: True", flush=True)


def takeover(cluster: SlurmCluster, root: Path) -> None:
    site = SlurmSite(cluster, root)
    site.begin(
        *("run", "-m", "seed=range(0,4)", *LONG, *TWO_JOBS),
        python=sys.executable,
        soon=False,
    )
    site.until(lambda: {*site.under_way().values()} == {"n1", "n2"})
    run = next(name for name, node in site.under_way().items() if node == "n2")
    time.sleep(5)
    cluster.kill_node("n2")
    died = time.monotonic()
    site.until(lambda: site.under_way().get(run) == "n1", within_s=200)
    print(f"its run goes on elsewhere after {time.monotonic() - died:.0f} s")
    site.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--takeover", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        with SlurmCluster(root / "slurm", cpus=4) as cluster:
            if arguments.takeover:
                takeover(cluster, root)
            else:
                kills(cluster, root, arguments.kills, random.Random(arguments.seed))


if __name__ == "__main__":
    main()
