"""Checkpoints are complete or not there."""

from __future__ import annotations

import pytest

from labcore.runs import checkpoint


def fill(folder) -> None:
    (folder / "policy").mkdir()
    (folder / "policy" / "weights").write_text("w")


def test_the_newest_two_are_kept(tmp_path):
    assert checkpoint.newest(tmp_path) is None
    for step in (0, 50, 100, 1_000_000):
        checkpoint.save(tmp_path, step, fill)
    assert [step for step, _ in checkpoint.steps(tmp_path)] == [100, 1_000_000]
    step, folder = checkpoint.newest(tmp_path)
    assert step == 1_000_000 and (folder / "policy" / "weights").read_text() == "w"
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_nothing_is_left_of_a_failed_one(tmp_path):
    checkpoint.save(tmp_path, 1, fill)

    def full(folder):
        fill(folder)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        checkpoint.save(tmp_path, 2, full)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]


def test_what_a_killed_worker_left_half_written_is_not_seen_and_is_cleared(tmp_path):
    checkpoint.save(tmp_path, 1, fill)
    half = tmp_path / "checkpoints" / ".step-000002-abc"
    half.mkdir()
    assert checkpoint.newest(tmp_path)[0] == 1
    checkpoint.save(tmp_path, 3, fill)
    assert not half.exists()


def test_text_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "samples" / "step-000001.json"
    checkpoint.write_text(path, "one")
    checkpoint.write_text(path, "two")
    assert path.read_text() == "two" and [p.name for p in path.parent.iterdir()] == [path.name]
