"""Settings that make a run fit into memory. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from labcore import machine
from labcore.catalog.knob import Value
from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.llm.sizing.memory import BATCH, Estimate, Sizes, Way
from labcore.runs.spec import eight_bit
from labcore.runs.spec.run_spec import RunSpec, make

NEARLY_ALL = 0.9  # share of a GPU that is advised where the run's own is too small
ADAPTER = 8  # rank of the LoRA that is advised
# Settings that hardly change the results: they are advised first.
ENGINE: tuple[tuple[str, Value], ...] = (("gradient_checkpointing", True), ("optimizer", eight_bit.EIGHT_BIT))
ADVISED = 3  # ways that are named
HALVINGS = 12


def others(spec: RunSpec) -> dict[Way, RunSpec]:
    """Variants of the run that may be advised: with LoRA, and on each smaller built-in model."""
    names = list(MODELS)
    ways: list[Way] = [(("lora_rank", ADAPTER),)] if not spec.knobs["lora_rank"] else []
    ways += [(("model", name),) for name in reversed(names[:names.index(spec.model)])] if spec.model in names else []
    return {way: other for way in ways if (other := changed(spec, way)) is not None}


def with_ways(need: Estimate, found: Sequence[Any] = ()) -> Estimate:
    """The estimate with the settings that each make the run fit, smallest change first; several settings together if no
    single one is enough. `found` is the result of the job `asked` for `others`."""
    if need.sizes is None or need.sure is not False:
        return need

    def fits(changed: RunSpec, sizes: Sizes) -> bool:
        return Estimate(changed, sizes, need.free).sure is True

    def first(ways: Iterable[tuple[Way, RunSpec]]) -> Way | None:
        return next((way for way, changed in ways if fits(changed, sizes)), None)
    sizes, spec = need.sizes, need.spec
    ways = [first(_larger_share(spec)), first(_engine(spec)), *(first(_halved(spec, [knob])) for knob in BATCH)]
    ways += [way for (way, changed), other in zip(others(spec).items(), found, strict=False)
             if not isinstance(other, str) and fits(changed, Sizes(**other))]
    if single := [way for way in ways if way][:ADVISED]:
        return replace(need, ways=single)
    both = [*_engine(spec)][-1:]  # all of the engine's ways, with a smaller batch
    smaller = ((before + way, changed) for before, base in both for way, changed in _halved(base, BATCH))
    found_together = first(_halved(spec, BATCH)) or first(smaller)
    return replace(need, ways=[found_together] if found_together else [])


def _larger_share(spec: RunSpec) -> Iterator[tuple[Way, RunSpec]]:
    """The run with nearly all of its GPU."""
    way = (("gpu_share", NEARLY_ALL),)
    larger = machine.device_kind(spec.device) == "cuda" and float(spec.knobs.get("gpu_share", 1)) < NEARLY_ALL
    if larger and (other := changed(spec, way)):
        yield way, other


def _engine(spec: RunSpec) -> Iterator[tuple[Way, RunSpec]]:
    """The run with each of the engine's ways to save memory that it does not use yet, then with all of them."""
    unused = tuple((knob, value) for knob, value in ENGINE if spec.knobs.get(knob, value) != value
                   and (value != eight_bit.EIGHT_BIT or eight_bit.serves(spec.device)))
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
