"""Where tensors live: the names that a spec may hold, and the devices that this machine has."""

from __future__ import annotations

import torch

from labcore.errors import LabError


def pick_device(name: str) -> torch.device:
    """The device called `name`; "auto" is CUDA if present, else Apple's MPS, else the CPU.

    On CUDA attention is left to torch's own kernels.

    Raises:
        LabError: the device is not there.
    """
    device = _named(name)
    if device.type == "cuda":
        # torch would take cuDNN's fused attention for bfloat16, which makes a plan for each new shape, some 80 ms a
        # piece: while completions grow every token brings a new one. torch's own kernels need no plans.
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device


def _named(name: str) -> torch.device:
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(key for key, there in present.items() if there))
    if not present[name]:
        raise LabError(f"This machine has no {name} device: use auto or cpu.")
    return torch.device(name)
