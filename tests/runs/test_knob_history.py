"""Which value of a knob counted at which step; `tests/workers/test_training_knobs_used.py` compares it with real
runs.
"""

from typing import Any

import pytest

from labcore.runs.knob_history import KnobHistory, Place, overtaken
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.store.rows import Event
from tests.runs import fake

SPEC = fake.grpo(updates_per_batch=4)  # β 0.04, G 8
WITHIN, BETWEEN = 0, 1


def told(*rows: tuple[int, int, int, str, Any]) -> list[Event]:
    """Events in the order in which they were logged: (step, update, between, knob, value)."""
    return [Event(number, step, "knob", {"knob": knob, "to": value, "update": update, "between": between}, 0.0)
            for number, (step, update, between, knob, value) in enumerate(rows, start=1)]


def told_refused(step: int, update: int, between: int, knob: str) -> Event:
    return Event(99, step, "refused", {"knob": knob, "value": 0, "text": "", "update": update, "between": between}, 0.0)


def values(history: KnobHistory, knob: str, *steps: int | None) -> list[Any]:
    return [history.at(step)[knob] for step in steps]


def test_a_change_between_batches_counts_in_the_whole_of_the_next_step():
    """After two steps of four updates: the third step is the first that has it, and the checkpoint of 2 has not."""
    history = KnobHistory(SPEC, told((3, 8, BETWEEN, "beta", 0.2)))
    assert values(history, "beta", 0, 1, 2, 3, 4, None) == [0.04, 0.04, 0.04, 0.2, 0.2, 0.2]
    [change] = history.changes
    assert (change.step, change.update, change.before, change.text) == (3, 8, 0.04, "β 0.04 → 0.2")
    assert history.after(2) == [change] and history.after(3) == []


def test_a_change_within_a_batch_counts_in_what_is_left_of_that_step():
    history = KnobHistory(SPEC, told((3, 10, WITHIN, "beta", 0.2)))
    assert values(history, "beta", 2, 3) == [0.04, 0.2]
    assert history.changes[0].update == 10 and [each.step for each in history.after(2)] == [3]


def test_what_was_there_before_the_first_step_and_what_comes_next():
    history = KnobHistory(SPEC, told((1, 0, BETWEEN, "beta", 0.2), (7, 24, BETWEEN, "beta", 0.3)))
    assert values(history, "beta", 0, 1, 6, None) == [0.04, 0.2, 0.2, 0.3]
    assert history.at(6)["group_size"] == 8 and history.values_of("beta") == {0.04, 0.2, 0.3}
    assert history.values_of("nothing") == set() and KnobHistory(SPEC, ()).at() == dict(SPEC.knobs)


def test_a_change_made_after_a_resume_takes_back_the_later_ones_of_that_knob():
    events = told((3, 8, 1, "beta", 0.1), (15, 56, 1, "beta", 0.5), (15, 56, 1, "top_p", 0.9), (12, 44, 1, "beta", 0.2))
    history = KnobHistory(SPEC, events)
    assert [(each.knob, each.before, each.value, each.step) for each in history.changes] == [
        ("beta", 0.04, 0.1, 3), ("beta", 0.1, 0.2, 12), ("top_p", 1.0, 0.9, 15)]
    assert values(history, "beta", 2, 3, 11, 12, 15) == [0.04, 0.1, 0.1, 0.2, 0.2]
    assert values(history, "top_p", 14, 15) == [1.0, 0.9]
    assert values(KnobHistory(SPEC, events[:3]), "beta", 14, 15) == [0.1, 0.5]


def test_it_is_steps_that_say_which_comes_first_and_updates_only_within_one():
    """After a resume with fewer updates a batch, a later step can have fewer updates behind it."""
    events = told((5, 16, 1, "updates_per_batch", 1), (9, 60, 1, "beta", 0.5), (10, 21, 1, "beta", 0.3))
    assert values(KnobHistory(SPEC, events), "beta", 8, 9, 10) == [0.04, 0.5, 0.3]
    events = told((3, 10, 0, "beta", 0.5), (3, 11, 1, "beta", 0.3))
    assert [each.value for each in KnobHistory(SPEC, events).changes] == [0.3]


def test_there_and_back_while_it_is_paused_is_no_change_and_two_moves_are_one():
    there = told((3, 8, 1, "beta", 0.2), (3, 8, 1, "beta", 0.04))
    assert KnobHistory(SPEC, there).changes == ()
    [change] = KnobHistory(SPEC, [*there, *told((3, 8, 1, "beta", 0.5))]).changes
    assert change.text == "β 0.04 → 0.5" and change.payload == {
        "knob": "beta", "from": 0.04, "to": 0.5, "update": 8, "between": 1, "text": "β 0.04 → 0.5"}


def test_a_knob_that_is_turned_twice_within_a_step_is_read_as_one_move_and_repeated_as_two():
    """The arrows of a slider: one change before the step's first update, the next ones between its updates."""
    events = told((3, 8, BETWEEN, "beta", 0.055), (3, 8, WITHIN, "beta", 0.06), (3, 9, WITHIN, "top_p", 0.9),
                  (3, 9, WITHIN, "top_p", 1.0), (4, 12, BETWEEN, "beta", 0.1))
    history = KnobHistory(SPEC, events)
    assert [(each.text, each.step, each.update, each.event) for each in history.moves] == [
        ("β 0.04 → 0.06", 3, 8, 1), ("β 0.06 → 0.1", 4, 12, 5)]
    assert [each.event for each in history.after(2)] == [1, 2, 5]
    assert [history.move_of(event).event for event in (1, 2, 5)] == [1, 1, 5] and history.move_of(9) is None


def test_there_and_back_with_an_update_in_between_stays_two_changes():
    history = KnobHistory(SPEC, told((3, 9, WITHIN, "top_p", 0.9), (3, 10, WITHIN, "top_p", 1.0)))
    assert [(each.value, each.update) for each in history.moves] == [(0.9, 9), (1.0, 10)]
    assert history.move_of(2).event == 1, "both belong to step 3: a fork from before it begins before both"


def test_while_a_maze_waits_the_later_move_wins():
    """Stores of before call a change while it waits one within a batch, although no update of the step is made yet."""
    spec = make(kind="maze", algorithm_key="q_learning", task_key="cliff", knobs={"alpha": 0.5})
    history = KnobHistory(spec, told((3, 2, BETWEEN, "alpha", 0.1), (3, 2, WITHIN, "alpha", 0.2)))
    assert values(history, "alpha", 2, 3) == [0.5, 0.2]
    assert all(change.place.reached(3, 2) for change in history.after(2))  # both before the step begins


@pytest.mark.parametrize("place, step, updates, reached", [
    (Place(3, 8, 1), 2, 8, False), (Place(3, 8, 1), 3, 8, True), (Place(3, 8, 1), 3, 2, True),
    (Place(3, 10, 0), 3, 9, False), (Place(3, 10, 0), 3, 10, True), (Place(3, 10, 0), 4, 9, True)])
def test_where_a_change_is_repeated(place, step, updates, reached):
    """Between two batches at its step; within one at its update, and at the latest when its step is over."""
    assert place.reached(step, updates) is reached


def test_a_change_that_could_not_be_repeated_is_taken_back():
    events = told((5, 16, 1, "group_size", 4), (5, 16, 1, "beta", 0.5), (8, 28, 1, "group_size", 2))
    history = KnobHistory(SPEC, [*events, told_refused(5, 16, 1, "group_size")])
    assert values(history, "group_size", 4, 5, 7, 8) == [8, 8, 8, 2] and history.at(5)["beta"] == 0.5
    asked = Event(9, 5, "refused", {"knob": "group_size", "value": 4, "text": "no"}, 0.0)  # by a person: no place
    assert values(KnobHistory(SPEC, [*events, asked]), "group_size", 5) == [4]


def test_a_knob_that_the_algorithm_does_not_know_is_still_shown():
    """A store or a capsule of another version of the lab."""
    [change] = KnobHistory(SPEC, told((2, 4, 1, "gone", True))).changes
    assert change.text == "gone ? → on" and KnobHistory(SPEC, told((2, 4, 1, "gone", True))).at(2)["gone"] is True


def test_a_fork_begins_with_its_own_knobs():
    spec = RunSpec.from_json(fake.grpo(20, beta=0.3).to_json().replace('"parent": null', '"parent": ["a", 8]'))
    history = KnobHistory(spec, told((9, 8, 1, "beta", 0.1)))
    assert values(history, "beta", 8, 9) == [0.3, 0.1]


@pytest.mark.parametrize("rows, steps, found", [
    ([("started", 0), ("knob", 3), ("knob", 7), ("finished", 9)], range(1, 10), set()),
    ([("started", 0), ("knob", 3), ("knob", 3), ("finished", 9)], range(1, 10), set()),  # two before one step
    ([("queued", 10), ("forked", 10), ("knob", 11), ("finished", 12)], range(11, 13), set()),
    ([("interrupted", 2**53), ("knob", -2**53)], [1, 2, 2**53], {1, 2, 2**53}),
    ([("started", 0), ("knob", 3), ("interrupted", 9), ("queued", 9), ("resumed", 9), ("knob", 6), ("finished", 12)],
     range(1, 13), {6, 7, 8, 9}),
    ([("started", 0), ("knob", 3), ("interrupted", 9), ("knob", 6), ("finished", 12)], [1, 7], {7}),
])
def test_steps_overtaken_by_a_change_after_a_resume(rows, steps, found):
    events = [Event(number, step, kind, {"knob": "a"}, 0.0) for number, (kind, step) in enumerate(rows)]
    assert overtaken(events, steps) == found


def test_steps_overtaken_by_a_change_that_could_not_be_repeated():
    begun = [Event(1, 9, "interrupted", {}, 0.0), told_refused(7, 24, 1, "beta")]
    assert overtaken(begun, range(1, 13)) == {7, 8, 9}
    begun[1].payload.pop("update")  # refused to a person: nothing was ever changed
    assert overtaken(begun, range(1, 13)) == set()
