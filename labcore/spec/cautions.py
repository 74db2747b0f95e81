"""What is to be said of a language model's run before it starts."""

from __future__ import annotations

from labcore.spec import moments, precision, rollouts
from labcore.spec.run_spec import RunSpec


def fault(spec: RunSpec) -> str:
    """Why the run cannot start on this machine: a package or a GPU that it asks for is missing; empty where it can."""
    return rollouts.fault_of(spec) or moments.fault(spec)


def caution(spec: RunSpec) -> str:
    """The cautions of its precision, its sampler and its optimizer; empty where there are none."""
    return " ".join(filter(None, (precision.caution(spec), rollouts.caution(spec), moments.fault(spec))))
