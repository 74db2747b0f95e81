"""The way in which the engine runs a batch through a network, and its memory and time, as arithmetic on sizes. Imports
no torch.

    packed   a prompt and all its completions in one row, by a mask      for short rows
    shared   each prompt once, its completions on copies of its cache    for long prompts
    causal   every row whole, padded on the right, without a mask        for the rest on CUDA
    plain    every row whole, padded on the left                         for the rest

The engine and the table of memory both ask here. P prompts, G completions of each, S tokens of the longest prompt, T of
the longest completion; L layers, V tokens of the vocabulary; H, Q, K and I are the widths of a layer, of its queries,
of its keys, and of its MLP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from labcore.catalog.knob import Value
from labcore.catalog.llm.upkeep import GPU_SHARE
from labcore.runs.spec.eight_bit import EIGHT_BIT
from labcore.runs.spec.vllm import by_vllm

Way = Literal["packed", "shared", "causal", "plain"]

SCORERS = ("prm", "reward_model")  # loops in which the policy only lends its weights to a network of few outputs
HALF, FULL = 2, 4  # bytes of a number in bfloat16 and in float32
# Of attention on a GPU: times as long a pair of tokens takes where a mask is needed, which rules out flash kernels and
# the halving that causality allows. And times as long a token takes on a cache: its keys and values are copied for each
# completion, and two passes are made. Both are estimates from the sizes of these operations.
MASKED, CACHED = 6.0, 1.5
# Times as long a pass by a model's own layers takes as its cost says, where the lab has layers for a GPU: 142 to 204 ms
# against 40 ms (60 M, 128 rows of 180 tokens on an H200).
BY_OWN_LAYERS = 4.0


@dataclass(frozen=True, kw_only=True)
class Layers:
    """A network's sizes, and the ways in which the engine can run it.

    packs: several completions in one row. own: the lab's equations of Llama. fused: the lab's layers for a GPU. shares:
    one cache for all completions of a prompt. plain_head: the logits (or a critic's value) are the hidden states times
    a matrix. `longest_packed` (tokens of a row) and `most_logits` (numbers) are limits of the engine.
    """

    layers: int
    heads: int
    hidden: int
    queries: int
    keys: int
    inner: int
    vocabulary: int
    packs: bool
    own: bool
    fused: bool
    shares: bool
    plain_head: bool
    longest_packed: int
    most_logits: int

    def packed(self, done: Batch) -> bool:
        """Whether the completions of a prompt run in one row with it."""
        short = done.prompt + done.group * (done.length - 1) <= self.longest_packed
        return self.packs and short and (self.own or done.group > 1)


@dataclass(frozen=True)
class Batch:
    """The rows that a run computes at once. `prompts` and `group` of an update's micro-batch; `sampled` rows are drawn
    together; `prompt` and `length` are tokens."""

    prompts: int
    group: int
    sampled: int
    prompt: int
    length: int

    @property
    def rows(self) -> int:
        return self.prompts * self.group

    @property
    def row(self) -> int:
        """Tokens of a row, but for the last, from which nothing is predicted."""
        return self.prompt + self.length - 1


@dataclass(frozen=True)
class Mode:
    """The mode of a run's passes: on which kind of device, with numbers of `width` bytes, with layers that are
    `recomputed` in the backward pass, or `compiled`; without `gradient` there is no backward pass."""

    device: str = "cpu"
    width: int = FULL
    recomputed: bool = False
    compiled: bool = False
    gradient: bool = True


def way(layers: Layers, done: Batch, mode: Mode) -> Way:
    """The cheapest exact pass. On a processor a shared prompt pays at every length that was measured."""
    if mode.compiled and layers.plain_head:
        return "causal"
    if layers.packed(done):
        return "packed"
    if not layers.shares:
        return "plain"
    whole: Way = "causal" if mode.device == "cuda" and layers.plain_head else "plain"
    if done.group == 1 or mode.recomputed:  # a layer that runs again would write to the cache again
        return whole
    slower = BY_OWN_LAYERS if layers.fused and fused_pass(mode) else 1.0
    shared = whole == "plain" or slower * cost(layers, done, "shared") < cost(layers, done, "causal")
    return "shared" if shared else "causal"


def cost(layers: Layers, done: Batch, by: Way) -> float:
    """The cost of a layer's pass on a GPU, in operations / 4H: 6H a token (12 H² weights), and one a pair of tokens."""
    if by == "causal":
        return done.rows * (6 * layers.hidden * done.row + done.row**2 / 2)
    after = done.group * (done.length - 1)
    pairs = done.prompts * (done.prompt**2 + after * done.row)
    return CACHED * 6 * layers.hidden * tokens(done, by) + MASKED / 2 * pairs


def tokens(done: Batch, by: Way) -> int:
    """Tokens that run through the network."""
    if by in ("packed", "shared"):
        return done.prompts * (done.prompt + done.group * (done.length - 1))
    return done.rows * done.row


def activations(layers: Layers, done: Batch, mode: Mode) -> int:
    """Bytes of the activations of a micro-batch that a Llama keeps for the backward pass: width · L · (6H + 3Q + 4I +
    2K) for each token.

    In bf16 norms are float32, so 10H; the lab's layers for a GPU keep 2H + 2Q + 2K. With a shared cache each row also
    has the keys and values of the prompt, expanded to all heads (2Q); packed rows on a GPU are expanded too. With
    gradient checkpointing: width · L · H, plus one layer in full with its gradients (otherwise gradients use memory
    that has been freed). Without a backward pass: one layer, plus the shared cache of all layers.
    """
    by = way(layers, done, mode)
    count = tokens(done, by)
    seen = done.rows * done.row if by == "shared" else count
    spread = layers.queries if by == "shared" or (by == "packed" and mode.device == "cuda") else layers.keys
    of_token = (10 if mode.width == HALF else 6) * layers.hidden + 3 * layers.queries + 4 * layers.inner
    if by == "causal" and layers.fused and fused_pass(mode):
        of_token = 2 * layers.hidden + 2 * layers.queries
    of_layer = count * of_token + seen * 2 * spread
    if not mode.gradient:
        return mode.width * (of_layer + (layers.layers * seen * 2 * spread if by == "shared" else 0))
    return mode.width * (layers.layers * count * layers.hidden + 2 * of_layer if mode.recomputed
                         else layers.layers * of_layer)


def fused_pass(mode: Mode) -> bool:
    """True if whole rows run by the lab's layers for a GPU, provided that they support the network."""
    return mode.device == "cuda" and mode.width == HALF and not mode.compiled


def attention(layers: Layers, done: Batch, mode: Mode) -> int:
    """Bytes of the attention weights that are kept for the backward pass if no fused kernel computes attention:
    width · L · heads · R² for each row of R tokens.

    They are kept for packed rows in bf16 on a processor, and for whole rows in float32 on a GPU if heads share keys
    (Q > K), because torch has no kernel for this case.
    """
    by, half = way(layers, done, mode), mode.width == HALF
    if by == "packed" and half and mode.device == "cpu":
        rows, row = done.prompts, done.prompt + done.group * (done.length - 1)
    elif by == "causal" and mode.device == "cuda" and layers.keys < layers.queries and not half:
        rows, row = done.rows, done.row
    else:
        return 0
    return mode.width * (1 if mode.recomputed or not mode.gradient else layers.layers) * layers.heads * rows * row**2


def logits(layers: Layers, done: Batch, mode: Mode, with_entropy: bool) -> int:
    """Bytes of a micro-batch's logits, their log-probs and their gradient: rows · T · V numbers in the run's type, and
    on a processor 4 times as many in float32 (5 times with an entropy bonus); on a GPU once more for the gradient. If
    they exceed the engine's limit, the bytes of one chunk, plus the hidden states and their gradient."""
    numbers, hidden = done.rows * done.length * layers.vocabulary, 0
    if layers.plain_head and numbers > layers.most_logits:
        numbers, hidden = layers.most_logits, 2 * mode.width * done.rows * done.length * layers.hidden
    more = mode.width if mode.device == "cuda" else FULL * (5 if with_entropy else 4)
    return numbers * (mode.width + more) + hidden


def prompts_at_once(layers: Layers, done: Batch, mode: Mode, room: int) -> int:
    """Prompts of a micro-batch whose activations take at most `room` bytes; at least one, since groups stay whole."""
    one = replace(done, prompts=1)
    most = room // (activations(layers, one, mode) + attention(layers, one, mode))
    if not layers.plain_head:
        most = min(most, layers.most_logits // (done.group * done.length * layers.vocabulary))
    return max(1, most)


# ---------------------------------------------------------------- held
# What a run holds in memory whatever its batch is, in bytes, and what that leaves for the batch. Imports no torch.

WEIGHT, GRADIENT, MOMENTS = 4, 4, 8  # bytes of a number in float32, of its gradient, and of AdamW's two moments
BLOCK = 256  # numbers of a moment in 8 bits that have a scale in common
ON_PROCESSOR = 2**32  # bytes of activations of a micro-batch at the most, on whatever machine: its digits are the same
OF_SMALL, TIMES = 288 * 2**20, 8  # of a small model: bytes at the least, else so many times what the run holds
ON_GPU = 2**32  # the same on a GPU: more at once keeps it no busier, and takes the memory of others
OF_CARD = 0.8  # of a run's share of a GPU: the rest is for the allocator, the sampler's and single operations' buffers
VLLM = 0.3  # of a GPU's memory: vLLM's weights and key-value cache, where it samples
LEAST = 0.05  # of it that a micro-batch may take whatever the run holds; where that is too much it is halved


def weights(parameters: int) -> int:
    """Bytes of weights: 4 a number, in bf16 too, since the optimizer moves float32."""
    return WEIGHT * parameters


def gradients(learnt: int) -> int:
    """Bytes of gradients: 4 for each number that learns."""
    return GRADIENT * learnt


def optimizer(learnt: int, kind: str) -> int:
    """Bytes of AdamW's two moments for each number that learns: 8, or in 8 bits 2 and a scale for each block."""
    return 2 * learnt + 2 * FULL * learnt // BLOCK if kind == EIGHT_BIT else MOMENTS * learnt


def rounded(parameters: int) -> int:
    """Bytes of a network's weights in bfloat16, which a forward pass in bf16 makes: 2 a number."""
    return HALF * parameters


def of_run(parameters: int, learnt: int, loop: str, mode: Mode, kind: str) -> int:
    """An upper bound of the bytes that a run holds: weights, gradients, moments, the copy of the trainable weights for
    later looks at a step, and the weights in bfloat16."""
    copied = weights(learnt) if loop not in SCORERS else 0
    half = rounded(parameters) if mode.width == HALF else 0
    return weights(parameters) + gradients(learnt) + optimizer(learnt, kind) + copied + half


def of_card(card: int, knobs: Mapping[str, Value]) -> int:
    """Bytes that a run may use of a GPU with `card` bytes: its share, but at most the part that vLLM leaves if it
    samples."""
    left = 1 - VLLM if by_vllm(knobs) else 1.0
    return int(min(float(knobs.get("gpu_share", GPU_SHARE.default)), left) * card)


def room(most_logits: int, mode: Mode, card: int | None, held: int) -> int:
    """Bytes for the activations of a micro-batch. They depend on the spec and the card alone, not on the memory that is
    free at the moment.

    On a processor: 8 times the `held` bytes, but at least 288 MiB, which is enough for every default batch, and at most
    4 GiB, so that a large batch of a small model does not fill the machine's memory. On a GPU of which a run may use
    `card` bytes: the bytes that are not `held`, but at most as many as keep the GPU busy.
    """
    if mode.device != "cuda" or not card:
        return min(ON_PROCESSOR, max(OF_SMALL, TIMES * held))
    chunk = most_logits * (mode.width + FULL * 5)
    return int(min(ON_GPU, max(OF_CARD * card - held - chunk, LEAST * card)))
