"""Whether torch.compile can work here."""

import os
import shutil

import torch

COMPILERS = ("g++", "clang++", "cl")


def why_not(device: torch.device) -> str | None:
    """What keeps torch.compile from working on this device, and the way out; None if nothing does."""
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
