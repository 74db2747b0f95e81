"""The script for TRL: its settings are the run's, and TRL really trains with it (where it is installed)."""

import ast
import json
import runpy
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from labcore.analysis.compare.loading import load
from labcore.analysis.compare.table import compare
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.errors import LabError
from labcore.exports.handover import openrlhf, trl
from labcore.exports.handover.plan import Plan
from labcore.exports.handover.tools import TOOLS
from labcore.runs.files.paths import home
from labcore.runs.imports import imported
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from labcore.watch.trl import LabCallback
from tests.every import every
from tests.exports.handover.conftest import ENGINE, plan, switched

SMALL = {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 4}


def config_in(script: str) -> dict:
    """The keywords of the trainer's configuration in a script."""
    calls = [node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Call)
             and getattr(node.func, "id", "").endswith("Config")]
    [call] = calls
    return {word.arg: ast.literal_eval(word.value) for word in call.keywords
            if isinstance(word.value, (ast.Constant, ast.List))}


@pytest.mark.parametrize("algorithm, trainer", [
    ("grpo", "GRPOTrainer"), ("gmpo", "GMPOTrainer"), ("ppo", "GRPOTrainer"), ("rloo", "RLOOTrainer"),
    ("reinforce", "RLOOTrainer"), ("dpo", "DPOTrainer"), ("ipo", "DPOTrainer"), ("kto", "KTOTrainer"),
    ("simpo", "CPOTrainer"), ("tpo", "TPOTrainer"),
    ("orpo", "ORPOTrainer"), ("reward_model", "RewardTrainer"), ("sft", "SFTTrainer"),
    ("dft", "SFTTrainer"), ("gkd", "GKDTrainer"), ("seqkd", "SFTTrainer"), ("opd", "DistillationTrainer"),
    ("minillm", "DistillationTrainer")])
def test_each_algorithm_gets_the_nearest_trainer(algorithm, trainer):
    assert trl.trainer(plan(algorithm)) == trainer
    module = trl.MODULES.get(trainer, "trl")
    assert f"from {module} import {trl.TRAINERS[trainer]}, {trainer}" in trl.script(plan(algorithm))


@every("algorithm, knobs, found", [
    ("ipo", {}, {"loss_type": ["ipo"]}), ("slic", {}, {"loss_type": ["hinge"]}), ("dft", {}, {"loss_type": "dft"}),
    ("robust_dpo", {"label_smoothing": 0.2}, {"loss_type": ["robust"], "label_smoothing": 0.2}),
    ("exo", {"exo_epsilon": 0.01}, {"loss_type": ["exo_pair"], "label_smoothing": 0.01}),
    ("discopop", {}, {"loss_type": ["discopop"], "discopop_tau": 0.05}),
    ("dpo", {"second_loss": "sft", "second_weight": 0.3}, {"loss_type": ["sigmoid", "sft"],
                                                           "loss_weights": [1.0, 0.3]}),
    ("dpo", {"divergence": "alpha", "divergence_alpha": 0.3}, {"f_divergence_type": "alpha_divergence",
                                                               "f_alpha_divergence_coef": 0.3}),
    ("dpo", {"ld_alpha": 0.3, "pair_weighting": True}, {"ld_alpha": 0.3, "use_weighting": True}),
    ("dpo", {"ld_alpha": 0.3, "second_loss": "sft"}, {"ld_alpha": 0.3, "loss_type": ["sigmoid", "sft"]}),
    ("kto", {"desirable_weight": 1.5, "pairs_per_step": 4}, {"desirable_weight": 1.5,
                                                             "per_device_train_batch_size": 8}),
    ("reward_model", {"centering": 0.02}, {"center_rewards_coefficient": 0.02, "per_device_train_batch_size": 64}),
    ("reward_model", {"centering": 0.0}, {"center_rewards_coefficient": None}),
    ("simpo", {"second_loss": "none"}, {"loss_type": "simpo", "cpo_alpha": 0.0}),
    ("tpo", {}, {"loss_type": "sigmoid", "tpo_alpha": 1.0, "beta": 0.1}),
    ("simpo", {"second_loss": "none", "third_loss": "answer_sft", "third_weight": 0.3}, {
        "loss_type": "tpo-l", "tpo_l_gamma": 1.0, "tpo_alpha": 0.3}),
    ("simpo", {}, {"loss_type": "simpo", "simpo_gamma": 1.0, "cpo_alpha": 1.0, "beta": 2.0}),
    ("grpo", {"kl_placement": "off"}, {"beta": 0.0}), ("rloo", {"kl_placement": "off"}, {"beta": 0.0}),
    ("luspo", {}, {"loss_type": "luspo", "importance_sampling_level": "sequence"}),
    ("vespo", {"gamma_rate_positive": 2.5}, {"loss_type": "vespo", "vespo_k_pos": 2.0, "vespo_lambda_pos": 2.5,
                                             "vespo_k_neg": 3.0, "vespo_lambda_neg": 2.0}),
    ("gmpo", {"clip_high": 0.5}, {"epsilon": 0.4, "epsilon_high": 0.5, "scale_rewards": "group", "beta": 0.0}),
    ("gdpo", {}, {"multi_objective_aggregation": "normalize_then_sum"}),
    ("rloo", {"normalisation": "sequences", "shaping": "clipped", "reward_clip": 0.5},
     {"normalize_advantages": True, "reward_clip_range": (-0.5, 0.5)}),
    ("grpo", {"surrogate": "bounded_clip", "dual_clip": 0.0, "clip_delta": 1.5}, {"delta": 1.5}),
    ("grpo", {"surrogate": "bounded_clip"}, {"delta": 3.0}),
    ("grpo", {"top_entropy_share": 0.2, "off_policy_threshold": 0.05},
     {"top_entropy_quantile": 0.2, "off_policy_mask_threshold": 0.05})])
def test_rows_and_switches_under_trls_names(algorithm, knobs, found):
    assert trl.settings(plan(algorithm, knobs=knobs)).items() >= found.items()


@pytest.mark.parametrize("algorithm, knobs, found", [
    ("gkd", {}, {"beta": 0.5, "lmbda": 0.5, "seq_kd": False, "per_device_train_batch_size": 64}),
    ("gkd", {"sft_loss": "reverse_kl", "on_policy_share": 1.0}, {"beta": 1.0, "lmbda": 1.0}),
    ("gkd", {"sft_loss": "forward_kl", "answers": "teacher"}, {"beta": 0.0, "seq_kd": True}),
    ("opd", {}, {"beta": 1.0, "temperature": 1.0, "max_completion_length": 8, "per_device_train_batch_size": 256})])
def test_distillation_under_trls_names(algorithm, knobs, found, tmp_path):
    each = plan(algorithm, knobs=knobs)
    assert trl.settings(each).items() >= found.items()
    script = trl.script(each)
    assert "teacher_model='teacher', args=config" in script
    assert "put the folder teacher of the run's export beside this script" in script
    (tmp_path / "theirs").mkdir()
    own = trl.script(plan(algorithm, knobs={**knobs, "teacher": str(tmp_path / "theirs")}))
    assert f"teacher_model='{tmp_path / 'theirs'}', args=config" in own and "put the folder" not in own


@pytest.mark.parametrize("algorithm, knobs", [("kto", {}), ("dpo", {"preference_loss": "sft"})])
def test_tails_that_no_loss_weighs_down_are_no_difference(algorithm, knobs):
    for mapped in (trl.mapped, openrlhf.mapped):
        [line] = [line for line in mapped(plan(algorithm, knobs={"ld_alpha": 0.3, **knobs})) if line.knob == "ld_alpha"]
        assert line.built_in and not line.settings


def test_the_name_of_a_reward_file_is_never_code():
    """A spec may be another person's."""
    name = """x").y; raise SystemExit('it ran') #.py"""
    each = plan("grpo", knobs={"reward_source": "own_function", "reward_function": f"{name}:f 0a1b2c3d4e5f"})
    script = trl.script(each)
    calls = [node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Call)
             and getattr(node.func, "id", "") == "import_module"]
    assert [ast.literal_eval(call.args[0]) for call in calls] == [name.removesuffix(".py")]
    assert not [node for node in ast.parse(script).body if isinstance(node, ast.Raise)]
    with pytest.raises(LabError, match="cannot be used"):
        plan("grpo", knobs={"reward_source": "own_function", "reward_function": "x\nraise.py:f 0a1b2c3d4e5f"})


def test_a_loss_that_trl_has_not_is_said_so():
    script = " ".join(trl.script(plan("cdpo")).replace("#", "").split())
    assert "label_smoothing=0.1: without label smoothing: its sigmoid loss has none" in script
    found = trl.settings(plan("cdpo"))
    assert found["loss_type"] == ["sigmoid"] and "label_smoothing" not in found


@pytest.mark.parametrize("knobs", [{"preference_loss": "hinge"}, {"preference_loss": "sft"}, {"second_loss": "sft"},
                                   {"second_loss": "hinge"}])
def test_weights_of_pairs_are_not_set_where_trl_fails_with_them(knobs):
    each = plan("dpo", knobs={"pair_weighting": True, **knobs})
    assert "use_weighting" not in trl.settings(each)
    loss = next(iter(knobs.values()))
    assert f"use_weighting with the loss {loss} raises" in " ".join(trl.script(each).replace("#", "").split())
    assert trl.settings(plan("dpo", knobs=knobs))["use_weighting"] is False


def test_what_gmpo_s_trainer_does_not_read_is_said_so():
    each = plan("gmpo", knobs={"entropy_coef": 0.01, "off_policy_threshold": 0.1, "ratio": "sequence_mean",
                               "aggregation": "token_mean", "kl_placement": "loss", "kl_estimator": "ratio_k3"})
    found = {line.knob: line for line in trl.mapped(each)}
    for knob in ("entropy_coef", "off_policy_threshold", "ratio", "aggregation", "kl_estimator"):
        assert found[knob].unsupported and "GMPOTrainer" in found[knob].note, knob
    assert found["surrogate"].built_in and not {"loss_type", "entropy_coef", "importance_sampling_level",
                                                "use_bias_correction_kl"} & trl.settings(each).keys()


def test_the_sides_of_pairs_become_single_completions_for_kto(files, tmp_path):
    for name, rows in {"pairs": None, "singles": [{"prompt": "a=", "completion": "a", "label": True},
                                                  {"prompt": "b=", "completion": "a", "label": False}]}.items():
        if rows:
            (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        code: dict = {}
        exec(trl.script(plan("kto", "preferences", files)).split("def main()")[0], code)
        found = code["labelled"](code["pairs"](2))
        assert {row["label"] for row in found} == {True, False} and len(found) == (4 if name == "pairs" else 2)
        assert all(row.keys() == {"prompt", "completion", "label"} for row in found)


def test_the_runs_values_under_trls_names():
    each = plan("grpo", steps=30, seed=7, knobs={
        "beta": 0.07, "clip_low": 0.1, "clip_high": 0.28, "updates_per_batch": 3, "mini_batches": 2, "temperature": 0.9,
        "top_k": 12, "prompts_per_step": 8, "group_size": 6, "kl_estimator": "ratio_k3", "aggregation": "token_mean",
        "ratio": "sequence_mean", "advantage": "group_mean", "dtype": "bf16", "entropy_coef": 0.01})
    script = trl.script(each)
    assert config_in(script).items() >= {
        "beta": 0.07, "epsilon": 0.1, "epsilon_high": 0.28, "num_iterations": 3, "steps_per_generation": 2,
        "temperature": 0.9, "top_k": 12, "per_device_train_batch_size": 24, "num_generations": 6,
        "use_bias_correction_kl": True, "loss_type": "dapo", "importance_sampling_level": "sequence",
        "scale_rewards": "none", "bf16": True, "entropy_coef": 0.01, "seed": 7, "learning_rate": 7e-4,
        "max_completion_length": 8, "lr_scheduler_type": "constant"}.items()
    assert "default=180)  # 30 steps of the lab, 6 optimizer updates each" in script


@pytest.mark.parametrize("prompts, parts, generations", [(128, 2, 8), (12, 1, 4), (6, 1, 2), (3, 1, 2), (1, 1, 2)])
def test_one_completion_a_prompt_becomes_groups_of_the_same_batch(prompts, parts, generations):
    each = plan("ppo", knobs={"prompts_per_step": prompts, "mini_batches": parts})
    found = trl.settings(each)
    assert found["num_generations"] == generations
    rows = found["per_device_train_batch_size"]
    assert rows == max(prompts // parts, 2)


def test_ppo_says_what_is_gone():
    assert "TRL has no trainer with a critic (PPOTrainer is gone since 1.13)" in " ".join(
        trl.script(plan("ppo")).replace("#", "").split())


RUNS = [
    ("grpo", "sort", SMALL | {"beta": 0.07, "clip_high": 0.28, "updates_per_batch": 2, "entropy_coef": 0.01}),
    ("grpo", "prompts", SMALL | {"verifier": "numeric", "aggregation": "constant_length", "top_k": 3}),
    ("grpo", "guess", SMALL | {"max_new_tokens": 40}),
    ("grpo", "text", SMALL | {"ratio": "sequence_mean", "kl_placement": "off"}),
    ("ppo", "sort", {"prompts_per_step": 16, "max_new_tokens": 4}), ("rloo", "add", SMALL | {"temperature": 0.8}),
    ("reinforce", "sort", SMALL), ("dpo", "preferences", {"pairs_per_step": 2, "beta": 0.3}),
    ("dpo", "sort", {"pairs_per_step": 4, "pair_prompts": 8, "letters": 2, "max_new_tokens": 4}),
    ("reward_model", "preferences", {"pairs_per_step": 2, "margin": 0.5}),
    ("reward_model", "sort", {"pairs_per_step": 4, "pair_prompts": 8, "letters": 2, "max_new_tokens": 4}),
    ("sft", "add", {"sequences_per_step": 4}), ("sft", "preferences", {"sequences_per_step": 2}),
    ("dpo", "preferences", {"pairs_per_step": 2, "pair_weighting": True, "second_loss": "sft"}),
    ("dpo", "preferences", {"pairs_per_step": 2, "pair_weighting": True, "preference_loss": "hinge"})]
# And every other row of the catalog, with what makes it short.
SHORT = {"online": ("sort", SMALL), "preference": ("preferences", {"pairs_per_step": 2}),
         "reward_model": ("preferences", {"pairs_per_step": 2}),
         "sft": ("add", {"sequences_per_step": 4})}
RUNS += [(key, "sort", {"pairs_per_step": 4, "letters": 2, "max_new_tokens": 4}) for key in ("online_dpo", "xpo")]
RUNS += [(key, "sort", {"sequences_per_step": 4}) for key in ("gkd", "seqkd")]  # the task with a teacher
RUNS += [(row.key, *SHORT[row.loop]) for row in ALGORITHMS.values()
         if row.key not in {algorithm for algorithm, *_ in RUNS} and row.loop in SHORT]  # TRL 1.16 has no PRMTrainer
# What the lab finds in the logs of each trainer, beside the loss.
LOGGED = {"online": {"reward", "entropy", "completions/mean_length"}, "preference": {"grad_norm", "learning_rate"},
          "reward_model": {"grad_norm", "learning_rate"}, "sft": {"grad_norm", "learning_rate"}}


@pytest.mark.parametrize("algorithm, task, knobs", RUNS, ids=[f"{run[0]}-{run[1]}" for run in RUNS])
def test_trl_trains_with_it(algorithm, task, knobs, files, checkpoint, tmp_path, monkeypatch):
    each = plan(algorithm, task, files, steps=4, knobs=knobs)
    script = trl.script(each)
    if algorithm in ("dpo", "online_dpo", "xpo", "reward_model") and task == "sort":  # untrained: never right
        script = script.replace("float(completion == answer)", 'float(completion < "m")')
    found = trained(each, script, checkpoint, tmp_path, monkeypatch)
    for key, value in trl.settings(each).items():
        assert getattr(found.args, key) == value, key
    losses = [row["loss"] for row in found.state.log_history if "loss" in row]
    assert len(losses) == 2 and all(abs(loss) < 1e4 for loss in losses)
    rates = [row["learning_rate"] for row in found.state.log_history if "loss" in row]
    assert rates == [pytest.approx(each["learning_rate"])] * 2
    assert (tmp_path / "trained" / "model.safetensors").exists()
    brought_back(each, tmp_path / "trained" / "log_history.csv")


@pytest.mark.parametrize("algorithm", ["grpo", "dpo"])
def test_the_lab_watches_the_training_only_where_that_is_switched_on(algorithm, files, checkpoint, tmp_path,
                                                                     monkeypatch):
    each = plan(algorithm, *SHORT[ALGORITHMS[algorithm].loop][:1], files, steps=4,
                knobs=SHORT[ALGORITHMS[algorithm].loop][1])
    script = trl.script(each)
    [switch] = [node for node in ast.parse(script).body if isinstance(node, ast.Assign)
                and ast.unparse(node.targets[0]) == "WATCH"]
    assert ast.unparse(switch.value) == "False"
    trained(each, script, checkpoint, tmp_path, monkeypatch)
    assert not (home() / "watched").exists()
    trained(each, script.replace("WATCH = False", "WATCH = True"), checkpoint, tmp_path, monkeypatch)
    [about] = (home() / "watched").glob("*/run.json")
    begun = json.loads(about.read_text())
    assert begun["name"] == f"{each.run} with TRL" and begun["config"]["twin_of"] == each.run
    sent = [json.loads(line) for path in about.parent.glob("spool/*") for line in path.read_text().splitlines()]
    assert [line["step"] for line in sent if line["kind"] == "numbers"] == [1, 2] and sent[-1]["state"] == "finished"
    assert ("rollouts" in {line["kind"] for line in sent}) == (each.loop == "online")


def test_the_callback_of_the_lab_names_the_run_whose_twin_it_sends():
    each = plan("grpo")
    [call] = [node for node in ast.walk(ast.parse(trl.script(each))) if isinstance(node, ast.Call)
              and getattr(node.func, "id", "") == "LabCallback"]
    callback = LabCallback(*map(ast.literal_eval, call.args),
                           **{word.arg: ast.literal_eval(word.value) for word in call.keywords})
    assert callback.config == {"twin_of": each.run}


@pytest.mark.parametrize("algorithm, task", [("grpo", "sort"), ("rloo", "sort"), ("dpo", "preferences"),
                                             ("reward_model", "preferences"), ("sft", "add")])
def test_trl_trains_with_the_switches_of_the_engine(algorithm, task, files, checkpoint, tmp_path, monkeypatch):
    """All but vLLM's rollouts, which need a GPU. What is compiled is traced but left to Python, which is soon done."""
    pytest.importorskip("bitsandbytes")
    knobs = ENGINE | {"rollouts": "engine", "importance_cap": 0.0}
    each = switched(plan(algorithm, task, files, steps=4, knobs=SHORT[ALGORITHMS[algorithm].loop][1]), **knobs)
    script = trl.script(each).replace("torch_compile=True,", 'torch_compile=True, torch_compile_backend="eager",')
    found = trained(each, script, checkpoint, tmp_path, monkeypatch)
    assert found.args.bf16 and found.args.gradient_checkpointing and found.args.torch_compile
    assert "bitsandbytes" in type(getattr(found.optimizer, "optimizer", found.optimizer)).__module__
    assert (tmp_path / "trained" / "adapter_model.safetensors").exists()
    assert all(abs(row["loss"]) < 1e4 for row in found.state.log_history if "loss" in row)


@pytest.mark.parametrize("cap", [0.0, 2.0])
@pytest.mark.parametrize("algorithm", ["grpo", "vespo", "rloo"])
def test_trl_takes_the_settings_of_vllm(algorithm, cap):
    module = pytest.importorskip("trl")
    each = switched(plan(algorithm), rollouts="vllm", importance_cap=cap)
    found = getattr(module, trl.TRAINERS[trl.trainer(each)])(**trl.settings(each), output_dir="trained")
    assert found.use_vllm and found.vllm_mode == "colocate"
    if trl.trainer(each) == "GRPOTrainer":
        assert found.vllm_importance_sampling_correction == (cap > 0)


def trained(each: Plan, script: str, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """TRL's trainer after two steps by the script, on the processor."""
    pytest.importorskip("trl")
    if version("trl") != trl.VERSION:
        pytest.skip(f"the script is for TRL {trl.VERSION}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    path = tmp_path / "run.py"
    path.write_text(script)
    trainer, made = getattr(import_module(trl.MODULES.get(trl.trainer(each), "trl")), trl.trainer(each)), []
    train = trainer.train
    monkeypatch.setattr(trainer, "train", lambda self, *more: (made.append(self), train(self, *more))[1])
    monkeypatch.setattr(sys, "argv", ["run.py", "--model", str(checkpoint), "--max-steps", "2", "--out", "trained"])
    runpy.run_path(str(path), run_name="__main__")
    [found] = made
    assert found.state.global_step == 2
    return found


def brought_back(each: Plan, logged: Path) -> None:
    """The metrics of TRL's run are imported, and stand in one table with those of the run in the lab."""
    store = Store()
    run_id = store.create(each.spec, mine=True)
    store.set_state(run_id, "running")
    for step in (1, 2):
        store.append(run_id, Record(step, 10 * step, dict.fromkeys(LOGGED[each.loop], 0.5)), step)
    store.set_state(run_id, "finished")
    [about] = imported.keep(store, logged.name, logged.read_bytes(), f"TRL {trl.trainer(each)}")
    assert about.mapped.keys() >= LOGGED[each.loop]
    metric = min(LOGGED[each.loop])
    traces = load(store, [run_id, about.id])
    assert [list(trace.axes["step"]) for trace in traces] == [[1, 2], [1, 2]]
    assert {row.runs: row.imported for row in compare(traces, metric).rows} == {(run_id,): False, (about.id,): True}


def test_the_versions_are_those_that_are_pinned():
    pinned = "".join((Path(__file__).parents[3] / f"requirements-{file}.txt").read_text()
                     for file in ("bench", "handover", "swift"))
    assert all(f"{tool.key}=={tool.version}\n" in pinned for tool in TOOLS.values())


def test_what_is_off_is_not_set():
    found = trl.settings(plan("grpo"))
    assert not {"delta", "top_entropy_quantile", "off_policy_mask_threshold", "reward_clip_range"} & found.keys()
