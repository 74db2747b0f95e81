"""Estimate the seconds of a run's step on this machine before the run starts, from the sizes of its model and batch and
from the measured speed of matrix products of these sizes. Letters as in `passes`. Imports no torch.

    sampling     P·S tokens of prompts, then T times the P·G rows by all weights, and the cache of keys and values read
    a pass       its tokens by the layers, and P·G·T tokens by the head
    learning     a pass for each update, and twice its time for the gradient; with LoRA once, as weights are frozen

The estimate is for completions of full length. Left out: external reward functions, and the samples for the page.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labcore.catalog import choices
from labcore.catalog.families.distillation import SELF
from labcore.catalog.knob import Value
from labcore.catalog.llm.models import MODELS
from labcore.llm.sizing import memory, passes
from labcore.llm.sizing.memory import Sizes, Way, mode_of, whole_batch
from labcore.llm.sizing.ways import changed
from labcore.runs import jobs, versions
from labcore.runs.files import hub_models
from labcore.runs.spec.run_spec import RunSpec

SLOW = 20.0  # seconds of a step from which on it is said what would be faster
OTHER = 1.6  # times the products: norms, attention, choosing tokens, optimizer, Python; measured on a processor
SAVES = 0.9  # of seconds or bytes at the most, for a setting to be proposed
ADAPTER = 16  # rank of the LoRA that is proposed
LEAST = (("max_new_tokens", 64), ("prompts_per_step", 1), ("pairs_per_step", 1), ("sequences_per_step", 1),
         ("group_size", 4))  # what is halved, in this order, and no further, to come below SLOW
BATCH = ("prompts_per_step", "pairs_per_step", "sequences_per_step")


def asks(spec: RunSpec) -> bool:
    """Whether to estimate the time of a step: for a user's model whose files are on this machine, not for built-in
    models, whose steps are short."""
    return spec.kind == "llm" and spec.model not in MODELS and (
        Path(spec.model).is_dir() or hub_models.here(spec.model) is not None)  # an estimate downloads nothing


def speed_asked(spec: RunSpec, sizes: Sizes) -> jobs.Spec:
    """The job that measures the machine for a run of these sizes; another machine or code is another job."""
    shape = {name: getattr(sizes, name) for name in ("hidden", "queries", "keys", "inner", "vocabulary")}
    return {"job": "speed", **shape, "threads": spec.threads, "device": spec.device, "dtype": spec.knobs["dtype"],
            "host": platform.node(), "made": versions.code()}


@dataclass(frozen=True)
class Need:
    """The cost of a step: `seconds`, and the largest number of `bytes` in memory. `fits`: None if it is unknown."""

    seconds: float
    bytes: int
    fits: bool | None


def need(spec: RunSpec, sizes: Sizes, speed: Mapping[str, Any]) -> Need:
    """The cost of a step of a run; `speed` is the result of the job `speed_asked`."""
    found = memory.estimate(spec, vars(sizes))
    return Need(seconds(spec, sizes, speed), found.peak, found.sure)


def seconds(spec: RunSpec, sizes: Sizes, speed: Mapping[str, Any]) -> float:
    """Seconds of a step of a run."""
    knobs, loop, names = spec.knobs, spec.row.loop, {each["name"] for each in sizes.held}
    whole = whole_batch(spec, sizes)
    times = int(knobs.get("mini_batches", 1)) if loop == "online" else 1
    whole = replace(whole, prompts=whole.prompts * times)
    trunk = passes.tokens(whole, passes.way(sizes, whole, mode_of(spec))) * sizes.layers * _token(speed, "layer")
    head = 0.0 if loop in passes.SCORERS else whole.rows * whole.length * _token(speed, "head")
    learnt = (2 if knobs.get("lora_rank") else 3) + bool(knobs.get("gradient_checkpointing"))
    updates = int(knobs.get("updates_per_batch", 1))
    total = updates * learnt * (trunk + head)
    total += (trunk + head) * (names & {"reference"} != set()) + trunk * (1 + learnt * updates) * ("critic" in names)
    total += trunk * ("scorer" in names)
    taught = sizes.parameters("teacher") / sizes.parameters("policy") if "teacher" in names else float(
        knobs.get("teacher") == SELF)
    total += (trunk + head) * taught * (1 + updates * bool(knobs.get("single_step")))
    if share := choices.written_share(knobs):
        total += sampling(sizes, whole, speed) * share
    labelled = any(not source.from_file for source in choices.chosen(choices.STEP_LABELS, knobs))
    if loop == "online" or labelled or any(source.each_step for source in choices.chosen(choices.PAIRS, knobs)):
        drawn = sampling(sizes, whole, speed) + _rivals(knobs, sizes, whole, speed)
        total += drawn * (1 - float(knobs.get("replay_share", 0)))
    elif evaluated := int(knobs.get("eval_prompts", 0)):
        total += sampling(sizes, replace(whole, sampled=evaluated), speed) / int(knobs["eval_every"])
    return OTHER * total


def _rivals(knobs: Mapping[str, Any], sizes: Sizes, done: passes.Batch, speed: Mapping[str, Any]) -> float:
    """Seconds to sample opponents (one per completion, from two models) or greedy completions (one per prompt)."""
    rollouts = {each for choice in choices.chosen(choices.ADVANTAGE, knobs) for each in choice.rollouts}
    if "mixture" in rollouts:
        return 2 * sampling(sizes, done, speed)
    greedy = replace(done, group=1, sampled=done.sampled // done.group)
    return sampling(sizes, greedy, speed) if rollouts else 0.0


def sampling(sizes: Sizes, done: passes.Batch, speed: Mapping[str, Any]) -> float:
    """Seconds of drawing the `sampled` rows, T tokens each."""
    prompts = done.sampled / done.group * done.prompt * sizes.layers * _token(speed, "layer")
    # Numbers a second: one row by the head is all reading.
    read: float = sizes.vocabulary * sizes.hidden / speed["head"][0]
    cache = done.sampled * 2 * sizes.keys * sizes.layers * (done.prompt + done.length / 2) / read
    layer, head = (_at(done.sampled, speed["rows"], speed[name]) for name in ("layer", "head"))
    return prompts + done.length * (sizes.layers * layer + head + cache)


def _token(speed: Mapping[str, Any], of: str) -> float:
    """Seconds of one of many tokens."""
    return float(speed[of][-1] / speed["rows"][-1])


def _at(rows: float, known: Sequence[float], seconds: Sequence[float]) -> float:
    """Seconds of `rows` rows, by straight lines between those that were measured, and beyond them in proportion."""
    if rows >= known[-1]:
        return seconds[-1] * rows / known[-1]
    above = next(place for place, there in enumerate(known) if rows <= there)
    if above == 0:
        return seconds[0]
    share = (rows - known[above - 1]) / (known[above] - known[above - 1])
    return seconds[above - 1] + share * (seconds[above] - seconds[above - 1])


@dataclass(frozen=True)
class Lighter:
    """A setting that makes a step cheaper: the change (`way`), and the cost of a step with it (`need`)."""

    way: Way
    need: Need

    @property
    def options(self) -> str:
        """The setting as options of a command."""
        return " ".join(f"--set {key}={value}" for key, value in self.way)


def alternatives(spec: RunSpec) -> dict[Way, RunSpec]:
    """The run with LoRA, with shorter completions, with smaller groups and with a smaller batch."""
    halved = ("max_new_tokens", "group_size", next(key for key in BATCH if key in spec.knobs))
    found: list[Way] = [] if spec.knobs["lora_rank"] else [(("lora_rank", ADAPTER),)]
    found += [((key, int(spec.knobs[key]) // 2),) for key in halved if int(spec.knobs.get(key, 0)) > 1]
    return {way: other for way in found if (other := changed(spec, way)) is not None}


def lighter(spec: RunSpec, sizes: Sizes, with_lora: Sizes | None, speed: Mapping[str, Any]) -> list[Lighter]:
    """The settings to propose where a step is slow or may not fit: each saves something. `with_lora` are the sizes of
    the run with LoRA."""
    now = need(spec, sizes, speed)
    if now.seconds <= SLOW and now.fits is not False:
        return []
    found = []
    for way, other in alternatives(spec).items():
        theirs = sizes if spec.knobs["lora_rank"] == other.knobs["lora_rank"] else with_lora
        if theirs:
            found.append(Lighter(way, need(other, theirs, speed)))
    some = [each for each in found if each.need.seconds <= SAVES * now.seconds
            or (now.fits is False and each.need.bytes <= SAVES * now.bytes)]
    enough = any(each.need.seconds <= SLOW for each in some)
    return some if enough else [*filter(None, [_together(spec, sizes, with_lora, speed)]), *some]


def _together(spec: RunSpec, sizes: Sizes, with_lora: Sizes | None, speed: Mapping[str, Any]) -> Lighter | None:
    """The fewest changes, in a fixed order, with which a step fits and takes at most SLOW: LoRA, then shorter
    completions, then fewer. None if all of them are not enough."""
    adapts = with_lora is not None and not spec.knobs["lora_rank"]
    for way in _down(spec, {"lora_rank": ADAPTER} if adapts else {}):
        if other := changed(spec, way):
            found = need(other, with_lora if adapts and with_lora else sizes, speed)
            if found.seconds <= SLOW and found.fits is not False:
                return Lighter(way, found)
    return None


def _down(spec: RunSpec, way: dict[str, Value]) -> Iterator[Way]:
    """Settings that need less and less, each with those before it."""
    for key, least in LEAST:
        while (half := int(way.get(key, spec.knobs.get(key, 0))) // 2) >= least:
            way[key] = half
            yield tuple(way.items())
