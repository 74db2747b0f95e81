"""A batch cut for memory: every row once, groups whole, the same gradient and metrics however it is cut."""

import weakref
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from labcore.catalog.choices import AGGREGATION, PREFERENCE_LOSS, SFT_LOSS
from labcore.llm.experience import collect
from labcore.llm.loops import online, preference, reward_model, sft
from labcore.llm.nets.forward import layers_of
from labcore.llm.nets.micro_batches import Room, attempts, micro_batches
from labcore.llm.pairs import Pairs
from labcore.llm.probes.token_records import Met
from labcore.llm.probes.watched import apart
from labcore.llm.rollout import credit
from labcore.llm.session import LlmSession
from labcore.llm.sizing import passes
from labcore.runs.faults import ending
from labcore.tasks.task import Pair, Problem, Single
from tests.every import now
from tests.llm.tools import completion_ids, model, prompts, ragged, records, session, shake
from tests.words import says

PAIRS = [Pair("abc=", "abc", "cab", answer="abc"), Pair("b=", "b", "bbbbbb", answer="bb"),
         Pair("dcba=", "abcd", "dcb", rejected_truncated=True, answer="abcda")]


@pytest.mark.parametrize("prompts_at_once, parts", [(5, 1), (2, 3), (1, 5), (0.5, 5)])
def test_every_row_once_and_groups_whole(prompts_at_once, parts):
    network, asked = model(), prompts((3, 1, 6, 2, 2))
    one = passes.Batch(1, 3, 0, 6, 5)
    room = int(prompts_at_once * passes.activations(layers_of(network), one, passes.Mode()))
    cuts = list(micro_batches(network, asked, completion_ids(15, 5), Room(room)))
    assert len(cuts) == parts
    assert [n for some, _ in cuts for n in range(5)[some]] == list(range(5))
    assert all((rows.start, rows.stop) == (some.start * 3, some.stop * 3) for some, rows in cuts)


def gradients(started, update, monkeypatch, room):
    """The gradient of each network that `update` hands to the optimizer, the losses it says, and what it logs."""
    seen = {}

    def keep(name, rate, loss):
        seen[name] = torch.cat([p.grad.flatten() for p in started.models[name].parameters() if p.grad is not None])
        seen[f"{name} loss"] = torch.tensor([loss])
        started.models[name].zero_grad(set_to_none=True)
        return 0.0
    monkeypatch.setattr(LlmSession, "room", Room(room))
    monkeypatch.setattr(started, "optimise", keep)
    logged = update()
    return seen | {"metrics": logged[0] if isinstance(logged, tuple) else logged}


def prepared(algorithm, **knobs):
    """A session whose policy has moved since the batch was sampled, and that ragged batch."""
    started = session(algorithm, prompts_per_step=5, **knobs)
    rollout = ragged(collect(started).rollout)
    shake(started.policy)
    return started, credit(started.knobs, rollout)


def random_cuts(seed):
    """A `micro_batches` that cuts a batch into any contiguous parts, as memory might."""
    def cut(network, asked, ids, room=None):
        count, group = len(asked), len(ids) // len(asked)
        places = torch.randint(0, 2, (count - 1,), generator=torch.Generator().manual_seed(seed)).nonzero().flatten()
        edges = [0, *(int(place) + 1 for place in places), count]
        for start, stop in pairwise(edges):
            yield slice(start, stop), slice(start * group, stop * group)
    return cut


def cut_anyhow(started, update, module, monkeypatch, *names):
    """A batch that is cut at random, or into parts of one or two prompts because memory is short, has the gradients,
    losses and metrics of the whole batch."""
    def cut(room, micro_batches):
        with monkeypatch.context() as patch:
            patch.setattr(module, "micro_batches", micro_batches)
            return gradients(started, update, patch, room)
    whole = gradients(started, update, monkeypatch, 2**32)
    for parts in (cut(1, micro_batches), cut(100_000, micro_batches), cut(2**32, random_cuts(2))):
        for name in names or ("policy",):
            assert whole[name].norm() > 1e-5
            assert (parts[name] - whole[name]).norm() < 2e-5 * whole[name].norm()
            torch.testing.assert_close(parts[f"{name} loss"], whole[f"{name} loss"], rtol=1e-5, atol=1e-6)
        assert parts["metrics"] == pytest.approx(whole["metrics"], rel=1e-4, abs=1e-6)


SWITCHES = [{"surrogate": "bounded_clip"}, {"surrogate": "detached_weight"}, {"surrogate": "soft_gate"},
            {"surrogate": "geometric_clip"}, {"surrogate": "gamma_weight"}, {"surrogate": "score_function"},
            {"ratio": "sequence_sum"}, {"ratio": "sequence_mean"}, {"ratio": "sequence_mean_token"},
            {"kl_estimator": "k1"}, {"kl_estimator": "k2"}, {"kl_estimator": "ratio_k3"}, {"kl_placement": "reward"},
            {"selection": "best_of_group"}, {"selection": "informative"}, {"top_entropy_share": 0.4},
            {"off_policy_threshold": 1e-4}, {"normalisation": "tokens"},
            *({"aggregation": name} for name in AGGREGATION.names)]


# These compute a number for each token or completion by itself, so the cut of the batch cannot matter.
BY_TOKEN = [{"surrogate": "bounded_clip"}, {"surrogate": "detached_weight"}, {"surrogate": "soft_gate"},
            {"surrogate": "gamma_weight"}, {"surrogate": "geometric_clip"}, {"ratio": "sequence_sum"},
            {"ratio": "sequence_mean_token"}, {"kl_estimator": "k1"}, {"kl_estimator": "k2"},
            {"kl_estimator": "ratio_k3"}]


@pytest.mark.parametrize("switches", now(SWITCHES, *(each for each in SWITCHES if each not in BY_TOKEN)), ids=str)
def test_any_cut_of_an_online_batch(switches, monkeypatch):
    started, rollout = prepared("grpo", mix="all", beta=0.2, entropy_coef=0.05, **switches)
    cut_anyhow(started, lambda: online.update(started, rollout), online, monkeypatch)


@pytest.mark.parametrize("group_size", [1, 4])
def test_any_cut_of_a_batch_with_values(group_size, monkeypatch):
    started, rollout = prepared("ppo", group_size=group_size, mini_batches=1)
    shake(started.critic)
    cut_anyhow(started, lambda: online.update(started, rollout), online, monkeypatch, "policy", "critic")


SORTS = ("whole_batch", "own_answer", "opposed", "pairwise")


@pytest.mark.parametrize("loss", now(PREFERENCE_LOSS.names, "sigmoid", *(
    {tuple(getattr(each, sort) for sort in SORTS): each.key for each in PREFERENCE_LOSS.members}.values())))
def test_any_cut_of_pairs(loss, monkeypatch):
    given, pairs = {"mix": "all"}, PAIRS
    if PREFERENCE_LOSS[loss].opposed:
        given, pairs = {"pairs": "policy_and_reference"}, [replace(pair, theirs="rejected") for pair in PAIRS]
    started = session("dpo", preference_loss=loss, second_loss="sft", second_weight=0.5, ld_alpha=0.4,
                      pair_weighting=PREFERENCE_LOSS[loss].pairwise, **given)
    shake(started.policy)
    cut_anyhow(started, lambda: preference.update(started, Pairs(pairs)), preference, monkeypatch)


def test_any_cut_of_pairs_with_a_loss_that_is_a_mean_over_pairs(monkeypatch):
    """Without SFT's loss beside it, which needs the whole batch for each part."""
    started = session("dpo")
    shake(started.policy)
    cut_anyhow(started, lambda: preference.update(started, Pairs(PAIRS)), preference, monkeypatch)


def test_any_cut_of_single_completions(monkeypatch):
    started = session("kto")
    shake(started.policy)
    singles = [Single(pair.prompt, side, label) for pair in PAIRS for side, label in (
        (pair.chosen, True), (pair.rejected, False))][:5]
    cut_anyhow(started, lambda: preference.update(started, Pairs([], singles=singles)), preference, monkeypatch)


def test_any_cut_of_scored_pairs(monkeypatch):
    started = session("reward_model", margin=0.1, centering=0.2)
    shake(started.models["reward_model"])
    cut_anyhow(started, lambda: reward_model.update(started, PAIRS), reward_model, monkeypatch, "reward_model")


@pytest.mark.parametrize("loss", now(SFT_LOSS.names, "nll", "forward_kl"))
def test_any_cut_of_examples_weighs_tokens_alike(loss, monkeypatch):
    """Not a mean of means: one part may have a token, and another one twenty."""
    taught = SFT_LOSS[loss].teacher
    started = session("gkd" if taught else "dft", sft_loss=loss, **({"on_policy_share": 0.0} if taught else {}))
    monkeypatch.setattr(started.task, "problems", lambda count, rng: [
        Problem("abc=", "a" * (1 + n * n)) for n in range(5)], raising=False)
    cut_anyhow(started, lambda: sft.update(started), sft, monkeypatch)


def short_of_memory(monkeypatch, module, failures=1, after=1):
    """The passes of `module` fail for want of memory `failures` times, each time after `after` that went well."""
    real, calls = module.at_tokens, []

    def at_tokens(*given, **more):
        calls.append(len(given[1]))
        if len(calls) == after + 1 and failures > short_of_memory.failed:
            short_of_memory.failed += 1
            calls.clear()
            raise torch.OutOfMemoryError("out of memory")
        return real(*given, **more)
    short_of_memory.failed = 0
    monkeypatch.setattr(module, "at_tokens", at_tokens)
    return calls


def test_where_memory_is_short_parts_are_halved_once_and_stay_so(monkeypatch):
    started, rollout = prepared("grpo", beta=0.2)
    whole = gradients(started, lambda: online.update(started, rollout, Met()), monkeypatch, 2**32)
    monkeypatch.undo()
    one = passes.activations(layers_of(started.policy), passes.Batch(1, 4, 0, *sides(rollout)), passes.Mode())
    monkeypatch.setattr(passes, "ON_PROCESSOR", 2 * one)
    sizes, met = short_of_memory(monkeypatch, online), Met()
    seen = {}
    monkeypatch.setattr(started, "optimise", lambda name, rate, loss: seen.update({name: torch.cat(
        [p.grad.flatten() for p in started.models[name].parameters() if p.grad is not None])}) or 0.0)
    online.update(started, rollout, met)
    assert sizes == [1] * 5 and started.halvings == 1, "two prompts fitted once, then there was no more room"
    assert (seen["policy"] - whole["policy"]).norm() < 1e-5 * whole["policy"].norm(), "no half gradient is left"
    assert met.logprobs.shape == met.norms.shape == rollout.ids.shape
    assert started.room == Room(2 * one, halvings=1)
    assert [says(each, "memory was short", "1/2 of the prompts") for each in started.standing] == [True]


def test_a_batch_that_would_fit_by_far_is_halved_too(monkeypatch):
    """Memory may be short though the estimate says that there is plenty."""
    started, rollout = prepared("grpo", beta=0.2)
    sizes = short_of_memory(monkeypatch, online, after=0)
    online.update(started, rollout)
    assert sizes == [2, 2, 1]


def test_another_error_is_not_tried_again():
    started, tried = session("grpo"), []
    with pytest.raises(ValueError, match="another"):
        for attempt in attempts(started):
            with attempt:
                tried.append(attempt)
                raise ValueError("another")
    assert len(tried) == 1 and started.halvings == 0


class ShortOnce(torch.autograd.Function):
    """A tensor as it is; memory is out in the backward pass."""

    @staticmethod
    def forward(ctx, values):
        return values.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise torch.OutOfMemoryError("out of memory")


@pytest.mark.parametrize("algorithm, module, passes_of", [
    ("grpo", online, "at_tokens"), ("dpo", preference, "at_tokens"), ("sft", sft, "at_tokens"),
    ("reward_model", reward_model, "last_values")])
def test_a_run_that_is_short_of_memory_frees_all_that_the_attempt_held_and_goes_on(algorithm, module, passes_of,
                                                                                   monkeypatch):
    """A graph that were still held would need its memory beside that of the second attempt."""
    started, real, held, free = session(algorithm, steps=1), getattr(module, passes_of), [], []
    halve = started.halve_micro_batches

    def passes_once(*given, **more):
        found = real(*given, **more)
        if held or not torch.is_grad_enabled():
            return found
        first, *others = found if isinstance(found, tuple) else (found,)
        first = ShortOnce.apply(first)
        held.append(weakref.ref(first))
        return (first, *others) if others else first
    monkeypatch.setattr(module, passes_of, passes_once)
    monkeypatch.setattr(started, "halve_micro_batches", lambda: free.append(held[0]() is None) or halve())
    [record] = records(started)
    assert free == [True] and started.halvings == 1 and record.metrics["grad_norm"] > 0


def test_a_pass_without_gradient_is_cut_less_and_one_in_bf16_as_the_table_of_memory_says():
    network, asked, ids = model(), prompts((3, 1, 6, 2, 2)), completion_ids(15, 5)
    room = 2 * passes.activations(layers_of(network), passes.Batch(1, 3, 0, 6, 5), passes.Mode())
    with torch.no_grad():
        assert next(micro_batches(network, asked, ids, Room(room)))[0] == slice(0, 4), "one layer of two is held"
    one, half = passes.Batch(1, 3, 0, 6, 5), passes.Mode(width=passes.HALF)
    room = 3 * (passes.activations(layers_of(network), one, half) + passes.attention(layers_of(network), one, half))
    assert next(micro_batches(network, asked, ids, Room(room, passes.HALF)))[0] == slice(0, 3)
    assert next(micro_batches(network, asked, ids, Room(room)))[0] != slice(0, 3)


def sides(rollout):
    return rollout.prompts.ids.shape[1], rollout.ids.shape[1]


@pytest.mark.parametrize("algorithm, module", [("grpo", online), ("dpo", preference), ("sft", sft)])
def test_the_record_of_that_step_says_so_and_a_checkpoint_keeps_it(algorithm, module, monkeypatch, tmp_path):
    started = session(algorithm, steps=2)
    if algorithm == "dpo":
        started.pairs = PAIRS
    short_of_memory(monkeypatch, module, after=0)
    first, second = records(started)
    assert len(first.notes) == 1 and second.notes == () and started.halvings == 1
    started.save(tmp_path)
    again = session(algorithm, steps=2, resume=tmp_path)
    assert again.halvings == 1 and again.room == Room(passes.OF_SMALL, halvings=1)


@pytest.mark.parametrize("copied", [lambda started: apart(started, 3), lambda started: replace(started, notes=[])],
                         ids=["an evaluation", "a picture"])
def test_what_an_evaluation_or_a_picture_halves_stays_halved(copied):
    started = session("grpo", steps=1)
    copied(started).halve_micro_batches()
    assert started.halvings == 1 and started.room.halvings == 1
    [record] = records(started)
    assert [note.split(":")[0] for note in record.notes] == ["The device's memory was short"]


def test_a_reward_model_s_passes_too(monkeypatch):
    started, real, calls = session("reward_model"), reward_model.last_values, []

    def last_values(*given):
        calls.append(given)
        if len(calls) == 1:
            raise torch.OutOfMemoryError("out of memory")
        return real(*given)
    monkeypatch.setattr(reward_model, "last_values", last_values)
    assert reward_model.update(started, PAIRS)["grad_norm"] > 0 and started.halvings == 1


def test_a_second_time_in_one_update_ends_the_run_in_words(monkeypatch):
    started = session("grpo", steps=1)
    short_of_memory(monkeypatch, online, failures=9, after=0)
    with pytest.raises(torch.OutOfMemoryError) as raised:
        records(started)
    assert started.halvings == 1
    assert says(ending(raised.value, "a-run", 3)[1], "out of memory", "step 3", "use a smaller model")
