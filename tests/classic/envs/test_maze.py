"""The maze: its rules by hand and by a slow twin, its texts, its presets, and its environment."""

import json
import math
import re
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from labcore.catalog.maze import TASKS
from labcore.classic.envs import maze_text
from labcore.classic.envs.maze import ACTIONS, MAX_SIDE, MOVES, Cell, Maze
from labcore.classic.envs.maze_env import ENV_ID, MazeEnv
from labcore.classic.envs.maze_presets import build, cliff, random_maze, slippery, textbook
from labcore.classic.envs.maze_text import drawn, from_json, from_rows, from_text, to_json, to_text, unfinished
from labcore.errors import LabError
from tests.every import every

UP, RIGHT, DOWN, LEFT = range(4)
PRESETS = {name: build(row, {}) for name, row in TASKS.items() if not row.knobs}
MAZES = {**PRESETS,
         "random": random_maze(3, 7, 6),
         "rewards": from_rows(["SR#", "#.G", "T.R"], [-2.5, 1e-7, 1e6, 3], step_reward=-1 / 3, slip=0.1, gamma=0.99)}


def slow_mdp(maze):
    """P and R cell by cell, as the rules say in words."""
    transitions = np.zeros((maze.states, 4, maze.states))
    rewards = np.zeros((maze.states, 4))
    reached = maze.reachable()
    for state in range(maze.states):
        row, column = maze.place(state)
        for action in range(4):
            if maze.cells[row][column].kind in ("goal", "trap", "wall") or not reached[state]:
                transitions[state, action, state] = 1
                continue
            for way, chance in ((action, 1 - maze.slip), ((action + 1) % 4, maze.slip / 2),
                                ((action + 3) % 4, maze.slip / 2)):
                to = row + MOVES[way][0], column + MOVES[way][1]
                if not (0 <= to[0] < maze.height and 0 <= to[1] < maze.width) or \
                        maze.cells[to[0]][to[1]].kind == "wall":
                    to = row, column
                cell = maze.cells[to[0]][to[1]]
                transitions[state, action, maze.state(*to)] += chance
                rewards[state, action] += chance * (maze.step_reward if cell.reward is None else cell.reward)
    return transitions, rewards


def test_the_textbook_maze_by_hand():
    maze = textbook()
    assert (maze.height, maze.width, maze.states, maze.start, maze.gamma) == (2, 3, 6, 0, 0.9)
    # S . .      0 1 2
    # . T G      3 4 5
    assert maze.mdp.transitions.argmax(2).tolist() == [
        [0, 1, 3, 0], [1, 2, 4, 0], [2, 2, 5, 1], [0, 4, 3, 3], [4, 4, 4, 4], [5, 5, 5, 5]]
    assert maze.mdp.rewards.tolist() == [
        [0, 0, 0, 0], [0, 0, -10, 0], [0, 0, 10, 0], [0, -10, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert maze.mdp.terminal.tolist() == [False, False, False, False, True, True]


def test_nothing_follows_an_end_whatever_its_value_says():
    mdp = textbook().mdp
    action_values = mdp.action_values(np.array([1.0, 2, 3, 4, 100, 100]), 0.5)
    assert action_values[:4].tolist() == [[0.5, 1, 2, 0.5], [1, 1.5, -10, 0.5], [1.5, 1.5, 10, 1], [0.5, -10, 2, 2]]


def test_a_slip_by_hand():
    """Right from the top left with slip 0.2: 0.8 right, 0.1 up (the edge: it stays), 0.1 down (the trap)."""
    mdp = from_rows(["S.", "TG"], [-5.0, 7.0], step_reward=-1.0, slip=0.2).mdp
    np.testing.assert_allclose(mdp.transitions[0, RIGHT], [0.1, 0.8, 0.1, 0.0], atol=1e-15)
    assert mdp.rewards[0, RIGHT] == pytest.approx(0.9 * -1 + 0.1 * -5)
    np.testing.assert_allclose(mdp.transitions[0, DOWN], [0.1, 0.1, 0.8, 0.0], atol=1e-15)


@pytest.mark.parametrize("maze", MAZES.values(), ids=MAZES)
def test_slow_twin(maze):
    transitions, rewards = slow_mdp(maze)
    np.testing.assert_allclose(maze.mdp.transitions, transitions, atol=1e-15)
    np.testing.assert_allclose(maze.mdp.rewards, rewards, rtol=1e-14)
    np.testing.assert_allclose(maze.mdp.transitions.sum(2), 1)


@pytest.mark.parametrize("maze", MAZES.values(), ids=MAZES)
def test_both_texts_bring_the_same_maze_back(maze):
    assert from_json(to_json(maze)) == maze
    assert from_text(to_text(maze)) == maze
    assert re.fullmatch(r"[A-Za-z0-9._~-]+", to_text(maze)), "an address would have to quote it"


def test_the_largest_maze_fits_an_address():
    assert len(to_text(random_maze(1, 30, 30))) < 1000
    assert to_text(cliff()) == "12.~12.~12.~S10TG_-100x10~-1_-1_0_1"


def test_json_may_hold_the_rows_alone():
    maze = from_json('{"rows": ["SR", "TG"]}')
    assert (maze.cell_rewards.tolist(), maze.slip, maze.step_reward) == ([0, 1, -10, 10], 0, 0)


GOOD = {"rows": ["S.", ".G"], "rewards": [10]}


@every(("changes", "words"), [
    ({"rows": ["..", ".G"]}, "no start: paint"), ({"rows": ["S.", ".."], "rewards": []}, "no goal: paint"),
    ({"rows": ["SS", ".G"]}, "2 starts"), ({"rows": ["S.", "G"]}, "Row 2 of the maze has 1 cells"),
    ({"rows": ["S" + "." * 30, "G" + "." * 30]}, "2 × 31 cells, larger than 30 × 30"),
    ({"rows": ["S"] + ["."] * 29 + ["G"]}, "31 × 1 cells, larger"), ({"rows": [], "rewards": []}, "no cells"),
    ({"rows": ["S?", ".G"]}, "holds '?'"), ({"rows": "S.G"}, "a list of texts"), ({"rows": [1]}, "a list of texts"),
    ({"rewards": [math.nan]}, "NaN is no value of JSON"), ({"rewards": [math.inf]}, "Infinity is no value of JSON"),
    ({"rewards": [1, 2]}, "1 goals, traps and reward cells but 2 rewards"), ({"rewards": 3}, "list of numbers"),
    ({"rewards": ["ten"]}, "a reward is 'ten', not a number"), ({"rewards": [True]}, "not a number"),
    ({"step_reward": -math.inf}, "-Infinity is no value of JSON"), ({"slip": 1}, "slip probability is 1"),
    ({"slip": -0.1}, "slip probability is -0.1"), ({"slip": math.nan}, "NaN is no value of JSON"),
    ({"slip": "much"}, "slip is 'much'"), ({"gamma": 1.5}, "gamma is 1.5"), ({"colour": 1}, "no field 'colour'")])
def test_a_json_that_is_no_maze_is_refused_in_words(changes, words):
    with pytest.raises(LabError, match=re.escape(words)):
        from_json(json.dumps({**GOOD, **changes}))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000])
def test_other_json_is_refused_in_words(text):
    with pytest.raises(LabError, match="JSON of a maze"):
        from_json(text)


@pytest.mark.parametrize("text", [
    "", "S2.~.TG",
    "S2.~.TG_10_0_0_0.9_1", "S2.~.TG_10_0_0_0.9", "S2.~.TQ_1_0_0_0", "S99.G_1_0_0_0", "S.~.G_1x9999_0_0_1",
    "S.~.G_1x900x3_0_0_1", "S.~.G_one_0_0_1", "S.~.G_1_0_2_1", "..~.G_1_0_0_1", "~_1_0_0_1", "S.~.G_1e999_0_0_1"])
def test_a_changed_address_is_refused_in_words(text):
    with pytest.raises(LabError):
        from_text(text)


def test_a_goal_that_cannot_be_reached_is_told():
    assert from_rows(["S#G", ".#.", "..."]).unreachable_goals() == ()
    assert from_rows(["S#G", ".##", "..G"]).unreachable_goals() == ((0, 2),)
    assert from_rows(["STG"]).unreachable_goals() == ((0, 2),), "the way leads through a trap"
    assert from_rows(["S#G", ".#.", "..G"]).unreachable_goals() == ((0, 2),), "the way leads through another goal"
    assert from_rows(["SGG"]).unreachable_goals() == ((0, 2),)


def test_painting_gives_another_maze_and_may_leave_it_unfinished():
    maze = textbook()
    assert drawn(maze.paint(1, 0, "start"))[0] == ["...", "STG"]
    assert maze.paint(0, 1, "reward", 2.5).cell_rewards.tolist() == [0, 2.5, 0, 0, -10, 10]
    assert drawn(maze)[0] == ["S..", ".TG"], "the maze itself stays, so that painting can be undone"
    unfinished = maze.paint(1, 2, "free")
    with pytest.raises(LabError, match="no goal"):
        unfinished.check()
    assert unfinished.paint(0, 2, "goal").check().cell_rewards.tolist() == [0, 0, 10, 0, -10, 0]
    with pytest.raises(LabError, match="no start"):
        MazeEnv(maze.paint(0, 0, "wall"))
    with pytest.raises(LabError, match="no cell in row 3"):
        maze.paint(2, 0, "wall")
    with pytest.raises(LabError, match="row 1, column 2 is inf"):
        maze.paint(0, 1, "reward", math.inf)
    with pytest.raises(LabError, match="cannot be 'lava'"):
        Cell("lava")
    assert Cell("free", 3.0) == Cell(), "a free cell pays the step reward"


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_solved(name):
    assert PRESETS[name].check().unreachable_goals() == ()


@pytest.mark.parametrize("seed", range(8))
def test_random_mazes(seed):
    maze = random_maze(seed, 6 + seed, 12)
    assert maze == random_maze(seed, 6 + seed, 12) != random_maze(seed + 1, 6 + seed, 12)
    assert maze.check().unreachable_goals() == ()
    assert maze.where("wall").mean() > 0.2


def test_random_mazes_of_any_size():
    assert drawn(random_maze(0, 1, 2))[0] == ["SG"]
    assert "#" not in "".join(drawn(random_maze(0, 1, 9))[0]), "a wall would cut the goal off"
    for height, width in ((31, 3), (3, 31), (1, 1), (0, 5)):
        with pytest.raises(LabError, match="random maze cannot be"):
            random_maze(0, height, width)


@pytest.mark.parametrize("name", PRESETS)
def test_gymnasium_accepts_the_environment(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(ENV_ID, maze=to_text(PRESETS[name]), render_mode="ansi").unwrapped)


def test_made_by_its_name_alone():
    env = gymnasium.make(f"labcore.classic.envs.maze_env:{ENV_ID}")
    assert env.reset(seed=0) == (0, {})
    assert [env.step(action)[:4] for action in (RIGHT, RIGHT, DOWN)] == [
        (1, 0.0, False, False), (2, 0.0, False, False), (5, 10.0, True, False)]


@pytest.mark.parametrize("name", ["slippery", "rewards"])
def test_the_environment_walks_as_the_exact_model_says(name):
    """χ² of where each move ends against P: with 2,000 walks from each state its mean is that of the right one."""
    maze = MAZES[name]
    env = MazeEnv(maze, random_start=True)
    env.np_random = np.random.default_rng(0)
    counts, paid = np.zeros((maze.states, 4, maze.states)), np.zeros((maze.states, 4))
    for trial in range(20_000):
        state, action = env.reset()[0], trial % 4
        following, reward, terminated, _, _ = env.step(action)
        counts[state, action, following] += 1
        paid[state, action] += reward
        assert terminated == maze.where("goal", "trap")[following] and reward == maze.cell_rewards[following]
    tried = counts.sum(2)
    assert (tried.sum(1) > 0).tolist() == (~maze.mdp.terminal).tolist()
    expected = maze.mdp.transitions * tried[:, :, None]
    assert (counts[expected == 0] == 0).all()
    where = (expected > 0) & (tried[:, :, None] > 0) & (maze.mdp.transitions < 1)
    spread = (counts[where] - expected[where]) ** 2 / (expected[where] * (1 - maze.mdp.transitions[where]))
    assert spread.mean() == pytest.approx(1, abs=0.35)


def test_a_time_limit_truncates_and_an_end_terminates():
    env = MazeEnv(max_steps=3)
    env.reset()
    assert [env.step(UP)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    env.reset()
    assert [env.step(action)[2:4] for action in (RIGHT, RIGHT, DOWN)][-1] == (True, False), "both at once: it ended"
    assert env.render() is None and MazeEnv(render_mode="ansi").render() == "@..\n.TG"


def test_one_seed_one_walk():
    def walk(seed):
        env = MazeEnv(slippery())
        env.reset(seed=seed)
        return [env.step(trial % len(ACTIONS))[0] for trial in range(30)]
    assert walk(1) == walk(1) != walk(2)


def test_a_maze_is_made_of_cells():
    assert Maze(((Cell("start"), Cell("goal", -0.0)),)).cell_rewards.tolist() == [0.0, 0.0]
    assert to_text(Maze(((Cell("start"), Cell("goal", -0.0)),))) == "SG_0_0_0_0.9"


@pytest.mark.parametrize(("text", "words"), [
    ("99." * 3000 + "__0_0_0.9", "1 × 297000 cells, larger than 30 × 30"), ("~" * 9000 + "__0_0_0.9", "9001 × 0 cells"),
    ("99G" * 3000 + "_" + "~".join(["1x999"] * 330) + "_0_0_0.9", "larger than 30 × 30"),
    ("." * 10**6 + "__0_0_0.9", "is cut or changed")])
def test_a_long_link_is_refused_before_a_cell_is_made(monkeypatch, text, words):
    monkeypatch.setattr(maze_text, "Cell", None)
    with pytest.raises(LabError, match=words):
        unfinished(text)


def test_the_longest_maze_that_can_be_is_no_longer_than_a_link_may_be():
    rewards = [-1.0000000000000002e-300 - at * 1e-310 for at in range(MAX_SIDE**2)]
    maze = from_rows(["GT" * (MAX_SIDE // 2)] * MAX_SIDE, rewards, step_reward=-1 / 3)
    assert len(to_text(maze)) < maze_text.LONGEST and unfinished(to_text(maze)) == maze
