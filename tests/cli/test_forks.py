"""Forks from the command line."""

import json

import pytest

from labcore.cli.main import main
from labcore.runs.files import checkpoints
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.runs.store.store import Store
from tests.cli.test_main import refused

MAZE = ("run", "--kind", "maze", "--algorithm", "q_learning", "--task", "slippery", "--set", "pace=0", "--steps", "8",
        "--json")


@pytest.fixture
def parent(capsys):
    """The id of a finished run; its checkpoints are of steps 0 and 8."""
    assert main(MAZE) == 0
    return json.loads(capsys.readouterr().out)["run"]


def test_a_fork_is_trained_and_exported(capsys, parent, tmp_path):
    given = ("--step", "8", "--algorithm", "sarsa", "--set", "epsilon=0.1", "--steps", "12")
    assert main(["fork", parent, *given, "--fresh", "--seed", "5", "--out", str(tmp_path / "out"), "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert (got["state"], got["algorithm"], got["step"], got["seed"]) == ("finished", "sarsa", 12, 5)
    spec = json.loads((tmp_path / "out" / "spec.json").read_text())
    assert (spec["parent"], spec["twin"], spec["knobs"]["epsilon"]) == ([parent, 8], False, 0.1)
    rows = (tmp_path / "out" / "metrics.csv").read_text().splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == ["9", "10", "11", "12"]
    assert main(["runs"]) == 0 and got["run"] in capsys.readouterr().out


def test_without_options_it_is_the_newest_checkpoint_and_the_same_random_numbers(capsys, parent):
    assert main(["fork", parent, "--step", "0", "--json"]) == 0
    child = json.loads(capsys.readouterr().out)["run"]
    store = Store()
    assert [(s.step, s.metrics["episode_return"]) for s in store.steps_after(child)] == [
        (s.step, s.metrics["episode_return"]) for s in store.steps_after(parent)]
    assert main(["fork", parent, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 16


@pytest.mark.parametrize("given, words", [
    (("--step", "5"), "has no checkpoint of step 5: fork it from step 0 or 8"),
    (("--seed", "3"), "use fresh random numbers (--fresh)"),
    (("--set", "alpha"), "is no KNOB=VALUE"),
])
def test_what_cannot_be_is_one_sentence(capsys, parent, given, words):
    assert words in refused(capsys, "fork", parent, *given)
    assert len(Store().runs()) == 1


def test_a_checkpoint_without_its_optimizer_says_so(capsys, parent):
    (checkpoint.at(run_folder(parent), 0) / "optimizer_policy.safetensors").write_bytes(checkpoints.DROPPED)
    for step, told in ((0, True), (8, False)):
        assert main(["fork", parent, "--step", str(step), "--json"]) == 0
        assert ("the fork starts with a new optimizer state" in capsys.readouterr().err) == told
