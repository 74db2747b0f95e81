"""Sessions on a named model (see `labcore.spec.model_names`): one that can only answer, and one that can also learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from labcore.catalog.llm.models import MODELS
from labcore.device import pick_device
from labcore.jobs.models import Source, base_folder, source
from labcore.llm.nets.model import build, load
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.llm.session import LlmSession
from labcore.spec.model_names import BASE, START, parse
from labcore.tasks.task import make_task


def reader(name: str, knobs: Mapping[str, Any], seed: int) -> LlmSession:
    """A session that holds nothing but the policy `name`, with `knobs` in place of the run's and fresh randomness.

    Raises:
        LabError: the model, its task's file or the device cannot be used.
    """
    return session_on(source(parse(name)), knobs, seed)


def session_on(found: Source, knobs: Mapping[str, Any], seed: int) -> LlmSession:
    """The same on what a `Source` says. Raises LabError as `reader`."""
    spec, device = found.spec, pick_device(found.spec.device)
    torch.set_num_threads(spec.threads)
    task = make_task(spec.task_row, spec.knobs, spec.data)
    if weights := found.checkpoint / "policy" if found.checkpoint else found.weights:
        policy, tokenizer = _loaded(str(weights), device)
    else:
        tokenizer = character_tokenizer(task.characters)
        policy = frozen_on(build(MODELS[spec.model], tokenizer, spec.seed), device)
    return LlmSession(spec, task, tokenizer, device, {"policy": policy}, {}, torch.Generator(device).manual_seed(seed),
                   np.random.default_rng(seed), {**spec.knobs, **knobs}, prompt_seed=seed)


@lru_cache(maxsize=2)  # a model and the base that all are compared with: nobody writes to them, or moves them
def _loaded(weights: str, device: torch.device) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    model, tokenizer = load(weights)
    return frozen_on(model, device), tokenizer


def frozen_on(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """The model on a device, to be asked and not to learn."""
    return model.to(device).eval().requires_grad_(False)


def learner(name: str) -> LlmSession:
    """The session of a run as it was at the named model: with its reference, critic and optimizers.

    Raises:
        LabError: as `reader`.
    """
    model = parse(name)
    found = source(model)
    spec = found.spec
    torch.set_num_threads(spec.threads)
    if model.stage == START:
        return LlmSession.start(spec)
    base = None if spec.parent else base_folder(spec)  # a fork's checkpoint holds all that came of it
    return LlmSession.start(replace(spec, parent=None) if model.stage == BASE else spec, base, found.checkpoint)
