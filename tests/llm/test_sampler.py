"""The sampler draws from the distribution it says, says its log-probs truly, and knows when to stop."""

import pytest
import torch
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from labcore.llm.batch import Prompts
from labcore.llm.nets.forward import completion_outputs
from labcore.llm.sampler import draw, keep_top, penalised, sample
from labcore.maths.logprobs import selective_log_softmax
from tests.every import every
from tests.llm.tools import CACHED, CACHELESS, LENGTHS, every_completion, model, prompts

EOS = 1
LENGTH, DRAWS = 3, 20_000


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def samples(network, asked, group_size=4, seed=0, **given):
    return sample(network, asked, group_size, **{"max_new_tokens": 6, "eos": EOS, "generator": seeded(seed), **given})


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("kind", [*CACHED, *CACHELESS])
def test_its_logprobs_are_the_trainers(kind, temperature):
    network, asked = model(kind), prompts((4, 4, 4) if kind in CACHELESS else LENGTHS)
    got = samples(network, asked, temperature=temperature)
    logits = completion_outputs(network, asked, got.ids).detach()
    expected = selective_log_softmax(logits, got.ids, temperature).masked_fill(~got.mask, 0)
    torch.testing.assert_close(got.logprobs, expected, rtol=0, atol=1e-5)
    assert not torch.allclose(got.logprobs, selective_log_softmax(logits, got.ids, 2).masked_fill(~got.mask, 0))


def surprise(counts, probabilities):
    """Pearson's χ² over its mean, in its standard deviations; outcomes expected fewer than 5 times are pooled."""
    expected = probabilities * counts.sum()
    rare = expected < 5
    if rare.any():
        counts = torch.cat([counts[~rare], counts[rare].sum()[None]])
        expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    freedom = len(expected) - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / (2 * freedom) ** 0.5)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_completions_come_as_often_as_the_model_says(temperature):
    vocabulary = 4
    network, asked = model(vocabulary=vocabulary), prompts((3,), vocabulary)
    ids, mask = every_completion(vocabulary, LENGTH, EOS)

    def probabilities(at):
        logits = completion_outputs(network, asked, ids).detach()
        return (selective_log_softmax(logits, ids, at) * mask).sum(1).double().exp()
    assert float(probabilities(temperature).sum()) == pytest.approx(1, abs=1e-5)
    got = samples(network, asked, DRAWS, max_new_tokens=LENGTH, temperature=temperature)
    names = {tuple(row[kept].tolist()): n for n, (row, kept) in enumerate(zip(ids, mask, strict=True))}
    seen = [names[tuple(row[kept].tolist())] for row, kept in zip(got.ids, got.mask, strict=True)]
    counts = torch.bincount(torch.tensor(seen), minlength=len(ids)).double()
    assert surprise(counts, probabilities(temperature)) < 4
    assert surprise(counts, probabilities(temperature * 1.1)) > 8


def test_draw():
    probabilities = torch.tensor([0.5, 0.25, 0.15, 0.1, 0.0], dtype=torch.float64)
    drawn = draw(probabilities.log().float().expand(DRAWS, -1), seeded())
    counts = torch.bincount(drawn, minlength=5).double()
    assert counts[4] == 0 and surprise(counts[:4], probabilities[:4]) < 4


@every("top_k, top_p, kept", [
    (0, 1.0, {0, 1, 2, 3}), (4, 1.0, {0, 1, 2, 3}), (9, 1.0, {0, 1, 2, 3}), (1, 1.0, {2}), (2, 1.0, {2, 0}),
    (3, 1.0, {2, 0, 3}), (0, 0.01, {2}), (0, 0.5, {2}), (0, 0.51, {2, 0}), (0, 0.76, {2, 0, 3}),
    (0, 0.95, {0, 1, 2, 3}), (2, 0.6, {2}), (2, 0.7, {2, 0}), (1, 0.99, {2})])
def test_top_k_and_top_p_keep_the_right_tokens(top_k, top_p, kept):
    """0.5, 0.25, 0.15, 0.1: the nucleus is the fewest tokens that hold top_p, of what top_k left."""
    logprobs = torch.tensor([[0.25, 0.1, 0.5, 0.15], [0.1, 0.5, 0.25, 0.15]]).log()
    got = keep_top(logprobs, top_k, top_p)
    assert {n for n in range(4) if got[0, n] > -torch.inf} == kept
    other = {0: 2, 1: 0, 2: 1, 3: 3}  # where the second row has the same probability
    assert {n for n in range(4) if got[1, n] > -torch.inf} == {other[n] for n in kept}
    assert torch.equal(got[got > -torch.inf], logprobs[got > -torch.inf])


@pytest.mark.parametrize("min_p, kept", [(0.0, {0, 1, 2, 3}), (0.19, {0, 1, 2, 3}), (0.25, {2, 0, 3}), (0.49, {2, 0}),
                                         (0.51, {2}), (1.0, {2})])
def test_min_p_keeps_tokens_with_a_share_of_the_highest_probability(min_p, kept):
    """0.5, 0.25, 0.15, 0.1: the shares are 1, 0.5, 0.3 and 0.2, whatever top-k and top-p left out before."""
    logprobs = torch.tensor([[0.25, 0.1, 0.5, 0.15]]).log()
    assert {n for n in range(4) if keep_top(logprobs, 0, 1.0, min_p)[0, n] > -torch.inf} == kept
    assert {n for n in range(4) if keep_top(logprobs, 3, 0.9, min_p)[0, n] > -torch.inf} == kept - {1}


@pytest.mark.parametrize("penalty", [1.3, 0.8])
def test_filters_are_those_of_transformers(penalty):
    """Its processors, in the order in which `generate` calls them."""
    logits = torch.randn(3, 12, generator=seeded(), dtype=torch.float64) * 2
    ids = torch.tensor([[3, 5, 5], [0, 1, 2], [11, 3, 3]])
    seen = torch.zeros(3, 12, dtype=torch.bool).scatter(1, ids, True)
    expected = RepetitionPenaltyLogitsProcessor(penalty)(ids, logits)
    assert torch.equal(penalised(logits, seen, penalty), expected)
    for warper in (TemperatureLogitsWarper(0.7), TopKLogitsWarper(9), TopPLogitsWarper(0.95), MinPLogitsWarper(0.2)):
        expected = warper(ids, expected)
    got = keep_top((penalised(logits, seen, penalty) / 0.7).log_softmax(-1), 9, 0.95, 0.2)
    torch.testing.assert_close(got.softmax(-1), expected.softmax(-1))
    assert 0 < (got == -torch.inf).sum() < 36


def test_a_penalty_is_for_tokens_of_the_prompt_and_of_the_completion_and_not_for_padding():
    """So strong that nothing is said twice while there is something new: the log-probs are still the model's own."""
    network, asked = model(vocabulary=8), prompts((3, 1, 2), 8)
    with torch.no_grad():  # all logits above 0, so that the penalty makes them nearly 0
        network.get_output_embeddings().weight.mul_(0.1)
    got = samples(network, asked, 20, max_new_tokens=3, repetition_penalty=0.001, greedy=True)
    logits = completion_outputs(network, asked, got.ids).detach()
    torch.testing.assert_close(got.logprobs, selective_log_softmax(logits, got.ids).masked_fill(~got.mask, 0),
                               rtol=0, atol=1e-5)
    for row, (ids, mask) in enumerate(zip(got.ids, got.mask, strict=True)):
        known = set(asked.ids[row // 20][asked.mask[row // 20]].tolist())
        for place, token in enumerate(ids[mask].tolist()):
            scores = logits[row, place].clone()
            for each in known:
                scores[each] = scores[each] / 0.001 if scores[each] > 0 else scores[each] * 0.001
            assert token == int(scores.argmax())
            known.add(token)
    plain = samples(network, asked, 20, max_new_tokens=3, greedy=True)
    assert not torch.equal(got.ids, plain.ids[:, :got.ids.shape[1]])


def test_filters_choose_tokens_but_do_not_change_their_logprobs():
    network, asked = model(), prompts()
    got = samples(network, asked, top_k=1, temperature=0.7)
    logits = completion_outputs(network, asked, got.ids).detach()
    assert torch.equal(logits.argmax(-1)[got.mask], got.ids[got.mask])
    torch.testing.assert_close(got.logprobs[got.mask], (logits / 0.7).log_softmax(-1).amax(-1)[got.mask])


def test_counts_up_to_and_with_the_end():
    got = samples(model(vocabulary=4), prompts(vocabulary=4), group_size=50, max_new_tokens=5)
    ended = 0
    for ids, mask, truncated, logprobs in zip(got.ids.tolist(), got.mask, got.truncated, got.logprobs, strict=True):
        length = ids.index(EOS) + 1 if EOS in ids[: int(mask.sum())] else 5
        assert mask.tolist() == [True] * length + [False] * (5 - length)
        assert bool(truncated) == (EOS not in ids[:length])
        assert set(ids[length:]) <= {EOS}
        assert (logprobs[length:] == 0).all() and (logprobs[:length] < 0).all()
        ended += length < 5
    assert 10 < ended < 140 and got.truncated.any()
    assert got.lengths.tolist() == got.mask.sum(1).tolist()


def test_the_end_at_the_length_limit_is_no_truncation():
    got = samples(model(vocabulary=4), prompts(vocabulary=4), group_size=50, max_new_tokens=1)
    assert got.mask.all() and got.ids.shape[1] == 1
    assert torch.equal(got.truncated, got.ids[:, 0] != EOS)
    assert got.truncated.any() and not got.truncated.all()


@pytest.mark.parametrize("kind", ["llama", "mamba"])
def test_stops_when_all_have_ended(kind):
    """With the likeliest first token as the end token, greedy sampling is over after one token."""
    network, asked = model(kind), prompts((4,))
    likeliest = int(samples(network, asked, 1, eos=-1, top_k=1).ids[0, 0])
    got = samples(network, asked, eos=likeliest, top_k=1, max_new_tokens=50)
    assert got.ids.tolist() == [[likeliest]] * 4 and got.mask.all() and not got.truncated.any()


def test_chance_comes_from_the_generator_alone():
    network, asked = model(), prompts()
    state = torch.random.get_rng_state()
    first = samples(network, asked)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.rand(5)
    again, other = samples(network, asked), samples(network, asked, seed=1)
    assert torch.equal(first.ids, again.ids) and torch.equal(first.logprobs, again.logprobs)
    assert first.ids.shape != other.ids.shape or not torch.equal(first.ids, other.ids)


@pytest.mark.parametrize("kind", CACHED)
def test_padding_on_the_left_changes_nothing(kind):
    network, asked = model(kind), prompts()
    together = samples(network, asked, 2, eos=-1, top_k=1)
    for row, (ids, mask) in enumerate(zip(asked.ids, asked.mask, strict=True)):
        single = samples(network, Prompts(ids[mask][None], mask[mask][None]), 2, eos=-1, top_k=1)
        assert torch.equal(together.ids[2 * row: 2 * row + 2], single.ids)
        torch.testing.assert_close(together.logprobs[2 * row: 2 * row + 2], single.logprobs, rtol=0, atol=1e-5)


def test_groups_stand_together_and_differ():
    """Row p·G + g belongs to prompt p: its log-probs are those of that prompt, and its members are not copies."""
    got = samples(model(), prompts(), group_size=8, eos=-1)
    rows = got.ids.view(len(LENGTHS), 8, -1)
    assert all(len({tuple(row) for row in group.tolist()}) > 4 for group in rows)


def test_no_graph_is_kept():
    assert not samples(model(), prompts()).logprobs.requires_grad
