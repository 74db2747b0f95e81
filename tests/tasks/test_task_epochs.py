"""Shuffled epochs: no row twice before all were drawn, and two numbers to continue from."""

from collections import Counter

import numpy as np
import pytest

from labcore.tasks.task import Epochs, draw

ROWS = list("abcdefg")


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 10, 16])
def test_each_epoch_has_every_row_once_whatever_the_batch(count):
    epochs, found = Epochs((3,)), []
    while len(found) < 8 * len(ROWS):
        found += draw(ROWS, count, epochs)
    passes = [found[start: start + len(ROWS)] for start in range(0, 8 * len(ROWS), len(ROWS))]
    assert all(sorted(each) == ROWS for each in passes)
    assert len({tuple(each) for each in passes}) == 8  # each in an order of its own


def test_batches_of_any_sizes_are_one_sequence_and_two_numbers_continue_it():
    whole = draw(ROWS, 30, Epochs((0, 1)))
    assert whole == draw(ROWS, 30, Epochs((0, 1))) != draw(ROWS, 30, Epochs((0, 2)))
    found, epoch, drawn = [], 0, 0
    for count in (4, 3, 1, 9, 0, 13):
        epochs = Epochs((0, 1), epoch, drawn)  # as after a resume
        found += draw(ROWS, count, epochs)
        epoch, drawn = epochs.epoch, epochs.drawn
        assert epochs.size == len(ROWS)
    assert found == whole


def test_a_position_beyond_fewer_rows_begins_the_next_epoch():
    epochs = Epochs((5,), 2, 7)
    assert sorted(draw(ROWS[:3], 3, epochs)) == ROWS[:3] and (epochs.epoch, epochs.drawn) == (3, 3)


def test_a_random_draw_is_what_it_was():
    rng = np.random.default_rng(4)
    expected = [ROWS[place] for place in np.random.default_rng(4).permutation(7)[:3]]
    assert draw(ROWS, 3, rng) == expected
    assert max(Counter(draw(ROWS, 20, rng)).values()) > 3  # with replacement
