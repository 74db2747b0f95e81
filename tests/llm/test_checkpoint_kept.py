"""A checkpoint that waits in memory is written as it would have been, and the run goes on as if nothing had been."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file

from labcore import machine
from labcore.llm.session import LlmSession
from tests.every import now
from tests.llm.nets import test_lora
from tests.llm.tools import records, session, weights


def files(folder: Path) -> dict[str, Any]:
    """What each file holds; of safetensors the tensors, because the order of its header is by chance."""
    return {str(path.relative_to(folder)): {
        name: (str(tensor.dtype), tensor.tolist()) for name, tensor in load_file(path).items()} if (
        path.suffix == ".safetensors") else path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def saved(write, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    write(folder)
    return files(folder)


def stepped(started: LlmSession, run, steps: int) -> None:
    for _ in range(steps):
        next(record for record in run if record is not None)
    assert started.moves


@pytest.mark.parametrize(("algorithm", "adapted"), now(
    [("grpo", False), ("ppo", False), ("dpo", False), ("grpo", True)], ("ppo", False)))
def test_what_waited_is_what_would_have_been_saved(algorithm, adapted, tmp_path):
    on_base = test_lora.run_spec(algorithm, test_lora.made("gpt2", tmp_path / "base"), steps=3)
    started = test_lora.begun(on_base) if adapted else session(algorithm, steps=4)
    run = started.run()
    stepped(started, run, 2)
    expected, write = saved(started.save, tmp_path / "at once"), started.kept()
    started.knobs["learning_rate"] = 0.02
    stepped(started, run, 1)
    before = saved(started.save, tmp_path / "before")
    assert saved(write, tmp_path / "later") == expected != before
    assert saved(started.save, tmp_path / "after") == before
    assert saved(write, tmp_path / "again") == expected


def test_the_run_goes_on_bit_for_bit(tmp_path):
    started, undisturbed = (session("grpo", steps=4) for _ in range(2))
    run = started.run()
    stepped(started, run, 2)
    write = started.kept()
    stepped(started, run, 1)
    saved(write, tmp_path / "later")
    stepped(started, run, 1)
    records(undisturbed)
    assert torch.equal(weights(started.policy), weights(undisturbed.policy))


def test_nothing_is_copied_where_memory_is_short():
    started = session("grpo")
    with patch.object(machine, "free_memory", return_value=50_000):
        assert started.kept() is None
