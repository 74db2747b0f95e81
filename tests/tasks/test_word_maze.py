"""A maze in words: every maze can be walked within the turn limit, by what is said."""

import numpy as np

from labcore.tasks.word_maze import WAYS, Corridors, WordMaze, distance

KNOBS = {"maze_size": 3, "max_turns": 6, "turn_tokens": 2, "observation_length": 64}
OPEN = {"size": 2, "walls": [((0, 0), (1, 0))], "start": (0, 0), "exit": (1, 0)}


def test_walls_and_the_way_round_them():
    maze = Corridors()
    assert maze.reset(OPEN) == "open: s; exit: e"
    assert maze.step("e") == ("wall; open: s; exit: e", 0, False)
    assert maze.step("up") == ("no way; open: s; exit: e", 0, False)
    assert [maze.step(way) for way in "sen"] == [("open: n e; exit: ne", 0, False), ("open: n w; exit: n", 0, False),
                                                 ("exit", 1, True)]
    assert distance(2, OPEN["walls"], (0, 0), (1, 0)) == 3


def test_every_maze_can_be_solved_and_the_words_say_what_is_there():
    task = WordMaze(KNOBS)
    for row in task.draw_rows(50, np.random.default_rng(0)):
        assert 1 <= distance(3, row["walls"], row["start"], row["exit"]) <= 6
        maze = Corridors()
        ways = maze.reset(row).removeprefix("open: ").partition(";")[0].split()
        assert ways == maze.open and set(ways) <= set(WAYS) and ways
