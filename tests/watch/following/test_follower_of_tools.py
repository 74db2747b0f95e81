"""The recorded folder of each tool is followed: which files are which run, and what is sent of them."""

import shutil

import pytest

from labcore.runs.files.paths import home
from labcore.watch.converting.samples import samples_of
from labcore.watch.following import follower as module
from labcore.watch.following.swift_completions import SwiftCompletions
from tests.runs.imports import files
from tests.watch.following.tools import RECORDED, Followed, Session, content, copied, curve, once, sent, tool_of


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


def test_ms_swift(tmp_path):
    said = once(copied("ms-swift", tmp_path))
    assert tool_of("ms-swift") == "ms-swift" and "trainer_state.json is not followed" in " ".join(said)
    lines = sent()["ms-swift"]
    assert curve(lines, "reward")[1] == 0.875 and curve(lines, "entropy/mean")[4] == pytest.approx(4.575, abs=0.01)
    assert [(line["kind"], line.get("step")) for line in lines[1:]] == [
        *((kind, step) for step in (1, 2, 3, 4) for kind in ("rollouts", "numbers")), ("end", None)]
    group = lines[1]["groups"][-1]
    assert (group["prompt"], len(group["completions"])) == ("jd=", 4)
    assert {row["rewards"]["Score"] for row in group["completions"]} == {0.0, 1.0}
    assert sum(row["advantages"] for row in group["completions"]) == pytest.approx(0, abs=1e-6)


def test_ms_swifts_completions_grow_line_by_line(tmp_path):
    data = content("ms-swift/completions.jsonl")
    followed = Followed(tmp_path / "completions.jsonl", SwiftCompletions)
    first = data.index(b"\n") + 1
    assert followed.append(data[:100]) == []
    [one] = followed.append(data[100:first])
    followed.restart()
    rest = followed.append(data[first:] + b'{"step": ["x"]}\n{"step": ["5"], "prompt": ["a"]}\nnot JSON\n')
    assert [one.step, *(each.step for each in rest)] == [1, 2, 3, 4] and "line 6" in followed.said[0]
    assert rest[1].read().completions[0] == "5K!D" and one.read().group == 4


@pytest.mark.parametrize("begins", [b"", b"\xef\xbb\xbf"])
def test_a_chart_of_weights_and_biases_is_imported_not_followed(begins, tmp_path):
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts/chart.csv").write_bytes(begins + files.CHART.removeprefix(b"\xef\xbb\xbf"))
    [said] = once(tmp_path / "charts")
    assert "no log with a step: chart.csv" in said and "rl-lab import FILE reads charts" in said and not sent()


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
    groups = samples_of(lines[1], 1)["groups"]
    assert [(group["prompt"], [row["text"] for row in group["completions"]]) for group in groups] == [
        ("What is 2+2?", ["5", "4"]), ("What is 2+3?", ["5", "6"])]
    assert lines[1]["groups"][0]["completions"][1] == {
        "text": [{"role": "assistant", "content": "4"}], "advantages": 0.5, "rewards": {"correct": 1.0, "format": 0.5}}
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
