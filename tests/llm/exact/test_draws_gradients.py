"""Every row's gradient against the exact one, with no noise at all: a mean over every batch that there is.

The problem has seven completions, a batch two of them, and the gradient of each batch is taken by the loop's own code.
"""

from dataclasses import replace

import pytest
import torch

from labcore.catalog import kinds
from labcore.errors import LabError
from labcore.llm.exact.bench import prepared
from labcore.llm.exact.draws import (
    drawn,
    estimate,
    estimate_of_pairs,
    every,
    expectation,
    pair_gradient,
    population,
    valued,
)
from labcore.llm.exact.problem import logprobs
from labcore.llm.exact.reasons import reasons
from labcore.llm.exact.truth import divergence, gradient
from labcore.llm.exact.world import World
from labcore.llm.experience import collect
from labcore.llm.loops import online
from labcore.llm.nets.forward import completion_outputs
from labcore.llm.networks import REFERENCE
from labcore.llm.pairs import Pairs, next_pairs, sample_once
from labcore.llm.preference_objective import asks
from labcore.llm.rollout import credit
from labcore.tasks.task import Pair
from tests.every import now
from tests.llm.exact.small import off, session
from tests.llm.tools import weights

EXACT = 1e-5  # relative: the networks compute in float32
TABLE = kinds.kind("exact").algorithms
ONLINE = [key for key, row in TABLE.items() if row.loop == "online"]
PREFERENCE = [key for key, row in TABLE.items() if row.loop == "preference"]

# |bias|/|∇|, the scale along the exact gradient, and the bias that is left after scaling. docs/estimators.md has the
# reasons. At one update GSPO, GSPO-token, SAPO and GMPO are one gradient, as are CISPO, VESPO and BNPO's token mean.
BIAS = {
    "grpo": (0.636, 0.374, 0.307), "reinforce": (0.5, 0.5, 0), "rloo": (0, 1, 0), "ppo": (0.861, 0.160, 1.167),
    "dr_grpo": (0.75, 0.25, 0), "dapo": (0.514, 0.531, 0.397), "gspo": (0.615, 0.391, 0.222),
    "cispo": (0.613, 0.389, 0.101), "sapo": (0.615, 0.391, 0.222), "remax": (0.475, 0.525, 0.002),
    "reinforce_pp": (0.844, 0.170, 0.893), "raft": (0.600, 0.436, 0.471), "reinforce_average": (0, 1, 0),
    "reinforce_pp_baseline": (0.568, 0.441, 0.235), "gspo_token": (0.615, 0.391, 0.222),
    "luspo": (0.280, 0.723, 0.059), "gmpo": (0.615, 0.391, 0.222), "vespo": (0.613, 0.389, 0.101),
    "bnpo": (0.731, 0.269, 0.065), "bnpo_token_mean": (0.613, 0.389, 0.101), "gdpo": (0.613, 0.389, 0.101),
    "maxrl": (0.477, 0.529, 0.142), "passk": (0.637, 0.363, 0.003), "opo": (0.740, 0.261, 0.157),
    "gpg": (0.731, 0.269, 0.065), "dppo": (0.613, 0.389, 0.101), "dppo_kl": (0.613, 0.389, 0.101),
    "dro": (0.731, 0.269, 0.065), "fipo": (0.613, 0.389, 0.101), "icepop": (0.615, 0.391, 0.222),
    "otb": (0.712, 0.289, 0.061), "clip_cov": (0.613, 0.389, 0.111), "kl_cov": (0.613, 0.389, 0.101),
    "opd": (2.244, 3.030, 0.316), "minillm": (0.256, 0.916, 0.263),
    "gvpo": (0.9, 0.1, 0), "real": (0.268, 1.106, 0.222), "a_star_po": (0.802, 0.198, 0.047),
    "passk_training": (0.454, 0.549, 0.101), "spo": (0.613, 0.389, 0.101), "chord": (0.619, 0.387, 0.221),
    "grpo_process": (0.559, 0.447, 0.187), "nash_md": (0.820, 0.185, 0.471), "sdft": (2.087, 2.984, 0.217),
    "sdpo": (2.087, 2.984, 0.217),
}


def mean_and_truth(found, critic="untrained", values=None):
    world = World.of(found)
    made = prepared(found, world, critic)
    return expectation(found, world, made if values is None else values)[0], world.gradient(found)


@pytest.mark.parametrize("algorithm", now(
    ONLINE, "grpo", "reinforce", "rloo", "ppo", "dapo", "remax", "raft", "opd"))
def test_the_bias_of_every_online_row(algorithm):
    found = session(algorithm, **({"pass_k": 1} if algorithm == "passk_training" else {}))  # k < G
    mean, truth = mean_and_truth(found)
    bias, scale, turned = off(mean, truth)
    assert (bias, scale, turned) == pytest.approx(BIAS[algorithm], abs=6e-4)
    if BIAS[algorithm][0] == 0:
        assert bias < EXACT
    # The words say which it is: nothing, another length, or another direction.
    said = reasons(found.in_force)
    assert (bias < EXACT) == (not said)
    assert (turned < EXACT) == (not any(reason.startswith("Direction") for reason in said))


def test_process_supervision_of_an_outcome_alone_is_grpo():
    found = session("grpo_process", reward_source="verifier")
    assert off(*mean_and_truth(found)) == pytest.approx(BIAS["grpo"], abs=6e-4)


SUMS = {"advantage": "leave_one_out", "aggregation": "sequence_mean_token_sum"}
UNBIASED = [
    ("grpo", SUMS | {"beta": 0.0}), ("gspo", SUMS), ("remax", {"aggregation": "sequence_mean_token_sum"}),
    ("rloo", {"temperature": 0.7}), ("rloo", {"shaping": "length_cost", "length_cost": 0.3}),
    ("rloo", {"reward_source": "correct_and_format"}), ("dro", SUMS),
    ("cispo", SUMS), ("vespo", SUMS), ("dppo", SUMS), ("fipo", SUMS)]


@pytest.mark.parametrize("algorithm, knobs", now(UNBIASED, *UNBIASED[2:5]))
def test_what_takes_the_bias_away(algorithm, knobs):
    found = session(algorithm, **knobs)
    assert off(*mean_and_truth(found))[0] < EXACT and not reasons(found.in_force)


def test_nash_md_has_the_gradient_of_the_probability_of_winning():
    """Σ π(y) P(y beats y'), the mixture that writes y' held fixed; with rewards so near it has nearly J's direction."""
    found = session("nash_md", beta=0.0)
    mean, truth = mean_and_truth(found)
    world = World.of(found)
    logp = logprobs(found.policy, world.prompts, world.space)[0]
    with torch.no_grad():
        tables = [completion_outputs(each, world.prompts, world.space.carriers).double().log_softmax(-1)
                  for each in (found.policy, found.reference)]
        mixed = (sum(tables) / 2).log_softmax(-1)
        of_tokens = mixed[world.space.carrier, torch.arange(mixed.shape[1])].gather(
            -1, world.space.completions.ids[..., None])[..., 0]
        opponent = (of_tokens * world.space.completions.mask).sum(1).exp()
    wins = (world.rewards[0][:, None] - world.rewards[0]).sigmoid() @ opponent
    assert float(opponent.sum()) == pytest.approx(1)
    assert off(mean, gradient((logp.exp() * wins).sum(), found.policy.parameters()))[0] < EXACT
    assert off(mean, truth)[2] < 0.01


@pytest.mark.parametrize("prompts, direction", [(1, False), (2, True)])
def test_the_density_of_bnpo_is_1_with_one_group_and_biased_with_several(prompts, direction):
    found = session("bnpo", aggregation="sequence_mean_token_sum", prompts_per_step=prompts, max_new_tokens=1)
    _, scale, turned = off(*mean_and_truth(found))
    assert (turned > 1e-3) == direction == any(reason.startswith("Direction") for reason in reasons(found.in_force))
    if not direction:
        assert scale == pytest.approx(0.5, abs=EXACT)  # 1 − 1/G


PLAIN = {"aggregation": "sequence_mean_token_sum", "whiten_advantages": False}


@pytest.mark.parametrize("gae_lambda, critic, bias", now(
    [(1.0, "wrong", 0), (1.0, "exact", 0), (0.5, "exact", 0), (0.0, "exact", 0), (0.5, "wrong", 0.296)],
    (0.5, "exact", 0), (0.5, "wrong", 0.296)))
def test_lambda_below_one_is_biased_where_the_critic_is_wrong(gae_lambda, critic, bias):
    found = session("ppo", gae_lambda=gae_lambda, **PLAIN)
    right = World.of(found).values(found)
    mean, truth = mean_and_truth(found, values=right if critic == "exact" else 3 * right**2 - 0.5)
    assert off(mean, truth)[0] == pytest.approx(bias, abs=6e-4 if bias else EXACT)
    assert bool(reasons(found.in_force, critic == "exact")) == (bias > 0)


def kl_parts(found):
    """The gradients of KL(π‖π_ref) and KL(π_ref‖π), exact."""
    world = World.of(found)
    logp = logprobs(found.policy, world.prompts, world.space)
    ref = logprobs(found.reference, world.prompts, world.space).detach()
    parameters = list(found.policy.parameters())
    return (gradient(divergence(logp, ref), parameters, keep=True), gradient(divergence(ref, logp), parameters))


def kl_gradient(estimator, length, ratio="token"):
    """The mean gradient that the KL adds to a loss, per β: with and without it."""
    means = [mean_and_truth(session("grpo", beta=beta, aggregation="sequence_mean_token_sum", max_new_tokens=length,
                                    kl_estimator=estimator, ratio=ratio))[0] for beta in (0.0, 1.0)]
    return means[0] - means[1]


def test_k1_in_the_loss_does_nothing():
    assert float(kl_gradient("k1", 2).norm()) < EXACT


@pytest.mark.parametrize("estimator, side", [("k2", 0), ("ratio_k3", 0), ("k3", 1)])
def test_for_one_token_k2_and_the_ratio_have_the_kl_and_k3_has_the_other_one(estimator, side):
    sides = kl_parts(session("grpo", max_new_tokens=1))
    found = kl_gradient(estimator, 1)
    assert off(found, sides[side])[0] < EXACT and off(found, sides[1 - side])[0] > 0.05


@pytest.mark.parametrize("estimator, bias", now(
    [("k2", 0.677), ("k3", 0.983), ("ratio_k3", 0.677)], ("ratio_k3", 0.677)))
def test_for_longer_completions_none_of_them_has_the_kl_of_whole_ones(estimator, bias):
    """Prefixes are held fixed in the loss: what a token does to the KL of later ones is not in the gradient."""
    assert off(kl_gradient(estimator, 2), kl_parts(session("grpo"))[0])[0] == pytest.approx(bias, abs=6e-4)


def test_with_the_ratio_of_the_sequence_k3_has_the_kl_of_whole_completions():
    assert off(kl_gradient("ratio_k3", 2, "sequence_sum"), kl_parts(session("grpo"))[0])[0] < EXACT


def test_in_the_reward_k1_has_the_kl_of_whole_completions():
    means = [mean_and_truth(session("rloo", beta=beta))[0] for beta in (0.0, 1.0)]
    assert off(means[0] - means[1], kl_parts(session("rloo"))[0])[0] < EXACT


@pytest.mark.long
def test_every_batch_is_what_the_run_samples():
    """The mean over batches that were sampled is that over all of them: |difference| < 4 standard errors along each
    projection. DAPO samples groups without signal again."""
    found = session("dapo")
    world = World.of(found)
    mean, variance = expectation(found, world, prepared(found, world))
    draws = torch.stack([estimate(found, batch.rollout) for batch in drawn(found, 100)])
    onto = torch.stack([mean, *torch.eye(len(mean)).double()[mean.abs().topk(4).indices]])
    errors = (draws @ onto.T).std(0) / len(draws) ** 0.5
    assert ((draws.mean(0) - mean) @ onto.T).abs().lt(4 * errors).all()
    assert float(draws.var(0).sum()) == pytest.approx(float(variance), rel=0.4)


def test_the_probabilities_of_all_batches_sum_to_one():
    for found in (session("rloo"), session("raft"), session("reinforce", prompts_per_step=1, group_size=3)):
        assert sum(weight for weight, _ in every(found, World.of(found))) == pytest.approx(1)
    with pytest.raises(LabError, match="make 13,841,287,201 batches"):
        list(every(crowd := session("rloo", group_size=12), World.of(crowd)))


def test_several_updates_are_the_runs_own_and_leave_the_session_as_it_was():
    found = session("ppo", updates_per_batch=2, mini_batches=2, learning_rate=0.01)
    before, critic = weights(found.policy), weights(found.critic)
    rollout = collect(found).rollout
    state = found.rng.bit_generator.state
    mean = estimate(found, rollout)
    assert torch.equal(weights(found.policy), before) and torch.equal(weights(found.critic), critic)
    found.rng.bit_generator.state = state
    taken = []

    def optimise(name, rate, loss):
        if name == "policy":
            taken.append(-torch.cat([weight.grad.flatten() for weight in found.policy.parameters()]).double())
        return type(found).optimise(found, name, rate, loss)

    found.optimise = optimise
    for part in online.parts_of(found, len(rollout.prompts)):
        online.update(found, credit(found.in_force, rollout).select(part))
    assert len(taken) == 4 and not torch.equal(taken[0], taken[2])
    assert torch.equal(mean, torch.stack(taken).mean(0))


def test_the_values_of_an_exact_critic():
    """V before the first token is the mean reward; before the second that of the completions which begin so."""
    found = session("ppo", beta=0.0)
    world = World.of(found)
    values, likely = world.values(found), world.probabilities[0]
    assert float(values[0, 0, 0]) == pytest.approx(float((likely * world.rewards[0]).sum()))
    texts = world.texts
    begun = [place for place, text in enumerate(texts) if text.startswith("a")]
    mean = float((likely[begun] * world.rewards[0, begun]).sum() / likely[begun].sum())
    assert {round(float(values[0, place, 1]), 6) for place in begun} == {round(mean, 6)}
    assert float(values[0, texts.index(""), 1]) == 0
    rollout = collect(found).rollout
    given = valued(world, rollout, values).old_values
    assert given.shape == rollout.ids.shape and float(given[0, 0]) == pytest.approx(float(values[0, 0, 0]))


def test_the_exact_critic_of_flipped_rewards_has_their_mean():
    found = session("ppo", beta=0.0, reward_source="noisy_verifier", reward_noise=0.3)
    world = World.of(found)
    mean = float((world.probabilities[0] * world.rewards[0]).sum())
    assert float(world.values(found)[0, 0, 0]) == pytest.approx(mean, abs=1e-6)


# What a batch of a single pair is off by where the loss is one of the whole batch.
OF_A_BATCH = {"kto": 0.001, "aot": 0.078, "orpo": 0.736, "simpo": 0.412, "mpo": 0.767, "cpo": 0.776,
              "alphapo": 0.273}


def pair_of(world: World, prompt: int, chosen: int, rejected: int, theirs: str = "") -> Pair:
    """The pair of two completions, as the sampler would have made it."""
    cut, problem = world.space.completions.truncated, world.problems[prompt]
    return Pair(problem.prompt, world.texts[chosen], world.texts[rejected],
                problem.line, bool(cut[chosen]), bool(cut[rejected]), problem.answer, theirs=theirs)


@pytest.mark.parametrize("algorithm", now(PREFERENCE, "dpo", "xpo", "kto", "simpo"))
def test_preference_rows_have_the_gradient_of_their_loss_over_all_pairs(algorithm):
    source = "dataset" if algorithm in OF_A_BATCH else "reference_once"
    fresh = {"online_dpo": {"pairs": "policy_each_step", "group_size": 2}, "xpo": {"second_weight": 0.3}}
    found = session(algorithm, **fresh.get(algorithm, {"pairs": source, "group_size": 2}))
    world = World.of(found)
    pairs = population(found, world)
    assert sum(row[0] for row in pairs) == pytest.approx(1)
    mean = sum(weight * estimate_of_pairs(found, Pairs([pair_of(world, *row)])) for weight, *row in pairs)
    bias = off(mean, pair_gradient(found, world))[0]
    if asks(found.knobs, "whole_batch"):
        assert bias == pytest.approx(OF_A_BATCH[algorithm], abs=6e-4)
    else:
        assert bias < EXACT


@pytest.mark.parametrize("source", ["dataset", "reference_once", "policy_each_step", "policy_and_reference"])
def test_all_pairs_are_those_that_the_run_makes(source):
    """Which pairs the run's own source gives, and how often: |difference| < 4 standard errors each."""
    found = session("dpo", pairs=source, group_size=2, pairs_per_step=1000, pair_prompts=2000)
    world = World.of(found)
    made = sample_once(found) if source == "reference_once" else next_pairs(found).pairs
    count = {}
    for pair in made:
        count[pair] = count.get(pair, 0) + 1
    for weight, *row in population(found, world):
        error = (weight * (1 - weight) / len(made)) ** 0.5
        assert abs(count.pop(pair_of(world, *row), 0) / len(made) - weight) < 4 * error + 1e-9
    assert not count


def test_pairs_of_larger_groups_are_refused():
    with pytest.raises(LabError, match="set `group_size=2`"):
        population(found := session("dpo", pairs="reference_once", group_size=4), World.of(found))


def test_weights_of_pairs_and_tails_are_in_the_truth():
    found = session("dpo", pairs="reference_once", group_size=2, pair_weighting=True, ld_alpha=0.3)
    world = World.of(found)
    mean = sum(weight * estimate_of_pairs(found, Pairs([pair_of(world, *row)]))
               for weight, *row in population(found, world))
    assert off(mean, pair_gradient(found, world))[0] < EXACT
    plain = replace(found, knobs={**found.knobs, "pair_weighting": False})
    assert REFERENCE in plain.models and off(pair_gradient(plain, world), pair_gradient(found, world))[0] > 0.05
