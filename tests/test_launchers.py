"""Sweeps by launchers of Hydra's whose processes take seconds to begin."""

import pandas as pd
import pytest

from tests.helpers import call_cli
from tests.test_plugins import QUICK, write
from tests.test_pool import SAME, fill, results


@pytest.fixture
def by_joblib():
    """The words that take the processes of joblib, which end with the test."""
    from joblib.externals import loky

    yield ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    loky.get_reusable_executor().shutdown(kill_workers=True)


def test_submitit_fills_the_same_store(tmp_path):
    pd.testing.assert_frame_equal(fill(tmp_path / "pool", "pool"), fill(tmp_path / "own", "submitit_local"))


def test_every_launcher_makes_the_same(tmp_path, by_joblib, monkeypatch):
    """The pool, and joblib with the threads of the study, whatever PyTorch would take in its processes."""
    write(tmp_path)
    (work := tmp_path / "work").mkdir()
    by_pool = ("hydra.launcher.threads=3",)
    for place, seeds, words in (("pool", "0,1", by_pool), ("both", "0", by_pool), ("both", "0,1", by_joblib)):
        sweep = ("-m", "fusion=sum,mine", "name=mine", f"seed={seeds}", *QUICK, *words)
        done = call_cli("run", "--plugin", "../mine.py", "--runs", f"{place}/runs", *sweep, cwd=work)
        assert done.returncode == 0, done.stderr
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert "2 of 4 runs had finished before" in done.stderr  # those of the pool
    pool, both = (results(work / place) for place in ("pool", "both"))
    pd.testing.assert_frame_equal(pool[SAME], both[SAME])
    made = both.set_index(["fusion", "seed"])
    assert len(made) == 4 and {*made["threads"]} == {3}
    assert made["val_loss"]["mine"].tolist() == made["val_loss"]["sum"].tolist()
