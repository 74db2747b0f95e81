"""The scripts for verl and OpenRLHF, really run by bash: all but the trainer itself, whose words are checked."""

import argparse
import json
import os
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from labcore.exports.handover import openrlhf, verl
from labcore.exports.handover.tools import TOOLS
from tests.exports.handover.conftest import plan
from tests.references import golden

KEYS = golden("verl_keys")
OPTIONS = golden("openrlhf_options")
STUB = """#!{python}
import json, os, sys, time
if sys.argv[1:2] == ["task.py"]:
    if not {here}:
        os.execv({python!r}, [{python!r}, *sys.argv[1:]])
    json.dump(sys.argv[1:], open("asked.new", "w"))
    os.rename("asked.new", "asked.json")
    while not os.path.exists("done"):
        time.sleep(0.01)
    sys.exit()
json.dump([os.path.basename(sys.argv[0]), *sys.argv[1:]], open("started.json", "w"))
"""


def started(script: str, folder: Path, model: str, here: bool = False) -> list[str]:
    """What the script starts as its trainer, word by word, after everything else in it was run.

    `here`: its task.py is run by this process, which has imported transformers, and bash waits for it.
    """
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name in ("python", "torchrun", "deepspeed", "swift"):
        (bin_folder / name).write_text(STUB.format(python=sys.executable, here=here))
        (bin_folder / name).chmod(0o755)
    (folder / "run.sh").write_text(script)
    with (folder / "errors").open("w") as errors, subprocess.Popen(
            [shutil.which("bash"), "run.sh"], cwd=folder, stdout=subprocess.DEVNULL, stderr=errors,
            env=os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "MODEL": model, "GPUS": "2"}) as bash:
        try:
            if here:
                run_task(folder, bash)
            assert bash.wait(timeout=120) == 0, (folder / "errors").read_text()
        finally:
            bash.kill()
    return json.loads((folder / "started.json").read_text())


def run_task(folder: Path, bash: subprocess.Popen) -> None:
    """Run the script's task.py as `python task.py` does, once bash asks for it."""
    while not (asked := folder / "asked.json").exists():
        assert bash.poll() is None, (folder / "errors").read_text()
        time.sleep(0.01)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", json.loads(asked.read_text()))
        runpy.run_path("task.py", run_name="__main__")
    (folder / "done").touch()


def parser(command: str) -> argparse.ArgumentParser:
    """OpenRLHF's own options."""
    found = argparse.ArgumentParser(exit_on_error=False)
    types = {"int": int, "float": float, "str": str}
    for name, told in OPTIONS["commands"][command].items():
        found.add_argument(name, **{key: types[value] if key == "type" else value for key, value in told.items()
                                    if key in ("type", "nargs", "choices", "action")}, dest=name)
    return found


def test_every_key_for_verl_exists_in_that_version(plans):
    assert KEYS["version"] == verl.VERSION
    for each in plans:
        if each.loop not in ("preference", "prm", "reward_model"):
            keys = KEYS["keys"][{"sft": "sft_trainer_engine"}.get(each.loop, "ppo_trainer")]
            assert set(verl.settings(each)) <= set(keys), each.run


def test_every_option_for_openrlhf_exists_in_that_version(plans):
    assert OPTIONS["version"] == openrlhf.VERSION
    for each in plans:
        if each.loop == "prm":  # which it does not train
            continue
        known = OPTIONS["commands"][openrlhf.COMMANDS[each.loop]]
        assert set(openrlhf.settings(each)) <= set(known), each.run


def test_verl_is_started_with_the_runs_values(files, tmp_path):
    each = plan("grpo", "prompts", files, steps=7, seed=3, knobs={
        "beta": 0.07, "clip_high": 0.28, "updates_per_batch": 2, "mini_batches": 4, "prompts_per_step": 8,
        "verifier": "numeric", "top_k": 5})
    words = started(verl.script(each), tmp_path, "some/model")
    assert words[:3] == ["python", "-m", "verl.trainer.main_ppo"]
    found = dict(word.split("=", 1) for word in words[3:])
    assert found | {
        "actor_rollout_ref.actor.kl_loss_coef": "0.07", "actor_rollout_ref.actor.use_kl_loss": "True",
        "algorithm.use_kl_in_reward": "False", "actor_rollout_ref.actor.clip_ratio_low": "0.2",
        "actor_rollout_ref.actor.clip_ratio_high": "0.28", "actor_rollout_ref.actor.ppo_epochs": "2",
        "actor_rollout_ref.actor.ppo_mini_batch_size": "2", "data.train_batch_size": "8",
        "actor_rollout_ref.rollout.n": "8", "actor_rollout_ref.rollout.top_k": "5", "trainer.n_gpus_per_node": "2",
        "actor_rollout_ref.model.path": "some/model", "algorithm.adv_estimator": "grpo", "data.seed": "3",
        "algorithm.norm_adv_by_std_in_grpo": "True", "trainer.total_training_steps": "7"} == found
    assert found["actor_rollout_ref.model.custom_chat_template"].startswith("'{% for message in messages %}")
    rows = pd.read_parquet(tmp_path / "train.parquet")
    assert len(rows) == 7 * 8 and len(pd.read_parquet(tmp_path / "test.parquet")) == 256
    assert {(row.prompt[0]["content"], row.reward_model["ground_truth"]) for row in rows.itertuples()} == {
        ("1+2=", "3"), ("2+2=", "4"), ("3+2=", "5")}
    sys.path.insert(0, str(tmp_path))
    try:
        import task
        assert task.compute_score("task", "so it is 5.", "5") == 1.0
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("task", None)


def test_verl_learns_sft_on_conversations(tmp_path, files):
    words = started(verl.script(plan("sft", "text", files, steps=2)), tmp_path, "m")
    assert words[:5] == ["torchrun", "--standalone", "--nproc_per_node=2", "-m", "verl.trainer.sft_trainer"]
    rows = pd.read_parquet(tmp_path / "train.parquet")
    assert [message["role"] for message in rows.messages[0]] == ["user", "assistant"]
    assert {len(row[0]["content"]) for row in rows.messages} == {4} and len(rows) == 2 * 64


@pytest.mark.parametrize("algorithm, words", [("dpo", "no trainer for preference pairs"),
                                              ("reward_model", "no trainer for reward models")])
def test_verl_says_what_it_does_not_train(algorithm, words):
    script = verl.script(plan(algorithm))
    assert all(line.startswith("#") for line in script.splitlines()) and words in script


@pytest.mark.parametrize("tool", [verl, openrlhf])
def test_no_shell_tool_trains_a_process_reward_model(tool):
    script = tool.script(plan("prm"))
    assert all(line.startswith("#") for line in script.splitlines()) and "process reward models" in script


@pytest.mark.parametrize("algorithm, task", [("grpo", "sort"), ("ppo", "prompts"), ("dpo", "preferences"),
                                             ("dpo", "sort"), ("sft", "add"), ("reward_model", "preferences"),
                                             ("reward_model", "sort")])
def test_openrlhf_understands_every_word(algorithm, task, files, tmp_path, checkpoint):
    knobs = {"grpo": {"beta": 0.07}, "ppo": {"whiten_advantages": False, "clip_low": 0.1},
             "reward_model": {"margin": 0.5}}.get(algorithm, {})
    sampled = task == "sort" and algorithm in ("dpo", "reward_model")
    if sampled:
        knobs |= {"pair_prompts": 2, "letters": 2}
    each = plan(algorithm, task, files, steps=3, knobs=knobs)
    script = openrlhf.script(each)
    if sampled:  # an untrained model is never right: any letter will do
        script = script.replace("float(completion == answer)", 'float(completion < "m")')
    words = started(script, tmp_path, str(checkpoint), here=True)
    at = words.index(f"openrlhf.cli.{openrlhf.COMMANDS[each.loop]}")
    assert words[:at] == (["python", "-m"] if each.loop == "online" else ["deepspeed", "--module"])
    found = vars(parser(openrlhf.COMMANDS[each.loop]).parse_args(words[at + 1:]))
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert len(rows) == 3 * each.batch
    if each.loop == "online":
        assert found["--actor.eps_clip_low_high"] == [each["clip_low"], each["clip_high"]]
        assert found["--rollout.batch_size"] == each.batch
        assert found["--rollout.n_samples_per_prompt"] == each["group_size"]
        assert found["--train.batch_size"] == each.batch * each["group_size"] // each.parts
        assert found["--algo.kl.init_coef"] == each["beta"] and found["--algo.kl.use_loss"] == (algorithm == "grpo")
        assert found["--algo.advantage.no_std_norm"] == (algorithm == "ppo")
        assert "<" in json.loads((tmp_path / "special_tokens.json").read_text())[0]
    else:
        assert found["--adam.lr"] == each["learning_rate"] and found["--train.batch_size"] == each.batch
        sides = ("answer",) if algorithm == "sft" else ("chosen", "rejected")
        assert all(row[side].endswith(">") for row in rows for side in sides)
        assert {row.get("margin") for row in rows} == {0.5 if algorithm == "reward_model" else None}
        assert found.get("--model.margin_loss_enable", False) == (algorithm == "reward_model")


def test_openrlhf_rewards_what_the_model_wrote(tmp_path, checkpoint, files):
    started(openrlhf.script(plan("grpo", steps=1)), tmp_path, str(checkpoint), here=True)
    end = json.loads((tmp_path / "special_tokens.json").read_text())
    code = {"__name__": "reward_func"}
    os.chdir(tmp_path)
    exec(compile((tmp_path / "task.py").read_text(), "task.py", "exec"), code)
    for query, reward in (("cab=abc", 1.0), (f"cab=abc{end[0]}", 1.0), ("cab=acb", 0.0), ("cab=", 0.0)):
        assert code["reward_func"]([query], ["cab="], ["abc"]) == {"rewards": reward, "scores": reward}


@pytest.mark.parametrize("key", [tool.key for tool in TOOLS.values() if tool.language == "bash"])
def test_bash_reads_every_script(key, plans, tmp_path):
    unlike = {(each.loop, each.spec.task, each.run.endswith("-engine")): each for each in plans}
    for each in unlike.values():
        (tmp_path / f"{each.run}.sh").write_text(TOOLS[key].script(each))
    done = subprocess.run([shutil.which("bash"), "-c", 'for each in *.sh; do bash -n "$each" || bad=yes; done; '
                           '[ -z "$bad" ]'], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
