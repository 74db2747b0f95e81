"""The sizes that a run's memory follows from: of its networks, of its texts in tokens, and of what the engine does at
once. `labcore.jobs.memory_parts` makes bytes of them.

Left out: architectures whose layers are no attention and MLP, which have no such sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from labcore.catalog import choices
from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.files.adapters import base_of, is_adapter
from labcore.jobs.memory_parts import Sizes
from labcore.llm import pairs
from labcore.llm.cost import counted, networks_of
from labcore.llm.nets.folder import find
from labcore.llm.nets.forward import layers_of
from labcore.llm.nets.tokenizer import character_tokenizer, load_tokenizer
from labcore.llm.networks import POLICY
from labcore.llm.probes import view
from labcore.llm.rendering import Asked, Rendering
from labcore.spec.run_spec import RunSpec
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
    """Tokens of the longest prompt as the run writes it, and of the longest given answer with its end; 0 where answers
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
        yield problem, (problem.answer,) if spec.row.loop == "sft" else ()


def _tokenizer(spec: RunSpec, task: TextTask) -> PreTrainedTokenizerBase:
    if spec.model in MODELS:
        return character_tokenizer(task.characters)
    folder = find(spec.model)
    return load_tokenizer(find(base_of(folder)) if is_adapter(folder) else folder)
