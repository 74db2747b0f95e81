"""From a prediction to a verdict through the store, as the page does it; and progress that survives a restart."""

import json

import pytest

from labcore.analysis.lessons import course as courses
from labcore.analysis.lessons import progress
from labcore.analysis.lessons.lesson import MOST_SEEDS, parse
from labcore.errors import LabError
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.analysis.lessons.lesson_text import TEXT


def finish(store: Store) -> None:
    for run_id in store.queued():
        assert drive(store, run_id) == "finished"


def test_a_lesson_from_its_runs_to_its_verdict_and_one_seed_more():
    store, lesson = Store(), parse("both", TEXT)
    found = courses.course(store, lesson, sweep := courses.start(store, lesson))
    assert found.active and found.whole == [] and found.seeds == [0, 1, 2] and courses.verdict(store, found) is None
    finish(store)
    found = courses.course(store, lesson, sweep)
    verdict = courses.verdict(store, found)
    assert verdict is not None and (verdict.says, verdict.seeds) == ("holds", 3)
    assert verdict.parts[0].left == pytest.approx((8.1, 8.1, 8.1))
    assert courses.one_more(store, found) == 3
    assert courses.course(store, lesson, sweep).active
    finish(store)
    again = courses.verdict(store, courses.course(store, lesson, sweep))
    assert again is not None and again.seeds == 4
    changed = parse("both", TEXT.replace("steps = 4", "steps = 5"))
    with pytest.raises(LabError, match="lesson was changed"):
        courses.course(store, changed, sweep)
    store.log(found.rows["q", 0].id, "knob", {"knob": "alpha", "from": 0.5, "to": 0.9, "update": 2, "between": 1}, 2)
    with pytest.raises(LabError, match="changed mid-run"):
        courses.verdict(store, courses.course(store, lesson, sweep))


def test_runs_that_were_stopped_give_no_verdict_and_seeds_come_to_an_end():
    store, lesson = Store(), parse("both", TEXT)
    sweep = courses.start(store, lesson)
    for run_id in store.queued():
        store.ask(run_id, "stop")
    found = courses.course(store, lesson, sweep)
    assert len(found.broken) == 6 and not found.active and courses.verdict(store, found) is None
    for _ in range(MOST_SEEDS - 3):
        courses.one_more(store, courses.course(store, lesson, sweep))
    with pytest.raises(LabError, match="counts as a tie"):
        courses.one_more(store, courses.course(store, lesson, sweep))


def test_a_prediction_is_locked_until_the_reader_begins_anew_and_nothing_is_lost():
    assert progress.newest("cliff") is None and progress.attempts() == {}
    progress.predict("cliff", 1)
    progress.begin("cliff", "sweep-1")
    with pytest.raises(LabError, match="cannot be changed"):
        progress.predict("cliff", 2)
    progress.settle("cliff", "close", None, 3)
    progress.settle("cliff", "holds", True, 4)
    assert (found := progress.newest("cliff")) and (found.choice, found.sweep, found.right, found.seeds) == (
        1, "sweep-1", True, 4)
    progress.anew("cliff")
    assert progress.newest("cliff") is None
    progress.predict("cliff", None, [(0, 0.5), (1, 2)])
    first, second = progress.attempts()["cliff"]
    assert first.closed and first.says == "holds" and second.curve == ((0, 0.5), (1, 2))
    with pytest.raises(LabError, match="no prediction"):
        progress.begin("other", "sweep-2")


@pytest.mark.parametrize("text", ["{", "[]", '{"lessons": []}', '{"lessons": {"cliff": [3]}}',
                                  '{"lessons": {"cliff": {}}}', '{"lessons": {"cliff": [{"choice": 1}]}}'])
def test_a_damaged_file_is_said_and_kept(text, lab_home):
    lab_home.mkdir()
    progress.path().write_text(text, "utf-8")
    with pytest.raises(LabError, match="is damaged"):
        progress.newest("cliff")
    with pytest.raises(LabError, match="is damaged"):
        progress.predict("cliff", 1)
    assert progress.path().read_text("utf-8") == text


def test_fields_of_a_later_lab_are_no_reason_to_lose_progress(lab_home):
    lab_home.mkdir()
    progress.path().write_text(json.dumps({"lessons": {"cliff": [{"at": 1.0, "choice": 0, "mood": "good"}]}}), "utf-8")
    assert (found := progress.newest("cliff")) and found.choice == 0
