"""A batch cut for memory: every row once, groups whole, and the same gradient however it is cut."""

from __future__ import annotations

import pytest
import torch

from labcore.catalog.choices import AGGREGATION
from labcore.jobs import passes
from labcore.llm.experience import collect
from labcore.llm.loops import online, preference, sft
from labcore.llm.nets.forward import layers_of
from labcore.llm.nets.micro_batches import micro_batches
from labcore.llm.pairs import Pairs
from labcore.llm.rollout import credit
from labcore.llm.session import LlmSession
from labcore.tasks.task import Pair, Problem
from tests.llm.tools import completion_ids, model, prompts, ragged, session, shake

PAIRS = [Pair("abc=", "abc", "cab"), Pair("b=", "b", "bbbbbb"), Pair("dcba=", "abcd", "dcb", rejected_truncated=True)]


@pytest.mark.parametrize("prompts_at_once, parts", [(5, 1), (2, 3), (1, 5), (0.5, 5)])
def test_every_row_once_and_groups_whole(prompts_at_once, parts):
    network, asked = model(), prompts((3, 1, 6, 2, 2))
    one = passes.Batch(1, 3, 0, 6, 5)
    room = int(prompts_at_once * passes.activations(layers_of(network), one, passes.Mode()))
    cuts = list(micro_batches(network, asked, completion_ids(15, 5), room))
    assert len(cuts) == parts
    assert [n for some, _ in cuts for n in range(5)[some]] == list(range(5))
    assert all((rows.start, rows.stop) == (some.start * 3, some.stop * 3) for some, rows in cuts)


def gradients(started, update, monkeypatch, room):
    """The gradient of each network that `update` hands to the optimizer, and the losses it says."""
    seen = {}

    def keep(name, rate, loss):
        seen[name] = torch.cat([p.grad.flatten() for p in started.models[name].parameters() if p.grad is not None])
        seen[f"{name} loss"] = torch.tensor([loss])
        started.models[name].zero_grad(set_to_none=True)
        return 0.0
    monkeypatch.setattr(LlmSession, "room", room)
    monkeypatch.setattr(started, "optimise", keep)
    update()
    return seen


def check(started, update, monkeypatch, names=("policy",)):
    whole = gradients(started, update, monkeypatch, 2**32)
    for room in (1, 100_000):  # one prompt a part, and two or more
        cut = gradients(started, update, monkeypatch, room)
        for name in names:
            assert whole[name].norm() > 1e-4
            assert (cut[name] - whole[name]).norm() < 1e-5 * whole[name].norm()
            torch.testing.assert_close(cut[f"{name} loss"], whole[f"{name} loss"], rtol=1e-5, atol=1e-6)


def prepared(algorithm, **knobs):
    """A session whose policy has moved since the batch was sampled, and that ragged batch."""
    started = session(algorithm, prompts_per_step=5, **knobs)
    rollout = ragged(collect(started).rollout)
    shake(started.policy)
    return started, credit(started.knobs, rollout)


@pytest.mark.parametrize("aggregation", AGGREGATION.names)
def test_online(aggregation, monkeypatch):
    started, rollout = prepared("grpo", aggregation=aggregation, beta=0.2, entropy_coef=0.05)
    check(started, lambda: online.update(started, rollout), monkeypatch)


@pytest.mark.parametrize("algorithm", ["reinforce", "rloo"])
def test_other_rows(algorithm, monkeypatch):
    started, rollout = prepared(algorithm)
    check(started, lambda: online.update(started, rollout), monkeypatch)


@pytest.mark.parametrize("group_size", [1, 4])
def test_ppo_and_its_critic(group_size, monkeypatch):
    started, rollout = prepared("ppo", group_size=group_size, mini_batches=1)
    shake(started.critic)
    check(started, lambda: online.update(started, rollout), monkeypatch, ("policy", "critic"))


@pytest.mark.parametrize("name, second", [("sigmoid", "none"), ("simpo", "none"), ("sigmoid", "sft"), ("kto", "none"),
                                          ("aot", "sft"), ("orpo", "none")])
def test_preference(name, second, monkeypatch):
    """Also where a loss depends on the whole batch: sorted, or with one length for all."""
    started = session("dpo", preference_loss=name, label_smoothing=0.1, second_loss=second, second_weight=0.5)
    shake(started.policy)
    check(started, lambda: preference.update(started, Pairs(PAIRS)), monkeypatch)


def test_sft(monkeypatch):
    started = session("sft")
    monkeypatch.setattr(started.task, "problems", lambda count, rng: [
        Problem("abc=", "a" * (1 + n)) for n in range(5)], raising=False)
    check(started, lambda: sft.update(started), monkeypatch)
