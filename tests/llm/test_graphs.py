"""Recordings of decoding steps: one for each shape, trusted once they have proven true, freed in time, and where none
can be had the reason. On a processor, with `TapeRecorder` in the place of CUDA's graphs."""

import gc
import weakref
from functools import partial

import pytest
import torch

from labcore.llm import graphs
from labcore.llm.generation import Sampling, generate
from labcore.llm.graphs import IDLE, Graphs
from labcore.llm.nets.forward import precision
from labcore.llm.nets.lora import Lora
from labcore.llm.sampler import sample
from labcore.runs.store.store import Store
from labcore.tasks.task import Problem
from labcore.workers.worker import drive
from tests.every import now
from tests.llm import tools
from tests.llm.recorders import TapeRecorder, TapeRecording
from tests.llm.tools import prompts, quietly, records, session, shake, spec, weights
from tests.words import says

EOS, GROUP, LIMIT = 1, 4, 7
MUCH = 2**40
model = partial(tools.model, layers=1)
SLOWLY = "This model decodes step by step, not by a CUDA graph: "


@pytest.fixture
def recorder():
    return TapeRecorder()


@pytest.fixture
def recorded(recorder):
    return Graphs(recorder, MUCH)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def given(generator=None, limit=LIMIT, eos=EOS, temperature=1.0, top_k=0, top_p=1.0, greedy=False):
    return {"max_new_tokens": limit, "eos": eos, "generator": generator or seeded(), "temperature": temperature,
            "top_k": top_k, "top_p": top_p, "greedy": greedy}


def drawn(recorded, network, asked=None, dtype="fp32", group_size=GROUP, **knobs):
    return recorded.sample(network, asked or prompts(), group_size, dtype=dtype, **given(**knobs))


def stepwise(network, asked=None, dtype="fp32", **knobs):
    with precision(network, dtype):
        return sample(network, asked or prompts(), GROUP, **given(**knobs))


def assert_alike(got, expected, atol=2e-6):
    assert torch.equal(got.ids, expected.ids) and torch.equal(got.mask, expected.mask)
    assert torch.equal(got.truncated, expected.truncated)
    torch.testing.assert_close(got.logprobs, expected.logprobs, rtol=0, atol=atol)


# ---- what is drawn ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("knobs", now([{}, {"temperature": 0.5, "top_k": 4}, {"greedy": True}],
                                      {}, {"temperature": 0.5, "top_k": 4}))
def test_it_draws_what_the_sampler_draws(recorded, knobs):
    """In float64, at the first batch of a shape and at the next ones."""
    network = model(dtype=torch.float64)
    for seed in range(3):
        assert_alike(drawn(recorded, network, generator=seeded(seed), **knobs),
                     stepwise(network, generator=seeded(seed), **knobs))
    assert not recorded.notes


def test_rows_that_end_at_once_are_left_out_and_the_others_drawn_on(recorded):
    """A recording is compared up to each row's end only."""
    network = model("qwen2")
    first = stepwise(network, eos=-1).ids[:, 0]
    eos = int(first.mode().values)
    assert 3 <= (first == eos).sum() < len(first)
    assert_alike(drawn(recorded, network, eos=eos), stepwise(network, eos=eos), atol=1e-5)
    assert not recorded.notes


def test_the_runs_generator_is_drawn_from(recorded):
    """Batch after batch from where it stands, whichever generator it is; what made a recording draws nothing of it."""
    network, generator = model(), seeded()
    first, second = (drawn(recorded, network, generator=generator) for _ in range(2))
    assert not torch.equal(first.ids, second.ids)
    other = seeded(99)
    other.set_state(seeded().get_state())
    state = torch.random.get_rng_state()
    again = [drawn(Graphs(TapeRecorder(), MUCH), network, generator=other), drawn(recorded, network, generator=other)]
    assert all(torch.equal(got.ids, expected.ids) and torch.equal(got.logprobs, expected.logprobs)
               for got, expected in zip(again, (first, second), strict=True))
    assert torch.equal(other.get_state(), generator.get_state())
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("dtype, rank", now([("fp32", 0), ("bf16", 0), ("fp32", 2), ("bf16", 2)],
                                            ("fp32", 0), ("bf16", 2)))
def test_weights_are_those_of_now(recorded, recorder, dtype, rank):
    """What an optimizer, a checkpoint or a probe writes into them counts in the next batch, with no new recording."""
    network = model("qwen2")
    if rank:
        Lora(rank, 4, 0).put_on(network)
    state = {name: value.clone() for name, value in network.state_dict().items()}
    first = drawn(recorded, network, dtype=dtype)
    shake(network, by=0.3)
    got, expected = drawn(recorded, network, dtype=dtype), stepwise(network, dtype=dtype)
    same = (got.ids == expected.ids).cumprod(1).bool()  # in bfloat16 rounding turns a draw here and there
    assert same.float().mean() > (0.8 if dtype == "bf16" else 0.999) > (got.ids == first.ids).float().mean()
    assert (got.logprobs - expected.logprobs)[same].abs().mean() < (0.05 if dtype == "bf16" else 1e-5)
    network.load_state_dict(state)
    again = drawn(recorded, network, dtype=dtype)
    assert torch.equal(again.ids, first.ids) and torch.equal(again.logprobs, first.logprobs)
    assert len(recorder.made) == 1 and not recorded.notes


def test_in_bfloat16_the_model_is_left_as_it_was(recorded):
    network = model()
    held = [*network.parameters()]
    drawn(recorded, network, dtype="bf16")
    assert all(one is other and one.dtype == torch.float32
               for one, other in zip(held, network.parameters(), strict=True))


def test_weights_elsewhere_are_recorded_anew(recorded, recorder):
    network = model()
    drawn(recorded, network), drawn(recorded, network, top_k=2)
    network.lm_head.weight = torch.nn.Parameter(network.lm_head.weight * 3)
    assert_alike(drawn(recorded, network, temperature=2.0), stepwise(network, temperature=2.0), atol=1e-5)
    assert len(recorder.made) == 3 and len(recorder.alive) == 1


# ---- what is recorded, kept and freed -------------------------------------------------------------------------------


def test_a_shape_is_recorded_once(recorded, recorder):
    network = model()
    for knobs in ({}, {"temperature": 0.5}, {"limit": 20}, {"asked": prompts((9, 2, 1))}, {"eos": 5}):
        drawn(recorded, network, **knobs)
    assert len(recorder.made) == 1 and recorder.made[0].replays >= 6 + 6 + 1
    for knobs in ({"top_k": 3}, {"top_k": 5, "top_p": 0.4}, {"top_p": 0.9}):
        drawn(recorded, network, **knobs)
    assert len(recorder.made) == 2
    for knobs in ({"group_size": 2}, {"limit": 40}, {"greedy": True}, {"dtype": "bf16"}, {"asked": prompts((33,))}):
        drawn(recorded, network, **knobs)
    drawn(recorded, model(seed=1))
    assert len(recorder.made) == len(recorder.alive) == 8 and not recorded.notes


def test_the_least_used_go_where_there_is_not_the_memory(recorder):
    network = model()
    drawn(one := Graphs(recorder, MUCH), network)
    recorded = Graphs(recorder := TapeRecorder(), 2 * one.nbytes)
    for knobs in ({}, {"greedy": True}, {}, {"top_k": 2}, {}):  # a, b, a, c, a: b was used least
        drawn(recorded, network, **knobs)
        assert recorded.nbytes <= 2 * one.nbytes
    assert [each.freed for each in recorder.made] == [False, True, False]


def test_one_that_is_too_large_alone_stays_where_recording_takes_long(recorder):
    network = model("gpt2")
    small = Graphs(recorder, 1)
    drawn(small, network)
    assert_alike(drawn(small, network), stepwise(network), atol=1e-5)
    assert len(recorder.made) == 1, "it is not recorded at every batch"
    small.make_room()
    drawn(small, network)
    assert not recorder.alive and small.nbytes == 0, "but where memory was short it is not kept"


def test_the_lab_s_own_layers_are_recorded_for_each_batch_where_they_are_large(recorder, monkeypatch):
    """Without the first steps and the check that made sure of them; and it draws what one that stays draws."""
    network, small, large = model("qwen2"), Graphs(recorder, 1), Graphs(TapeRecorder(), MUCH)
    checked = []
    monkeypatch.setattr(graphs, "_check", lambda *given: checked.append(given))
    for seed in range(3):
        assert_alike(drawn(small, network, generator=seeded(seed)), drawn(large, network, generator=seeded(seed)))
        assert small.nbytes == 0 and not recorder.alive
    assert len(recorder.made) == 3 and len(checked) == 2 and not small.notes


def test_memory_is_that_of_the_buffers_and_the_rounded_weights(recorded):
    network = model("gpt2")
    drawn(recorded, network)
    rows, columns, layers, hidden = 12, 64, 1, 16
    assert recorded.nbytes == rows * (2 * layers * columns * hidden * 4 + columns * 4 + 32 * (8 + 4))
    before = recorded.nbytes
    drawn(recorded, network, dtype="bf16"), drawn(recorded, network, dtype="bf16", top_k=2)
    rounded = 2 * sum(weight.numel() for weight in network.parameters())
    assert recorded.nbytes == before + rounded + 2 * rows * (2 * layers * columns * hidden * 2 + columns * 2 + 32 * 12)


def test_where_memory_was_short_less_is_kept(recorder):
    network = model()
    drawn(one := Graphs(recorder, MUCH), network)
    recorded = Graphs(recorder := TapeRecorder(), 2 * one.nbytes)
    drawn(recorded, network), drawn(recorded, network, greedy=True)
    assert len(recorder.alive) == 2
    recorded.make_room()
    assert not recorder.alive
    drawn(recorded, network), drawn(recorded, network, greedy=True)
    assert len(recorder.alive) == 1


def test_what_no_batch_uses_any_more_is_freed(recorded, recorder):
    network, asked = model(), prompts((1,))
    drawn(recorded, network, asked)
    for _ in range(IDLE + 1):
        assert not recorder.made[0].freed
        drawn(recorded, network, asked, limit=2, greedy=True)
    assert [each.freed for each in recorder.made] == [True, False]


def test_freed_it_holds_nothing(recorded, recorder):
    network = model()
    drawn(recorded, network), drawn(recorded, network, top_k=3)
    decoder = weakref.ref(recorder.made[0].decoder)
    recorded.free()
    assert not recorder.alive and recorded.nbytes == 0
    recorder.made.clear()
    gc.collect()
    assert decoder() is None
    assert drawn(recorded, network) is not None and len(recorder.made) == 1


# ---- where there is no recording ------------------------------------------------------------------------------------


def test_a_model_without_a_cache_is_left_to_the_sampler(recorded, recorder):
    network = model("mamba")
    assert drawn(recorded, network, prompts((4, 4))) is None and drawn(recorded, network, prompts((4, 4))) is None
    assert drawn(recorded, model("openai-gpt"), prompts((4, 4))) is None
    (note,) = recorded.take_notes()
    assert says(note, SLOWLY, "no cache")
    assert not recorded.take_notes() and not recorder.made


def test_one_token_needs_no_step(recorded, recorder):
    assert drawn(recorded, model(), limit=1) is None and not recorder.made and not recorded.notes


def test_what_cannot_be_recorded_is_not_tried_again(recorded, recorder):
    network, generator = model(), seeded()
    drawn(recorded, network)
    recorder.failing = [RuntimeError("CUDA error: operation not permitted.\nCompile with")]
    assert drawn(recorded, network, generator=generator, top_k=3) is None
    assert torch.equal(generator.get_state(), seeded().get_state())
    assert [says(note, SLOWLY.strip(), "CUDA error: operation not permitted") for note in recorded.notes] == [True]
    assert drawn(recorded, network) is None and not recorder.alive
    assert drawn(recorded, model(seed=1)) is not None and len(recorded.notes) == 1


def test_short_memory_is_made_free_once(recorded, recorder):
    network = model()
    drawn(recorded, network)
    recorder.failing = [torch.OutOfMemoryError("CUDA out of memory")]
    assert_alike(drawn(recorded, network, top_k=3), stepwise(network, top_k=3), atol=1e-5)
    assert [each.freed for each in recorder.made] == [True, False] and not recorded.notes
    recorder.failing = [torch.OutOfMemoryError("CUDA out of memory")] * 2
    generator = seeded()
    assert drawn(recorded, network, generator=generator, limit=40) is None and not recorder.alive
    assert torch.equal(generator.get_state(), seeded().get_state())
    assert [says(note, SLOWLY.strip(), "too little memory") for note in recorded.notes] == [True]
    assert drawn(recorded, network, limit=50) is None and drawn(recorded, network) is not None


class Repeating(TapeRecording):
    """The generator was not registered: every replay draws the same numbers."""

    def replay(self):
        state = self.decoder.generator.get_state()
        super().replay()
        self.decoder.generator.set_state(state)


class Shifted(TapeRecording):
    """A step whose log-probs are not the model's."""

    def replay(self):
        super().replay()
        self.decoder.logprobs += 0.5


@pytest.mark.parametrize("wrong, said", [(Repeating, "the graph draws other tokens than the model"),
                                         (Shifted, "the graph's log-probs are 1.1 nats off the model's")])
def test_an_untrue_recording_is_not_used(wrong, said):
    recorded, generator = Graphs(recorder := TapeRecorder(wrong), MUCH), seeded()
    assert drawn(recorded, model(), generator=generator, limit=4, eos=-1) is None and not recorder.alive
    assert recorded.notes == [f"{SLOWLY}{said}."]
    assert torch.equal(generator.get_state(), seeded().get_state())


# ---- runs ------------------------------------------------------------------------------------------------------------


def on_tape(algorithm, **knobs):
    started = session(algorithm, **knobs)
    started.graphs = Graphs(TapeRecorder(), MUCH)
    return started


@pytest.mark.parametrize("algorithm, knobs", now(
    [("grpo", {"dtype": "bf16"}), ("ppo", {"top_k": 5}), ("remax", {})], ("remax", {})))
def test_a_run_is_repeatable_and_resumes_bit_for_bit(algorithm, knobs, tmp_path):
    whole, again = (on_tape(algorithm, steps=3, **knobs) for _ in range(2))
    run = (record for record in whole.run() if record is not None)
    expected = [next(run)]  # with pictures, whose samples are drawn by graphs, too
    whole.save(tmp_path)
    with quietly():
        expected += [*run]
    assert [each.metrics for each in records(again)] == [each.metrics for each in expected]
    resumed = on_tape(algorithm, steps=3, resume=tmp_path, **knobs)
    assert [each.metrics for each in records(resumed)] == [each.metrics for each in expected[1:]]
    assert torch.equal(weights(resumed.policy), weights(whole.policy))
    assert torch.equal(resumed.generator.get_state(), whole.generator.get_state())
    assert whole.graphs._recorder.made and not whole.graphs._recorder.alive and not whole.graphs.notes


def test_a_run_with_recordings_is_the_run_without():
    """But for the rounding of log-probs."""
    for with_tape, without in zip(records(on_tape("grpo", steps=2)), records(session("grpo", steps=2)), strict=True):
        for key in ("reward", "kl", "entropy", "grad_norm"):
            assert with_tape.metrics[key] == pytest.approx(without.metrics[key], abs=1e-4), key


def test_generating_falls_back():
    started = on_tape("grpo")
    plain = session("grpo")
    started.graphs._recorder.failing = [RuntimeError("no")]
    problems = [Problem("abc=", "abc"), Problem("b=", "b")]
    got, expected = (generate(each, each.policy, problems, 4, Sampling()) for each in (started, plain))
    assert torch.equal(got.completions.logprobs, expected.completions.logprobs) and got.texts == expected.texts
    assert not plain.standing
    assert [says(each, SLOWLY, "recorded (no)") for each in started.standing] == [True]


def test_on_a_processor_nothing_is_recorded():
    assert graphs.of_device(torch.device("cpu")) is None and session("grpo").graphs is None


def test_the_run_says_why_it_decodes_step_by_step(monkeypatch):
    recorder = TapeRecorder()
    recorder.failing = [RuntimeError("no")]
    monkeypatch.setattr("labcore.llm.session.of_device", lambda device: Graphs(recorder, MUCH))
    store = Store()
    run_id = store.create(spec("grpo", steps=3, sft_steps=0))
    assert drive(store, run_id) == "finished"
    said = [event for event in store.events_after(run_id) if event.kind == "note" and SLOWLY in event.payload["text"]]
    assert [(event.step, says(event.payload["text"], "recorded (no)")) for event in said] == [(1, True)]
