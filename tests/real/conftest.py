"""The folder of the real model, which `RL_LAB_REAL` names; without it these tests are skipped."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def folder() -> Path:
    """The folder of SmolLM2-135M-Instruct."""
    found = os.environ.get("RL_LAB_REAL")
    if not found:
        pytest.skip("RL_LAB_REAL names no folder of a model: make test-real")
    return Path(found).resolve()
