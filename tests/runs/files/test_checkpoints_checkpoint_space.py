"""Old checkpoints of large models keep the weights alone, equal files are stored once, and the ladder has its bound."""

import json
import random

import pytest
from safetensors.numpy import load_file

from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files import checkpoints as space
from labcore.runs.files.sizes import size

MB = 1_000_000
SMOLLM2 = 538 * MB  # the weights of 135 M numbers in float32; AdamW's moments take twice that


def fill(weights: int, optimizer: int, seed: int = 0):
    """A checkpoint with files of these sizes, which take no room on the disk; the reference is always the same."""
    def write(folder):
        (folder / "policy").mkdir()
        for name, bytes_ in (("policy/model.safetensors", weights), ("optimizer_policy.safetensors", optimizer),
                             ("optimizer_critic.safetensors", optimizer)):
            with (folder / name).open("wb") as file:
                file.write(f"{seed} {name}".encode())
                file.truncate(bytes_)
        (folder / "reference.safetensors").write_bytes(b"r" * 2 * MB)
        (folder / "state.json").write_text(str(seed))
    return write


def own(folder) -> list[int]:
    return [step for step, path in checkpoint.local(folder) if not space.is_dropped(path)]


def test_a_ladder_of_a_real_model_keeps_six_rungs_by_default(tmp_path):
    for step in range(0, 400, 20):
        checkpoint.save(tmp_path, step, fill(SMOLLM2, SMOLLM2, step))  # two networks: as AdamW's moments of one
    steps = [step for step, _ in checkpoint.steps(tmp_path)]
    assert len(steps) - 1 - checkpoint.KEEP >= 6 and steps[0] == 0 and steps[-2:] == [360, 380]
    assert own(tmp_path) == [360, 380], "the newest two can be continued exactly"
    assert size(tmp_path) < 2 * 3 * SMOLLM2 + 9 * SMOLLM2


@pytest.mark.parametrize("seed", range(3))
def test_any_run_keeps_within_its_bound_and_its_newest_can_be_continued(seed, tmp_path, monkeypatch):
    chance = random.Random(seed)
    monkeypatch.setattr(space, "OPTIMIZER_BYTES", 3 * MB)
    (tmp_path / "spec.json").write_text(json.dumps({"knobs": {"ladder_mb": 12}}))
    step, marked = 0, set()
    for _ in range(25):
        step += chance.choice((1, 3, 10))
        marked |= {step} if chance.random() < 0.2 else set()
        checkpoint.save(tmp_path, step, fill(2 * MB, 2 * MB, step), marked)
        found = checkpoint.local(tmp_path)
        assert [at for at, _ in found][-1] == step and own(tmp_path) == [at for at, _ in found][-2:]
        sizes = list(checkpoint.sizes(tmp_path).values())
        assert sum(sizes[1:-2]) <= 12 * MB
        assert all((path / "state.json").read_text() == str(at) for at, path in found)


def test_a_small_optimizer_is_always_kept(tmp_path):
    for step in range(6):
        checkpoint.save(tmp_path, step, fill(MB, space.OPTIMIZER_BYTES // 2, step))
    assert len(own(tmp_path)) == 6


def test_what_was_dropped_reads_as_no_tensors_and_a_killed_drop_is_completed(tmp_path, monkeypatch):
    monkeypatch.setattr(space, "OPTIMIZER_BYTES", 3 * MB)
    fill(MB, 2 * MB)(tmp_path)
    one, other = sorted(tmp_path.glob(space.OPTIMIZERS))
    one.write_bytes(space.DROPPED)  # killed between two files: the rest is below the bound
    space.drop_optimizer(tmp_path)
    assert load_file(one) == load_file(other) == {}
    assert space.is_dropped(tmp_path)


def test_a_fork_that_waits_keeps_what_its_parent_drops(tmp_path, monkeypatch):
    monkeypatch.setattr(space, "OPTIMIZER_BYTES", 3 * MB)
    parent, child = tmp_path / "parent", tmp_path / "child"
    checkpoint.save(parent, 1, fill(MB, 2 * MB, 1))
    (parent / "spec.json").write_text("{}")
    checkpoint.take_along(parent, 1, child)
    for step in (2, 3):
        checkpoint.save(parent, step, fill(MB, 2 * MB, step))
    assert space.is_dropped(checkpoint.at(parent, 1)) and not space.is_dropped(child / "start" / "checkpoint")
    assert checkpoint.keeps_optimizer(parent, 3) and not checkpoint.keeps_optimizer(parent, 1)


def test_what_does_not_change_is_stored_once(tmp_path):
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, step, fill(3 * MB, MB // 2, step))
    references = [path / "reference.safetensors" for _, path in checkpoint.steps(tmp_path)]
    assert len({path.stat().st_ino for path in references}) == 1
    assert all(path.read_bytes() == b"r" * 2 * MB for path in references)
    policies = {(path / "policy" / "model.safetensors").stat().st_ino for _, path in checkpoint.steps(tmp_path)}
    assert len(policies) == 3
    assert max(checkpoint.sizes(tmp_path).values()) < 4.1 * MB and size(tmp_path) < 3 * 4.1 * MB + 2 * MB


def test_where_the_disk_knows_no_links_each_checkpoint_has_its_own(tmp_path, monkeypatch):
    def no_link(*_):
        raise OSError("no links here")
    monkeypatch.setattr("os.link", no_link)
    for step in (1, 2):
        checkpoint.save(tmp_path, step, fill(MB, MB // 2, step))
    assert [(path / "reference.safetensors").read_bytes() for _, path in checkpoint.steps(tmp_path)] == [
        b"r" * 2 * MB] * 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"knobs": {}}', '{"knobs": {"ladder_mb": "much"}}'])
def test_a_spec_without_the_knob_has_the_default_bound(text, tmp_path):
    assert checkpoint.ladder_bytes(tmp_path) == checkpoint.LADDER_BYTES
    (tmp_path / "spec.json").write_text(text)
    assert checkpoint.ladder_bytes(tmp_path) == checkpoint.LADDER_BYTES
