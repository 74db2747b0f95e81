"""What an optimizer with moments in 8 bits needs of the machine; found out without torch."""

from __future__ import annotations

from importlib.util import find_spec

from labcore.spec.run_spec import RunSpec

EIGHT_BIT = "adamw_8bit"
MISSING = ("The optimizer adamw_8bit needs the package bitsandbytes: install it with pip install -r "
           "requirements-8bit.txt, or set optimizer to adamw.")


def fault(spec: RunSpec) -> str:
    """Why the run's optimizer cannot be had here, in a sentence; empty where it can."""
    return MISSING if spec.knobs.get("optimizer") == EIGHT_BIT and find_spec("bitsandbytes") is None else ""
