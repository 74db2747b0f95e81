"""Checkpoints are complete or not there."""

import shutil
from itertools import pairwise

import pytest

from labcore.runs.files import checkpoints as checkpoint


def fill(folder) -> None:
    (folder / "policy").mkdir()
    (folder / "policy" / "weights").write_text("w")


def kept(folder) -> list[int]:
    return [step for step, _ in checkpoint.steps(folder)]


def test_the_first_the_newest_two_and_a_ladder_between_are_kept(tmp_path):
    assert checkpoint.newest(tmp_path) is None
    for step in (*range(0, 1050, 50), 1_000_000):
        checkpoint.save(tmp_path, step, fill)
    steps = kept(tmp_path)
    assert steps[0] == 0 and steps[-2:] == [1000, 1_000_000] and len(steps) == 3 + checkpoint.LADDER
    assert max(after - before for before, after in pairwise(steps[:-1])) <= 150  # thinned evenly
    step, folder = checkpoint.newest(tmp_path)
    assert step == 1_000_000 and (folder / "policy" / "weights").read_text() == "w"
    assert len(list((tmp_path / "checkpoints").iterdir())) == len(steps)


def test_the_ladder_keeps_marked_steps_longest(tmp_path):
    for step in (*range(0, 1050, 50), 51, 52):
        checkpoint.save(tmp_path, step, fill, marked={51, 52, 700})
    assert {51, 52, 700} <= set(kept(tmp_path)) and len(kept(tmp_path)) == 3 + checkpoint.LADDER


def test_the_ladder_takes_no_more_than_its_share_of_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "LADDER_BYTES", 3)  # a checkpoint of the test has 1 byte
    for step in range(8):
        checkpoint.save(tmp_path, step, fill)
    assert len(kept(tmp_path)) == 6 and kept(tmp_path)[0] == 0 and kept(tmp_path)[-2:] == [6, 7]


@pytest.mark.parametrize("room", [3, 200_000_000])
def test_the_best_is_never_lost_and_takes_no_room_of_the_ladder(tmp_path, monkeypatch, room):
    monkeypatch.setattr(checkpoint, "LADDER_BYTES", room)  # a checkpoint of the test has 1 byte
    for step in range(40):
        checkpoint.save(tmp_path, step, fill)
        if step in (3, 7):
            checkpoint.mark_best(tmp_path, step, "held_out/greedy", step / 10)
    assert checkpoint.best(tmp_path) == {"step": 7, "metric": "held_out/greedy", "value": 0.7}
    assert 7 in kept(tmp_path) and len(kept(tmp_path)) == 4 + min(room, checkpoint.LADDER)
    shutil.rmtree(tmp_path / "checkpoints" / "step-000007")
    assert checkpoint.best(tmp_path) == {} and checkpoint.best_step(tmp_path) is None


@pytest.mark.parametrize("text", ["", "7", "[]", "{}", '{"step": 1, "metric": "held_out/greedy"}',
                                  '{"step": 1, "metric": "nothing", "value": 0.5}',
                                  '{"step": 9, "metric": "held_out/greedy", "value": 0.5}'])
def test_a_mark_that_is_no_mark_marks_nothing(tmp_path, text):
    checkpoint.save(tmp_path, 1, fill)
    (tmp_path / "best.json").write_text(text)
    assert checkpoint.best(tmp_path) == {}


def test_a_fork_takes_its_start_along_and_a_missing_one_is_left_out(tmp_path):
    parent, child, other = (tmp_path / name for name in ("parent", "child", "other"))
    checkpoint.save(parent, 3, fill)
    (parent / "spec.json").write_text("{}")
    checkpoint.take_along(parent, 3, child)
    shutil.rmtree(parent)
    assert (child / "start" / "checkpoint" / "policy" / "weights").read_text() == "w"
    assert (child / "start" / "spec.json").read_text() == "{}"
    checkpoint.take_along(parent, 3, other)
    assert not (other / "start").exists()


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
