"""What has to hold on a CUDA device. Without one it is tried on the CPU, where some of it is plain."""

import copy
import os

import pandas as pd
import pytest
import torch

from ablate.compute import device as devices
from ablate.compute import limits
from ablate.execution.networks import build_group, training
from ablate.execution.run import prepare
from ablate.store.run_files import Checkpoint
from ablate.training.events import Evaluation, Kept
from tests.helpers import CONCAT, QUICK, call_cli, make_config

pytestmark = pytest.mark.gpu
ON_GPU = torch.cuda.is_available()
NEEDS_ONE = pytest.mark.skipif(not ON_GPU, reason="on a CPU test_train.py and test_plugins.py have it")
SHORT = ("corpus=grammar", "corpus.characters=20000", "train.steps=20", "train.batch=4", "train.eval_every=5")
NO_MEMORY = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8 GiB"


@pytest.fixture
def device() -> str:
    return "cuda" if ON_GPU else "cpu"


def trained(
    device: str, *overrides: str, start: Checkpoint | None = None
) -> tuple[list[float], dict, list[Checkpoint]]:
    """The losses of the evaluations, the weights at the end, and the states on the way, as files keep
    them."""
    run = prepare(make_config(*SHORT, *overrides, f"device={device}"))
    group, losses, states = build_group([run]), [], []
    with devices.deterministic(run.device), training([run], group, [start]) as trained:
        for event in trained.events():
            if isinstance(event, Evaluation):
                losses.append(event.validation.loss)
            elif isinstance(event, Kept):
                states.append(copy.deepcopy(event.checkpoint))
    return losses, {name: weight.cpu() for name, weight in group.models[0].state_dict().items()}, states


@pytest.mark.skipif(not ON_GPU, reason="a CPU's losses are its own")
@pytest.mark.parametrize(
    "more", [(), *((f"fusion={name}", "out_proj=false") for name in ("sum", "hadamard")), ("scores=windows",)]
)
def test_losses_are_those_of_a_cpu(device, more):
    here, _, _ = trained(device, *more)
    there, _, _ = trained("cpu", *more)
    assert len(here) == 5 and here == pytest.approx(there, abs=1e-3)


@NEEDS_ONE
@pytest.mark.parametrize("more", [(), ("model.dropout=0.2",), ("train.precision=bfloat16",)])
def test_a_run_that_resumes_ends_with_the_same_bytes(device, more):
    _, whole, states = trained(device, *more, "train.checkpoint_every=8")
    _, resumed, _ = trained(device, *more, start=states[0])
    assert states[0].step == 8 and all(torch.equal(whole[name], resumed[name]) for name in whole)


@NEEDS_ONE
def test_bfloat16_follows_float32(device):
    half, _, _ = trained(device, "train.precision=bfloat16")
    whole, _, _ = trained(device)
    assert half != whole and half == pytest.approx(whole, abs=0.05)


@NEEDS_ONE
def test_a_method_of_ones_own_is_trained(device, tmp_path):
    (tmp_path / "mine.py").write_text(CONCAT.format(name="mine", line="pass"), encoding="utf-8")
    run = ("run", "--plugin", "mine.py", "fusion=mine", *QUICK, f"device={device}")
    done = call_cli(*run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = pd.read_csv(tmp_path / "runs" / "results.csv").to_dict("records")
    assert row["status"] == "done" and row["device"].startswith(device)


@pytest.mark.slow
def test_memory_that_runs_out_is_one_line_and_the_next_run_has_it_again(device, tmp_path, monkeypatch):
    run = ("run", *QUICK, f"device={device}")
    with monkeypatch.context() as little:
        if ON_GPU:
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(1e-7)
        else:

            def no_memory(*_, **__):
                raise torch.OutOfMemoryError(NO_MEMORY)

            little.setattr("ablate.execution.networks.training", no_memory)
        try:
            done = call_cli(*run, cwd=tmp_path)
        finally:
            if ON_GPU:
                torch.cuda.set_per_process_memory_fraction(1.0)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    (row,) = pd.read_csv(tmp_path / "runs" / "results.csv").to_dict("records")
    assert row["status"] == "failed" and row["error"].startswith("out of memory at ")
    assert "\n" not in row["error"] and "take a smaller train.batch or" in row["error"]
    assert row["error"].endswith("or fewer hydra.launcher.workers") and row["error"] in done.stderr
    assert call_cli(*run, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("count", [1, 3])
def test_workers_on_a_gpu(monkeypatch, count):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(limits, "available_cores", lambda: 16)
    assert devices.workers([torch.device("cuda")], 1) == count
    assert devices.workers([torch.device("cpu")], 1) == 16


@pytest.mark.parametrize(("visible", "count", "each"), [("", 1, []), ("", 3, [*"012"]), ("5,7", 2, [*"57"])])
def test_workers_share_several_gpus_one_each(monkeypatch, visible, count, each):
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert devices.each([torch.device("cuda")]) == each
    assert devices.each([torch.device("cuda:1")]) == devices.each([torch.device("cpu")]) == []


def test_only_cuda_is_told_to_be_deterministic_and_only_meanwhile():
    for kind in ("cpu", "cuda"):
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
            with devices.deterministic(torch.device(kind)):
                assert torch.are_deterministic_algorithms_enabled() is (kind == "cuda")
        assert not torch.are_deterministic_algorithms_enabled()
