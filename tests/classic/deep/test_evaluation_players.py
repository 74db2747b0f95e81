"""Checkpoints that act: what a maze's tables and a network earn, the best and the newest, and broken folders."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from labcore.classic.deep import evaluation
from labcore.classic.deep.evaluation import play
from labcore.classic.envs.maze_text import from_rows, to_text
from labcore.classic.tabular import player as tabular_player
from labcore.classic.tabular.session import TabularSession
from labcore.errors import LabError
from labcore.runs.spec.run_spec import make


@pytest.fixture(scope="module")
def maze_folder(tmp_path_factory):
    """The policy of value iteration in the textbook maze."""
    folder = tmp_path_factory.mktemp("maze")
    session = TabularSession.start(make(kind="maze", algorithm_key="value_iteration", task_key="textbook",
                                        knobs={"pace": 0}))
    assert len(list(session.run())) == 5
    session.save(folder)
    return folder / "policy"


@pytest.fixture(scope="module")
def network_folder(tmp_path_factory, start):
    """A PPO policy whose best evaluation was at step 1: after it the weights were spoilt."""
    folder = tmp_path_factory.mktemp("network")
    session = start("ppo", steps=1)
    next(session.run())
    session.best_return = 1e9
    session.best = {name: value.clone() for name, value in session.acting.state_dict().items()}
    with torch.no_grad():
        for weight in session.acting.parameters():
            weight.zero_()
    session.step = 7
    session.save(folder)
    return folder / "policy"


# ---------------------------------------------------------------------------- mazes


def test_the_greedy_policy_walks_the_shortest_way(maze_folder):
    played = tabular_player.replay(maze_folder, 3, seed=0)
    assert played["returns"] == [10.0] * 3 and played["lengths"] == [3] * 3 and played["path"] == [0, 1, 2, 5]
    assert played["drawing"] == "S → ↓\n. T G" and played["step"] == 5 and played["environment"] == "maze"
    json.dumps(played, allow_nan=False)
    assert tabular_player.replay(maze_folder, 3, seed=0, best=True) == played  # tables are kept as they are


def test_a_policy_that_walks_in_circles_is_stopped(tmp_path):
    maze = to_text(from_rows(["S.", "#G"]))
    session = TabularSession.start(make(kind="maze", algorithm_key="q_learning", task_key="own",
                                        knobs={"maze": maze, "pace": 0}))
    session.learner.tables.q[0] = [1, 0, 0, 0]  # against the upper edge
    session.save(tmp_path)
    played = tabular_player.replay(tmp_path / "policy", 1, seed=0)
    assert played["lengths"] == [tabular_player.LONGEST] and played["path"] == [0] * (tabular_player.LONGEST + 1)


def test_where_steps_slip_the_seed_decides(tmp_path):
    session = TabularSession.start(make(kind="maze", algorithm_key="value_iteration", task_key="slippery",
                                        knobs={"pace": 0}))
    list(session.run())
    session.save(tmp_path)
    first, again, other = (tabular_player.replay(tmp_path / "policy", 200, seed) for seed in (0, 0, 1))
    assert first == again != other
    # Undiscounted returns lie above the discounted value, and not far.
    assert 2.58 < np.mean(first["returns"]) < 6


# ---------------------------------------------------------------------------- networks


def test_the_newest_and_the_best_network(network_folder):
    newest, best = (evaluation.replay(network_folder, 4, 0, best) for best in (False, True))
    assert (newest["step"], best["step"]) == (7, 1) and newest["environment"] == best["environment"] == "CartPole-v1"
    for played, which in ((newest, False), (best, True)):
        network, _ = evaluation.load(network_folder, which)
        expected = play(network, "CartPole-v1", 4, 0)
        assert (played["returns"], played["lengths"], played["path"]) == (
            expected.returns, expected.lengths, expected.path)
        json.dumps(played, allow_nan=False)
    assert all(length < 12 for length in newest["lengths"]), "always to the left: it falls at once"
    assert sum(best["returns"]) > sum(newest["returns"])
    assert evaluation.replay(network_folder, 4, 0) == newest != evaluation.replay(network_folder, 4, 1)


# ---------------------------------------------------------------------------- broken folders


def without(name):
    return lambda folder: (folder / name).unlink()


def cut(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:20])


def config(**changed):
    def change(folder):
        path = folder / "config.json"
        kept = {**json.loads(path.read_text("utf-8")), **changed}
        path.write_text(json.dumps({key: value for key, value in kept.items() if value is not None}))
    return change


def another_maze(folder):
    (folder / "maze.json").write_text('{"rows": ["S.......G"]}')


def no_goal(folder):
    (folder / "maze.json").write_text('{"rows": ["S..", "..."]}')


def another_network(folder):
    tensors = load_file(folder / "model.safetensors")
    save_file({key: value[:1].clone() for key, value in tensors.items()}, folder / "model.safetensors")


MAZE_FAULTS = [without("config.json"), without("maze.json"), without("model.safetensors"), cut("config.json"),
               cut("model.safetensors"), config(step=None), config(step="x"), another_maze]
NETWORK_FAULTS = [without("config.json"), without("model.safetensors"), cut("model.safetensors"), cut("config.json"),
                  another_network, config(sizes=None), config(sizes=[4]), config(environment=None), config(step=None),
                  config(activation="sine")]


@pytest.mark.parametrize(("which", "fault"), [
    *(("maze", fault) for fault in MAZE_FAULTS), *(("network", fault) for fault in NETWORK_FAULTS)])
def test_a_broken_folder_is_one_sentence(which, fault, tmp_path, maze_folder, network_folder):
    of, replay = {"maze": (maze_folder, tabular_player.replay), "network": (network_folder, evaluation.replay)}[which]
    folder = tmp_path / "policy"
    shutil.copytree(of, folder)
    fault(folder)
    with pytest.raises(LabError, match=r"holds no policy that can be played \(.+\): give the id of a \w+ run") as error:
        replay(folder, 1, 0)
    assert "\n" not in str(error.value)


def test_what_the_folder_names_must_be_there(tmp_path, maze_folder, network_folder):
    for of, replay, fault, words in (
            (maze_folder, tabular_player.replay, no_goal, "the maze has no goal"),
            (network_folder, evaluation.replay, config(environment="CartPole-v9"), "did you mean 'CartPole-v")):
        folder = tmp_path / words[-3:]
        shutil.copytree(of, folder)
        fault(folder)
        with pytest.raises(LabError, match=words):
            replay(folder, 1, 0)
