"""Rewards that are named on the command line: functions, a reward model and a judge, for runs, forks and sweeps."""

import json

import pytest

from labcore.cli import commands, sweeping
from labcore.cli.main import main, parser
from labcore.runs import sweep as engine
from labcore.runs.files.paths import home
from labcore.runs.store.store import Store
from labcore.tasks import judge, own_reward
from labcore.tasks.task import make_task
from tests.cli.test_main import SORT, refused
from tests.tasks.test_own_reward import forget

SHORT = ("--steps", "2", "--set", "sft_steps=0", "--set", "prompts_per_step=4", "--set", "group_size=4", "--json")
FILE = ("def long(completions, **_):\n    return [len(each) for each in completions]\n"
        "async def brief(completions):\n    return [1 / (1 + len(each)) for each in completions]\n"
        "def graded(completions, ground_truth, level=0):\n    return [float(g) for g in ground_truth]\n")


@pytest.fixture
def mine(tmp_path, monkeypatch):
    forget(monkeypatch)
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return str(path)


def knobs(*words):
    return commands.spec_of(parser().parse_args([*SORT, *words])).knobs


def test_a_run_a_fork_and_a_resumed_run_with_functions(capsys, mine, monkeypatch):
    """Only the run itself names the file: the others are other processes, for which the lab has kept it."""
    assert main([*SORT, *SHORT, "--reward", f"{mine}:long", "--reward", f"{mine}:brief=-0.5"]) == 0
    got = json.loads(capsys.readouterr().out)
    metrics = got["metrics"]
    assert metrics["reward"] == pytest.approx(metrics["reward/long"] - 0.5 * metrics["reward/brief"])
    spec = Store().run(got["run"]).spec
    assert spec.knobs["reward_weights"] == "1 -0.5"
    assert [each.rpartition(" ")[0] for each in spec.knobs["reward_function"].split(" + ")] == [
        "mine.py:long", "mine.py:brief"]
    forget(monkeypatch)
    assert main(["fork", got["run"], "--step", "0", "--set", "reward_weights=0 1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["metrics"]
    assert found["reward"] == pytest.approx(found["reward/brief"])


def test_a_sweep_has_the_same_functions_and_may_move_their_weights(mine):
    options = parser().parse_args(["sweep", "--algorithm", "grpo", "--task", "sort", "--reward", f"{mine}:long",
                                   "--reward", "verifier", "--sweep", "reward_weights=1 0,1 0.5", "--seeds", "0,1"])
    specs = engine.grid(commands.spec_of(options), sweeping.axes_of(options.axes), sweeping.seeds_of(options.seeds))
    assert sorted(spec.knobs["reward_weights"] for spec in specs) == ["1 0", "1 0", "1 0.5", "1 0.5"]
    assert all(spec.knobs["reward_function"].endswith(" + verifier") for spec in specs)


def test_a_reward_model_or_a_judge_alone_is_the_source_and_beside_others_a_term(mine, monkeypatch, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    found = knobs("--reward-model", str(folder))
    assert (found["reward_source"], found["reward_model"]) == ("reward_model", str(folder))
    asked = ("--judge", "http://localhost:8000", "--judge-model", "m", "--judge-instruction", "Be strict.")
    found = knobs(*asked)
    assert (found["reward_source"], found["judge_url"]) == ("judge", "http://localhost:8000/v1")
    assert (found["judge_model"], found["judge_instruction"]) == ("m", "Be strict.")
    judge.check("http://localhost:8000/v1")  # the command has named it for this machine's runs
    found = knobs(*asked, "--reward-model", str(folder), "--reward", "judge=2", "--reward", f"{mine}:long")
    assert found["reward_source"] == "own_function" and found["reward_weights"] == "2 1 1"
    assert [each.partition(" ")[0] for each in found["reward_function"].split(" + ")] == [
        "judge", "mine.py:long", "reward_model"]


@pytest.mark.parametrize("words, said", [
    (("--reward", "mine.py"), "There is no file mine.py"), (("--reward", "mine"), "is not FILE:function"),
    (("--reward", "MINE"), "has the functions long, brief, graded: name one of its functions"),
    (("--reward", "MINE:none"), "has no function 'none'"),
    (("--reward", "MINE:graded"), "MINE asks for the column 'ground_truth', which the rows do not have"),
    (("--reward", "MINE:long", "--reward", "MINE:long=2"), "is named twice"),
    (("--reward", "judge"), "The reward source `judge` needs `judge_url`: set `judge_url`, or give --judge"),
    (("--judge", "http://a.b"), "The reward source `judge` needs `judge_model`"),
    (("--judge", "nowhere", "--judge-model", "m"), "is not a URL"),
    (("--judge", "https://u:sk-1@a.b", "--judge-model", "m"), "must not hold a name"),
    (("--judge-model", "m"), "give its address as well"),
    (("--reward-model", "nobody"), "There is no reward model 'nobody' here"),
    (("--reward", "reward_model"), "needs a reward model"),
    (("--reward", "verifier", "--set", "reward_weights=1 2"), "has 2 numbers for 1 reward"),
])
def test_what_cannot_be_is_one_sentence_before_there_is_a_run(capsys, mine, words, said):
    found = refused(capsys, *SORT, *[word.replace("MINE", mine) for word in words])
    assert said.replace("MINE", "mine.py:graded") in found and "sk-1" not in found
    assert not (home() / "lab.db").exists()


def test_the_columns_of_the_file_are_there(capsys, mine, tmp_path):
    data = tmp_path / "rows.jsonl"
    data.write_text('{"prompt": "1+1=", "answer": "2", "ground_truth": "0.5", "level": 2}\n' * 4)
    assert main(["run", "--algorithm", "grpo", "--data", str(data), "--verifier", "exact", *SHORT,
                 "--set", "max_new_tokens=8", "--reward", f"{mine}:graded"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["reward"] == 0.5


def test_a_run_is_resumed_only_with_its_own_function(capsys, mine, tmp_path, monkeypatch):
    run = Store().create(commands.spec_of(parser().parse_args([*SORT, "--reward", f"{mine}:long"])), mine=True)
    assert "come from mine.py:long" in refused(capsys, "resume", run, "--reward", f"{mine}:brief")
    for file in own_reward.root().glob("*/*"):
        file.unlink()
    forget(monkeypatch)
    with pytest.raises(Exception, match="put exactly that file into"):
        own_reward.check(Store().run(run).spec.knobs["reward_function"])


@pytest.mark.parametrize("verifier, more, right, wrong", [
    ("regex", ("pattern=^[0-9]+$",), "12", "twelve"), ("contains", ("pattern=cat",), "a cat", "a dog"),
    ("length", ("length_low=2", "length_high=3"), "abc", "a"), ("exact", (), "B", "b"), ("choice", (), "(B)", "A"),
    ("format", ("pattern=<think>…</think><answer>…</answer>",), "<think>x</think><answer>B</answer>", "B"),
    ("json", (), '{"a": 1}', "{a}"), ("math", (), "B", "C"), ("numeric", (), "7", "8")])
def test_every_verifier_is_there_with_its_settings(tmp_path, verifier, more, right, wrong):
    data = tmp_path / "rows.jsonl"
    answer = {"numeric": "7", "json": ""}.get(verifier, "B")
    data.write_text(json.dumps({"prompt": "q", "answer": answer}) + "\n")
    words = [word for each in more for word in ("--set", each)]
    spec = commands.spec_of(parser().parse_args([
        "run", "--algorithm", "grpo", "--data", str(data), "--verifier", verifier, *words]))
    task = make_task(spec.task_row, spec.knobs, spec.data)
    assert [task.score(task.rows[0], text).reward for text in (right, wrong)] == [1, 0]
