"""The files that a run leaves to be looked at: as many as there are steps, up to a bound."""

import json
from itertools import pairwise

import pytest

from labcore.workers import pictures
from labcore.workers.pictures import Pictures


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(pictures, "MOST", 10)


def steps(folder) -> list[int]:
    return sorted(int(path.stem.removeprefix("step-")) for path in folder.iterdir())


def test_a_short_run_keeps_all(tmp_path, few):
    kept = Pictures(tmp_path / "samples")
    for step in range(1, 21):
        kept.write(step, {"step": step, "value": float("nan")})
    assert steps(tmp_path / "samples") == list(range(1, 21))
    assert json.loads((tmp_path / "samples" / "step-000007.json").read_text()) == {"step": 7, "value": None}


def test_a_long_run_is_thinned_where_it_is_old_and_keeps_the_first_the_newest_and_the_best(tmp_path, few):
    kept = Pictures(tmp_path)
    for step in range(1, 1_001):
        kept.write(step, {"step": step, "best": {"step": min(step, 36), "return": 1.0}})
        there = steps(tmp_path)
        assert len(there) <= 20 and there[0] == 1 and there[-1] == step
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
