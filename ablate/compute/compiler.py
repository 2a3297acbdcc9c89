"""Whether torch.compile can work on this machine."""

import os
import shutil

import torch

COMPILERS = ("g++", "clang++", "cl")


def why_not(device: torch.device) -> str | None:
    """The reason why torch.compile can't work on this device, with a way out; None if it can."""
    if device.type == "cpu":
        asked = os.environ.get("CXX")
        if not any(map(shutil.which, [asked] if asked else COMPILERS)):
            return f"{f'CXX={asked} is not to be found' if asked else 'no C++ compiler here'}; install g++"
    elif device.type == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            return "PyTorch has no Triton here; install triton"
    else:
        return f"not on {device.type}; use device=cpu"
    return None
