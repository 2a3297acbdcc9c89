"""What training takes in memory at least: held against what it took."""

import sys
from pathlib import Path

import psutil
import pytest

from ablate.compute import limits
from ablate.config.rules import ConfigError
from ablate.execution.place import needed_for_a_step, needed_for_weights, require_memory
from ablate.execution.run import build_group, prepare, training
from ablate.model.costs import total_params
from tests.helpers import PRIMES, WARM, make_config, make_spec

TEXT = ("corpus=grammar", "corpus.characters=20000", "train.steps=2")
LITTLE = (*TEXT, "model.d_model=4", "model.layers=1", "train.batch=1")


def test_bytes_by_hand():
    config, spec = make_config(*PRIMES, "train.batch=2"), make_spec(*PRIMES)
    weights = total_params(spec)
    numbers = 2 * (4 * 11 + 2 * 3 * (7 + 5) + 2 * 44) + 2 * 11 + 2 * 59  # 548 a token, of 2 × 13 tokens
    assert needed_for_weights(spec) == 16 * weights + 2 * 30_000
    assert needed_for_a_step(spec, config.train) == 12 * weights + 2 * 30_000 + 26 * (4 * numbers + 16)


def _peak(overrides: tuple[str, ...]) -> None:
    """Prints by how much the memory of this process grows while it trains."""

    def trained(*overrides: str) -> int:
        run = prepare(make_config(*overrides))
        with training([run], build_group([run])) as trained:
            for _ in trained.events():
                pass
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    Path(overrides[0]).write_text(str(-trained(*LITTLE) + trained(*overrides[1:])))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
@pytest.mark.parametrize(
    "sizes",
    [
        ("train.batch=100",),
        ("train.batch=300", "train.precision=bfloat16"),
        ("train.batch=40", "heads=16", "value_width=wide", "fusion=sum"),
        ("model.d_model=768", "train.batch=1"),
    ],
)
def test_training_takes_what_is_needed_at_least_and_no_more_than_thrice_as_much(sizes, tmp_path):
    process = WARM.Process(target=_peak, args=((str(tmp_path / "peak"), *TEXT, *sizes),))
    process.start()
    process.join(120)
    took = int((tmp_path / "peak").read_text())
    run = prepare(make_config(*TEXT, *sizes))
    needed = max(needed_for_weights(run.spec), needed_for_a_step(run.spec, run.config.train, run.attention))
    assert took / 3 < needed < took


@pytest.mark.parametrize(
    ("sizes", "keys", "gigabytes", "way_out"),
    [
        (
            "train.batch=1000000",
            "train.batch=1000000 model.context=64",
            600,
            "take fewer or shorter windows a step, or a smaller model",
        ),
        (
            "model.d_model=1000000",
            "model.d_model=1000000 model.layers=2 model.mlp_hidden=4000000",
            384_002,  # 16 · 2 · 12 · 10¹², and the embeddings
            "a model of 24,000,095,000,000 parameters; take a smaller one",
        ),
    ],
)
def test_what_cannot_fit_is_refused_with_the_number(sizes, keys, gigabytes, way_out, monkeypatch):
    monkeypatch.setattr("ablate.execution.place.memory_of", lambda _: 25e9)
    with pytest.raises(ConfigError) as refused:
        prepare(make_config(*TEXT, sizes))
    takes, has = ": training takes ", " GB of memory at least, and this machine has 25.0 GB; "
    named, _, rest = str(refused.value).partition(takes)
    number, _, last = rest.partition(has)
    assert (named, last) == (keys, way_out)
    assert float(number.replace(",", "")) == pytest.approx(gigabytes, rel=0.05)


def test_what_may_fit_is_not_refused(monkeypatch):
    run = prepare(make_config(*TEXT))
    needed = max(needed_for_weights(run.spec), needed_for_a_step(run.spec, run.config.train, run.attention))
    monkeypatch.setattr("ablate.execution.place.memory_of", lambda _: needed)
    require_memory(run.spec, run.config.train, run.device, run.attention)
    monkeypatch.setattr("ablate.execution.place.memory_of", lambda _: needed - 1)
    with pytest.raises(ConfigError):
        require_memory(run.spec, run.config.train, run.device, run.attention)


def test_memory_is_that_of_the_machine_as_far_as_its_cgroup_grants_it(tmp_path, monkeypatch):
    (tmp_path / "self").write_text("0::/a/b\n")
    (tmp_path / "root" / "a" / "b").mkdir(parents=True)
    (tmp_path / "root" / "a" / "memory.max").write_text("1000\n")
    (tmp_path / "root" / "a" / "b" / "memory.max").write_text("max\n")
    assert limits.granted_memory(tmp_path / "self", tmp_path / "root") == 1000
    (tmp_path / "old").write_text("5:memory:/x\n4:cpu,cpuacct:/x\n")
    (tmp_path / "root" / "memory" / "x").mkdir(parents=True)
    (tmp_path / "root" / "memory" / "x" / "memory.limit_in_bytes").write_text("700\n")
    assert limits.granted_memory(tmp_path / "old", tmp_path / "root") == 700
    available, swap = limits.available_memory.__wrapped__, psutil.swap_memory().total
    monkeypatch.setattr(limits, "granted_memory", lambda: 700)
    assert available() == 700 + swap
    monkeypatch.setattr(limits, "granted_memory", lambda: float("inf"))
    assert available() <= psutil.virtual_memory().total + swap
