"""How much memory a run will need, part by part, before it starts: each by a formula, and their sum.

An estimate: the parts are counted as the engine makes them, for completions that run to their limit. Measured peaks of
processes came within a third of it. What is held at all times adds up; of the phases of a step (it samples, learns, and
now and then draws its own update for the page) the largest counts. Letters as in `passes`.

Left out: what CUDA holds for itself, and the files of libraries, which all processes share. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from labcore import machine
from labcore.jobs import held, passes
from labcore.jobs.held import WEIGHT
from labcore.jobs.passes import FULL, HALF, Batch, Layers, Mode
from labcore.spec.moments import EIGHT_BIT
from labcore.spec.run_spec import RunSpec

# Bytes that a worker on a processor takes for itself without a model: it is forked, and shares all else.
PROCESS = {"fp32": 4_000_000, "bf16": 48_000_000}
GAPS = 0.15  # of all else, which the allocator of a processor leaves between the blocks
PHASES = ALWAYS, SAMPLES, LEARNS, DRAWS = (
    "at all times", "while it samples", "while it learns", "while it draws an update")


@dataclass(frozen=True, kw_only=True)
class Sizes(Layers):
    """What the job `sizes` finds of a run: the sizes of its policy, and more. `held` are its networks as the job
    `models_held` counts them; `prompt` and `answer` tokens of the longest (answer 0: they are sampled). The rest are
    limits of the engine: parameters that are copied at every step, prompts that are sampled at once for pairs."""

    held: Sequence[Mapping[str, Any]]
    context: int
    prompt: int
    answer: int
    most_copied: int
    sampled_at_once: int

    def parameters(self, *names: str) -> int:
        """Numbers of the networks of these names; of all without any."""
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
    """How the run has its passes."""
    return Mode(machine.device_kind(spec.device) or "cpu", HALF if spec.knobs["dtype"] == "bf16" else FULL,
                bool(spec.knobs.get("gradient_checkpointing")), bool(spec.knobs.get("compile")))


def whole_batch(spec: RunSpec, sizes: Sizes) -> Batch:
    """What a run learns from in one update."""
    knobs, loop = spec.knobs, spec.row.loop
    limit = min(int(knobs["max_new_tokens"]), max(1, sizes.context - sizes.prompt))
    length = min(sizes.answer, max(1, sizes.context - sizes.prompt)) or limit
    measured = int(knobs.get("eval_prompts", 0))
    if loop == "online":
        prompts, group = int(knobs["prompts_per_step"]), int(knobs["group_size"])
        return Batch(prompts // int(knobs.get("mini_batches", 1)), group, prompts * group, sizes.prompt, length)
    if loop == "sft":
        return Batch(int(knobs["sequences_per_step"]), 1, measured, sizes.prompt, length)
    prompts = int(knobs["pairs_per_step"])
    drawn = {"policy_each_step": prompts, "reference_once": sizes.sampled_at_once}.get(str(knobs["pairs"]), 0)
    return Batch(prompts, 2, max(drawn * int(knobs["group_size"]), measured), sizes.prompt, length)


def batch(spec: RunSpec, sizes: Sizes, card: int | None = None) -> Batch:
    """The micro-batch of a run, on a GPU of `card` bytes."""
    whole, mode = whole_batch(spec, sizes), mode_of(spec)
    there = held.of_run(sizes.parameters(), sizes.learnt, spec.row.loop, mode, str(spec.knobs.get("optimizer")))
    room = held.room(sizes.most_logits, mode, card and held.without_vllm(card, spec.knobs), there)
    return replace(whole, prompts=min(whole.prompts, passes.prompts_at_once(_network(spec, sizes), whole, mode, room)))


def _network(spec: RunSpec, sizes: Sizes) -> Layers:
    return sizes.learning if spec.row.loop == "reward_model" else sizes


def kv_cache(sizes: Sizes, rows: int, tokens: int, width: int) -> int:
    """Bytes of the keys and values of all rows that are sampled together: width · L · 2K · rows · tokens."""
    return width * sizes.layers * 2 * sizes.keys * rows * tokens


def next_logits(sizes: Sizes, rows: int) -> int:
    """Bytes of a sampled token's logits, their log-softmax and the draw: 4 numbers in float32 for each of rows · V."""
    return 4 * FULL * rows * sizes.vocabulary


def before_step(sizes: Sizes, loop: str) -> int:
    """Bytes of the copy of what learns, to look at a step again: of large networks only in the online loop."""
    kept = loop == "online" or (loop != "reward_model" and sizes.learnt <= sizes.most_copied)
    return WEIGHT * sizes.learnt if kept else 0


def drawn(sizes: Sizes, loop: str) -> int:
    """Bytes of the weights after an update, which the online loop keeps while it draws the line through it."""
    policy = next(each["learnt"] for each in sizes.held if each["name"] == "policy")
    return WEIGHT * policy if loop == "online" else 0


# ---------------------------------------------------------------- the table


def parts(spec: RunSpec, sizes: Sizes, card: int | None = None) -> list[Part]:
    """The rows of the table, the same for every run; those of what it does not hold are 0. `card`: bytes of its GPU."""
    knobs, loop, mode = spec.knobs, spec.row.loop, mode_of(spec)
    done, network, half = batch(spec, sizes, card), _network(spec, sizes), mode.width == HALF
    moments = str(knobs.get("optimizer"))
    tokens = done.prompt + min(int(knobs["max_new_tokens"]), max(1, sizes.context - sizes.prompt))
    micro = f"{done.rows:,} rows of {done.prompt:,} + {done.length:,} tokens at once"
    on_cpu = machine.device_kind(spec.device) == "cpu"
    recorded = mode.device == "cuda" and sizes.shares  # what the graphs of decoding read stays where it is
    looks = bool(knobs.get("probes", True))
    recomputed = ", of each layer its input" if mode.recomputed else ""
    in_chunks = network.plain_head and done.rows * done.length * network.vocabulary > network.most_logits
    of_vllm = card - held.without_vllm(card, knobs) if card else 0
    found = [
        Part("vLLM", ALWAYS, of_vllm, f"{held.VLLM:.0%} of the GPU for its weights and its key-value cache"),
        Part("Weights", ALWAYS, held.weights(sizes.parameters("policy")), "4 bytes a parameter of the policy"),
        Part("Reference", ALWAYS, held.weights(sizes.parameters("reference")), "4 bytes a parameter; none with LoRA"),
        Part("Critic", ALWAYS, held.weights(sizes.parameters("critic")), "4 bytes a parameter"),
        Part("Reward model", ALWAYS, held.weights(sizes.parameters("reward_model", "scorer")), "4 bytes a parameter"),
        Part("Optimizer", ALWAYS, held.optimizer(sizes.learnt, moments),
             f"{2 if moments == EIGHT_BIT else 8} bytes for each parameter that learns"),
        Part("Weights before the step", ALWAYS, looks * before_step(sizes, loop),
             "4 bytes for each parameter that learns"),
        Part("Weights in bf16", ALWAYS, half * (1 + recorded) * held.rounded(max(
            each["parameters"] for each in sizes.held)),
             "2 bytes a parameter of the network that runs" + ", and of the policy for decoding" * recorded),
        Part("KV cache", ALWAYS if recorded else SAMPLES,
             kv_cache(sizes, done.sampled, tokens, mode.width) if sizes.shares else 0,
             f"{done.sampled:,} rows of {tokens:,} tokens"),
        Part("Next token", SAMPLES, next_logits(sizes, done.sampled), f"{done.sampled:,} rows × vocabulary"),
        Part("Gradients", LEARNS, held.gradients(sizes.learnt), "4 bytes for each parameter that learns"),
        Part("Activations", LEARNS, passes.activations(network, done, mode), micro + recomputed),
        Part("Attention weights", LEARNS, passes.attention(network, done, mode),
             "of each token for each other, where no fused kernel computes them"),
        Part("Logits", LEARNS, 0 if loop == "reward_model" else passes.logits(
            sizes, done, mode, float(knobs.get("entropy_coef", 0)) > 0),
            f"{micro}, × vocabulary {sizes.vocabulary:,}{', in chunks' if in_chunks else ''}"),
        Part("Line of the update", DRAWS, looks * drawn(sizes, loop), "a copy of the policy, at times")]
    found += [Part("Process", ALWAYS, PROCESS[str(knobs["dtype"])] * on_cpu, "what the worker takes for itself"),
              Part("Gaps between blocks", ALWAYS, int(GAPS * peak(found)) * on_cpu,
                   f"usually {GAPS:.0%} of all tensors")]
    return found


def peak(found: Sequence[Part]) -> int:
    """Bytes at the most: what is held at all times, and the largest phase."""
    held: dict[str, int] = {}
    for part in found:
        held[part.when] = held.get(part.when, 0) + part.size
    return held.pop(ALWAYS, 0) + max(held.values(), default=0)
