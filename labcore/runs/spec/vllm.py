"""The sampler of a run's completions and its requirements, checked without torch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from labcore import machine
from labcore.catalog.knob import Value
from labcore.runs.spec.run_spec import RunSpec

DEVICES = ("cuda",)  # kinds of device that vLLM is started on


def by_vllm(knobs: Mapping[str, Value]) -> bool:
    """True if vLLM samples the completions of a run with these knobs."""
    return knobs.get("rollouts") == "vllm"


def fault(device: str) -> str:
    """The reason, as a sentence, why vLLM cannot sample on this machine's device of the kind `device` ("cuda", "cpu",
    "mps"; "": unknown); empty if it can."""
    if device and device not in DEVICES:
        return (f"vLLM samples on an NVIDIA GPU, and this run is on the device {device}: set rollouts to engine, or "
                "run it on a machine with such a GPU.")
    if find_spec("vllm") is None:
        return "vLLM is not installed: install requirements-vllm.txt, or set rollouts to engine."
    return ""


def fault_of(spec: RunSpec) -> str:
    """The reason why vLLM cannot sample for the run on this machine; empty if the run uses the lab's own sampler."""
    return fault(machine.device_kind(spec.device)) if by_vllm(spec.knobs) else ""


def caution(spec: RunSpec) -> str:
    """A caution on a run's sampler before it starts; empty where there is none."""
    if why := fault_of(spec):
        return why
    if by_vllm(spec.knobs) and not spec.knobs["importance_cap"]:
        return ("vLLM rounds differently from the trainer, and `importance_cap` is 0, so nothing corrects the "
                "difference: set it to 2.")
    return ""
