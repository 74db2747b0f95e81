"""A folder is followed: which files are which run, what is sent of them, restarts, and steps that come again."""

import gzip
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from labcore.errors import LabError
from labcore.following import follower as module
from labcore.following.follower import Follower
from labcore.runs.files.paths import home
from labcore.runs.store.store import Store
from labcore.workers.watcher import Watcher
from tests.following.tools import RECORDED, copied, curve, sent
from tests.runs.imports import files


class Session:
    """A follower of one folder, its sentences, and its looks."""

    def __init__(self, folder: Path):
        self.folder, self.said = folder, list[str]()
        self.begin()

    def begin(self) -> None:
        self.follower = Follower(self.folder, self.said.append, {})

    def restart(self) -> None:
        self.follower.close()
        self.begin()

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.follower.look()


def once(folder: Path) -> list[str]:
    """Read what is in a folder, then end. Returns what was said."""
    session = Session(folder)
    session.follower.look(last=True)
    session.follower.finish()
    return session.said


def tool_of(name: str) -> str:
    return sent("run")[name][0]["tool"]


def test_verl(tmp_path):
    once(copied("verl", tmp_path))
    found = sent()
    assert set(found) == {"verl/gsm8k/qwen_grpo", "verl/validation"} and tool_of("verl/gsm8k/qwen_grpo") == "verl"
    lines = found["verl/gsm8k/qwen_grpo"]
    assert curve(lines, "critic/rewards/mean") == {1: 0.25, 2: 0.5, 3: 0.75, 4: 1.0}
    assert curve(lines, "actor/ppo_kl") == {1: 0.001, 2: 0.002, 3: "NaN", 4: 0.004}
    assert [line["kind"] for line in lines] == ["run", *["rollouts", "numbers"] * 4, "end"]
    group = lines[1]["groups"][0]
    assert group["prompt"] == "What is 2+2?"
    assert group["completions"] == [{"text": "The answer is 1.", "rewards": {"score": 0.0}},
                                    {"text": "4", "rewards": {"score": 1.0}}]
    assert [line["step"] for line in found["verl/validation"] if line["kind"] == "rollouts"] == [2, 4]


def test_completions_that_verl_reordered_are_grouped_by_prompt(tmp_path):
    folder = copied("verl", tmp_path)
    for path in folder.glob("rollouts/*"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[::2] + lines[1::2]))
    once(folder)
    first = next(line for line in sent()["verl/gsm8k/qwen_grpo"] if line["kind"] == "rollouts")
    assert [(group["prompt"], len(group["completions"])) for group in first["groups"]] == [
        ("What is 2+2?", 2), ("What is 3+5?", 2)]


def test_openrlhf(tmp_path):
    once(copied("openrlhf", tmp_path))
    lines = sent()["openrlhf/ppo_qwen"]
    assert tool_of("openrlhf/ppo_qwen") == "OpenRLHF" and lines[0]["config"] == {}
    assert curve(lines, "train/reward") == pytest.approx({1: 0.2, 2: 0.4, 3: 0.6})
    assert curve(lines, "eval/eval_gsm8k_pass1") == {3: 0.5}
    sample = lines[1]["groups"][0]["completions"][0]
    assert sample == {"text": "What is 2+2? The answer is 2.", "rewards": {"reward": 0.2}}


def test_trl_from_its_event_files_and_from_its_state(tmp_path):
    said = once(folder := copied("trl", tmp_path))
    assert set(sent()) == {"trl"} and tool_of("trl") == "TRL" and len(said) == 2
    events = sent()["trl"]
    pictures = [line for line in events if line["kind"] == "rollouts"]
    assert [line["step"] for line in pictures] == [1, 2]
    rows = [row for group in pictures[0]["groups"] for row in group["completions"]]
    assert [len(group["completions"]) for group in pictures[0]["groups"]] == [2, 2]
    assert rows[0]["advantages"] == pytest.approx(
        0.706672, abs=1e-6) and rows[0]["rewards"]["vowels"] == pytest.approx(1.2)
    assert rows[0]["rewards"].keys() == {"vowels", "short"} and rows[0]["rewards"]["short"] is None
    shutil.rmtree(home() / "watched")
    shutil.rmtree(folder / "runs")
    shutil.copytree(folder, tmp_path / "other")
    once(tmp_path / "other")
    state = sent()["other"]
    reward = curve(state, "reward")
    assert reward == pytest.approx(curve(events, "train/reward"), rel=1e-6) and list(reward) == [1, 2, 3, 4]
    assert state[0]["config"]["max_steps"] == 4 and state[-1]["state"] == "finished" and "train_loss" in str(state)


def test_weights_and_biases(tmp_path):
    once(copied("wandb", tmp_path))
    lines = sent()["grpo-qwen"]
    assert lines[0]["config"] == {"beta": 0.04, "learning_rate": 1e-6} and lines[-1]["state"] == "finished"
    assert curve(lines, "train/reward") == pytest.approx({step: step / 10 for step in range(1, 6)})
    assert curve(lines, "train/kl")[2] == "NaN" and curve(lines, "profiling.time")[1] == 0.5
    kinds = [line["kind"] for line in lines]
    assert kinds[3:6] == ["numbers", "config", "numbers"] and lines[4]["values"] == {"beta": 0.02}
    assert "_step" not in str(lines) and "_timestamp" not in str(
        lines) and lines[1]["seconds"] == pytest.approx(0.882266)


def test_trackio(tmp_path):
    folder = copied("trackio", tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    once(folder)
    lines = sent()["grpo"]
    assert curve(lines, "train/kl") == {1: 0.01, 2: "NaN", 3: 0.01} and lines[0]["config"] == {"beta": 0.04}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before  # it was not touched


def test_stable_baselines3(tmp_path):
    said = once(folder := copied("sb3", tmp_path))
    lines = sent()["sb3"]
    assert curve(lines, "time/total_timesteps") == {1: 128, 2: 256,
                                                    3: 384, 4: 512} and "updates" not in lines[1]["numbers"]
    assert [sentence.split()[0].rpartition("/")[2][:12] for sentence in said] == [
        "events.out.t", "progress.jso", "monitor.csv", "sb3"]
    shutil.rmtree(home() / "watched")
    for name in ("progress.csv", "progress.json"):
        (folder / name).unlink()
    (folder / next(path.name for path in folder.glob("events*"))).unlink()
    shutil.copytree(folder, tmp_path / "monitor")
    once(tmp_path / "monitor")
    episodes = sent()["monitor/episodes"]
    assert curve(episodes, "r")[1] == 25 and curve(episodes, "env_steps")[3] == 25 + 55 + 14 and len(episodes) == 20
    shutil.rmtree(home() / "watched")
    for path in (RECORDED / "sb3").glob("events*"):
        (tmp_path / "events").mkdir()
        shutil.copy(path, tmp_path / "events")
    once(tmp_path / "events")
    assert curve(sent()["events"], "env_steps") == {step: step for step in (128, 256, 384, 512)}


def test_prime_rl(tmp_path):
    once(copied("prime", tmp_path))
    found = sent()
    assert set(found) == {"prime", "prime/validation"} and tool_of("prime") == "prime-rl"
    lines = found["prime"]
    assert [line["kind"] for line in lines] == ["run", "rollouts", "numbers", "rollouts", "numbers", "end"]
    assert [(group["prompt"], [row["text"] for row in group["completions"]]) for group in lines[1]["groups"]] == [
        ("What is 2+2?", ["5", "4"]), ("What is 2+3?", ["5", "6"])]
    assert lines[1]["groups"][0]["completions"][1] == {
        "text": "4", "advantages": 0.5, "rewards": {"correct": 1.0, "format": 0.5}}
    assert curve(lines, "optim/grad_norm") == {1: 1, 2: 1} and lines[4]["seconds"] > 0


def test_prime_rl_before_its_batch_is_final(tmp_path):
    """`all` grows while a step is collected: it is read once the next one has begun, if there is no other."""
    folder = copied("prime", tmp_path)
    shutil.rmtree(folder / "rollouts/step_1/train/effective")
    held = folder / "rollouts/step_2"
    held.rename(tmp_path / "later")
    session = Session(folder)
    session.look(3)
    assert "rollouts" not in str(sent()["prime"])
    (tmp_path / "later").rename(held)
    session.look(module.RARELY + 3)
    assert sorted(line["step"] for line in sent()["prime"] if line["kind"] == "rollouts") == [1, 2]


def test_tensorboard_in_both_forms(tmp_path):
    once(copied("tensorboard", tmp_path))
    found = sent()
    assert curve(found["tensorboard/old"], "loss") == curve(found["tensorboard/new"], "loss") == pytest.approx(
        {0: 1, 1: 0.5, 2: 1 / 3}, rel=1e-6)
    assert curve(found["tensorboard/new"], "reward") == {0: 0, 1: 0.5, 2: 1}


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
    assert session.said == [f"{tmp_path / 'later'} does not exist yet: waiting for it."]
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
    assert said[0] == "out: not followed, because they have no step: table.csv, train.jsonl." and len(said) <= 2
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
    monkeypatch.setattr("labcore.following.sending.BACKLOG", 5)
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
