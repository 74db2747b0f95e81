"""A folder is followed: restarts, steps that are repeated, growing and damaged files."""

import gzip
import json
import os
import shutil
import time

import pytest

from labcore.errors import LabError
from labcore.runs.files.paths import home
from labcore.runs.store.store import Store
from labcore.watch.following import follower as module
from labcore.watch.following.follower import Follower
from labcore.workers.watcher import Watcher
from tests.runs.imports import files
from tests.watch.following.tools import RECORDED, Session, copied, curve, once, sent
from tests.words import says


def test_a_restarted_follower_loses_and_repeats_nothing(tmp_path):
    whole = copied("verl", tmp_path)
    once(whole)
    expected = [(line["kind"], line["step"]) for line in sent()["verl/gsm8k/qwen_grpo"] if "step" in line]
    shutil.rmtree(home() / "watched")
    data = (whole / "gsm8k/qwen_grpo.jsonl").read_bytes()
    grows = tmp_path / "grows"
    (grows / "gsm8k").mkdir(parents=True)
    (grows / "rollouts").mkdir()
    session = Session(grows)
    for number, start in enumerate(range(0, len(data), 200)):
        with (grows / "gsm8k/qwen_grpo.jsonl").open("ab") as file:
            file.write(data[start:start + 200])
        if (path := whole / f"rollouts/{number}.jsonl").exists():
            shutil.copy(path, grows / "rollouts")
        session.look(2)
        session.restart()
    session.look(module.RARELY + 2)
    found = [(line["kind"], line["step"]) for line in sent()["grows/gsm8k/qwen_grpo"] if "step" in line]
    assert sorted(found) == sorted(expected)


def test_the_follower_waits_for_a_missing_folder_and_reports_it_once(tmp_path):
    session = Session(tmp_path / "later")
    session.look(3)
    assert [says(each, str(tmp_path / "later"), "not exist") for each in session.said] == [True]
    shutil.copytree(RECORDED / "verl", tmp_path / "later")
    session.look(3)
    assert "later/gsm8k/qwen_grpo" in sent()


def test_completions_wait_for_an_empty_log(tmp_path):
    """verl opens its log at the start, and writes the first completions before the first numbers."""
    folder = tmp_path / "verl"
    (folder / "log").mkdir(parents=True)
    (folder / "log/qwen.jsonl").touch()
    shutil.copytree(RECORDED / "verl/rollouts", folder / "rollouts")
    session = Session(folder)
    session.look(3)
    assert sent() == {}
    shutil.copy(RECORDED / "verl/gsm8k/qwen_grpo.jsonl", folder / "log/qwen.jsonl")
    session.look(3)
    assert set(sent()) == {"verl/log/qwen"} and "rollouts" in str(sent())


def test_the_better_of_two_logs_is_followed_even_if_it_is_still_empty(tmp_path):
    """Stable-Baselines3 writes episodes long before the first row of progress.csv."""
    folder = tmp_path / "sb3"
    folder.mkdir()
    session = Session(folder)
    shutil.copy(RECORDED / "sb3/monitor.csv", folder)
    session.look(2)
    (folder / "progress.csv").touch()
    session.look(2)
    assert sent() == {}
    shutil.copy(RECORDED / "sb3/progress.csv", folder)
    session.look(3)
    assert curve(sent()["sb3"], "rollout/ep_rew_mean")[1] == 30 and "sb3/episodes" not in sent()


def stored() -> dict[str, list[int]]:
    """The runs of the store with their steps, once the lab has read what was sent."""
    store = Store()
    watcher = Watcher(store)
    for _ in range(3):
        watcher.look()
        time.sleep(0)
    return {row.id: [step.step for step in store.steps_after(row.id)] for row in store.runs()}


def test_a_trainer_that_resumes_from_a_checkpoint_makes_a_fork(tmp_path):
    """verl opens its log anew: the file is shorter, and begins with an earlier step."""
    folder = copied("verl", tmp_path)
    shutil.rmtree(folder / "rollouts")
    shutil.rmtree(folder / "validation")
    log = folder / "gsm8k/qwen_grpo.jsonl"
    session = Session(folder)
    session.look(3)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        line["data"]["critic/rewards/mean"] += 0.01
    log.write_text("".join(json.dumps(line) + "\n" for line in lines[2:]))
    session.look(3)
    with log.open("a") as file:
        file.write(json.dumps({"step": 5, "data": {"critic/rewards/mean": 2.0}}) + "\n")
    session.look(3)
    session.follower.finish()
    store = Store()
    assert sorted(stored().values()) == [[1, 2, 3, 4], [3, 4, 5]]
    fork, = (row for row in store.runs() if row.spec.parent)
    assert fork.spec.parent[1] == 2


def test_a_trainer_state_with_other_rows_makes_a_fork(tmp_path):
    """A trainer is resumed from checkpoint-2: the next checkpoint has other rows from step 3 on."""
    folder = copied("trl", tmp_path)
    shutil.rmtree(folder / "runs")
    shutil.rmtree(folder / "completions")
    session = Session(folder)
    session.look(3)
    path = folder / "checkpoint-4/trainer_state.json"
    state = json.loads(path.read_text())
    for row in state["log_history"][2:]:
        row["reward"] = 9.0
    path.write_text(json.dumps(state))
    session.look(3)
    session.follower.finish()
    assert curve(sent()["trl"], "reward")[3] == 9.0
    assert sorted(stored().values()) == [[1, 2, 3, 4], [3, 4]]


def test_lines_that_are_sent_twice_are_stored_once(tmp_path):
    """A follower that is killed has sent rows, and not kept that."""
    folder = copied("verl", tmp_path)
    session = Session(folder)
    session.look(3)
    session.follower.close()
    for path in (home() / "following").glob("*.json"):
        memory = json.loads(path.read_text())
        memory["files"] = memory["shared"] = {}
        memory["runs"] = {key: {name: value for name, value in run.items() if name in ("id", "name", "tool")}
                          for key, run in memory["runs"].items()}
        path.write_text(json.dumps(memory))
    session.begin()
    session.look(3)
    session.follower.finish()
    assert len([line for line in sent()["verl/gsm8k/qwen_grpo"] if line["kind"] == "numbers"]) == 8
    assert [1, 2, 3, 4] in stored().values() and not any(row.spec.parent for row in Store().runs())


def test_two_processes_do_not_follow_one_folder(tmp_path):
    session = Session(copied("verl", tmp_path))
    with pytest.raises(LabError, match="Another process already follows"):
        Follower(session.folder, print, {})
    session.follower.close()
    Follower(session.folder, print, {}).close()


def test_a_damaged_state_of_the_follower_is_reported(tmp_path):
    once(folder := copied("verl", tmp_path))
    for path in (home() / "following").glob("*.json"):
        path.write_text("{")
    with pytest.raises(LabError, match=r"is damaged .* delete it to read"):
        Follower(folder, print, {})


def test_data_and_other_files_are_not_followed(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')
    (folder / "table.csv").write_text("a,b\n1,2\n")
    (folder / "config.json").write_text('{"step": 1}')
    (folder / "other.db").write_bytes(b"SQLite format 3\0" + bytes(84))
    os.mkfifo(folder / "metrics.csv")
    said = once(folder)
    assert says(said[0], "out", "not followed", "table.csv, train.jsonl")
    assert len(said) <= 2
    assert sent() == {}


def test_rows_between_two_steps_are_sent_with_the_next_one(tmp_path):
    """Stable-Baselines3's EvalCallback writes rows without an iteration."""
    folder = tmp_path / "ppo"
    folder.mkdir()
    (folder / "progress.csv").write_text("time/iterations,time/total_timesteps,eval/mean_reward,rollout/ep_rew_mean\n"
                                         "1,2048,,20\n,3000,200,\n2,4096,,30\n")
    once(folder)
    lines = sent()["ppo"]
    assert curve(lines, "eval/mean_reward") == {2: 200} and curve(lines, "rollout/ep_rew_mean") == {1: 20, 2: 30}


def test_a_log_of_several_runs_is_several_runs(tmp_path):
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(
        json.dumps({"run_name": name, "step": step, "reward": step * scale}) + "\n"
        for step in (1, 2) for name, scale in (("a", 1), ("b", 10))))
    once(folder)
    assert curve(sent()["sweep/a"], "reward") == {1: 1, 2: 2} and curve(sent()["sweep/b"], "reward") == {1: 10, 2: 20}


def test_of_very_many_steps_with_completions_only_some_are_sent(tmp_path, monkeypatch):
    monkeypatch.setattr("labcore.watch.following.sending.BACKLOG", 5)
    folder = tmp_path / "verl"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps({"step": step, "data": {"actor/lr": 0.1}}) + "\n"
                                                  for step in range(1, 13)))
    row = (RECORDED / "verl/rollouts/1.jsonl").read_text()
    for step in range(1, 25):
        (folder / f"{step}.jsonl").write_text(row)
    said = once(folder)
    steps = [line["step"] for line in sent()["verl"] if line["kind"] == "rollouts"]
    assert steps[-1] == 24 and len(steps) < 24 and any("5 of these steps are shown" in each for each in said)


def test_an_idle_run_is_closed_and_continues_when_its_files_change(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "IDLE_SECONDS", -1.0)
    folder = copied("verl", tmp_path)
    session = Session(folder)
    session.look(4)
    with (folder / "gsm8k/qwen_grpo.jsonl").open("a") as file:
        file.write('{"step": 5, "data": {"critic/rewards/mean": 2}}\n')
    session.look(4)
    lines = sent()["verl/gsm8k/qwen_grpo"]
    assert [line["kind"] for line in lines].count("run") > 1 and curve(lines, "critic/rewards/mean")[5] == 2
    assert "end" not in [line["kind"] for line in lines] and len({line["id"] for line in lines if "id" in line}) == 1


@pytest.mark.parametrize("content", [b"PAR1 not parquet", b""])
def test_unreadable_completions_are_reported(content, tmp_path):
    folder = copied("trl", tmp_path)
    (folder / "completions/completions_00001.parquet").write_bytes(content)
    said = once(folder)
    assert [line["step"] for line in sent()["trl"] if line["kind"] == "rollouts"] == [2]
    assert any("is skipped" in each for each in said) or content == b""


def test_a_gzipped_fixture_is_what_the_tool_wrote():
    assert gzip.decompress((RECORDED / "trackio/rl.db.gz").read_bytes()).startswith(b"SQLite format 3")


def test_a_log_whose_first_lines_have_no_step_is_followed_once_it_has_one(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "log.jsonl").write_text('{"config": {"lr": 0.1}}\n')
    session = Session(folder)
    session.look(2)
    with (folder / "log.jsonl").open("a") as file:
        file.write('{"step": 1, "loss": 0.5}\n')
    session.look(3)
    assert curve(sent()["run"], "loss") == {1: 0.5} and len(session.said) == 1


def test_the_history_that_weights_and_biases_exports_is_a_log(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "wandb-history.csv").write_bytes(files.WANDB)
    once(folder)
    lines = sent()["run"]
    assert curve(lines, "train/reward") == {1: 0.25, 2: 0.5} and curve(lines, "eval/loss") == {2: 0.1}
    assert [line["seconds"] for line in lines if line["kind"] == "numbers"] == [1.5, 2.75]
