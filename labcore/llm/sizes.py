"""The sizes that determine a run's memory: of its networks, of its texts in tokens, and of the engine's batches.
`labcore.llm.sizing.memory` makes bytes of them.

Left out: architectures whose layers are no attention and MLP, which have no such sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

from labcore.catalog import choices
from labcore.catalog.llm.models import MODELS
from labcore.device import pick_device
from labcore.errors import LabError
from labcore.llm import pairs
from labcore.llm.measured_cost import counted, networks_of
from labcore.llm.nets.folder import find
from labcore.llm.nets.forward import layers_of
from labcore.llm.nets.tokenizer import character_tokenizer, load_tokenizer
from labcore.llm.networks import POLICY
from labcore.llm.probes import view
from labcore.llm.rendering import Asked, Rendering
from labcore.llm.sizing.memory import Sizes
from labcore.runs.files.adapters import base_of, is_adapter
from labcore.runs.spec import activity
from labcore.runs.spec.run_spec import RunSpec
from labcore.tasks.task import PairTask, SingleTask, TextTask, has_singles, make_task

SAMPLE = 256  # prompts that are looked at to find the longest


def sizes(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The job `sizes`: {"sizes": [the fields of a `Sizes`, or a sentence why not, …]} for `specs`."""
    found: list[Any] = []
    for text in spec["specs"]:
        try:
            found.append(asdict(of(RunSpec.from_json(text))))
        except LabError as error:
            found.append(str(error))
    return {"sizes": found}


def of(spec: RunSpec) -> Sizes:
    """The sizes of a run. Raises LabError where its model or its file cannot be used, or has no such sizes."""
    models = networks_of(spec)
    policy: Any = models[POLICY]
    config = policy.config.get_text_config()
    if not getattr(config, "hidden_size", None) or not getattr(config, "num_attention_heads", None):
        raise LabError(f"The memory of a {config.model_type} model cannot be estimated: it has no layers of attention.")
    task = make_task(spec.task_row, spec.knobs, spec.data)
    prompt, answer = _longest(spec, task, policy)
    return Sizes(
        **asdict(layers_of(policy)), held=[asdict(each) for each in counted(spec, models)],
        context=getattr(config, "max_position_embeddings", None) or prompt + answer + 4096, prompt=prompt,
        answer=answer, most_copied=view.KEPT, sampled_at_once=pairs.SAMPLED_AT_ONCE)


def _longest(spec: RunSpec, task: TextTask, policy: Any) -> tuple[int, int]:
    """The tokens of the longest prompt as the run writes it, and of the longest given answer with its end; 0 if answers
    are sampled."""
    rendering, rows = Rendering.of(_tokenizer(spec, task), policy, spec.knobs), [*_rows(spec, task)]
    made = [rendering.answers([row], given, [True] * len(given)) for row, given in rows if given]
    asked = [row for row, given in rows if not given]
    prompts = (rendering.prompts(asked) if asked else []) + [prompt for (prompt,), _ in made]
    answers = [answer for _, answers in made for answer in answers]
    return max(map(len, prompts), default=0), max(map(len, answers), default=0)


def _rows(spec: RunSpec, task: TextTask) -> Iterator[tuple[Asked, tuple[str, ...]]]:
    """Some rows of the run, each with the answers that are given to learn from."""
    rng, knobs = np.random.default_rng(spec.seed), spec.knobs
    if "pairs" in knobs and choices.PAIRS[str(knobs["pairs"])].from_file:
        if has_singles(task) and isinstance(task, SingleTask):
            yield from ((each, (each.completion,)) for each in task.singles(SAMPLE, rng))
        elif isinstance(task, PairTask):
            yield from ((each, (each.chosen, each.rejected)) for each in task.pairs(SAMPLE, rng))
        return
    for problem in task.problems(SAMPLE, rng):
        given = spec.row.loop == "sft" and choices.written_share(knobs) < 1
        yield problem, (problem.answer,) if given else ()


def _tokenizer(spec: RunSpec, task: TextTask) -> PreTrainedTokenizerBase:
    if spec.model in MODELS:
        return character_tokenizer(task.characters)
    folder = find(spec.model)
    return load_tokenizer(find(base_of(folder)) if is_adapter(folder) else folder)


# ---------------------------------------------------------------- speed
# Measure how fast this machine multiplies by matrices of the sizes of a model's layers; step times are estimated from
# it.
#
# The matrices are random, so no model is loaded. Each product reads weights that are not in the processor's cache, as
# in a model, where every layer has its own weights.

ROWS = (1, 4, 16, 64, 256)  # that are decoded together, and the last of them tokens of a pass
CACHES = 128 * 2**20  # bytes, more than the caches of a processor hold
SECONDS = 0.1  # that each size is tried
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@torch.no_grad()
def speed(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The job `speed`; `spec` has the sizes of a layer, as `labcore.llm.sizing.step_time.speed_asked` writes them.

    {"rows": ROWS, "layer": [...], "head": [...]}, seconds that so many rows take by a layer's weights and by the head.
    """
    device, dtype = pick_device(spec["device"]), DTYPES[spec["dtype"]]
    hidden, inner = int(spec["hidden"]), int(spec["inner"])
    shapes = ((spec["queries"] + 2 * spec["keys"], hidden), (hidden, spec["queries"]), (2 * inner, hidden),
              (hidden, inner))
    make = partial(torch.rand, device=device, dtype=dtype)
    size = sum(out * width for out, width in shapes) * dtype.itemsize
    layers = [[make(shape) for shape in shapes] for _ in range(ceil(CACHES / size))]
    head = [[make((int(spec["vocabulary"]), hidden))]]
    if device.type == "cpu":
        layer_rows, head_rows = _by_threads(layers, head, int(spec["threads"]))
    else:
        layer_rows, head_rows = ([_seconds(weights, rows, time.perf_counter) for rows in ROWS]
                                 for weights in (layers, head))
    return {"rows": list(ROWS), "layer": layer_rows, "head": head_rows}


def _by_threads(layers: list[list[Tensor]], head: list[list[Tensor]], threads: int) -> list[list[float]]:
    """Seconds on a processor, by the clock, but never more than the processor time of a single thread, which other
    programs do not change."""
    torch.set_num_threads(1)
    alone = [[_seconds(weights, rows, time.thread_time) for rows in ROWS] for weights in (layers, head)]
    if threads == 1:
        return alone
    torch.set_num_threads(threads)
    return [[min(one, _seconds(weights, rows, time.perf_counter)) for one, rows in zip(ones, ROWS, strict=True)]
            for ones, weights in zip(alone, (layers, head), strict=True)]


def _seconds(groups: list[list[Tensor]], rows: int, clock: Callable[[], float]) -> float:
    """The least time that the products of `rows` rows by all weights of a group take; the groups take turns."""
    activity.report(f"measuring the speed of this machine with {rows} row{'s' if rows > 1 else ''}")
    inputs = {weight.shape[1]: torch.rand(rows, weight.shape[1], device=weight.device, dtype=weight.dtype)
              for weight in groups[0]}
    best, begun, count = float("inf"), clock(), 0
    while count <= len(groups) or clock() - begun < SECONDS:
        since = clock()
        for weight in groups[count % len(groups)]:
            F.linear(inputs[weight.shape[1]], weight)
        if groups[0][0].is_cuda:
            torch.cuda.synchronize()
        count += 1
        if count > 1:  # the first one also wakes what sleeps
            best = min(best, clock() - since)
    return best
