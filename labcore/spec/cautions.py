"""What is to be said of a language model's run before it starts."""

from __future__ import annotations

from labcore.spec import precision, rollouts
from labcore.spec.run_spec import RunSpec


def caution(spec: RunSpec) -> str:
    """The cautions of its precision and its sampler; empty where there are none."""
    return " ".join(filter(None, (precision.caution(spec), rollouts.caution(spec))))
