"""A training step as one CUDA graph, which replays what it launched at a fraction of the time.

What can't be captured: a tensor made from Python numbers, a number read from the device, a method that keeps
Python state or draws from a generator of the process, which a replay does not change. A stream for each
capture, and `close` as soon as a graph is done: its end clears the workspace of cuBLAS on its stream, also
for graphs captured there later, which then compute wrong numbers without a word (pytorch issue 193402).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Compute = Callable[..., tuple[Tensor, ...]]
WARMING = 3  # calls before the capture, in which kernels are chosen and caches filled
NEAR = 1e-3  # relative: how closely a replay has to agree with the first call


class Captured:
    """Replays `compute` on inputs of these shapes. state: every tensor that it changes in place, which is as
    before afterwards. Raises RuntimeError if it can't be captured, or if a replay computes something else."""

    def __init__(self, compute: Compute, inputs: Sequence[Tensor | None], state: Sequence[Tensor]) -> None:
        self._device = state[0].device
        self._inputs = [None if tensor is None else tensor.clone() for tensor in inputs]
        kept = _copied(state)
        with torch.cuda.device(self._device):
            self._graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
            try:
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    first, after = _copied(compute(*self._inputs)), _copied(state)
                    for _ in range(WARMING - 1):
                        compute(*self._inputs)
                torch.cuda.synchronize()
                with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                    self._outputs = compute(*self._inputs)
                _put_back(kept, state)
                if not (_near(self(*inputs), first) and _moved_alike(kept, after, state)):
                    raise RuntimeError("its replay computes something else")
            except RuntimeError:
                self.close()
                raise
            finally:
                _put_back(kept, state)

    def __call__(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        """The outputs, which the next call overwrites."""
        with torch.cuda.device(self._device):
            for static, given in zip(self._inputs, inputs, strict=True):
                assert (static is None) == (given is None), "batches are of one kind"
                if static is not None and given is not None:
                    static.copy_(given)
            self._graph.replay()
        return self._outputs

    def close(self) -> None:
        torch.cuda.synchronize(self._device)
        self._graph.reset()


def _near(outputs: Sequence[Tensor], wanted: Sequence[Tensor]) -> bool:
    return all(torch.allclose(a, b, rtol=NEAR, equal_nan=True) for a, b in zip(outputs, wanted, strict=True))


def _moved_alike(before: Sequence[Tensor], wanted: Sequence[Tensor], now: Sequence[Tensor]) -> bool:
    """Whether each tensor has changed as it should, within a tenth of the length of that change."""
    norm = torch.linalg.vector_norm
    changes = (
        (norm(there.double() - here.double()), norm(here.double() - was.double()))
        for was, here, there in zip(before, wanted, now, strict=True)
    )
    return all(bool(apart <= 0.1 * moved) or not moved.isfinite() for apart, moved in changes)


def _copied(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors]


@torch.no_grad()
def _put_back(kept: Sequence[Tensor], state: Sequence[Tensor]) -> None:
    for tensor, was in zip(state, kept, strict=True):
        tensor.copy_(was)
