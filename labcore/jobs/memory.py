"""Whether a run fits into memory, and what to change so that it does: on the table of `memory_parts`. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from labcore import machine
from labcore.catalog.knob import Value, shown
from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.jobs import jobs
from labcore.jobs.cost import in_bytes
from labcore.jobs.memory_parts import Part, Sizes, parts, peak
from labcore.jobs.pace import setting
from labcore.runs import versions
from labcore.spec import moments
from labcore.spec.run_spec import RunSpec, make

SURE = 1.3  # times the estimate: with so much free memory a run fits for sure
ADAPTER = 8  # rank of the LoRA that is advised
# What is learnt does not change by these, or hardly: they are advised first.
ENGINE: tuple[tuple[str, Value], ...] = (("gradient_checkpointing", True), ("optimizer", moments.EIGHT_BIT))
# Knobs that make a batch smaller, and those that make a part of it smaller, in the order in which they are advised.
BATCH = ("prompts_per_step", "pairs_per_step", "sequences_per_step", "group_size", "max_new_tokens")
ADVISED = 3  # ways that are named
HALVINGS = 12
UNUSUAL = 16  # times the usual batch, from where it is looked whether a run fits without being asked to

ABOUT = ("An estimate, for completions of full length: measured peaks came within a third of it. What is held at all "
         "times adds up; of what a step does after that the largest counts. On a processor it is what this run adds to "
         "a worker process of about 330 MB, which workers on Linux share; the metric Memory counts the whole process.")

Way = tuple[tuple[str, Value], ...]  # knobs, or "model", and their other values


@dataclass(frozen=True)
class Estimate:
    """The table of a run: its `parts`, their `peak`, the `free` memory of its device now (bytes; None: unknown), and
    the `ways`, settings of which each makes it fit. `fault` is why there is none."""

    spec: RunSpec
    sizes: Sizes | None = None
    free: int | None = None
    ways: Sequence[Way] = ()
    fault: str = ""

    @property
    def parts(self) -> list[Part]:
        return parts(self.spec, self.sizes, machine.total_memory(self.spec.device)) if self.sizes else []

    @property
    def peak(self) -> int:
        return peak(self.parts)

    @property
    def sure(self) -> bool | None:
        """Whether it fits though the estimate may be too low; None: unknown."""
        return None if self.free is None else SURE * self.peak <= self.free

    def verdict(self) -> str:
        """The estimate against the free memory, in a sentence."""
        need = f"about {in_bytes(self.peak)} at the most"
        if self.free is None:
            return f"It needs {need}; how much is free on this device cannot be found out."
        there = f"{in_bytes(self.free)} are free now"
        if self.peak > self.free:
            return f"It does not fit: it needs {need}, and {there}."
        if not self.sure:
            return f"It may not fit: it needs {need}, {there}, and the estimate may be a third off."
        return f"It fits: it needs {need}, and {there}."

    def advice(self, name_of: Callable[[str], str] = str) -> str:
        """What to change so that it fits, in a sentence; empty where nothing has to. `name_of` names a knob."""
        if self.sure is not False:
            return ""
        if not self.ways:
            return "No smaller batch makes it fit: choose a smaller model, or a device with more memory."
        ways = [" and ".join(f"{name_of(key)} to {shown(value)}{_first(value)}" for key, value in way)
                for way in self.ways]
        return f"So that it fits, set {', or '.join(ways)}."


def _first(value: Value) -> str:
    """What has to be done before a knob can have this value, in brackets; mostly nothing."""
    return f" (install it first: {moments.INSTALL})" if value == moments.EIGHT_BIT and moments.missing() else ""


def unusual(spec: RunSpec) -> bool:
    """Whether the batch is so much larger than the algorithm's usual one, on a model that is here, that it may not fit.
    Looks at nothing but the settings."""
    usual = {knob.key: knob.default for knob in spec.declared}
    times = prod(int(spec.knobs[knob]) / int(usual[knob]) for knob in BATCH if knob in usual)
    return times >= UNUSUAL and (spec.model in MODELS or Path(spec.model).is_dir())


def asked(specs: Sequence[RunSpec]) -> jobs.Spec:
    """The job that finds the sizes of some runs."""
    return {"job": "sizes", "specs": [setting(spec) for spec in specs], "made": versions.code()}


def estimate(spec: RunSpec, found: Mapping[str, Any] | str) -> Estimate:
    """The table of a run: `found` is what the job `asked` gave of it."""
    if isinstance(found, str):
        return Estimate(spec, fault=found)
    return Estimate(spec, Sizes(**found), machine.free_memory(spec.device))


def others(spec: RunSpec) -> dict[Way, RunSpec]:
    """The run with a LoRA, and on each smaller model that comes with the lab: what may be advised."""
    names = list(MODELS)
    ways: list[Way] = [(("lora_rank", ADAPTER),)] if not spec.knobs["lora_rank"] else []
    ways += [(("model", name),) for name in reversed(names[:names.index(spec.model)])] if spec.model in names else []
    return {way: other for way in ways if (other := changed(spec, way)) is not None}


def as_json(found: Estimate) -> dict[str, Any]:
    """An estimate for programs, in bytes."""
    return {"parts": [asdict(part) for part in found.parts], "peak": found.peak, "free": found.free,
            "fits": found.sure, "ways": [dict(way) for way in found.ways], "fault": found.fault}


def with_ways(need: Estimate, found: Sequence[Any] = ()) -> Estimate:
    """The estimate with the settings of which each makes the run fit, those first that change the least; where none
    does by itself, several together. `found` is what the job `asked` gave of `others`."""
    if need.sizes is None or need.sure is not False:
        return need

    def fits(changed: RunSpec, sizes: Sizes) -> bool:
        return Estimate(changed, sizes, need.free).sure is True

    def first(ways: Iterable[tuple[Way, RunSpec]]) -> Way | None:
        return next((way for way, changed in ways if fits(changed, sizes)), None)
    sizes, spec = need.sizes, need.spec
    ways = [first(_engine(spec)), *(first(_halved(spec, [knob])) for knob in BATCH)]
    ways += [way for (way, changed), other in zip(others(spec).items(), found, strict=False)
             if not isinstance(other, str) and fits(changed, Sizes(**other))]
    if single := [way for way in ways if way][:ADVISED]:
        return replace(need, ways=single)
    both = [*_engine(spec)][-1:]  # all of the engine's ways, with a smaller batch
    smaller = ((before + way, changed) for before, base in both for way, changed in _halved(base, BATCH))
    found_together = first(_halved(spec, BATCH)) or first(smaller)
    return replace(need, ways=[found_together] if found_together else [])


def _engine(spec: RunSpec) -> Iterator[tuple[Way, RunSpec]]:
    """The run with each of the engine's ways to save memory that it does not use yet, then with all of them."""
    unused = tuple((knob, value) for knob, value in ENGINE if spec.knobs.get(knob, value) != value
                   and (value != moments.EIGHT_BIT or moments.serves(spec.device)))
    for way in [*((each,) for each in unused), *([unused] if unused[1:] else [])]:
        if other := changed(spec, way):
            yield way, other


def _halved(spec: RunSpec, knobs: Sequence[str]) -> Iterator[tuple[Way, RunSpec]]:
    """The run with these knobs at half their values, a quarter, and so on, as far as the run allows each."""
    values = {knob: int(spec.knobs[knob]) for knob in knobs if knob in spec.knobs}
    for _ in range(HALVINGS):
        for knob, value in values.items():
            if changed(spec, ({**values, knob: value // 2}.items())):
                values[knob] = value // 2
        way = tuple((knob, value) for knob, value in values.items() if value != spec.knobs[knob])
        if way and (other := changed(spec, way)):
            yield way, other


def changed(spec: RunSpec, way: Iterable[tuple[str, Value]]) -> RunSpec | None:
    """The run with other knobs, or on another model; None where that cannot be."""
    knobs = {**spec.knobs, **dict(way)}
    model = str(knobs.pop("model", spec.model))
    try:
        return make(kind=spec.kind, algorithm_key=spec.algorithm, task_key=spec.task, knobs=knobs, seed=spec.seed,
                    model=model, steps=spec.steps, device=spec.device, data=spec.data,
                    threads=spec.threads, mix=spec.mix)
    except LabError:
        return None
