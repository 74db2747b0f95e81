"""How much memory a run will need, before it starts: each part by a formula, their sum, and what makes it fit.

An estimate: the parts are counted as the engine makes them, for completions that run to their limit. Measured peaks of
processes came within a third of it. What is held at all times adds up; of the phases of a step (it samples, learns, and
now and then draws its own update for the page) the largest counts. Letters: P prompts, G completions of each, S tokens
of the longest prompt, T of the longest completion, L layers, V tokens of the vocabulary; H, Q, K and I are the widths
of a layer, of its queries, of its keys, and of its MLP.

Left out: what CUDA holds for itself, and the files of libraries, which all processes share. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

from labcore import machine
from labcore.catalog.knob import Value
from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.jobs import jobs
from labcore.jobs.cost import GRADIENT, MOMENTS, WEIGHT, in_bytes
from labcore.jobs.pace import setting
from labcore.runs import versions
from labcore.spec.run_spec import RunSpec, make

HALF, FULL = 2, 4  # bytes of a number in bfloat16 and in float32
PROCESS = {"fp32": 4_000_000, "bf16": 48_000_000}  # bytes that a worker on a processor takes without a model
GAPS = 0.15  # of all else, which the allocator of a processor leaves between the blocks
SURE = 1.3  # times the estimate: with so much free memory a run fits for sure
ADAPTER = 8  # rank of the LoRA that is advised
# Knobs that make a batch smaller, and those that make a part of it smaller, in the order in which they are advised.
BATCH = ("prompts_per_step", "pairs_per_step", "sequences_per_step", "group_size", "max_new_tokens")
ADVISED = 3  # ways that are named
HALVINGS = 12

ABOUT = ("An estimate, for completions of full length: measured peaks came within a third of it. What is held at all "
         "times adds up; of what a step does after that the largest counts.")
PHASES = ALWAYS, SAMPLES, LEARNS, DRAWS = (
    "at all times", "while it samples", "while it learns", "while it draws an update")

Way = tuple[tuple[str, Value], ...]  # knobs, or "model", and their other values


@dataclass(frozen=True)
class Sizes:
    """What the job `sizes` finds of a run. `held` are its networks as the job `models_held` counts them. The layers'
    sizes are numbers, `prompt` and `answer` tokens of the longest (answer 0: they are sampled). `packs` and `shares`
    say how the engine can run a group: in one row, or on one cache. The rest are limits of the engine: tokens of a
    packed row, numbers in the logits of a micro-batch, parameters that are copied at every step, prompts that are
    sampled at once for pairs."""

    held: Sequence[Mapping[str, Any]]
    layers: int
    heads: int
    hidden: int
    queries: int
    keys: int
    inner: int
    vocabulary: int
    context: int
    prompt: int
    answer: int
    packs: bool
    shares: bool
    longest_packed: int
    most_logits: int
    most_copied: int
    sampled_at_once: int

    def parameters(self, *names: str) -> int:
        """Numbers of the networks of these names."""
        return sum(each["parameters"] for each in self.held if each["name"] in names)

    @property
    def learnt(self) -> int:
        return sum(each["learnt"] for each in self.held)

    def packed(self, done: Batch) -> bool:
        """Whether the completions of a prompt run in one row with it."""
        return self.packs and done.prompt + done.group * (done.length - 1) <= self.longest_packed


@dataclass(frozen=True)
class Part:
    """A row of the table: `when` is the phase that holds it, `size` bytes, `why` the formula in words."""

    name: str
    when: str
    size: int
    why: str


@dataclass(frozen=True)
class Batch:
    """What a run does at once. `prompts` and `group` of an update's micro-batch; `sampled` rows are drawn together;
    `prompt` and `length` are tokens."""

    prompts: int
    group: int
    sampled: int
    prompt: int
    length: int

    @property
    def rows(self) -> int:
        return self.prompts * self.group


# ---------------------------------------------------------------- formulas


def batch(spec: RunSpec, sizes: Sizes) -> Batch:
    """The batch of a run. A micro-batch has as many prompts as its G·T·V logits allow, at least one."""
    knobs, loop = spec.knobs, spec.row.loop
    limit = min(int(knobs["max_new_tokens"]), max(1, sizes.context - sizes.prompt))
    length = min(sizes.answer, max(1, sizes.context - sizes.prompt)) or limit
    measured = int(knobs.get("eval_prompts", 0))
    if loop == "online":
        prompts, group = int(knobs["prompts_per_step"]), int(knobs["group_size"])
        sampled, prompts = prompts * group, prompts // int(knobs.get("mini_batches", 1))
    elif loop == "sft":
        prompts, group, sampled = int(knobs["sequences_per_step"]), 1, measured
    else:
        prompts, group = int(knobs["pairs_per_step"]), 2
        drawn = {"policy_each_step": prompts, "reference_once": sizes.sampled_at_once}.get(str(knobs["pairs"]), 0)
        sampled = max(drawn * int(knobs["group_size"]), measured)
    part = max(1, sizes.most_logits // (group * length * sizes.vocabulary))
    return Batch(min(prompts, part), group, sampled, sizes.prompt, length)


def weights(parameters: int) -> int:
    """Bytes of weights: 4 a number, in bf16 too, since the optimizer moves float32."""
    return WEIGHT * parameters


def gradients(learnt: int) -> int:
    """Bytes of gradients: 4 for each number that learns."""
    return GRADIENT * learnt


def optimizer(learnt: int) -> int:
    """Bytes of AdamW's two moments: 8 for each number that learns."""
    return MOMENTS * learnt


def rounded(parameters: int) -> int:
    """Bytes of a network's weights in bfloat16, which a forward pass in bf16 makes: 2 a number."""
    return HALF * parameters


def kv_cache(sizes: Sizes, rows: int, tokens: int, width: int) -> int:
    """Bytes of the keys and values of all rows that are sampled together: width · L · 2K · rows · tokens."""
    return width * sizes.layers * 2 * sizes.keys * rows * tokens


def next_logits(sizes: Sizes, rows: int) -> int:
    """Bytes of a sampled token's logits, their log-softmax and the draw: 4 numbers in float32 for each of rows · V."""
    return 4 * FULL * rows * sizes.vocabulary


def activations(sizes: Sizes, done: Batch, width: int) -> int:
    """Bytes that a Llama's backward pass needs of a micro-batch: width · L · (6H + 3Q + 4I + 2K) for each token, with
    each prompt run once. In bf16 norms are float32, so 10H. Where a group shares its prompt's cache, each row has keys
    and values of the prompt as well.
    """
    prompts, group, prompt, length = done.prompts, done.group, done.prompt, done.length
    once = sizes.shares or sizes.packed(done)
    tokens = prompts * (prompt + group * (length - 1)) if once else done.rows * (prompt + length - 1)
    seen = done.rows * (prompt + length - 1) if group > 1 and once and not sizes.packed(done) else tokens
    spread = sizes.keys if seen == tokens else sizes.queries  # a cache is spread over all heads
    of_token = (10 if width == HALF else 6) * sizes.hidden + 3 * sizes.queries + 4 * sizes.inner
    return width * sizes.layers * (tokens * of_token + seen * 2 * spread)


def attention(sizes: Sizes, done: Batch, width: int) -> int:
    """Bytes of the attention weights of packed rows of R tokens, which are kept in bf16 on a processor:
    width · L · heads · P · R²."""
    tokens = done.prompt + done.group * (done.length - 1)
    return width * sizes.layers * sizes.heads * done.prompts * tokens**2


def logits(sizes: Sizes, done: Batch, width: int, with_entropy: bool) -> int:
    """Bytes of a micro-batch's logits and what their log-probs and gradient take: rows · T · V numbers, once as they
    come and 4 times in float32, 5 times with an entropy bonus."""
    return done.rows * done.length * sizes.vocabulary * (width + FULL * (5 if with_entropy else 4))


def before_step(sizes: Sizes, loop: str) -> int:
    """Bytes of the copy of what learns, to look at a step again: of large networks only in the online loop."""
    kept = loop == "online" or (loop != "reward_model" and sizes.learnt <= sizes.most_copied)
    return WEIGHT * sizes.learnt if kept else 0


def drawn(sizes: Sizes, loop: str) -> int:
    """Bytes of the weights along the line of an update, which the online loop draws at times: three copies more."""
    policy = next(each["learnt"] for each in sizes.held if each["name"] == "policy")
    return 3 * WEIGHT * policy if loop == "online" else 0


# ---------------------------------------------------------------- the table


def parts(spec: RunSpec, sizes: Sizes) -> list[Part]:
    """The rows of the table, the same for every run; those of what it does not hold are 0."""
    knobs, loop, done = spec.knobs, spec.row.loop, batch(spec, sizes)
    half = knobs["dtype"] == "bf16"
    width = HALF if half else FULL
    tokens = done.prompt + min(int(knobs["max_new_tokens"]), max(1, sizes.context - sizes.prompt))
    micro = f"{done.rows:,} rows of {done.prompt:,} + {done.length:,} tokens at once"
    device = machine.device_kind(spec.device)
    on_cpu, recorded = device == "cpu", device == "cuda" and sizes.shares  # graphs of decoding keep what they read
    found = [
        Part("Weights", ALWAYS, weights(sizes.parameters("policy")), "4 bytes a parameter of the policy"),
        Part("Reference", ALWAYS, weights(sizes.parameters("reference")), "4 bytes a parameter; none with LoRA"),
        Part("Critic", ALWAYS, weights(sizes.parameters("critic")), "4 bytes a parameter"),
        Part("Reward model", ALWAYS, weights(sizes.parameters("reward_model", "scorer")), "4 bytes a parameter"),
        Part("Optimizer", ALWAYS, optimizer(sizes.learnt), "8 bytes for each parameter that learns"),
        Part("Weights before the step", ALWAYS, before_step(sizes, loop), "4 bytes for each parameter that learns"),
        Part("Weights in bf16", ALWAYS, half * (1 + recorded) * rounded(max(each["parameters"] for each in sizes.held)),
             "2 bytes a parameter of the network that runs" + ", and of the policy for decoding" * recorded),
        Part("KV cache", ALWAYS if recorded else SAMPLES,
             kv_cache(sizes, done.sampled, tokens, width) if sizes.shares else 0,
             f"{done.sampled:,} rows of {tokens:,} tokens"),
        Part("Next token", SAMPLES, next_logits(sizes, done.sampled), f"{done.sampled:,} rows × vocabulary"),
        Part("Gradients", LEARNS, gradients(sizes.learnt), "4 bytes for each parameter that learns"),
        Part("Activations", LEARNS, activations(sizes, done, width), micro),
        Part("Attention weights", LEARNS, attention(sizes, done, width) if half and on_cpu and sizes.packed(done)
             else 0, "of each token for each other, in bf16 on a processor"),
        Part("Logits", LEARNS, 0 if loop == "reward_model" else logits(
            sizes, done, width, float(knobs.get("entropy_coef", 0)) > 0),
            f"{micro}, × vocabulary {sizes.vocabulary:,}"),
        Part("Line of the update", DRAWS, drawn(sizes, loop), "three copies of the policy, every 20 steps")]
    found += [Part("Process", ALWAYS, PROCESS[str(knobs["dtype"])] * on_cpu, "the worker without a model"),
              Part("Gaps between blocks", ALWAYS, int(GAPS * peak(found)) * on_cpu,
                   f"usually {GAPS:.0%} of all tensors")]
    return found


def peak(found: Sequence[Part]) -> int:
    """Bytes at the most: what is held at all times, and the largest phase."""
    held: dict[str, int] = {}
    for part in found:
        held[part.when] = held.get(part.when, 0) + part.size
    return held.pop(ALWAYS, 0) + max(held.values(), default=0)


# ---------------------------------------------------------------- what fits


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
        return parts(self.spec, self.sizes) if self.sizes else []

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

    def advice(self, called: Callable[[str], str] = str) -> str:
        """What to change so that it fits, in a sentence; empty where nothing has to. `called` names a knob."""
        if self.sure is not False:
            return ""
        if not self.ways:
            return "No smaller batch makes it fit: choose a smaller model, or a device with more memory."
        ways = [" and ".join(f"{called(key)} to {value}" for key, value in way) for way in self.ways]
        return f"So that it fits, set {', or '.join(ways)}."


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
    return {way: other for way in ways if (other := _changed(spec, way)) is not None}


def as_json(found: Estimate) -> dict[str, Any]:
    """An estimate for programs, in bytes."""
    return {"parts": [asdict(part) for part in found.parts], "peak": found.peak, "free": found.free,
            "fits": found.sure, "ways": [dict(way) for way in found.ways], "fault": found.fault}


def with_ways(need: Estimate, found: Sequence[Any] = ()) -> Estimate:
    """The estimate with the settings of which each makes the run fit, the smallest change of a knob first; where none
    does by itself, the batch's knobs together. `found` is what the job `asked` gave of `others`."""
    def fits(changed: RunSpec, sizes: Sizes) -> bool:
        return Estimate(changed, sizes, need.free).sure is True
    if need.sizes is None or need.sure is not False:
        return need
    ways = [next((way for way, changed in _halved(need.spec, [knob]) if fits(changed, need.sizes)), None)
            for knob in BATCH]
    ways += [way for (way, changed), other in zip(others(need.spec).items(), found, strict=False)
             if not isinstance(other, str) and fits(changed, Sizes(**other))]
    together = (way for way, changed in _halved(need.spec, BATCH) if fits(changed, need.sizes))
    return replace(need, ways=[way for way in ways if way][:ADVISED] or [*islice(together, 1)])


def _halved(spec: RunSpec, knobs: Sequence[str]) -> Iterator[tuple[Way, RunSpec]]:
    """The run with these knobs at half their values, a quarter, and so on, as far as the run allows each."""
    values = {knob: int(spec.knobs[knob]) for knob in knobs if knob in spec.knobs}
    for _ in range(HALVINGS):
        for knob, value in values.items():
            if _changed(spec, ({**values, knob: value // 2}.items())):
                values[knob] = value // 2
        way = tuple((knob, value) for knob, value in values.items() if value != spec.knobs[knob])
        if way and (changed := _changed(spec, way)):
            yield way, changed


def _changed(spec: RunSpec, way: Iterable[tuple[str, Value]]) -> RunSpec | None:
    """The run with other knobs, or on another model; None where that cannot be."""
    knobs = {**spec.knobs, **dict(way)}
    model = str(knobs.pop("model", spec.model))
    try:
        return make(kind=spec.kind, algorithm_key=spec.algorithm, task_key=spec.task, knobs=knobs, seed=spec.seed,
                    model=model, steps=spec.steps, device=spec.device, data=spec.data,
                    threads=spec.threads, mix=spec.mix)
    except LabError:
        return None
