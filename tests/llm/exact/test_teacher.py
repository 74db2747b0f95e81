"""The optimum as a teacher: it is π*, and the mean gradients of distillation from it are exact ones."""

import pytest
import torch

from labcore.catalog.exact import BETA
from labcore.llm.exact.bench import prepared
from labcore.llm.exact.draws import expectation
from labcore.llm.exact.problem import logprobs, token_logprobs
from labcore.llm.exact.teacher import table_of
from labcore.llm.exact.truth import divergence, gradient, optimum
from labcore.llm.exact.world import World
from labcore.llm.nets.forward import completion_outputs
from labcore.llm.networks import TEACHER
from tests.every import now
from tests.llm.exact.small import off, session
from tests.llm.exact.test_draws_gradients import EXACT, PLAIN, mean_and_truth


def test_a_table_has_the_probabilities_that_it_is_made_of():
    found = session("opd")
    world = World.of(found)
    drawn = torch.randn(len(world), len(world.space), generator=torch.Generator().manual_seed(4))
    logp = drawn.double().log_softmax(-1)
    table = table_of(logp, world.prompts, world.space, len(found.tokenizer), found.context)
    torch.testing.assert_close(logprobs(table, world.prompts, world.space), logp, rtol=0, atol=1e-5)


def test_the_teacher_is_the_optimum():
    found = session("opd")
    world = World.of(found)
    with torch.no_grad():
        ref, teacher = (logprobs(each, world.prompts, world.space) for each in (found.reference,
                                                                                found.models[TEACHER]))
    star, _ = optimum(ref, world.rewards, BETA)
    torch.testing.assert_close(teacher, star, rtol=0, atol=1e-5)


def test_with_discount_1_the_mean_gradient_is_that_of_the_reverse_kl_and_so_of_the_reward_less_the_kl():
    found = session("opd", **PLAIN, teacher_discount=1.0)
    mean, truth = mean_and_truth(found)
    assert off(mean, truth)[1:] == pytest.approx((1 / BETA, 0), abs=EXACT / BETA)
    world = World.of(found)
    logp, star = (logprobs(each, world.prompts, world.space) for each in (found.policy, found.models[TEACHER]))
    assert off(mean, -gradient(divergence(logp, star.detach()), found.policy.parameters()))[0] < EXACT


@pytest.mark.parametrize("discount", now([0.0, 1.0], 1.0))
def test_the_single_step_term_changes_the_noise_and_not_the_mean(discount):
    means = []
    for single_step in (False, True):
        found = session("opd", **PLAIN, teacher_discount=discount, single_step=single_step)
        world = World.of(found)
        means.append(expectation(found, world, prepared(found, world)))
    (sampled, noise), (exact, less) = means
    assert off(exact, sampled)[0] < EXACT and less < noise
    if discount == 1:
        assert off(exact, world.gradient(found))[1:] == pytest.approx((1 / BETA, 0), abs=EXACT / BETA)


def test_with_discount_0_it_is_that_of_each_tokens_kl_with_its_prefix_held_fixed():
    found = session("opd", **PLAIN)
    mean, _ = mean_and_truth(found)
    world = World.of(found)
    tables = [completion_outputs(each, world.prompts, world.space.carriers).double().log_softmax(-1)
              for each in (found.policy, found.models[TEACHER])]
    kl = (tables[0].exp() * (tables[0] - tables[1].detach())).sum(-1)  # of each prefix
    width = torch.arange(kl.shape[1])
    of_tokens = kl[world.space.carrier, width] * world.space.completions.mask
    likely = token_logprobs(found.policy, world.prompts, world.space).sum(-1).exp().detach()[0]
    assert off(mean, -gradient((likely * of_tokens.sum(-1)).sum(), found.policy.parameters()))[0] < EXACT
