"""Where tensors live: the names that a spec may hold, and the devices that this machine has."""

from __future__ import annotations

import torch

from labcore.errors import LabError


def pick_device(name: str) -> torch.device:
    """The device called `name`; "auto" is CUDA if present, else Apple's MPS, else the CPU.

    Raises:
        LabError: the device is not there.
    """
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(key for key, there in present.items() if there))
    if not present[name]:
        raise LabError(f"This machine has no {name} device: use auto or cpu.")
    return torch.device(name)
