"""Right answers that an online run imitates beside its rewards (CHORD)."""

from dataclasses import replace

import pytest
import torch

from labcore.errors import LabError
from labcore.llm.batch import Completions
from labcore.llm.experience import collect
from labcore.llm.generation import token_logprobs
from labcore.llm.loops import online
from labcore.llm.nets.micro_batches import Room
from labcore.llm.rollout import credit
from labcore.maths.supervised import uncertain
from labcore.tasks.task import Score
from tests.llm.tools import records, session


def gradient(started, rollout, **knobs):
    started.knobs |= knobs
    measured = online.gradients(started, rollout)
    found = torch.cat([parameter.grad.flatten() for parameter in started.policy.parameters()])
    started.policy.zero_grad(set_to_none=True)
    return found, measured


def begun(**knobs):
    started = session("chord", letters=True, updates_per_batch=1, **knobs)
    return started, credit(started.in_force, collect(started).rollout)


def test_a_token_by_hand():
    found = uncertain(torch.tensor([0.5, 0.9, 0.01]).log())
    assert found.tolist() == pytest.approx([0.25 * 0.6931, 0.09 * 0.1054, 0.0099 * 4.6052], rel=1e-3)


@pytest.mark.parametrize("focus", [True, False])
def test_the_gradient_is_a_mix_of_both_losses(focus):
    started, rollout = begun(sft_weight=0.3, sft_focus=focus)
    mixed, measured = gradient(started, rollout)
    alone, _ = gradient(started, replace(rollout, demonstrations=None, demonstration_mask=None))
    mask = rollout.demonstration_mask
    answers = Completions(rollout.demonstrations, mask, torch.zeros(len(mask)) > 0)
    logp = token_logprobs(started, started.policy, rollout.prompts, answers)
    assert measured["demonstration_loss"] == pytest.approx(float(-logp.sum() / mask.sum()), rel=1e-4)
    imitated, _ = gradient(started, replace(rollout, advantages=torch.zeros_like(rollout.advantages)), sft_weight=1.0)
    torch.testing.assert_close(mixed, 0.7 * alone + 0.3 * imitated, rtol=1e-4, atol=1e-6)
    assert imitated.norm() > 0


def test_how_the_batch_is_cut_changes_nothing(monkeypatch):
    started, rollout = begun(sft_weight=0.3, prompts_per_step=4)
    whole, measured = gradient(started, rollout)
    monkeypatch.setattr(type(started), "room", property(lambda self: Room(1)))
    parts, again = gradient(started, rollout)
    torch.testing.assert_close(parts, whole, rtol=1e-3, atol=1e-6)
    assert again["demonstration_loss"] == pytest.approx(measured["demonstration_loss"], rel=1e-5)


def test_a_batch_whose_rewards_say_nothing_still_teaches():
    started = session("chord", steps=6, learning_rate=0.01, sft_weight=0.5, sft_focus=False, prompts_per_step=8)
    started.task.score = lambda problem, completion: Score(0.0, False)
    got = [record.metrics for record in records(started)]
    assert got[-1]["demonstration_loss"] < got[0]["demonstration_loss"] - 0.2


def test_the_weight_fades_over_its_steps():
    got = [record.metrics.get("sft_weight") for record in records(session("chord", steps=4, sft_weight=0.4,
                                                                          sft_decay_steps=2))]
    assert got == pytest.approx([0.4, 0.2, 0.0, 0.0], abs=1e-9)


def test_prompts_without_an_answer_are_not_imitated_and_none_at_all_is_said():
    started = session("chord", prompts_per_step=2)
    real = started.task.problems
    started.task.problems = lambda count, rng: [
        replace(each, answer="" if place == 0 else each.answer) for place, each in enumerate(real(count, rng))]
    rollout = collect(started).rollout
    assert rollout.demonstration_mask.any(1).tolist() == [False, True]
    started.task.problems = lambda count, rng: [replace(each, answer=" ") for each in real(count, rng)]
    with pytest.raises(LabError, match="`sft_weight=0`"):
        collect(started)
    started.knobs["sft_weight"] = 0.0
    assert collect(started).rollout.demonstrations is None
