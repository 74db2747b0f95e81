"""The online loop: what it logs, when it yields, when a knob counts, and how it says that it diverged."""

import json
from dataclasses import replace
from math import isfinite

import pytest
import torch

from labcore.catalog import choices
from labcore.catalog.families.distillation import taught_by_itself
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import PANELS
from labcore.errors import Diverged, LabError
from labcore.llm import objective
from labcore.llm.batch import Completions
from labcore.llm.experience import collect
from labcore.llm.generation import token_logprobs, token_values
from labcore.llm.loops import online
from labcore.llm.probes import watched
from labcore.llm.rollout import credit
from labcore.tasks.task import Score
from tests.every import now
from tests.llm.tools import (
    SOMETIMES,
    first_of_each,
    quietly,
    ragged,
    records,
    session,
    shake,
    unlike,
    weights,
)

ONLINE = [key for key, row in ALGORITHMS.items() if row.loop == "online"]
TRAINING = {key for key, metric in METRICS.items() if metric.about == "training"}


def until_none(run):
    """Go on to the next None: one update of a batch is done, another follows."""
    for record in run:
        if record is None:
            return
    pytest.fail("the run is over")


def drawn(row):
    """The training metrics that the row's charts show."""
    return {key for panel in row.panels for key in PANELS[panel].metrics} & TRAINING - SOMETIMES


@pytest.mark.parametrize("algorithm", now(ONLINE, *first_of_each(
    (ALGORITHMS[key] for key in ONLINE), lambda row: tuple(sorted(drawn(row))))))
def test_every_number_of_its_charts_is_logged(algorithm):
    selection = choices.SELECTION[ALGORITHMS[algorithm].knob("selection").default]
    # Without a signal nothing is measured, and a critic has nothing to explain.
    started = session(algorithm, steps=1, letters=selection.refills or algorithm == "ppo")
    if started.knobs.get("teacher_context") == "success":  # random weights have none to show a teacher
        started.task.score = lambda problem, text: Score(1.0, True)
    got = records(started)
    assert [record.step for record in got] == [1]
    for record in got:
        of_groups = {"frac_reward_zero_std"} if started.knobs["group_size"] == 1 else set()
        assert drawn(ALGORITHMS[algorithm]) - of_groups <= set(record.metrics) <= TRAINING
        assert all(type(value) in (int, float) and isfinite(value) for value in record.metrics.values())
        assert record.metrics["num_tokens"] == record.tokens


def test_a_group_of_one_has_no_group_metric():
    metrics = records(session("ppo", group_size=1))[0].metrics
    assert "frac_reward_zero_std" not in metrics and "explained_variance" in metrics


@pytest.mark.parametrize("algorithm", now(unlike(ALGORITHMS[key] for key in ONLINE), "ppo"))
def test_the_same_spec_twice_is_the_same_run(algorithm):
    first, second = session(algorithm), session(algorithm)
    one, other = records(first, pictures=True), records(second, pictures=True)
    assert [r.metrics for r in one] == [r.metrics for r in other] and one[0].samples == other[0].samples
    assert torch.equal(weights(first.policy), weights(second.policy))
    different = records(session(algorithm, seed=1, steps=1))
    assert different[0].metrics != one[0].metrics


@pytest.mark.parametrize("letters", now([True, False], False))
def test_algorithms_of_one_seed_get_the_same_prompts(letters):
    """PPO with two parts shuffles them, and has other groups: its prompts are the others' all the same."""
    asked = {}
    for algorithm in ("grpo", "rloo", "reinforce", "ppo"):
        given = {"group_size": 1, "prompts_per_step": 8, "mini_batches": 2} if algorithm == "ppo" else {}
        started = session(algorithm, letters=letters, steps=3, **given)
        watched.of(started)  # what is watched is no part of a batch
        problems, drawn = started.task.problems, []
        started.task.problems = lambda count, rng, problems=problems, drawn=drawn: drawn.append(
            problems(count, rng)) or drawn[-1]
        records(started)
        asked[algorithm] = [[problem.prompt for problem in step] for step in drawn]
    assert len({json.dumps(step) for step in asked["grpo"]}) == 3
    assert asked["grpo"] == asked["rloo"] == asked["reinforce"] == [step[:4] for step in asked["ppo"]]


@pytest.mark.parametrize("passes, parts", now([(1, 1), (3, 1), (1, 2), (2, 4)], (3, 1), (1, 2)))
def test_it_yields_between_updates(passes, parts):
    started = session("grpo", updates_per_batch=passes, mini_batches=parts)
    with quietly():
        yielded = [record is not None for record in started.run()]
    assert yielded == ([False] * (passes * parts - 1) + [True]) * 2
    assert started.updates == 2 * passes * parts and started.step == 2
    assert "2 steps" in started.finished_because


def test_mini_batches_are_all_the_prompts_once_a_pass():
    started = session("ppo", prompts_per_step=6, mini_batches=3, updates_per_batch=2)
    parts = [part.tolist() for part in online.parts_of(started, 6)]
    assert [len(part) for part in parts] == [2] * 6
    for one_pass in (parts[:3], parts[3:]):
        assert sorted(prompt for part in one_pass for prompt in part) == list(range(6))
    assert parts[:3] != parts[3:]


def test_learning_rate_counts_at_the_next_update():
    started = session("grpo", updates_per_batch=3, learning_rate=0.01)
    run = started.run()
    begin = weights(started.policy)
    until_none(run)
    moved = weights(started.policy)
    assert not torch.equal(moved, begin)
    started.knobs["learning_rate"] = 0.0
    until_none(run)
    assert torch.equal(weights(started.policy), moved)
    started.knobs["learning_rate"] = 0.02
    record = next(run)
    assert not torch.equal(weights(started.policy), moved)
    assert record.metrics["learning_rate"] == pytest.approx(0.01)


LIVE = [("grpo", "beta", 5.0), ("ppo", "beta", 5.0), ("ppo", "gamma", 0.1), ("ppo", "gae_lambda", 0.0),
        ("ppo", "whiten_advantages", False), ("grpo", "clip_high", 0.0), ("grpo", "entropy_coef", 0.5)]


@pytest.mark.parametrize("algorithm, knob, value", now(LIVE, *LIVE[1:3], LIVE[6]))
def test_live_knobs_count_at_the_next_update(algorithm, knob, value):
    """In the loss, and in the reward: credit is given anew at every update."""
    after = []
    for change in (False, True):
        started = session(algorithm, updates_per_batch=4, mini_batches=1, learning_rate=0.02)
        shake(started.policy)  # at the reference the KL is 0, whatever β is
        with quietly():
            run = started.run()
            until_none(run)
            until_none(run)
            before = weights(started.policy)
            if change:
                started.knobs[knob] = value
            until_none(run)
        after.append((before, weights(started.policy)))
    (before, plain), (same, changed) = after
    assert torch.equal(before, same) and not torch.equal(plain, changed)


def test_batch_knobs_count_at_the_next_batch():
    started = session("grpo", updates_per_batch=2, mini_batches=2)
    run = started.run()
    until_none(run)
    started.knobs |= {"group_size": 3, "updates_per_batch": 1, "mini_batches": 1, "prompts_per_step": 2}
    rest = list(run)
    assert [record is None for record in rest] == [True, True, False, False]
    groups = [record.samples["groups"] for record in rest if record and record.samples]
    assert len(groups[0]) == 4 and all(len(group["completions"]) == 4 for group in groups[0])
    started.step, started.finished_because = 4, ""  # samples are shown at step 5
    started.spec = session("grpo", steps=5).spec
    shown = records(started, pictures=True)[-1].samples["groups"]
    assert len(shown) == 2 and all(len(group["completions"]) == 3 for group in shown)


def test_the_clip_works_once_the_policy_has_moved():
    still = records(session("grpo", updates_per_batch=1))
    assert all(record.metrics["clip_frac/region"] == 0 for record in still)
    assert all(record.metrics["ratio/max"] == pytest.approx(1, abs=1e-4) for record in still)
    moved = records(session("grpo", updates_per_batch=4, learning_rate=0.02))[-1].metrics
    assert moved["clip_frac/region"] > 0 and moved["ratio/max"] > 1.2
    assert moved["clip_frac/region"] == pytest.approx(moved["clip_frac/low"] + moved["clip_frac/high"])
    assert moved["surrogate/clip"] < moved["surrogate/cpi"]


def test_the_first_kl_is_zero_and_grows():
    """Policy and reference are the same until the first update."""
    got = [record.metrics for record in records(session("grpo", beta=0.0, learning_rate=0.01, steps=3))]
    assert got[0]["kl"] == pytest.approx(0, abs=1e-6) and got[2]["kl"] > 1e-4
    assert got[2]["kl"] == got[2]["kl/k3"] != got[2]["kl/k1"]


@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize("algorithm", now(["grpo", "ppo", "gspo"], "ppo"))
def test_update_and_reference_are_at_the_temperature_of_the_sampler(algorithm, temperature):
    """At any other the first ratios are not 1, and the KL between two equal policies is not 0."""
    started = session(algorithm, temperature=temperature, updates_per_batch=1, mini_batches=1, steps=1)
    for network in (started.policy, started.reference):
        shake(network, by=0.1)
    (record,) = records(started)
    assert record.metrics["ratio/max"] == pytest.approx(1, abs=1e-4)
    assert record.metrics["kl"] == pytest.approx(0, abs=1e-6)
    assert abs(record.metrics["kl/k1"]) < 1e-5


@pytest.mark.parametrize("algorithm", now([key for key in ONLINE if not taught_by_itself(ALGORITHMS[key])],
                                          "grpo"))
def test_rewards_rise(algorithm):
    """A flipped sign anywhere would make them fall: a random model earns 0.4 of a letter's worth at first. Who learns
    from a teacher comes nearer to that, whatever it earns; a random model that teaches itself is near already. The sign
    of every row is that of its exact gradient, too: `exact/test_draws_gradients.py`."""
    started = session(algorithm, steps=15, prompts_per_step=16, learning_rate=0.01)
    metrics = [record.metrics for record in records(started)]
    got = [-each["teacher/reverse_kl"] if "teacher/reverse_kl" in each else each.get("reward/shaped", each["reward"])
           for each in metrics]
    assert sum(got[-3:]) / 3 > got[0] + 0.1


@pytest.mark.long
def test_a_high_price_of_the_kl_keeps_the_policy_near():
    kl = {}
    for algorithm in ("grpo", "ppo"):  # in the loss, and in the reward
        for beta in (0.0, 2.0):
            started = session(algorithm, steps=5, prompts_per_step=8, learning_rate=0.02, beta=beta)
            kl[beta] = records(started)[-1].metrics["kl"]
        assert 0 < kl[2.0] < kl[0.0] / 2, algorithm


@pytest.mark.parametrize("aggregation", ["sequence_mean_token_mean", "token_mean", "sequence_mean_token_sum",
                                         "constant_length"])
def test_the_loss_of_an_update_worked_by_hand(aggregation):
    """On policy and without a KL the loss is −A, aggregated with the denominators of the whole update."""
    started = session("grpo", aggregation=aggregation, beta=0.0, prompts_per_step=6)
    rollout = ragged(collect(started).rollout)
    logprobs = token_logprobs(started, started.policy, rollout.prompts, Completions(
        rollout.ids, rollout.completion_mask, rollout.truncated))
    rollout = credit(started.knobs, replace(rollout, old_logprobs=logprobs)).select(torch.tensor([4, 1, 2]))
    totals = [row.sum().item() for row in rollout.advantages]
    lengths = rollout.completion_mask.sum(1).tolist()
    expected = {"sequence_mean_token_mean": sum(a / n for a, n in zip(totals, lengths, strict=True)) / 12,
                "token_mean": sum(totals) / sum(lengths), "sequence_mean_token_sum": sum(totals) / 12,
                "constant_length": sum(totals) / 12 / 6}[aggregation]
    whole = online.update(started, rollout)["loss"]
    assert whole == pytest.approx(-expected, abs=1e-5)
    assert aggregation == "sequence_mean_token_mean" or abs(whole) > 1e-3  # there the groups' means cancel to 0


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_divergence_is_told_and_the_weights_are_left(what, monkeypatch):
    started = session("grpo", steps=5, updates_per_batch=1)
    run = started.run()
    next(run)
    next(run)
    real = objective.loss

    def broken(*given):
        loss, ratio = real(*given)
        # √0 has the value 0 and an infinite slope.
        return (loss * float("nan") if what == "loss" else loss + (loss - loss).sqrt()), ratio
    monkeypatch.setattr(objective, "loss", broken)
    before = weights(started.policy)
    with pytest.raises(Diverged) as error:
        next(run)
    assert error.value.step == 3 and "step 3" in str(error.value) and f"policy {what}" in str(error.value)
    assert torch.equal(weights(started.policy), before) and started.step == 2


def test_a_policy_that_blew_up_diverges():
    started = session("ppo", steps=5)
    run = started.run()
    while next(run) is None:
        pass
    with torch.no_grad():
        next(started.policy.parameters()).fill_(float("nan"))
    with pytest.raises(Diverged, match="step 2"):
        next(run)


def test_a_critic_that_blew_up_diverges(monkeypatch):
    started = session("ppo", steps=5)
    monkeypatch.setattr(online, "value_loss", lambda values, *_: values.sum() * float("inf"))
    before = weights(started.critic)
    with pytest.raises(Diverged, match="critic"):
        next(started.run())
    assert torch.equal(weights(started.critic), before)


def test_the_critic_learns():
    started = session("ppo", steps=10, prompts_per_step=16, mini_batches=2, critic_learning_rate=0.01)
    got = records(started)
    assert got[-1].metrics["value_loss"] < got[0].metrics["value_loss"] / 2
    assert got[-1].metrics["explained_variance"] > 0


def test_the_reference_never_moves():
    started = session("grpo", learning_rate=0.05)
    before = weights(started.reference)
    records(started)
    assert torch.equal(weights(started.reference), before) and not torch.equal(weights(started.policy), before)


def test_prompts_that_leave_no_room_name_their_line():
    started = session("grpo")
    started.policy.config.max_position_embeddings = 4
    with pytest.raises(LabError, match="line 7"):
        next(started.run())


def test_each_update_learns_from_its_own_part(monkeypatch):
    started, seen, real = session("ppo", prompts_per_step=6, mini_batches=3, steps=1), [], online.gradients
    monkeypatch.setattr(online, "gradients", lambda session, rollout, *others: seen.append(rollout) or real(
        session, rollout, *others))
    records(started)
    passes = int(started.knobs["updates_per_batch"])
    assert [(len(part.prompts), len(part.ids)) for part in seen] == [(2, 2 * part.group_size) for part in seen]
    assert len(seen) == 3 * passes and seen[0].group_size == started.knobs["group_size"]
    for one_pass in range(passes):
        learnt = torch.cat([part.old_logprobs[:, 0] for part in seen[3 * one_pass: 3 * one_pass + 3]])
        assert len(learnt.unique()) == len(torch.cat([part.old_logprobs[:, 0] for part in seen]).unique())


@pytest.mark.parametrize("still, moves", [("policy", "critic"), ("critic", "policy")])
def test_policy_and_critic_have_a_learning_rate_each(still, moves):
    started = session("ppo", steps=1)
    started.knobs |= {"learning_rate": 0.01, "critic_learning_rate": 0.01}
    started.knobs["learning_rate" if still == "policy" else "critic_learning_rate"] = 0.0
    before = {name: weights(started.models[name]) for name in (still, moves)}
    records(started)
    assert torch.equal(weights(started.models[still]), before[still])
    assert not torch.equal(weights(started.models[moves]), before[moves])


def test_the_critic_s_loss_is_clipped_as_the_run_says():
    losses = {}
    for value_clip in (0.05, 100.0):
        started = session("ppo", value_clip=value_clip)
        rollout = credit(started.knobs, collect(started).rollout)
        shake(started.critic, by=0.3)
        values = token_values(started, rollout.prompts, Completions(
            rollout.ids, rollout.completion_mask, rollout.truncated))
        losses[value_clip] = online.gradients(started, rollout)["value_loss"]
        clipped = rollout.old_values + (values - rollout.old_values).clamp(-value_clip, value_clip)
        worst = torch.maximum((values - rollout.returns) ** 2, (clipped - rollout.returns) ** 2)
        expected = worst[rollout.completion_mask].mean() / 2
        assert losses[value_clip] == pytest.approx(expected.item(), rel=1e-4)
    assert losses[0.05] > losses[100.0] * 1.001


def test_a_step_logs_the_means_of_its_updates_and_the_largest_of_a_maximum():
    measured = [{"loss": 1.0, "ratio/max": 1.5}, {"loss": 4.0, "ratio/max": 1.1, "explained_variance": 0.5}]
    assert online._means(measured) == {"loss": 2.5, "ratio/max": 1.5, "explained_variance": 0.5}
