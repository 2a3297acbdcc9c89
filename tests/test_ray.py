"""A sweep by hydra-ray-launcher, on a small Ray cluster: two real nodes with host names of their own."""

from tests.machines import QUICK, Site
from tests.ray_nodes import RayNodes

RAY = ("hydra/launcher=ray", f"hydra.launcher.ray.init.address={RayNodes.address}")
RAY += ("+hydra.launcher.ray.init.object_store_memory=null", "+hydra.launcher.ray.remote.num_cpus=1")


def test_a_sweep_comes_to_the_bytes_of_a_pool(tmp_path):
    grid = ("run", "-m", "fusion=concat,sum", "seed=0,1,2", "name=grid", *QUICK)
    (ours := tmp_path / "ours").mkdir()
    (pool := tmp_path / "pool").mkdir()
    with RayNodes(tmp_path / "ray") as nodes:
        site = Site(nodes, ours)
        done = site.run(*grid, *RAY)
        assert done.returncode == 0, done.stderr
        assert "6 runs in runs/studies/grid/results.csv" in done.stdout and len(site.finished()) == 6
        assert site.has_the_bytes_of_a_pool(pool, *grid)
