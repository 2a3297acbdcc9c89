"""The batches of a group of runs, a row for each member.

legend: M members, B rows of a batch, T positions in a row, L steps drawn at once.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from ablate.data.splits import Batch, Split, Stream

AHEAD = 64  # steps whose places in a text are drawn and brought to a device at once
WAITING = 4  # batches that are drawn ahead of the one in use


def batches(
    split: Split, steps: range, *, context: int, batch: int, seeds: Sequence[int], device: torch.device
) -> Iterator[Batch]:
    """The batch of each step on the device, each part with a row for each member, (M, ...): what the split
    draws for the member's seed, once for members of equal seeds.

    For a device a text lies there, in int32, and its windows are gathered there; other rows are drawn ahead
    in a thread. Members of different seeds need batches of equal shapes.
    """
    different = [*dict.fromkeys(seeds)]
    places = [different.index(seed) for seed in seeds]

    def drawn(step: int) -> Batch:
        each = [split.batch(context=context, batch=batch, seed=seed, step=step) for seed in different]
        if len(seeds) == 1:
            return each[0].each(lambda part: part[None])
        return Batch._make(
            None if parts[0] is None else torch.stack([parts[place] for place in places])
            for parts in zip(*each, strict=True)
        )

    if device.type == "cpu":
        yield from map(drawn, steps)
    elif isinstance(split, Stream):
        yield from _gathered(split, steps, context, batch, different, places, device)
    else:
        for ready in _ahead(drawn, steps):
            yield ready.to(device)


def _ahead(drawn: Callable[[int], Batch], steps: range) -> Iterator[Batch]:
    """The batches of these steps, some of them drawn in a thread before they are asked for."""
    with ThreadPoolExecutor(1) as thread:
        waiting = [thread.submit(drawn, step) for step in steps[:WAITING]]
        for step in steps:
            yield waiting.pop(0).result()
            if (later := step + WAITING) in steps:
                waiting.append(thread.submit(drawn, later))


def _gathered(
    split: Stream,
    steps: range,
    context: int,
    batch: int,
    seeds: Sequence[int],
    places: Sequence[int],
    device: torch.device,
) -> Iterator[Batch]:
    tokens = torch.from_numpy(split.tokens.astype(np.int32)).to(device)
    window_T1, of_member_M = torch.arange(context + 1, device=device), torch.tensor(places, device=device)
    for at in range(0, len(steps), AHEAD):
        drawn = [
            [split.starts(context=context, batch=batch, seed=seed, step=step) for seed in seeds]
            for step in steps[at : at + AHEAD]
        ]
        starts_LMB = torch.from_numpy(np.array(drawn)).to(device).index_select(1, of_member_M)
        for starts_MB in starts_LMB:
            windows_MBT1 = tokens[starts_MB[..., None] + window_T1].long()
            yield Batch(windows_MBT1[..., :-1], windows_MBT1[..., 1:])
