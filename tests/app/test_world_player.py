"""What the player is given: its worlds, paths and words."""

import json
from types import SimpleNamespace

import gymnasium as gym
import pytest
from gymnasium.envs.toy_text.frozen_lake import MAPS
from gymnasium.envs.toy_text.taxi import MAP

from app.cartpole import picture
from app.components.world_player import PLAYER, episodes
from app.training.chart_data import payload
from app.training.feed import Feed
from labcore.catalog.cartpole import TASKS
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import Event, Step


def samples(step: int, path: list[list[float]], returns: list[float], **more) -> dict:
    return {"step": step, "evaluation": {"path": path, "returns": returns, "rewards": [1.0] * (len(path) - 1), **more}}


def test_the_maps_are_gymnasium_s():
    assert list(episodes.LAKE) == MAPS["4x4"] and list(episodes.BIG_LAKE) == MAPS["8x8"]
    town = [row[1:-1] for row in MAP[1:-1]]
    assert [row[::2].replace(" ", ".") for row in town] == list(episodes.TOWN)
    walls = {(row, column) for row, text in enumerate(town) for column, sign in enumerate(text[1::2]) if sign == "|"}
    drawn = {(row, x0 - 1) for x0, y0, _, y1 in episodes.TOWN_WALLS for row in range(y0, y1)}
    assert walls == drawn


@pytest.mark.parametrize("task", TASKS)
def test_each_world_of_the_table_has_a_picture_that_fits_what_it_observes(task):
    world = episodes.world_of(task)
    space = gym.make(task).observation_space
    assert world.picture != "lines"
    if world.grid:
        assert space.n == world.grid["rows"] * world.grid["columns"] * world.grid["per_cell"]
        assert len(world.grid["cells"]) * world.grid["per_cell"] == space.n
    else:
        assert space.shape == (len(world.names),)


def test_the_arguments_of_a_world_say_its_map():
    """Another map than the id's own would be drawn wrong, or end the page where a state lies beyond it."""
    assert episodes.world_of("FrozenLake-v1", "map_name=8x8").grid == episodes.world_of("FrozenLake8x8-v1").grid
    own = episodes.world_of("FrozenLake-v1", "desc='[\"SFH\",\"FFG\"]'")
    assert (own.grid["rows"], own.grid["columns"], own.grid["cells"][2]["look"]) == (2, 3, "hole")
    assert episodes.world_of("FrozenLake-v1", "is_slippery=false") == episodes.world_of("FrozenLake-v1")
    path = [[9], [63]]
    data = episodes.payload("run", "FrozenLake-v1", samples(1, path, [1.0], truncated=False), samples(1, path, [1.0]),
                            arguments="map_name=8x8")
    assert data["grid"]["rows"] == 8 and data["episodes"][0]["ended"] == "goal reached"


def test_continuous_actions_are_in_the_player():
    path, actions = [[0.6, 0.8, 0.1]] * 2, [[0.5]]
    data = episodes.payload("run", "Pendulum-v1", samples(1, path, [-1.0], actions=actions), samples(1, path, [-1.0]))
    assert data["picture"] == "pendulum" and data["episodes"][0]["actions"] == actions
    assert "actions" not in data["episodes"][1]


def test_newest_and_best_with_their_step_and_return():
    path = [[0.0, 0.0, 0.0, 0.0], [0.1, 0.0, 0.3, 0.0]]
    both = samples(8, path, [1.0, 2.0], truncated=False), samples(4, path, [9.0])
    data = episodes.payload("run", "CartPole-v1", *both)
    newest, best = data["episodes"]
    assert (newest["about"], best["about"]) == ("step 8, return 1.50, mean of 2", "step 4, return 9")
    assert newest["ended"] == "the pole fell" and best["ended"] == ""
    assert data["picture"] == "cart" and newest["key"] != best["key"]
    json.dumps(data, allow_nan=False)


def test_ones_among_zeros_become_states():
    path = [[0.0] * 16 for _ in range(3)]
    for row, state in zip(path, (0, 4, 5), strict=True):
        row[state] = 1.0
    data = episodes.payload("run", "FrozenLake-v1", samples(1, path, [0.0], truncated=False), samples(1, path, [0.0]))
    assert data["episodes"][0]["path"] == [[0], [4], [5]] and data["episodes"][0]["ended"] == "in a hole"
    assert data["grid"]["cells"][5]["look"] == "hole"


def test_what_observes_something_else_is_drawn_as_lines():
    data = episodes.payload("run", "CartPole-v9", samples(1, [[0.5, 0.5]], [0.0]), samples(1, [[0.5, 0.5]], [0.0]))
    assert data["picture"] == "lines" and data["names"] == ["number 1", "number 2"]


def test_long_observations_are_not_sent_whole():
    long = samples(1, [[0.5] * 100] * 3, [0.0])
    data = episodes.payload("run", "Own-v0", long, long)
    assert {len(row) for row in data["episodes"][0]["path"]} == {episodes.LINES} and len(data["names"]) == 100


@pytest.mark.parametrize("task", TASKS)
def test_a_random_episode_can_be_played(task):
    shown = picture._random_episode.__wrapped__(task)
    data = episodes.at_random(task, shown)
    assert data["picture"] == episodes.world_of(task).picture and len(data["episodes"]) == 1
    assert len(shown["path"]) == len(shown["rewards"]) + 1 <= picture.PATIENCE + 1


def feed(*metrics: dict[str, float]) -> Feed:
    found = Feed(make(kind="cartpole", algorithm_key="ppo", task_key="CartPole-v1", steps=10))
    found.take([Step(step, 0, 100 * step, step / 4, each) for step, each in enumerate(metrics, 1)], [])
    return found


def test_the_best_is_the_later_of_equals():
    assert picture.best_first(feed({}), 9) == []
    found = feed({"eval_return": 5.0}, {"eval_return": 9.0}, {}, {"eval_return": 9.0}, {"eval_return": 7.0})
    assert picture.best_first(found, 5) == [4, 2, 5, 1] and picture.best_first(found, 3) == [2, 1]


def test_of_a_long_run_those_policies_play_that_are_kept(monkeypatch):
    drawn = []
    monkeypatch.setattr(picture, "take_episodes", lambda run, feed: None)
    monkeypatch.setattr(picture, "world_player", lambda data, key: drawn.append(data))
    monkeypatch.setattr(picture.episodes, "payload", lambda run, task, newest, best, settled, arguments: (
        newest["step"], best["step"], settled))
    spec = SimpleNamespace(task="CartPole-v1", knobs={"env_args": ""})
    run = SimpleNamespace(id="a", state="running", spec=spec)
    found = feed({"eval_return": 5.0}, {"eval_return": 9.0}, {"eval_return": 8.0}, {"eval_return": 7.0})
    for there in ({1, 2, 3, 4}, {1, 3}, set()):
        monkeypatch.setattr(picture.files, "read", lambda run, kind, step, there=there: (
            {"step": step, "evaluation": {}} if step in there else None))
        picture.picture(run, found, 4)
        picture.picture(run, found, 2)
    assert drawn == [(4, 2, False), (2, 2, True), (3, 3, False), (1, 1, True)]


def test_where_a_run_waited_its_film_is_shown_though_no_evaluation_was_due(monkeypatch):
    run = SimpleNamespace(id="a", spec=SimpleNamespace(task="CartPole-v1"))
    found = feed({"eval_return": 5.0}, {}, {})
    found.events = [Event(1, 2, "paused", {}, 0.0)]
    there = {1: {"step": 1, "evaluation": {}}, 2: {"step": 2, "evaluation": {}}, 3: {"step": 3, "episodes": []}}
    monkeypatch.setattr(picture.files, "read", lambda run, kind, step: there.get(step))
    assert [picture.film(run, found, step)["step"] for step in (1, 2, 3)] == [1, 2, 2]


def test_single_episodes_lie_behind_their_mean():
    one = feed({"episode_return": 2.0}, {"episode_return": 3.0})
    one.dots = {1: [[40, 1.0], [90, 3.0]]}
    data = payload({"a": one}, full=True, x="env_steps", smooth=0.0, ended=False)
    assert [panel["key"] for panel in data["panels"] if panel["dots"]] == ["episode_return"]
    first, second = data["runs"]["a"]["rows"]
    assert first[1] == 100 and first[4] == [[40, 1.0], [90, 3.0]] and len(second) == 4


def test_many_episodes_are_thinned():
    one = feed({"episode_return": 2.0})
    one.dots = {1: [[step, 1.0] for step in range(1000)]}
    assert 100 <= len(one.rows(0)[0][4]) <= 150


def test_the_script_holds_the_pictures_of_all_worlds():
    from app.components.component import STATIC
    text = (STATIC / PLAYER.script).read_text(encoding="utf-8")
    assert all(f"{world.picture}: {{" in text for world in (*episodes.WORLDS.values(), episodes.World()))
    assert "export function update" in text and "export const dispose = disposing(" in text
