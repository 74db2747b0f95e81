"""What is to be said of a run's precision before it starts."""

from __future__ import annotations

from labcore import machine
from labcore.spec.run_spec import RunSpec


def caution(spec: RunSpec) -> str:
    """That the run's device has no bf16 arithmetic though the run asks for it; empty where it has, or nobody knows."""
    if spec.knobs.get("dtype") != "bf16" or (found := machine.bf16(spec.device)).able is not False:
        return ""
    return (f"dtype is bf16, but {found.where} has no bf16 arithmetic, so digits are lost and no time is won: choose "
            "fp32.")
