"""What a run asks of the machine that takes it: cores, a GPU, memory. An estimate of its spec, made without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from labcore.spec.run_spec import RunSpec

CODE_BYTES = 600 * 10**6  # what Python, torch and the libraries hold beside the networks
LEARNT = 4  # a weight, its gradient and the two moments of AdamW


@dataclass(frozen=True)
class Resources:
    """`cores` are the run's threads, `memory` its bytes. `gpu`: "must", "may" (where the cluster has one) or "no"."""

    cores: int
    gpu: str
    memory: int

    def fit(self, totals: Mapping[str, float]) -> bool:
        """Whether a machine has as much, by Ray's names."""
        return (self.cores <= totals.get("CPU", 0) and self.memory <= totals.get("memory", 0)
                and (self.gpu != "must" or totals.get("GPU", 0) >= 1))

    @property
    def words(self) -> str:
        """
        >>> Resources(2, "must", 2_400_000_000).words
        '2 cores, a GPU and 2.4 GB of memory'
        """
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return f"{cores}{', a GPU' if self.gpu == 'must' else ''} and {self.memory / 1e9:.1f} GB of memory"


def needed(spec: RunSpec) -> Resources:
    """What a run of `spec` is to be given."""
    gpu = {"cuda": "must", "auto": "may" if spec.kind_row.on_gpu else "no"}.get(spec.device, "no")
    return Resources(spec.threads, gpu, CODE_BYTES + _networks(spec))


def _networks(spec: RunSpec) -> int:
    """The bytes of the networks, those with the lab too small to count; with LoRA they share one frozen trunk."""
    folder = Path(spec.model)
    if not (folder.is_absolute() and folder.is_dir()):
        return 0
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return weights if spec.knobs.get("lora_rank") else weights * LEARNT * len(spec.row.models)
