"""Rounding is no signal: where all rewards are equal and the policy is the reference, nothing is learnt."""

from dataclasses import replace

import pytest
import torch

from labcore.catalog import choices
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.llm.experience import collect
from labcore.llm.generation import ROUNDING, reference_logprobs
from labcore.llm.loops import online
from labcore.llm.nets import packed
from labcore.llm.nets.alike import alike
from labcore.llm.rollout import credit
from labcore.llm.sizing import passes as held
from labcore.maths.masked import centred
from labcore.tasks.task import Problem, Score
from tests.every import now
from tests.llm.tools import records, session, shake, weights

# RAFT imitates the best of each group, also where all are equal, CHORD the right answers, a teacher grades without
# rewards, and GDPO and process supervision have rewards of their own: they have a signal.
ONLINE = [key for key, row in ALGORITHMS.items() if row.loop == "online"
          and row.knob("advantage").default not in ("one", "parts_standardised", "steps_standardised")
          and not choices.ADVANTAGE[str(row.knob("advantage").default)].teacher
          and not row.knob("sft_weight").default]
LORA = {"lora_rank": 2, "lora_alpha": 4}


class Constant:
    """A task on which every answer earns the same."""

    size, characters = None, "abc="

    def __init__(self, reward: float):
        self.reward = reward

    def problems(self, count, rng):
        return [Problem("abc="[: 1 + rng.integers(4)], "abc", line=7) for _ in range(count)]

    def score(self, problem, completion):
        return Score(self.reward, False)


def constant(algorithm: str, reward: float = 0.0, **given):
    return replace(session(algorithm, **{"steps": 2, "learning_rate": 0.02, **given}), task=Constant(reward))


KINDS = [("grpo", {}), ("ppo", {"dtype": "bf16"}), ("ppo", LORA), ("grpo", {"dtype": "bf16", **LORA})]


@pytest.mark.parametrize("passes, algorithm, given", now(
    [(passes, *kind) for passes in ("packed", "long", "parts") for kind in KINDS],
    ("packed", *KINDS[0]), ("long", *KINDS[1]), ("parts", *KINDS[1])))
def test_nothing_moves_however_the_passes_are_made(algorithm, given, passes, monkeypatch):
    """Rows that are packed, too long for that, or cut into micro-batches of one prompt."""
    if passes == "long":
        monkeypatch.setattr(packed, "LONGEST", 1)
    if passes == "parts":
        monkeypatch.setattr(held, "ON_PROCESSOR", 1)
    still(constant(algorithm, **given))


@pytest.mark.parametrize("algorithm", now(ONLINE, "grpo", "ppo", "remax"))
def test_no_algorithm_learns_from_equal_rewards(algorithm):
    has = "updates_per_batch" in {knob.key for knob in ALGORITHMS[algorithm].knobs}
    still(constant(algorithm, **({"updates_per_batch": 2} if has else {})))


MEANS = ("leave_one_out", "group_standardised", "batch_mean", "group_mean", "reward_to_go_whitened")


@pytest.mark.parametrize("algorithm", [next(key for key in ONLINE if ALGORITHMS[key].knob("advantage").default == mean)
                                       for mean in MEANS])
def test_a_constant_reward_whose_mean_rounds_teaches_nothing(algorithm):
    still(constant(algorithm, reward=8.1, group_size=6))


def still(started) -> None:
    """Run it and check that no weight moved, that the KL is exactly 0, and that it said so once."""
    before = weights(started.policy)
    rows = records(started)
    assert len(rows) == 2 and torch.equal(weights(started.policy), before)
    for row in rows:
        assert row.metrics["kl"] == row.metrics["kl/k1"] == row.metrics["grad_norm"] == 0
        assert row.metrics.get("ratio/max", 1) == 1
    notes = [note for row in rows for note in row.notes if note.startswith("No signal")]
    assert len(notes) == 1


def test_an_update_without_a_gradient_is_no_step_though_moments_would_move_the_weights():
    started = session("grpo", steps=3, learning_rate=0.02)
    run = started.run()
    while next(run) is None:
        pass
    moved, steps = weights(started.policy), started.moves
    started.task = Constant(0.0)
    started.knobs["beta"] = 0.0
    record = next(record for record in run if record is not None)
    assert steps > 0 and started.moves == steps and record.metrics["grad_norm"] == 0
    assert torch.equal(weights(started.policy), moved)


def test_the_first_update_of_a_batch_has_ratios_of_exactly_1_and_the_next_has_not():
    started = session("grpo", updates_per_batch=2, mini_batches=1, steps=1, learning_rate=0.02)
    rollout = credit(started.in_force, collect(started).rollout)
    first = online.update(started, rollout, fresh=True)
    second = online.update(started, rollout)
    assert first["ratio/max"] == 1 and first["surrogate/cpi"] == pytest.approx(0, abs=1e-7) != second["ratio/max"]
    assert second["ratio/max"] > 1


@pytest.mark.parametrize("given", [{}, LORA], ids=["full", "lora"])
def test_networks_are_alike_until_one_number_differs(given):
    started = session("grpo", **given)
    assert alike(started.policy, started.reference)
    learnt = [weight for weight in started.policy.parameters() if weight.requires_grad][-1]
    with torch.no_grad():
        learnt.view(-1)[-1] += 1e-3
    assert not alike(started.policy, started.reference)


@pytest.mark.parametrize("by, signal", [(1e-7, False), (1e-3, True)])
def test_a_reference_within_rounding_of_the_policy_is_the_policy(by, signal):
    started = session("grpo")
    shake(started.policy, by=by)
    batch = collect(started)
    found = reference_logprobs(started, batch.rollout.prompts, batch.batch.completions, batch.rollout.old_logprobs)
    assert (found is not None) == signal == (batch.metrics["kl/k2"] > 0)


def test_the_bound_of_rounding_is_above_what_passes_differ_by():
    """The sampler and the trainer make two passes of one network."""
    assert records(session("grpo", steps=1))[0].metrics["sampling/logp_difference"] < ROUNDING


def test_values_that_are_equal_but_for_rounding_are_centred_to_0():
    mask = torch.ones(3, dtype=torch.bool)
    assert not centred(torch.tensor([0.3, 0.1 + 0.2, 0.30000001]), mask).any()
    assert centred(torch.tensor([0.3, 0.3001, 0.3]), mask).all()
    assert centred(torch.tensor([torch.inf, 1.0, 1.0]), mask).isnan().any()
