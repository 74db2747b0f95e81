"""A knob of which the page says that it cannot act changes nothing, and does act where the page does not say so."""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from labcore.catalog import kinds
from labcore.catalog.choices import FAMILIES
from labcore.catalog.inactive import RULES, reason
from labcore.catalog.llm.tasks import TASKS, VERIFIERS
from labcore.catalog.task import Task
from labcore.runs.spec.run_spec import every_knob, knobs_of, make
from labcore.tasks.task import Problem, make_task
from tests.every import every, now
from tests.llm import tools

SMALL = {
    "cartpole": ("CartPole-v1", 3, {"environments": 2, "rollout_steps": 16, "hidden": 8, "anneal": False,
                                    "eval_episodes": 1, "learning_rate": 0.05, "epochs": 2, "mini_batches": 2}),
    "maze": ("slippery", 20, {"pace": 0.0})}
# The algorithm and its knobs, the knob that cannot act, two values of it, and what lets it act, if anything does.
LONG = {"max_new_tokens": 16}  # so that some of two answers end before the limit, and their lengths differ
CASES = {
    "clip, one update": ("llm", "grpo", {"updates_per_batch": 1, "mini_batches": 1}, "clip_high", (0.01, 0.5),
                         {"updates_per_batch": 2}),
    "clip, one mini-batch": ("llm", "grpo", {"updates_per_batch": 1, "mini_batches": 1}, "clip_low", (0.01, 0.5),
                             {"mini_batches": 2}),
    "clip, score function": ("llm", "grpo", {"surrogate": "score_function", "updates_per_batch": 2}, "clip_high",
                             (0.0, 0.5), {"surrogate": "clip"}),
    "ratio": ("llm", "grpo", {"surrogate": "score_function", "updates_per_batch": 2}, "ratio",
              ("token", "sequence_sum"), {"surrogate": "clip"}),
    "ratio in the KL": ("llm", "grpo", {"surrogate": "score_function", "updates_per_batch": 2, "beta": 1.0}, "ratio",
                        ("token", "sequence_sum"), {"kl_estimator": "ratio_k3"}),
    "ratio of its own": ("llm", "vespo", {"updates_per_batch": 2, "beta": 1.0, "kl_placement": "loss"}, "ratio",
                         ("token", "sequence_sum"), {"kl_estimator": "ratio_k3"}),
    "β, KL off": ("llm", "grpo", {"kl_placement": "off"}, "beta", (0.0, 1.0), {"kl_placement": "loss"}),
    "estimator, KL off": ("llm", "grpo", {"kl_placement": "off", "beta": 1.0}, "kl_estimator", ("k1", "k3"),
                          {"kl_placement": "loss"}),
    "estimator, no β": ("llm", "grpo", {"beta": 0.0}, "kl_estimator", ("k1", "k3"), {"beta": 1.0}),
    "placement, no β": ("llm", "rloo", {"beta": 0.0}, "kl_placement", ("reward", "loss"), {"beta": 1.0}),
    "β, imitation": ("llm", "raft", {"kl_placement": "reward", "selection": "everything"}, "beta", (0.0, 9.0),
                     {"selection": "best_of_group"}),
    "estimator, imitation": ("llm", "raft", {"kl_placement": "reward", "beta": 1.0, "selection": "not_truncated"},
                             "kl_estimator", ("k1", "k2"), {"selection": "best_of_group"}),
    "γ": ("llm", "ppo", {"advantage": "batch_mean"}, "gamma", (0.5, 1.0), {"advantage": "gae"}),
    "λ": ("llm", "ppo", {"advantage": "group_mean", "group_size": 2}, "gae_lambda", (0.5, 1.0), {"advantage": "gae"}),
    "critic": ("llm", "ppo", {"advantage": "batch_mean"}, "critic_learning_rate", (0.0, 0.1), {"advantage": "gae"}),
    "value clip": ("llm", "ppo", {"advantage": "batch_mean"}, "value_clip", (0.0, 1.0), {"advantage": "gae"}),
    "whitening": ("llm", "ppo", {"advantage": "batch_mean"}, "whiten_advantages", (False, True), {"advantage": "gae"}),
    "gate": ("llm", "sapo", {"updates_per_batch": 1}, "gate_positive", (0.5, 5.0), {"updates_per_batch": 3}),
    "cap": ("llm", "cispo", {"updates_per_batch": 1}, "ratio_cap", (1.0, 5.0), {"updates_per_batch": 3}),
    "dual clip": ("llm", "grpo", {"surrogate": "bounded_clip", "updates_per_batch": 1}, "dual_clip", (0.0, 1.01),
                  {"updates_per_batch": 4}),
    "off-policy mask, a row of one update": ("llm", "reinforce", {}, "off_policy_threshold", (0.0, 1e-4), None),
    "ratio, one update": ("llm", "cispo", {"updates_per_batch": 1}, "ratio", ("token", "sequence_sum"),
                          {"updates_per_batch": 3}),
    "ratio in the KL, KL off": ("llm", "grpo", {"surrogate": "score_function", "updates_per_batch": 2, "beta": 1.0,
                                "kl_estimator": "ratio_k3", "kl_placement": "off"}, "ratio", ("token", "sequence_sum"),
                                {"kl_placement": "loss"}),
    "off-policy mask": ("llm", "grpo", {"updates_per_batch": 1, "mini_batches": 1}, "off_policy_threshold",
                        (0.0, 1e-4), {"updates_per_batch": 4}),
    "off-policy mask, advantages from 0 on": (
        "llm", "grpo", {"advantage": "best_over_rest", "updates_per_batch": 4, "learning_rate": 0.05},
        "off_policy_threshold", (0.0, 1e-4), {"advantage": "group_mean"}),
    "KL horizon": ("llm", "grpo", {"beta": 1.0, "adaptive_kl_target": 0.0}, "adaptive_kl_horizon", (1.0, 1e9),
                   {"adaptive_kl_target": 0.001}),
    "KL target": ("llm", "grpo", {"beta": 1.0, "kl_placement": "off", "adaptive_kl_horizon": 1.0},
                  "adaptive_kl_target", (0.0, 0.001), {"kl_placement": "loss"}),
    "token rewards": ("llm", "ppo", {"advantage": "batch_mean"}, "whiten_rewards", (False, True), {"advantage": "gae"}),
    "noise": ("llm", "grpo", {}, "reward_noise", (0.0, 0.5), {"reward_source": "noisy_verifier"}),
    "overlong": ("llm", "grpo", {}, "overlong_penalty", (0.0, 1.0), {"shaping": "overlong", "overlong_buffer": 6}),
    "overlong filtering": ("llm", "grpo", {"selection": "not_truncated", "max_new_tokens": 20}, "overlong_filter",
                           (False, True), {"selection": "everything"}),
    "length cost": ("llm", "grpo", {}, "length_cost", (0.0, 1.0), {"shaping": "length_cost"}),
    "resampling": ("llm", "grpo", {"group_size": 2}, "resample_rounds", (0, 3), {"selection": "informative"}),
    "label smoothing": ("llm", "dpo", {}, "label_smoothing", (0.0, 0.4), {"preference_loss": "cdpo"}),
    "smoothing of a second loss": ("llm", "dpo", {}, "label_smoothing", (0.0, 0.4), {"second_loss": "cdpo"}),
    "second weight": ("llm", "dpo", {}, "second_weight", (0.0, 2.0), {"second_loss": "sft"}),
    "divergence": ("llm", "dpo", {"preference_loss": "sft"}, "divergence", ("reverse_kl", "forward_kl"),
                   {"preference_loss": "sigmoid"}),
    "order of a divergence": ("llm", "dpo", {}, "divergence_alpha", (0.0, 2.0), {"divergence": "alpha"}),
    "KTO's weights": ("llm", "dpo", {"preference_loss": "hinge"}, "desirable_weight", (0.5, 3.0),
                      {"preference_loss": "kto"}),
    "β of SFT": ("llm", "dpo", {"preference_loss": "sft"}, "beta", (0.1, 3.0), {"second_loss": "sigmoid"}),
    "tails of SFT": ("llm", "dpo", {"preference_loss": "sft", **LONG}, "ld_alpha", (0.0, 1.0),
                     {"second_loss": "sigmoid"}),
    "tails of KTO": ("llm", "kto", {"second_loss": "sft", **LONG}, "ld_alpha", (0.0, 1.0), {"second_loss": "hinge"}),
    "deep clip, β": ("cartpole", "ppo", {"objective": "kl_penalty"}, "clip_high", (0.0, 0.5), {"objective": "clip"}),
    "deep β, clip": ("cartpole", "ppo", {"objective": "clip"}, "beta", (0.0, 9.0), {"objective": "kl_penalty"}),
    "deep KL target": ("cartpole", "ppo", {"objective": "clip"}, "kl_target", (0.0, 1e-4),
                       {"objective": "kl_penalty"}),
    "deep clip, one update": ("cartpole", "ppo", {"epochs": 1, "mini_batches": 1}, "clip_low", (0.0, 0.5),
                              {"epochs": 3}),
    "deep β, one update": ("cartpole", "ppo", {"epochs": 1, "mini_batches": 1, "objective": "kl_penalty"}, "beta",
                           (0.0, 9.0), {"mini_batches": 2}),
    "deep value clip": ("cartpole", "ppo", {"clip_values": False}, "value_clip", (0.0, 1.0), {"clip_values": True}),
    "maze clip": ("maze", "ppo", {"epochs": 1}, "clip_range", (0.0, 0.5), {"epochs": 3}),
    "maze exploration": ("maze", "q_learning", {"epsilon_steps": 0}, "epsilon_end", (0.0, 0.5), {"epsilon_steps": 9}),
    "maze discount": ("maze", "actor_critic", {"gamma": 1.0}, "discount_states", (False, True), {"gamma": 0.9}),
}


def learnt(kind: str, algorithm: str, knobs: dict, folder: Path) -> np.ndarray:
    """All numbers that a short run has learnt, in one row."""
    if kind == "llm":
        steps = 3 if "shaping" in knobs else 2  # rewards that are shaped tell two policies apart a step later
        session = tools.session(algorithm, steps=steps, **{"learning_rate": 0.01, **knobs})
        for network in session.models.values():
            tools.shake(network)
        tools.records(session)
        return np.concatenate([tools.weights(network).numpy() for network in session.models.values()])
    task, steps, small = SMALL[kind]
    module, name = kinds.kind(kind).session.split(":")
    session = getattr(import_module(module), name).start(make(
        kind=kind, algorithm_key=algorithm, task_key=task, steps=steps, knobs=small | knobs))
    tools.records(session)
    folder.mkdir()
    session.save(folder)
    files = sorted(path for path in folder.rglob("*.safetensors")
                   if not path.name.startswith(("optimizer", "generator")))
    return np.concatenate([array.ravel() for path in files for _, array in sorted(load_file(path).items())])


def states(case: tuple) -> Iterator[tuple[dict, bool]]:
    """Settings of the other knobs, and whether the case's knob acts with them."""
    _, _, held, *_, freed = case
    yield held, False
    if freed:
        yield held | freed, True


@every("case", CASES.values())
def test_a_knob_is_called_inactive_exactly_where_it_cannot_act(case):
    kind, algorithm, _, key, *_ = case
    for knobs, acts in states(case):
        whole = make(kind=kind, algorithm_key=algorithm, task_key=kinds.kind(kind).task, knobs=knobs).knobs
        assert bool(reason(key, whole)) != acts


@pytest.mark.parametrize("name", now(
    CASES, "clip, one update", "ratio in the KL", "β, KL off", "placement, no β", "β, imitation", "γ", "gate",
    "off-policy mask, advantages from 0 on", "KL horizon", "noise", "overlong filtering", "resampling", "divergence",
    "β of SFT", "deep β, one update", "maze clip", "maze discount"))
def test_what_is_said_of_it_is_true(name, tmp_path):
    kind, algorithm, _, key, values, _ = CASES[name]
    for knobs, acts in states(CASES[name]):
        first, second = (learnt(kind, algorithm, {**knobs, key: value}, tmp_path / f"{acts}{place}")
                         for place, value in enumerate(values))
        assert np.allclose(first, second, rtol=0, atol=1e-4) != acts  # beyond rounding


@pytest.mark.parametrize("key, values", [("pattern", ("a", "[")), ("length_low", (1, 3)), ("length_high", (3, 9))])
def test_a_verifier_does_not_read_the_knobs_of_another(key, values, tmp_path):
    path = tmp_path / "prompts.jsonl"
    row, read = TASKS["prompts"], {"pattern": ("regex", "contains", "format")}.get(key, ("length",))
    defaults = {knob.key: knob.default for knob in row.knobs}
    for verifier in VERIFIERS:
        answer = "B" if verifier == "choice" else "17"
        path.write_text(json.dumps({"prompt": "?", "answer": answer}))
        knobs = {**defaults, "pattern": "7", "verifier": verifier, "length_high": 4}
        assert bool(reason(key, knobs)) == (verifier not in read)
        if verifier not in read:
            scores = [[make_task(row, {**knobs, key: value}, path).score(Problem("?", answer), text)
                       for text in ("17", "1", "so it is 17", "a")] for value in values]
            assert scores[0] == scores[1]


def test_sft_that_is_not_done_has_no_target():
    assert reason("sft_target", {"sft_steps": 0, "sft_target": 0.4}) == "there are no SFT steps"
    assert not reason("sft_target", {"sft_steps": 1, "sft_target": 0.4}) and not reason("sft_target", {})


def test_rules_speak_of_knobs_and_values_that_there_are():
    known = every_knob()
    for rule in RULES:
        assert set(rule.knobs) | set(rule.at) <= known.keys()
        assert all(known[key].check(value) == value for key, stops in rule.at.items() for value in stops)


def test_a_cap_below_1_acts_even_on_policy():
    on_policy = {"surrogate": "detached_weight", "updates_per_batch": 1, "mini_batches": 1}
    assert reason("ratio_cap", on_policy | {"ratio_cap": 1.0})
    assert not reason("ratio_cap", on_policy | {"ratio_cap": 0.5})


def plain_idle(kind: str, algorithm: str, task: Task) -> set[str]:
    """The knobs in plain sight that cannot act at an algorithm's defaults."""
    knobs = knobs_of(kinds.algorithm(algorithm, kind), task)
    values = {knob.key: knob.default for knob in knobs}
    return {knob.key for knob in knobs if not knob.advanced and reason(knob.key, values)}


def test_at_the_defaults_every_knob_in_plain_sight_acts():
    """But those of the other objective, of the other verifiers, and β where the algorithm has no KL."""
    for kind, table in kinds.KINDS.items():
        for key, row in table.algorithms.items():
            for task in table.tasks.values():
                if row.loop in task.loops:
                    without_kl = any(knob.key == "kl_placement" and knob.default == "off" for knob in row.knobs)
                    allowed = {"beta", "kl_target"} if kind == "cartpole" else {"beta"} if without_kl else set()
                    if task.has_turns:  # its environment rewards, not a sum of named rewards
                        allowed = allowed | {"correct_weight", "format_weight"}
                    if any(knob.key == "updates_per_batch" and knob.default == 1 for knob in row.knobs):
                        allowed = allowed | {"clip_low", "clip_high"}  # the ratio is 1 in the only update
                    assert plain_idle(kind, key, task) - {"pattern"} <= allowed, (key, task.key)


def test_what_a_choice_asks_for_acts_while_it_is_chosen():
    for family in FAMILIES:
        for choice in family.members:
            for key in choice.needs:
                assert not reason(key, {family.key: choice.key, key: 1, "updates_per_batch": 2})
