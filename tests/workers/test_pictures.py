"""The files that a run leaves to be looked at: as many as there are steps, up to a bound."""

import json
from itertools import pairwise

import pytest

from labcore.errors import LabError
from labcore.runs.files import step_files
from labcore.workers import pictures
from labcore.workers.pictures import Pictures
from tests.words import says


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(pictures, "MOST", 10)


def steps(folder) -> list[int]:
    return sorted(step_files.step_of(path.name) for path in folder.iterdir())


def test_a_short_run_keeps_all(tmp_path, few):
    kept = Pictures(tmp_path / "samples")
    said = {kept.write(step, {"step": step, "value": float("nan")}) for step in range(1, 21)}
    assert said == {""}
    assert steps(tmp_path / "samples") == list(range(1, 21))
    assert json.loads((tmp_path / "samples" / "step-000007.json").read_text()) == {"step": 7, "value": None}


def test_a_long_run_is_thinned_where_it_is_old_and_keeps_the_first_the_newest_and_the_best(tmp_path, few):
    kept, said = Pictures(tmp_path / "samples"), set()
    for step in range(1, 1_001):
        said.add(kept.write(step, {"step": step, "best": {"step": min(step, 36), "return": 1.0}}))
        there = steps(tmp_path / "samples")
        assert len(there) <= 20 and there[0] == 1 and there[-1] == step
    assert len(said) == 2 and says(max(said), "More than 20 steps", "deleted", "newest", "metrics are complete")
    assert 36 in there and len(there) >= 10
    gaps = [after - before for before, after in pairwise(there) if 36 not in (before, after)]
    assert gaps == sorted(gaps, reverse=True), "the newest stand closest together"


@pytest.mark.parametrize("part", ["evaluation", "groups"])
def test_evaluations_at_every_so_many_steps_outlast_a_thinning(tmp_path, few, part):
    kept = Pictures(tmp_path)
    for step in range(1, 1_001):
        text = {"text": f'"{part}": '}  # a word of a model's, no key
        kept.write(step, {"step": step, "seen": text} | ({part: text} if step == 1 or step % 4 == 0 else {}))
        assert len(steps(tmp_path)) <= 20
    there = [step for step in steps(tmp_path) if step == 1 or step % 4 == 0]
    assert there[0] == 1 and there[-1] == 1_000 and len(there) >= 5
    assert len(there) < len(steps(tmp_path)), "of the others some are left too"


def test_a_resumed_run_counts_what_is_there(tmp_path, few):
    for start in (1, 15):
        kept = Pictures(tmp_path)
        for step in range(start, start + 15):
            kept.write(step, {"step": step})
    assert len(steps(tmp_path)) <= 20 and steps(tmp_path)[-1] == 29


def test_the_order_is_that_of_the_steps_however_many_digits_they_have(tmp_path, few):
    kept = Pictures(tmp_path)
    for step in range(999_985, 1_000_010):
        kept.write(step, {"step": step})
    assert steps(tmp_path)[0] == 999_985 and steps(tmp_path)[-3:] == [1_000_007, 1_000_008, 1_000_009]


def test_the_files_take_no_more_room_than_the_setting_allows_and_that_is_said(tmp_path, monkeypatch):
    one = len(json.dumps({"step": 100, "text": "x" * 1000}))
    monkeypatch.setenv("RL_LAB_ROLLOUTS_GB", str(10.5 * one / 1e9))
    kept = Pictures(tmp_path)
    said = {step: kept.write(step, {"step": step, "text": "x" * 1000}) for step in range(100, 200)}
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 10.5 * one
    there = steps(tmp_path)
    assert there[0] == 100 and there[-1] == 199 and 5 <= len(there) <= 10
    assert not any(said[step] for step in range(100, 110)) and "RL_LAB_ROLLOUTS_GB" in said[110]
    assert len({*filter(None, said.values())}) == 1, "the same sentence, which a run logs once"
    resumed = Pictures(tmp_path)
    resumed.write(200, {"step": 200, "text": "x" * 5000})
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 10.5 * one, "what was there counts"


def test_a_limit_that_is_no_number_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("RL_LAB_ROLLOUTS_GB", "much")
    with pytest.raises(LabError, match="set it to a number of GB above 0"):
        Pictures(tmp_path).write(1, {"step": 1})
