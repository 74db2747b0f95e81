"""The resources that a run requests from a machine: cores, a GPU, memory. An estimate of its spec, made without
torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from labcore.catalog.amounts import size
from labcore.llm.sizing import memory, passes
from labcore.llm.sizing.memory import Sizes
from labcore.runs import jobs
from labcore.runs.spec.run_spec import RunSpec

CODE_BYTES = 600 * 10**6  # what Python, torch and the libraries hold beside the tensors


@dataclass(frozen=True)
class Resources:
    """`cores` are the run's threads, `memory` its bytes. `gpu`: "must", "may" (where the cluster has one) or "no"."""

    cores: int
    gpu: str
    memory: int

    def fit(self, totals: Mapping[str, float]) -> bool:
        """True if a machine has as much, by Ray's names."""
        return (self.cores <= totals.get("CPU", 0) and self.memory <= totals.get("memory", 0)
                and (self.gpu != "must" or totals.get("GPU", 0) >= 1))

    @property
    def words(self) -> str:
        """
        >>> Resources(2, "must", 2_400_000_000).words
        '2 cores, a GPU and 2.4 GB of memory'
        """
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return f"{cores}{', a GPU' if self.gpu == 'must' else ''} and {size(self.memory)} of memory"


def needed(spec: RunSpec) -> Resources:
    """The resources that a run of `spec` needs."""
    gpu = {"cuda": "must", "auto": "may" if spec.kind_row.on_gpu else "no"}.get(spec.device, "no")
    return Resources(spec.threads, gpu, CODE_BYTES + _tensors(spec))


def _tensors(spec: RunSpec) -> int:
    """Bytes of the run's tensors by `labcore.llm.sizing.memory`: all of them where its sizes were counted, as the page
    and the command `cost` have it done; else what networks take for sure, those with the lab too small to count."""
    if spec.kind_row.on_gpu and (counted := jobs.outcome(jobs.job_id(memory.asked([spec])))) and counted.result:
        [sizes] = counted.result["sizes"]
        if not isinstance(sizes, str):
            return memory.peak(memory.parts(spec, Sizes(**sizes)))
    parameters, names = _parameters(Path(spec.model)), spec.row.models
    if spec.knobs.get("lora_rank"):  # all share one frozen trunk, beside which what learns is small
        return passes.weights(parameters)
    frozen = {"reference", *(("policy",) if {"reward_model", "process_reward_model"} & {*names} else ())}
    learnt = parameters * len({*names} - frozen)
    moments = passes.optimizer(learnt, str(spec.knobs.get("optimizer")))
    return passes.weights(parameters * len(names)) + passes.gradients(learnt) + moments


def _parameters(folder: Path) -> int:
    """The numbers of a model in a folder, by the heads of its files; 0 of any other."""
    paths = folder.glob("*.safetensors") if folder.is_absolute() and folder.is_dir() else ()
    return sum(map(_numbers, paths))


def _numbers(path: Path) -> int:
    try:
        with safe_open(path, framework="numpy") as file:
            return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 (it is no mapping)
    except SafetensorError:  # a damaged file: the worker says so
        return 0
