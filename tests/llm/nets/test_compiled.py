"""A compiled update is the plain one, and compiles nothing anew for another length."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch._dynamo.utils import counters

from labcore.errors import LabError
from labcore.llm.nets import compiled, forward, head
from labcore.llm.nets.forward import at_tokens
from labcore.maths.logprobs import logprobs_and_entropy
from labcore.runs.spec.run_spec import make
from tests.llm.tools import LENGTHS, completion_ids, model, prompts, records, session

MEASURE = partial(logprobs_and_entropy, temperature=0.7)


@pytest.fixture
def traced(monkeypatch):
    """torch.compile without the compiler: what it would compile is found and run as it is."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    compiled._compiled.cache_clear()
    counters.clear()
    yield
    compiled._compiled.cache_clear()
    torch._dynamo.reset()


def found(network, length, group=3):
    """Log-probs, entropies and gradients."""
    network.zero_grad(set_to_none=True)
    ids = completion_ids(group * len(LENGTHS), length)
    outputs = at_tokens(network, prompts(), ids, MEASURE)
    sum(each.square().sum() for each in outputs).backward()
    return *outputs, *(weight.grad for weight in network.parameters() if weight.requires_grad)


@pytest.mark.long
def test_the_trunk_and_what_is_measured_are_compiled_once_for_all_lengths(traced, monkeypatch):
    network, graphs = model("qwen2"), []
    network.config.num_hidden_layers = 1  # transformers runs as many of its layers
    network.model.layers[1].requires_grad_(False)
    for length in (5, 9):  # not as many tokens in a row as there are rows: that would be a shape of its own
        expected = found(network, length)
        for chunk in (2**26, 70):
            monkeypatch.setattr(head, "MAX_ELEMENTS", chunk)
            compiled.mark(network, True)
            got = found(network, length)
            compiled.mark(network, False)
            for one, other in zip(got, expected, strict=True):
                assert (one - other).norm() < 1e-5 * other.norm()
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] >= 2 and graphs[-1] == graphs[0], "the trunk, and the log-probs of whole logits and of chunks"
    assert not counters["graph_break"]


def test_a_run_compiles_what_learns_and_nothing_else(traced, monkeypatch):
    monkeypatch.setattr(compiled, "check", lambda device: None)
    ways, real = [], forward.way
    monkeypatch.setattr(forward, "way", lambda *given: ways.append(real(*given)) or ways[-1])
    started = session("ppo", steps=1, compile=True)
    assert compiled.marked(started.policy) and compiled.marked(started.critic)
    assert not compiled.marked(started.reference)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compiled, "_compiled", lambda function: function)  # it has been shown above
        metrics = records(started)[0].metrics
    assert set(ways) == {"causal"} and metrics["grad_norm"] == pytest.approx(
        records(session("ppo", steps=1))[0].metrics["grad_norm"], rel=1e-4)


def test_a_fork_compiles_what_it_says_and_not_what_its_parent_did(monkeypatch):
    monkeypatch.setattr(compiled, "check", lambda device: None)
    parent = session("sft", compile=True)
    spec = session("dpo", compile=False).spec
    forked = parent.fork(replace(spec, parent=("a-run", 0)))
    assert not any(compiled.marked(model) for model in forked.models.values())


def test_layers_that_are_computed_again_are_not_compiled():
    with pytest.raises(LabError, match="`compile` and `gradient_checkpointing` do not go together"):
        make(algorithm_key="grpo", task_key="sort", knobs={"compile": True, "gradient_checkpointing": True})


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_compiled_run_is_the_plain_one(dtype):
    plain, other = (records(session("grpo", steps=3, dtype=dtype, updates_per_batch=2, compile=on))
                    for on in (False, True))
    within = {"rel": 1e-3, "abs": 1e-5} if dtype == "fp32" else {"rel": 5e-2, "abs": 1e-3}  # on policy the loss is 0
    for one, two in zip(plain, other, strict=True):
        for key in ("loss", "grad_norm", "entropy"):
            assert two.metrics[key] == pytest.approx(one.metrics[key], **within)
