"""A tool's names of numbers and settings, as the lab's."""

import math

import pytest

from labcore.catalog import watch
from labcore.catalog.metrics import METRICS, metric
from labcore.catalog.panels import PANELS, with_switched
from labcore.watch.converting import names

TOOLS = {
    "TRL": ({"loss": 1, "rewards/accuracy_reward/mean": 0.5, "completions/mean_length": 9, "num_tokens": 5,
             "frac_reward_zero_std": 0.25, "epoch": 0.1, "rewards/brevity/std": 0.2},
            {"loss", "exact_match", "completions/mean_length", "num_tokens", "frac_reward_zero_std", "epoch",
             "own/rewards/brevity/std"}),
    "verl": ({"critic/score/mean": 0.5, "critic/rewards/mean": 0.3, "actor/pg_loss": 0.1, "actor/entropy": 1,
              "timing_s/gen": 3.0, "training/global_step": 4},
             {"reward", "own/critic/rewards/mean", "policy_loss", "entropy", "own/timing_s/gen"}),
    "OpenRLHF": ({"train/actor_lr": 1e-6, "train/kl": 0.1, "train/reward": 0.5, "train/entropy_loss": 1.5},
                 {"learning_rate", "own/train/kl", "reward", "entropy"}),
    "ms-swift": ({"reward": 0.5, "entropy/mean": 1.5, "clip_ratio/region_mean": 0.1, "rewards/Score/mean": 0.5,
                  "global_step": 3, "train_speed(s/it)": 0.2, "token_acc": 0.5, "kl": 0.01},
                 {"reward", "entropy", "clip_frac/region", "reward/Score", "own/train_speed(s/it)", "kl",
                  "mean_token_accuracy"}),
    "Stable-Baselines3": ({"rollout/ep_rew_mean": 20.0, "time/total_timesteps": 2048, "train/loss": 1, "time/fps": 900,
                           "train/clip_fraction": 0.1, "train/value_loss": 8.0},
                          {"episode_return", "loss", "own/time/fps", "own/train/clip_fraction",
                           "own/train/value_loss"}),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_known_metrics_get_the_lab_s_names_and_others_keep_theirs(tool):
    said, expected = TOOLS[tool]
    found = names.numbers_of(said)
    assert found.metrics.keys() == expected and found.strange == ()
    assert all(key in METRICS for key in found.metrics)


def test_the_reward_of_verl_is_the_one_before_the_kl_penalty():
    """verl's rewards are its scores less the penalty where use_kl_in_reward is set."""
    both = {"critic/score/mean": 0.5, "critic/rewards/mean": 0.3}
    assert names.numbers_of(both).metrics["reward"] == 0.5
    assert names.numbers_of({"critic/rewards/mean": 0.3}).metrics == {"reward": 0.3}


def test_two_columns_for_one_metric_are_both_kept():
    found = names.numbers_of({"reward": 1.0, "rewards/mean": 2.0}).metrics
    assert found == {"reward": 1.0, "own/rewards/mean": 2.0}


@pytest.mark.parametrize("value, number", [
    (1, 1.0), (True, 1.0), ("NaN", math.nan), ("-Infinity", -math.inf), (None, None), ("0.5", None), ([1], None),
    (10**400, None), ({}, None)])
def test_what_is_a_number(value, number):
    found = names.number(value)
    assert found == number or (found is not None and number is not None and math.isnan(found) and math.isnan(number))


def test_a_number_of_the_tool_is_a_metric_with_a_chart_of_its_own():
    key = names.foreign("timing_s/gen")
    assert metric(key).label == "timing_s/gen" and PANELS[key].metrics == (key,) and metric(key).about == "training"
    assert with_switched(("reward",), {}, {key, "reward"}) == ("reward", key)
    assert "own/" not in METRICS and "own/" not in PANELS and "timing_s/gen" not in METRICS


def test_settings_get_the_names_of_knobs_with_the_same_meaning():
    found = names.settings({"lr": 1e-6, "num_generations": 8, "algorithm": {"adv_estimator": "grpo"}, "list": [1, 2],
                            "nan": math.nan, "none": None, "text": "x" * 5000})
    assert found["learning_rate"] == 1e-6 and found["group_size"] == 8 and found["list"] == "[1, 2]"
    assert watch.algorithm_of(found) == "grpo" and "nan" not in found and "none" not in found
    assert len(str(found["text"])) == 1000
    assert names.steps_of({"max_steps": 40}) == 40 and names.steps_of({"max_steps": -1}) == 0


def test_a_config_of_thousands_of_settings_is_cut():
    assert len(names.settings({str(place): place for place in range(5000)})) == names.MOST_SETTINGS


@pytest.mark.parametrize("said, kept", [
    ({"learning_rate": 1e-6, "lr_scheduler_type": "cosine"}, {"learning_rate": 1e-6, "lr_scheduler_type": "cosine"}),
    ({"learning_rate": "auto"}, {"own/learning_rate": "auto"}), ({"lr": 3.0}, {"learning_rate": 3.0}),
    ({"advantage": "mine"}, {"own/advantage": "mine"}), ({"advantage": "gae"}, {"advantage": "gae"}),
    ({"num_generations": True}, {"own/num_generations": True}), ({"probes": 1}, {"own/probes": 1}),
    ({"max_completion_length": 32768}, {"max_new_tokens": 32768}), ({"beta": "\x00"}, {"own/beta": "\x00"})])
def test_a_setting_with_an_impossible_value_for_its_knob_is_the_trainer_s_own(said, kept):
    """Else pages and lists that read a knob would fail on another program's word for something else."""
    assert names.settings(said) == kept
