"""Estimate the memory of a run, and whether it fits: a table of its parts, each by a formula. Imports no torch.

The parts are those that the engine allocates, for completions of full length. Measured peaks of processes were within a
third of the estimate. Parts that are held at all times are added up; of the phases of a step (sampling, learning, and
sometimes the picture of its own update for the page) the largest counts. Letters as in `passes`.

Left out: memory of CUDA itself, and the files of libraries, which all processes share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, prod
from pathlib import Path
from typing import Any

from labcore import machine
from labcore.catalog import choices
from labcore.catalog.amounts import size as in_bytes
from labcore.catalog.conditions import SAME_DTYPE
from labcore.catalog.knob import Value, shown
from labcore.catalog.llm.models import MODELS
from labcore.llm.sizing import passes
from labcore.llm.sizing.pace import setting
from labcore.llm.sizing.passes import FULL, HALF, WEIGHT, Batch, Layers, Mode
from labcore.runs import jobs, versions
from labcore.runs.spec import eight_bit
from labcore.runs.spec.eight_bit import EIGHT_BIT
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.spec.vllm import by_vllm

# Bytes that a worker on a processor takes for itself without a model: it is forked, and shares all else.
PROCESS = {"fp32": 4_000_000, "bf16": 48_000_000}
GAPS = 0.15  # of all else, which the allocator of a processor leaves between the blocks
_ID = 8  # bytes of a token's id
PHASES = ALWAYS, SAMPLES, LEARNS, DRAWS = (
    "at all times", "while it samples", "while it learns", "while it draws an update")


@dataclass(frozen=True, kw_only=True)
class Sizes(Layers):
    """The result of the job `sizes` of a run: the sizes of its policy, and more. `held`: its networks from the job
    `models_held`. `prompt` and `answer`: tokens of the longest ones (answer 0: answers are sampled). Limits of the
    engine: `most_copied` parameters are copied at every step, and `sampled_at_once` prompts are sampled together for
    pairs."""

    held: Sequence[Mapping[str, Any]]
    context: int
    prompt: int
    answer: int
    most_copied: int
    sampled_at_once: int

    def parameters(self, *names: str) -> int:
        """The number of parameters of the networks with these names; without names, of all networks."""
        return sum(each["parameters"] for each in self.held if each["name"] in names or not names)

    @property
    def learnt(self) -> int:
        return sum(each["learnt"] for each in self.held)

    @property
    def learning(self) -> Layers:
        """The network that learns in the loop of a reward model: the policy's trunk with one value a token."""
        return replace(self, vocabulary=1, plain_head=self.shares)


@dataclass(frozen=True)
class Part:
    """A row of the table: `when` is the phase that holds it, `size` bytes, `why` the formula in words."""

    name: str
    when: str
    size: int
    why: str


# ---------------------------------------------------------------- formulas


def mode_of(spec: RunSpec) -> Mode:
    """The mode of the run's passes."""
    return Mode(machine.device_kind(spec.device) or "cpu", HALF if spec.knobs["dtype"] == "bf16" else FULL,
                bool(spec.knobs.get("gradient_checkpointing")), bool(spec.knobs.get("compile")))


def whole_batch(spec: RunSpec, sizes: Sizes) -> Batch:
    """The whole batch of one update of a run."""
    knobs, loop = spec.knobs, spec.row.loop
    limit = min(int(knobs["max_new_tokens"]), max(1, sizes.context - sizes.prompt))
    length = min(sizes.answer, max(1, sizes.context - sizes.prompt)) or limit
    measured = int(knobs.get("eval_prompts", 0))
    if loop == "online":
        prompts, group = int(knobs["prompts_per_step"]), int(knobs["group_size"])
        return Batch(prompts // int(knobs.get("mini_batches", 1)), group, prompts * group, sizes.prompt, length)
    if loop == "sft":
        rows, written = int(knobs["sequences_per_step"]), choices.written_share(knobs) > 0
        return Batch(rows, 1, max(rows, measured) if written else measured, sizes.prompt,
                     max(length, limit) if written else length)
    if loop == "prm":
        prompts, group = int(knobs["prompts_per_step"]), int(knobs["group_size"])
        from_file = choices.STEP_LABELS[str(knobs["step_labels"])].from_file
        return Batch(prompts, 1 if from_file else group, 0 if from_file else prompts * group, sizes.prompt, length)
    prompts = int(knobs["pairs_per_step"])
    source = choices.PAIRS[str(knobs["pairs"])]
    drawn = prompts if source.each_step else sizes.sampled_at_once if source.once else 0
    each = 2 if source.opposed else int(knobs["group_size"])  # completions that are drawn for a prompt
    return Batch(prompts, 2, max(drawn * each, measured), sizes.prompt, length)


def batch(spec: RunSpec, sizes: Sizes, card: int | None = None) -> Batch:
    """The micro-batch of a run, on a GPU of `card` bytes."""
    whole, mode = whole_batch(spec, sizes), mode_of(spec)
    there = passes.of_run(sizes.parameters(), sizes.learnt, spec.row.loop, mode, str(spec.knobs.get("optimizer")))
    room = passes.room(sizes.most_logits, mode, card and passes.of_card(card, spec.knobs), there)
    return replace(whole, prompts=min(whole.prompts, passes.prompts_at_once(_network(spec, sizes), whole, mode, room)))


def _network(spec: RunSpec, sizes: Sizes) -> Layers:
    return sizes.learning if spec.row.loop in passes.SCORERS else sizes


def kv_cache(sizes: Sizes, done: Batch, tokens: int, width: int, once: bool) -> int:
    """Bytes of the keys and values of all rows that are sampled together: width · L · 2K · rows · tokens. The prompt is
    stored `once` per group, or once per row."""
    columns = done.sampled * (tokens - done.prompt) + done.prompt * ceil(done.sampled / (done.group if once else 1))
    return width * sizes.layers * 2 * sizes.keys * columns


def next_logits(sizes: Sizes, rows: int) -> int:
    """Bytes of a sampled token's logits, their log-softmax and the draw: 4 numbers in float32 for each of rows · V."""
    return 4 * FULL * rows * sizes.vocabulary


def before_step(sizes: Sizes, loop: str) -> int:
    """Bytes of the copy of the trainable weights that later looks at a step need; large networks have it only in the
    online loop."""
    kept = loop == "online" or (loop not in passes.SCORERS and sizes.learnt <= sizes.most_copied)
    return WEIGHT * sizes.learnt if kept else 0


def waiting(spec: RunSpec, done: Batch) -> int:
    """Bytes of the completions that wait in the queue or in the replay buffer: ids, masks and log-probs. Weights of an
    old policy are never kept."""
    knobs = spec.knobs
    steps = int(knobs.get("staleness", 0)) + int(knobs.get("replay_steps", 0)) * bool(knobs.get("replay_share"))
    asked = done.sampled // done.group * done.prompt * (_ID + 1)
    return steps * (asked + done.sampled * int(knobs["max_new_tokens"]) * (_ID + FULL + 1))


def drawn(sizes: Sizes, loop: str) -> int:
    """Bytes of the weights after an update, which the online loop keeps while it draws the line through it."""
    policy = next(each["learnt"] for each in sizes.held if each["name"] == "policy")
    return WEIGHT * policy if loop == "online" else 0


def teacher_logits(sizes: Sizes, spec: RunSpec, done: Batch) -> int:
    """Bytes of the tables of a loss over the whole vocabulary, in float32: both log-distributions, the teacher's
    logits, and two temporary tables; of one chunk if they are too many."""
    loss = any(each.teacher for each in choices.chosen(choices.SFT_LOSS, spec.knobs)) or spec.knobs.get("single_step")
    return 5 * FULL * min(done.rows * done.length * sizes.vocabulary, sizes.most_logits) if loss else 0


# ---------------------------------------------------------------- the table


def parts(spec: RunSpec, sizes: Sizes, card: int | None = None) -> list[Part]:
    """The rows of the table, the same for every run: a part that the run does not have is 0. `card`: bytes of its
    GPU."""
    knobs, loop, mode = spec.knobs, spec.row.loop, mode_of(spec)
    done, network, half = batch(spec, sizes, card), _network(spec, sizes), mode.width == HALF
    moments = str(knobs.get("optimizer"))
    tokens = done.prompt + min(int(knobs["max_new_tokens"]), max(1, sizes.context - sizes.prompt))
    micro = f"{done.rows:,} rows of {done.prompt:,} + {done.length:,} tokens at once"
    copied = mode.device == "cuda" and sizes.shares  # what the graphs of decoding read
    recorded = copied and not sizes.fused  # stays where it is: those of the lab's own layers are made for each batch
    looks = bool(knobs.get("probes", True))
    caches = 1 + any("mixture" in each.rollouts for each in choices.chosen(choices.ADVANTAGE, knobs))  # of two models
    recomputed = ", of each layer its input" if mode.recomputed else ""
    in_chunks = network.plain_head and done.rows * done.length * network.vocabulary > network.most_logits
    of_vllm = int(passes.VLLM * card) if card and by_vllm(knobs) else 0
    found = [
        Part("vLLM", ALWAYS, of_vllm, f"{100 * passes.VLLM:.0f} % of the GPU for its weights and its key-value cache"),
        Part("Weights", ALWAYS, passes.weights(sizes.parameters("policy")), "4 bytes a parameter of the policy"),
        Part("Reference", ALWAYS, passes.weights(sizes.parameters("reference")), "4 bytes a parameter; none with LoRA"),
        Part("Critic", ALWAYS, passes.weights(sizes.parameters("critic")), "4 bytes a parameter"),
        Part("Reward model", ALWAYS, passes.weights(sizes.parameters(
            "reward_model", "process_reward_model", "scorer")), "4 bytes a parameter"),
        Part("Teacher", ALWAYS, passes.weights(sizes.parameters("teacher")), "4 bytes a parameter"),
        Part("Optimizer", ALWAYS, passes.optimizer(sizes.learnt, moments),
             f"{2 if moments == EIGHT_BIT else 8} bytes for each parameter that learns"),
        Part("Weights before the step", ALWAYS, looks * before_step(sizes, loop),
             "4 bytes for each parameter that learns"),
        Part("Weights in bf16", ALWAYS, half * (1 + recorded) * passes.rounded(max(
            each["parameters"] for each in sizes.held)),
            "2 bytes a parameter of the network that runs" + ", and of the policy for decoding" * recorded),
        Part("KV cache", ALWAYS if recorded else SAMPLES,
             caches * kv_cache(sizes, done, tokens, mode.width, once=copied and sizes.fused) if sizes.shares else 0,
             f"{done.sampled:,} rows of {tokens:,} tokens" + ", prompts once" * (copied and sizes.fused)),
        Part("Next token", SAMPLES, next_logits(sizes, done.sampled), f"{done.sampled:,} rows × vocabulary"),
        Part("Copy of the full weights", SAMPLES, WEIGHT * sizes.parameters("policy") * (
            str(knobs.get("sampler_dtype", SAME_DTYPE)) != SAME_DTYPE), "4 bytes a parameter of the policy"),
        Part("Waiting completions", ALWAYS, waiting(spec, done), "13 bytes a token"),
        Part("Gradients", LEARNS, passes.gradients(sizes.learnt), "4 bytes for each parameter that learns"),
        Part("Activations", LEARNS, passes.activations(network, done, mode), micro + recomputed),
        Part("Attention weights", LEARNS, passes.attention(network, done, mode),
             "of each token for each other, where no fused kernel computes them"),
        Part("Logits", LEARNS, 0 if loop in passes.SCORERS else teacher_logits(sizes, spec, done) + passes.logits(
            sizes, done, mode, any(float(knobs.get(key, 0)) > 0 for key in ("entropy_coef", "entropy_target"))),
            f"{micro}, × vocabulary {sizes.vocabulary:,}{', in chunks' if in_chunks else ''}"),
        Part("Line of the update", DRAWS, looks * drawn(sizes, loop), "a copy of the policy, at times")]
    return found + _of_the_process(spec, peak(found))


def _of_the_process(spec: RunSpec, tensors: int) -> list[Part]:
    """The bytes that a worker on the CPU needs beside its `tensors`."""
    on_cpu = machine.device_kind(spec.device) == "cpu"
    return [Part("Process", ALWAYS, PROCESS[str(spec.knobs["dtype"])] * on_cpu, "what the worker takes for itself"),
            Part("Gaps between blocks", ALWAYS, int(GAPS * tensors) * on_cpu,
                 f"usually {100 * GAPS:.0f} % of all tensors")]


def peak(found: Sequence[Part]) -> int:
    """The largest number of bytes in use: the memory that is held all the time plus the largest phase."""
    held: dict[str, int] = {}
    for part in found:
        held[part.when] = held.get(part.when, 0) + part.size
    return held.pop(ALWAYS, 0) + max(held.values(), default=0)


# ---------------------------------------------------------------- estimate

SURE = 1.3  # times the estimate: with so much free memory a run fits for sure
# Knobs that make a batch smaller, and those that make a part of it smaller, in the order in which they are advised.
BATCH = ("prompts_per_step", "pairs_per_step", "sequences_per_step", "group_size", "max_new_tokens")
UNUSUAL = 16  # times the usual batch, from where it is looked whether a run fits without being asked to

ABOUT = ("An estimate, for completions of full length: measured peaks were within a third of it. Parts held at all "
         "times add up; of the phases of a step the largest counts. On a processor it is what this run adds to "
         "a worker process of about 330 MB, which workers on Linux share; the metric Memory counts the whole process.")

Way = tuple[tuple[str, Value], ...]  # knobs, or "model", and their other values


@dataclass(frozen=True)
class Estimate:
    """The table of a run: its `parts`, their `peak`, the `free` memory of its device now (bytes; None: unknown), and
    the `ways`: settings that each make the run fit. `fault` is the reason why there is no estimate."""

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
    def share(self) -> int | None:
        """Bytes of a GPU that the run may take; None on another device."""
        card = machine.total_memory(self.spec.device)
        return passes.of_card(card, self.spec.knobs) if card else None

    @property
    def most(self) -> int | None:
        """Bytes that it can take now; None: unknown."""
        return self.free if self.free is None or self.share is None else min(self.free, self.share)

    @property
    def sure(self) -> bool | None:
        """Whether it fits though the estimate may be too low; None: unknown."""
        return None if self.most is None else SURE * self.peak <= self.most

    def verdict(self) -> str:
        """The estimate against the free memory, in a sentence."""
        need = f"about {in_bytes(self.peak)} at the most"
        if self.free is None or self.most is None:
            return f"It needs {need}; how much is free on this device cannot be found out."
        there = f"{in_bytes(self.free)} are free now" if self.most == self.free else (
            f"its share of the GPU is {in_bytes(self.most)}")
        if self.peak > self.most:
            return f"It does not fit: it needs {need}, and {there}."
        if not self.sure:
            return f"It may not fit: it needs {need}, {there}, and the estimate may be a third off."
        return f"It fits: it needs {need}, and {there}."

    def advice(self, name_of: Callable[[str], str] = str) -> str:
        """The changes that make it fit, in a sentence; empty where it fits. `name_of` names a knob."""
        if self.sure is not False:
            return ""
        if not self.ways:
            return "No smaller batch makes it fit: choose a smaller model, or a device with more memory."
        ways = [" and ".join(f"{name_of(key)} to {shown(value)}{_first(value)}" for key, value in way)
                for way in self.ways]
        return f"To make it fit, set {', or '.join(ways)}."


def _first(value: Value) -> str:
    """The step to take before a knob can have this value, in brackets; mostly empty."""
    return f" (install it first: {eight_bit.INSTALL})" if value == eight_bit.EIGHT_BIT and eight_bit.missing() else ""


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
    """The table of a run; `found` is the result of the job `asked`."""
    if isinstance(found, str):
        return Estimate(spec, fault=found)
    return Estimate(spec, Sizes(**found), machine.free_memory(spec.device))


def as_json(found: Estimate) -> dict[str, Any]:
    """An estimate for programs, in bytes."""
    return {"parts": [asdict(part) for part in found.parts], "peak": found.peak, "free": found.free,
            "fits": found.sure, "ways": [dict(way) for way in found.ways], "fault": found.fault}
