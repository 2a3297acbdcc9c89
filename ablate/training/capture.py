"""A training step as one CUDA graph, which replays what it launched at a fraction of the time.

What can't be captured: a tensor made from Python numbers, a number read from the device, a method that keeps
Python state, which a replay does not change. A stream for each capture, and `close` as soon as a graph is
done: its end clears the workspace of cuBLAS on its stream, also for graphs captured there later, which then
compute wrong numbers without a word (pytorch issue 193402).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Compute = Callable[..., tuple[Tensor, ...]]
WARMING = 3  # calls before the capture, in which kernels are chosen and caches filled
NEAR = 1e-3  # relative: how closely a replay has to agree with the first call


class Captured:
    """Replays `compute` on inputs of these shapes. state: every tensor that it changes in place, which is as
    before afterwards. beside: the state that is no tensor, which a replay does not change.

    Raises RuntimeError if it can't be captured, or if a replay computes something else.
    """

    def __init__(
        self,
        compute: Compute,
        inputs: Sequence[Tensor | None],
        state: Sequence[Tensor],
        beside: Callable[[], object],
    ) -> None:
        self._inputs = [None if tensor is None else tensor.clone() for tensor in inputs]
        self._graph = torch.cuda.CUDAGraph()
        kept, stream = [tensor.clone() for tensor in state], torch.cuda.Stream()
        try:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                first = [output.clone() for output in compute(*self._inputs)]
                before = beside()  # after a first call, which may fill a cache
                for _ in range(WARMING - 1):
                    compute(*self._inputs)
            torch.cuda.synchronize()
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                self._outputs = compute(*self._inputs)
            if beside() != before:
                raise RuntimeError("a method keeps Python state from step to step")
            _put_back(kept, state)
            again = self(*inputs)
            pairs = zip(first, again, strict=True)
            if not all(torch.allclose(*pair, rtol=NEAR, equal_nan=True) for pair in pairs):
                raise RuntimeError("its replay computes something else")
        except RuntimeError:
            self.close()
            raise
        finally:
            _put_back(kept, state)

    def __call__(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        """The outputs, which the next call overwrites."""
        for static, given in zip(self._inputs, inputs, strict=True):
            if static is not None and given is not None:
                static.copy_(given)
        self._graph.replay()
        return self._outputs

    def close(self) -> None:
        torch.cuda.synchronize()
        self._graph.reset()


@torch.no_grad()
def _put_back(kept: Sequence[Tensor], state: Sequence[Tensor]) -> None:
    for tensor, was in zip(state, kept, strict=True):
        tensor.copy_(was)
