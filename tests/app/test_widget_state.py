"""What a widget shows is its own default too: a browser that mounts it late must not fall back to the first option."""

import pytest

from labcore.catalog.kinds import KINDS
from tests.app.seeding import ran, seed


def proto_defaults(test):
    """(what is shown, what the message to the browser gives as default) of every selectbox and number box."""
    return [*((box.value, words(box)[box.proto.default]) for box in test.selectbox),
            *((box.value, box.proto.default) for box in test.number_input)]


def words(box):
    """The options as the box's value names them."""
    named = {box.format_func(option): option for option in [box.value]} if box.format_func else {}
    return [named.get(option, option) for option in box.options]


@pytest.mark.parametrize("name", ["llm", "exact", "maze", "cartpole"])
def test_a_form_is_right_without_any_message_but_the_first(page, name):
    test = page(name)
    pairs = proto_defaults(test)
    assert len(pairs) > 5
    assert [box.value for box in test.selectbox][1] == KINDS[name].algorithm
    assert all(shown == default for shown, default in pairs), pairs


def test_and_stays_right_after_a_change_and_beside_a_run(page, lab):
    run = seed(lab.store, "finished")
    for test in (page("llm", run=run), page("llm", seed="7", steps="90", algorithm="rloo")):
        assert all(shown == default for shown, default in proto_defaults(test))
        steps = next(box for box in test.number_input if box.label == "Steps")
        key = steps.key
        steps.set_value(70)
        ran(test)
        steps = next(box for box in test.number_input if box.label == "Steps")
        assert (steps.value, steps.proto.default, steps.key) == (70, 70, key)  # the same widget: the hand keeps it
