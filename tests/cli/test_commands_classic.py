"""Mazes and CartPole from the command line: each kind runs, exports and plays, and each bad input is one sentence."""

import csv
import importlib.util
import json
import re

import pytest

from labcore.catalog.kinds import KINDS
from labcore.cli.main import main
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import home, run_folder
from labcore.runs.store.store import Store
from tests.cli.test_main import refused
from tests.every import now
from tests.words import says

MAZE = ("run", "--kind", "maze", "--algorithm", "q_learning")
POLE = ("run", "--kind", "cartpole", "--algorithm")
FAST = ("--set", "pace=0")
TINY = ("--set", "eval_episodes=1", "--set", "hidden=8")


def done(capsys, *arguments: str) -> dict:
    """What a command prints as JSON; it succeeded."""
    capsys.readouterr()
    assert main(arguments) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def maze_file(tmp_path):
    """maze_file(content): a file of a maze, as JSON or as it stands."""
    def write(content):
        path = tmp_path / "maze.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)
    return write


# ---------------------------------------------------------------------------- what works


@pytest.mark.parametrize("key", KINDS["maze"].algorithms)
def test_each_maze_method_runs_headless(capsys, key):
    got = done(capsys, "run", "--kind", "maze", "--algorithm", key, "--task", "textbook", *FAST, "--steps", "4",
               "--json")
    assert got["state"] == "finished" and got["step"] == 4 and got["model"] == "table"
    assert {"start_value", "start_value/greedy", "value_error", "memory"} <= set(got["metrics"])


@pytest.mark.parametrize("key", now(KINDS["cartpole"].algorithms, "ppo", "dqn"))
def test_each_cartpole_method_runs_headless(capsys, key):
    got = done(capsys, *POLE, key, "--steps", "2", *TINY, "--json")
    assert (got["state"], got["step"], got["task"], got["model"]) == ("finished", 2, "CartPole-v1", "network")
    assert {"eval_return", "env_steps_per_second", "memory"} <= set(got["metrics"])


def test_a_maze_without_a_way_to_its_goal_says_so_and_runs(capsys, maze_file):
    path = maze_file({"rows": ["S#G"]})
    assert main([*MAZE, "--maze", path, *FAST, "--steps", "2"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert says(said[0], "labcore", "row 1, column 3", "cannot be reached")
    assert re.match(r"run q_learning-own-\w+ \(Q-learning own #1\)$", said[1]) and "finished" in said[-1]


def test_a_maze_of_ones_own_with_its_own_discount(capsys, tmp_path, maze_file):
    """Trained, exported and played: by the run's name, and from the folder."""
    out = tmp_path / "out"
    path = maze_file({"rows": ["S..", "#.G"], "rewards": [4], "step_reward": -1, "slip": 0, "gamma": 0.5})
    got = done(capsys, *MAZE, "--maze", path, *FAST, "--steps", "60", "--json", "--out", str(out))
    spec = json.loads((out / "spec.json").read_text())
    assert spec["knobs"]["gamma"] == 0.5 and got["task"] == "own"
    assert got["metrics"]["start_value/best"] == pytest.approx(-1 - 0.5 + 0.25 * 4)
    assert {path.name for path in out.iterdir()} == {
        "metrics.csv", "events.csv", "knobs.csv", "spec.json", "checkpoint"}
    assert {"q.csv", "v.csv", "policy.csv", "maze.json", "config.json", "model.safetensors"} == {
        path.name for path in (out / "checkpoint").iterdir()}
    rows = list(csv.DictReader((out / "metrics.csv").open()))
    assert len(rows) == 60 and rows[-1]["env_steps"] == str(int(sum(float(row["episode_length"]) for row in rows)))
    by_name = done(capsys, "play", got["run"], "--episodes", "2", "--json")
    assert by_name["returns"] == [2.0, 2.0] and len(by_name["path"]) == 4
    for folder in (out, out / "checkpoint"):
        assert done(capsys, "play", str(folder), "--episodes", "2", "--json") == by_name
    assert main(["play", got["run"], "--episodes", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(("S → ↓\n# . G", "S ↓ .\n# → G"))
    assert "mean return 2.00 by the policy of step 60" in printed
    # The user has the last word.
    got = done(capsys, *MAZE, "--maze", path, *FAST, "--steps", "1", "--set", "gamma=0.25", "--json")
    assert Store().run(got["run"]).spec.knobs["gamma"] == 0.25


def test_a_cartpole_policy_is_exported_and_played(capsys, tmp_path):
    out = tmp_path / "out"
    got = done(capsys, *POLE, "ppo", "--task", "CartPole-v1", "--steps", "2", *TINY, "--json", "--out", str(out))
    assert {path.name for path in (out / "checkpoint").iterdir()} == {
        "model.safetensors", "best.safetensors", "config.json"}
    played = [done(capsys, "play", which, "--episodes", "3", "--seed", "5", "--json", *more)
              for which in (got["run"], str(out)) for more in ((), ("--best",))]
    assert played[:2] == played[2:] and len(played[0]["returns"]) == 3
    assert played[0]["environment"] == "CartPole-v1" and len(played[0]["path"][0]) == 4 and played[0]["step"] == 2


def test_any_environment_of_gymnasium_with_a_few_actions(capsys):
    got = done(capsys, *POLE, "dqn", "--task", "FrozenLake8x8-v1", "--steps", "2", *TINY, "--json")
    assert got["state"] == "finished" and got["run"].startswith("dqn-FrozenLake8x8-v1-")
    assert len(done(capsys, "play", got["run"], "--episodes", "1", "--json")["path"][0]) == 1  # the state's number


@pytest.mark.parametrize("key", now(KINDS, "cartpole"))
def test_each_kind_is_listed(capsys, key):
    listed = done(capsys, "list", "--kind", key, "--json")
    assert set(listed["algorithms"]) == set(KINDS[key].algorithms) and set(listed["tasks"]) == set(KINDS[key].tasks)
    assert bool(listed["models"]) == (key in ("llm", "exact"))
    assert main(["list", "--kind", key]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n{name}  " in printed for name in KINDS[key].algorithms)
    assert ("any Gymnasium environment" in printed) == (key == "cartpole")


# ---------------------------------------------------------------------------- mazes that cannot be


@pytest.mark.parametrize(("content", "words"), [
    ({"rows": ["..G"]}, "The maze has no start: paint one cell as the start."),
    ('{"rows": ["S.G"], "rewards": [1e400]}', "the number 1e400 is beyond any float"),
    ({"cells": 3}, 'needs "rows"')])
def test_a_maze_that_cannot_be(capsys, maze_file, content, words):
    assert words in refused(capsys, *MAZE, "--maze", maze_file(content))
    assert not (home() / "lab.db").exists()  # told before anything is made


def test_a_maze_file_that_cannot_be_read(capsys, tmp_path):
    assert "There is no file" in refused(capsys, *MAZE, "--maze", str(tmp_path / "none.json"))
    assert "is a folder" in refused(capsys, *MAZE, "--maze", str(tmp_path))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "it is not UTF-8" in refused(capsys, *MAZE, "--maze", str(tmp_path / "binary"))


@pytest.mark.parametrize(("arguments", "words"), [
    (("--task", "own", "--set", "maze=S2.~"), "The maze in this address is cut or changed"),
    (("--task", "sort"), "The task 'sort' is of the kind llm, not maze: choose that kind."),
    (("--model", "tiny"), "A run of the kind maze has no model to choose: leave 'tiny' out."),
    (("--set", "lambda=0.5"), "Q-learning on 'corridors' has no knob 'lambda'"),
    (("--task", "random", "--set", "height=31"), "`height` is 31, outside its bounds: use a value from 2 to 30.")])
def test_a_maze_setting_that_cannot_be(capsys, arguments, words):
    assert words in refused(capsys, *MAZE, *arguments)


# ---------------------------------------------------------------------------- environments that cannot be


@pytest.mark.parametrize(("task", "words"), [
    ("CartPol-v1", "Gymnasium has no environment 'CartPol-v1': did you mean 'CartPole-v1'?"),
    ("Taxi-v3", "did you mean 'Taxi-v4'?"),
    ("cartpole-v1", "did you mean 'CartPole-v1'?"),
    ("Pendulum-v1", "Pendulum-v1 has continuous actions, but this method needs discrete ones: choose PPO,"),
    ("MountainCarContinuous-v0", "has continuous actions"),
    ("no_such_module:Own-v0", "This lab does not import the module 'no_such_module': start a run with --env"),
])
def test_an_environment_that_cannot_be_used(capsys, task, words):
    assert words in refused(capsys, *POLE, "dqn", "--task", task)
    assert not (home() / "lab.db").exists()


@pytest.mark.parametrize(("task", "package"), [("LunarLander-v3", "Box2D"), ("phys2d/CartPole-v1", "jax")])
def test_an_environment_whose_package_is_missing(capsys, task, package):
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed")
    said = refused(capsys, *POLE, "ppo", "--task", task)
    assert f"{task} needs a package that is not installed: " in said and package.lower() in said.lower()
    assert said.endswith(", or take CartPole-v1.\n")


@pytest.mark.skipif(importlib.util.find_spec("ale_py") is not None, reason="the Atari games are installed")
def test_an_atari_game_without_its_package(capsys):
    said = refused(capsys, *POLE, "dqn", "--task", "ALE/Pong-v5")
    assert says(said, "'ALE/Pong-v5'", "ale-py", "not installed", "pip install ale-py")


def test_a_dqn_that_diverges_says_so_and_keeps_its_checkpoint(capsys):
    """Nine layers of weights that grow by 1 an update: the squared error is beyond float32 in a few updates."""
    large = [word for knob in ("learning_rate=1", "max_grad_norm=1e9", "td_loss=mse", "layers=8", "hidden=256",
                               "layer_norm=False", "learning_starts=3000", "gradient_steps=8", "eval_episodes=1")
             for word in ("--set", knob)]
    assert main([*POLE, "dqn", "--steps", "30", *large, "--json"]) == 1
    printed = capsys.readouterr()
    got = json.loads(printed.out)
    assert got["state"] == "diverged" and 1 <= got["step"] < 30
    assert "was not a finite number at step" in got["message"] and "with a lower learning rate" in got["message"]
    assert "Traceback" not in printed.err
    assert checkpoint.newest(run_folder(got["run"])) is not None
    assert len(Store().steps_after(got["run"])) == got["step"], "what was learnt before is all there"
    assert len(done(capsys, "play", got["run"], "--episodes", "1", "--json")["returns"]) == 1


def test_a_table_that_runs_away_says_so(capsys):
    assert main([*MAZE, *FAST, "--set", "alpha=100", "--set", "step_limit=200", "--json"]) == 1
    got = json.loads(capsys.readouterr().out)
    assert got["state"] == "diverged" and "value table was not a finite number" in got["message"]
    assert got["message"].endswith("with a smaller step size.")


# ---------------------------------------------------------------------------- what cannot be played


def test_what_cannot_be_played(capsys, tmp_path):
    assert "There is no run 'nobody'" in refused(capsys, "play", "nobody")
    assert "holds no checkpoint that can be played" in refused(capsys, "play", str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    assert "holds no checkpoint that can be played" in refused(capsys, "play", str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert says(refused(capsys, "play", str(tmp_path)), "is a language model", "maze and CartPole")
    (tmp_path / "config.json").write_text('{"kind": "maze"}')
    assert "holds no policy that can be played" in refused(capsys, "play", str(tmp_path))
    got = done(capsys, *MAZE, *FAST, "--steps", "1", "--json")
    assert "--episodes is 0: play at least one." in refused(capsys, "play", got["run"], "--episodes", "0")


def test_an_environment_with_arguments_is_a_run_of_its_kind(capsys):
    """`--env` says the kind as well; the arguments are one knob, which the environment is made with."""
    assert main(["run", "--algorithm", "a2c", "--env", "FrozenLake-v1", "--env-arg", "map_name=8x8", "--env-arg",
                 "is_slippery=False", "--steps", "1", "--set", "eval_episodes=1"]) == 0
    spec = Store().runs()[0].spec
    assert (spec.kind, spec.knobs["env_args"]) == ("cartpole", "is_slippery=false map_name=8x8")
    capsys.readouterr()
    assert "has no argument 'slippery'" in refused(capsys, "run", "--algorithm", "ppo", "--env", "FrozenLake-v1",
                                                   "--env-arg", "slippery=1")
    assert "--env and --task cannot be given together" in refused(
        capsys, "run", "--algorithm", "ppo", "--env", "FrozenLake-v1", "--task", "CartPole-v1")
    assert "--env-arg is for environments" in refused(capsys, "run", "--algorithm", "grpo", "--env-arg", "a=1")
