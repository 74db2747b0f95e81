"""An update from the sampler's products gives what an update by its own products gives."""

from dataclasses import replace

import pytest
import torch

from labcore.llm import generation
from labcore.llm.loops import online
from labcore.llm.nets import llama, tape
from labcore.llm.nets.forward import plain
from labcore.llm.nets.packed import pack
from labcore.llm.nets.tape import Tape
from labcore.llm.sampler import sample
from labcore.llm.sizing import passes
from tests.every import now
from tests.llm.nets.test_llama import SHAPES, network, output_and_gradients
from tests.llm.tools import LENGTHS, VOCABULARY, prompts, records, session, weights


def sampled(model, asked, group_size, length, **given):
    recorded = Tape()
    drawn = sample(model, asked, group_size, max_new_tokens=length, eos=1, generator=torch.Generator().manual_seed(0),
                   tape=recorded, **given)
    return drawn, recorded


@pytest.mark.parametrize("group_size, length, given", now(
    [(4, 6, {}), (4, 6, {"top_k": 2}), (1, 5, {}), (3, 2, {}), (3, 1, {}), (4, 6, {"greedy": True}),
     (4, 9, {"temperature": 3.0})], (4, 6, {"top_k": 2}), (4, 9, {"temperature": 3.0})),
    ids=["apart", "alike at first", "one of each", "two tokens", "one token", "all alike", "many end"])
@pytest.mark.parametrize("lengths", now([[*LENGTHS], [4, 4, 4]], [*LENGTHS]), ids=["padded", "unpadded"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_outputs_and_every_gradient(shape, lengths, group_size, length, given):
    model, asked = network(**shape).double(), prompts(lengths)
    drawn, recorded = sampled(model, asked, group_size, length, **given)
    assert recorded and drawn.ids.shape[1] <= length

    def outputs(tape=None):
        def counted(model, asked, ids):
            return llama.outputs(model, asked, ids, tape, drawn.extents) * drawn.mask[..., None]
        return output_and_gradients(counted, model, asked, drawn.ids)
    (expected, gradients), (output, ours) = outputs(), outputs(recorded)
    whole = plain(model, asked, drawn.ids) * drawn.mask[..., None]
    torch.testing.assert_close(expected, whole, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)
    for name, gradient in gradients.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-9, atol=1e-9, msg=name)
    assert not recorded._products, "what was taken is held no longer"


def test_completions_that_begin_alike_share_what_one_of_them_gave():
    model, asked = network(), prompts()
    ids = sampled(model, asked, 4, 6, top_k=2)[0].ids
    assert pack(asked, ids).outputs - 1 < ids[:4, 1:].numel()


def test_sampling_ends_early_when_all_completions_have():
    model, asked = network(), prompts()
    with torch.no_grad():
        model.lm_head.weight[1] *= 6  # the end token's
    lengths = {sampled(model, asked, 2, 20, temperature=heat)[0].ids.shape[1] for heat in (0.5, 1.0, 2.0)}
    assert min(lengths) < 20
    drawn, recorded = sampled(model, asked, 2, 20, temperature=0.5)
    found = llama.outputs(model, asked, drawn.ids, recorded, drawn.extents)
    assert torch.allclose(found[drawn.mask], llama.outputs(model, asked, drawn.ids)[drawn.mask], atol=1e-5)


def test_nothing_that_is_on_the_tape_is_computed_again(monkeypatch):
    model, asked = network(), prompts()
    drawn, recorded = sampled(model, asked, 3, 5)
    real = tape.product

    def product(x, *others):
        assert len(x) == VOCABULARY, "only products of the first layer, with one row per token of the vocabulary"
        return real(x, *others)
    monkeypatch.setattr(tape, "product", lambda *_, **__: pytest.fail("a product was computed"))
    monkeypatch.setattr(llama, "product", product)
    llama.outputs(model, asked, drawn.ids, recorded, drawn.extents).sum().backward()


def test_recording_changes_no_draw():
    model, asked = network(), prompts()
    drawn = sample(model, asked, 4, max_new_tokens=6, eos=1, generator=torch.Generator().manual_seed(0))
    assert torch.equal(sampled(model, asked, 4, 6)[0].ids, drawn.ids)


@pytest.fixture
def narrow(monkeypatch):
    """The tests' networks, too, are wide enough."""
    monkeypatch.setattr(generation, "LEAST_WIDTH", 1)


def tapes_of(monkeypatch, **given):
    """How many products were on the tape of each update of a run."""
    found, real = [], online.at_tokens

    def at_tokens(model, prompts, ids, measure, norms=None, tape=None, *others):
        found.append(len(tape or ()))
        return real(model, prompts, ids, measure, norms, tape, *others)
    monkeypatch.setattr(online, "at_tokens", at_tokens)
    records(session(**given))
    return found


OF_A_STEP = 4  # products on the tape: the one layer of the tests' model has all but q, k and v


@pytest.mark.usefixtures("narrow")
def test_the_first_update_of_each_step_takes_it_and_no_other(monkeypatch):
    assert tapes_of(monkeypatch, algorithm="grpo", steps=2) == 2 * [OF_A_STEP]
    assert tapes_of(monkeypatch, algorithm="grpo", steps=2, updates_per_batch=3) == 2 * [OF_A_STEP, 0, 0]


def test_narrow_networks_record_none(monkeypatch):
    assert set(tapes_of(monkeypatch, algorithm="grpo", steps=1)) == {0}


@pytest.mark.usefixtures("narrow")
def test_where_nothing_is_to_be_learnt_rounding_moves_no_weight():
    given = {"algorithm": "grpo", "letters": False, "steps": 2}  # random weights, which earn nothing
    still = session(**given)
    before = weights(still.policy)
    assert all(record.metrics["grad_norm"] == 0 for record in records(still))
    assert torch.equal(weights(still.policy), before)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("given", [
    {"algorithm": "grpo", "mini_batches": 2}, {"algorithm": "grpo", "dtype": "bf16"},
    {"algorithm": "dapo"}, {"algorithm": "grpo", "gradient_checkpointing": True},
    {"algorithm": "grpo", "top_entropy_share": 0.5}],
    ids=["the first update is on a part", "sampler and trainer round differently", "groups of several rounds",
         "layers are computed twice", "entropies are compared with those of another pass"])
def test_runs_whose_updates_cannot_take_it_record_none(given, monkeypatch):
    assert set(tapes_of(monkeypatch, **given, steps=1)) == {0}


@pytest.mark.usefixtures("narrow")
def test_a_batch_of_several_micro_batches_records_none(monkeypatch):
    monkeypatch.setattr(passes, "ON_PROCESSOR", 1)
    found = tapes_of(monkeypatch, algorithm="grpo", steps=1)
    assert len(found) == 4 and set(found) == {0}


@pytest.mark.usefixtures("narrow")
def test_an_attempt_that_broke_off_leaves_nothing_to_take(monkeypatch):
    started, real, calls = session("grpo", steps=1, prompts_per_step=1), llama.attend_rows, []

    def attend_rows(*args):
        calls.append(torch.is_grad_enabled())
        if sum(calls) == 1:  # in the first update, after the first of its products
            raise torch.OutOfMemoryError("out of memory")
        return real(*args)
    monkeypatch.setattr(llama, "attend_rows", attend_rows)
    [record] = records(started)
    assert started.halvings == 1 and record.metrics["grad_norm"] > 0 and sum(calls) == 2


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("algorithm", now(["grpo", "ppo", "remax"], "ppo"))
def test_a_run_learns_the_same_with_and_without(algorithm, monkeypatch):
    given = {"algorithm": algorithm, "steps": 3, "learning_rate": 1e-3, "mini_batches": 1, "temperature": 0.8}
    given = {key: value for key, value in given.items() if key != "mini_batches" or algorithm == "ppo"}
    taken, plain = session(**given), session(**given)
    begin, ours = weights(taken.policy), records(taken)
    monkeypatch.setattr(generation, "_usable", lambda *_: False)
    theirs = records(plain)
    moved = weights(plain.policy) - begin
    assert moved.norm() > 0 and (weights(taken.policy) - weights(plain.policy)).norm() < 1e-3 * moved.norm()
    for one, other in zip(ours, theirs, strict=True):
        assert one.metrics == pytest.approx(other.metrics, rel=1e-3, abs=1e-5)
        assert replace(one, metrics={}, look=None) == replace(other, metrics={}, look=None)
