"""The lab on a CUDA GPU. These tests run by themselves where there is one; elsewhere each says that it needs one."""

import gc
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch

from labcore.catalog.llm.models import MODELS
from labcore.llm.session import LlmSession
from tests.llm.tools import TINIER, Letters, spec


@pytest.fixture(autouse=True)
def gpu():
    """The GPU, with no memory of an earlier test held."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU: none is here")
    gc.collect()
    torch.cuda.empty_cache()
    return torch.device("cuda")


@pytest.fixture
def started(gpu) -> Callable[..., LlmSession]:
    """started(algorithm, **knobs): a small session on the GPU, on a task on which random weights earn something."""
    def start(algorithm: str, resume=None, **given) -> LlmSession:
        with patch.dict(MODELS, {"tiny": TINIER}):
            session = LlmSession.start(replace(spec(algorithm, **given), device="cuda"), resume=resume)
        session.task = Letters()
        return session
    return start
