"""What is to be said of a language model's run before it starts."""

from __future__ import annotations

from pkgutil import resolve_name

from labcore.spec import chat_templates, moments, precision, rollouts
from labcore.spec.run_spec import RunSpec

_LONG_TEXTS = "labcore.tasks.long_texts:caution"  # tasks know of specs, not specs of tasks


def fault(spec: RunSpec) -> str:
    """Why the run cannot start on this machine: a package or a GPU that it asks for is missing; empty where it can."""
    return rollouts.fault_of(spec) or moments.fault(spec)


def caution(spec: RunSpec) -> str:
    """The cautions of its precision, its sampler, its optimizer, its template and its texts; empty where there are
    none."""
    of_texts = str(resolve_name(_LONG_TEXTS)(spec))
    return " ".join(filter(None, (precision.caution(spec), rollouts.caution(spec), moments.fault(spec),
                                  chat_templates.caution(spec), of_texts)))
