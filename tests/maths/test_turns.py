"""What a mask with holes says of turns, beside a slow loop over its tokens."""

import torch

from labcore.maths import turns

MASK = torch.tensor([[1, 1, 0, 0, 1, 0, 1, 0], [1, 1, 1, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0, 1, 1]]).bool()


def slow(row):
    """[(turn, is its first token, is its last token, is an observation)] of each token of a row."""
    found, turn, last = [], -1, max(place for place, own in enumerate(row) if own)
    for place, own in enumerate(row):
        first = own and (place == 0 or not row[place - 1])
        turn += first
        ends = own and (place + 1 == len(row) or not row[place + 1])
        found.append((max(turn, 0), first, ends, not own and place < last))
    return found


def test_each_token_is_where_a_loop_finds_it():
    for at, row in enumerate(MASK.tolist()):
        expected = [list(column) for column in zip(*slow(row), strict=True)]
        got = [function(MASK)[at].tolist() for function in (turns.numbers, turns.starts, turns.lasts,
                                                            turns.observations)]
        assert got == expected
        assert turns.count(MASK)[at] == expected[0][-1] + 1
        assert turns.extents(MASK)[at] == 1 + max(place for place, own in enumerate(row) if own)


def test_values_of_turns_are_sums_and_go_back_to_their_tokens():
    values = torch.arange(24.0).view(3, 8)
    sums = turns.per_turn(values, MASK)
    assert sums.tolist() == [[1, 4, 6], [27, 0, 0], [16, 18, 45]]
    assert turns.per_turn(values.masked_fill(~MASK, torch.nan), MASK).equal(sums)
    assert turns.at_tokens(sums, MASK)[0].tolist() == [1, 1, 0, 0, 4, 0, 6, 0]


def test_without_a_hole_all_is_one_turn():
    mask = torch.arange(5) < torch.tensor([[3], [5], [1]])
    assert turns.count(mask).tolist() == [1, 1, 1] and not turns.observations(mask).any()
    assert turns.extents(mask).equal(mask.sum(1)) and not turns.numbers(mask).any()
