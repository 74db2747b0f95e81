"""Requirements of an optimizer with 8-bit moments, checked without torch."""

from __future__ import annotations

from importlib.util import find_spec

from labcore import machine
from labcore.runs.spec.run_spec import RunSpec

EIGHT_BIT = "adamw_8bit"
DEVICES = ("cuda", "cpu")  # kinds of device for which bitsandbytes has its update
INSTALL = "pip install -r requirements-8bit.txt"
MISSING = (f"The optimizer adamw_8bit needs the package bitsandbytes: install it with {INSTALL}, or set optimizer to "
           "adamw.")


def missing() -> bool:
    """True if the package still has to be installed."""
    return find_spec("bitsandbytes") is None


def serves(device: str) -> bool:
    """True if the optimizer works on a device, by its name in a spec, once the package is installed."""
    kind = machine.device_kind(device)
    return not kind or kind in DEVICES


def fault(spec: RunSpec) -> str:
    """The sentence on why the run's optimizer cannot be used here; empty if it can."""
    if spec.knobs.get("optimizer") != EIGHT_BIT:
        return ""
    if not serves(spec.device):
        return (f"The optimizer adamw_8bit does not work on the device {machine.device_kind(spec.device)}: set "
                "optimizer to adamw.")
    return MISSING if missing() else ""
