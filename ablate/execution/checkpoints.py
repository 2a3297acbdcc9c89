"""Convert between the state of training and a checkpoint."""

import torch

from ablate.store.columns import Row
from ablate.store.run_files import Checkpoint
from ablate.training.optim import Moments
from ablate.training.train import State


def to_checkpoint(state: State, metrics: list[Row]) -> Checkpoint:
    kinds = {
        "param": state.params,
        "first": state.moments.first,
        "second": state.moments.second,
        "average": state.average,
    }
    arrays = {
        f"{kind}/{name}": tensor.detach().cpu().numpy()
        for kind, tensors in kinds.items()
        for name, tensor in tensors.items()
    }
    return Checkpoint(state.step, arrays, metrics, state.seconds, state.evaluation_seconds)


def to_state(checkpoint: Checkpoint) -> State:
    kinds: dict[str, dict[str, torch.Tensor]] = {"param": {}, "first": {}, "second": {}, "average": {}}
    for key, array in checkpoint.arrays.items():
        kind, _, name = key.partition("/")
        kinds[kind][name] = torch.from_numpy(array)
    return State(
        checkpoint.step,
        kinds["param"],
        Moments(kinds["first"], kinds["second"]),
        kinds["average"],
        checkpoint.seconds,
        checkpoint.evaluation_seconds,
    )
