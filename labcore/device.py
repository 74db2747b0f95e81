"""Where tensors live: the names that a spec may hold, the devices that this machine has, and a change of device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from labcore.errors import LabError


def pick_device(name: str) -> torch.device:
    """The device called `name`; "auto" is CUDA if present, else Apple's MPS, else the CPU.

    On CUDA attention is left to torch's own kernels. Raises LabError if the device is not there.
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


def resume_generator(generator: torch.Generator, saved: torch.Tensor, seeds: Sequence[int]) -> list[str]:
    """Restore the random numbers of a checkpoint, whose generator had the state `saved`, uint8.

    Those of another kind of device cannot be gone on with: they begin anew, of `seeds`. Returns what is to be said of
    it: nothing where they go on.
    """
    if saved.shape == generator.get_state().shape:
        generator.set_state(saved)
        return []
    generator.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1)[0]))
    return ["This checkpoint was made on another kind of device, so random numbers restart here."]
