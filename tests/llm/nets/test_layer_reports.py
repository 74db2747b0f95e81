"""Passes over large batches report each layer, forward and backward, and stay the same numbers."""

import pytest
import torch

from labcore.llm.nets import layer_reports
from labcore.llm.nets.forward import at_tokens
from labcore.llm.nets.llama import supported
from labcore.llm.sampler import sample
from labcore.maths.logprobs import logprobs_and_entropy
from labcore.runs.spec import activity
from tests.llm import tools


def learnt(network):
    """The log-probs of some completions, and the gradient of their sum."""
    asked, ids = tools.prompts(), tools.completion_ids(6, 4)
    logprobs, _ = at_tokens(network, asked, ids, logprobs_and_entropy)
    logprobs.sum().backward()
    return [logprobs.detach(), *(weight.grad for weight in network.parameters() if weight.grad is not None)]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt_neox"])
def test_each_layer_is_reported_both_ways_and_no_number_changes(kind, monkeypatch):
    assert supported(tools.model("llama")) and not supported(tools.model("qwen2"))
    quiet, heard = learnt(tools.model(kind)), []
    monkeypatch.setattr(layer_reports, "LEAST", 0)
    with activity.listening(lambda *said: heard.append(str(activity.now(*said)))):
        loud = learnt(tools.model(kind))
    assert [said for said in heard if "layer" in said] == [
        "layer 1 of 2", "layer 2 of 2", "backward pass, layer 2 of 2", "backward pass, layer 1 of 2"]
    assert all(torch.equal(one, other) for one, other in zip(quiet, loud, strict=True))


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_before_the_first_token_the_pass_over_the_prompts_reports(kind, monkeypatch):
    heard = []
    monkeypatch.setattr(layer_reports, "LEAST", 0)
    with activity.listening(lambda *said: heard.append(str(activity.now(*said)))):
        sample(tools.model(kind), tools.prompts(), 2, max_new_tokens=2, eos=(0,), generator=torch.Generator())
    assert heard[:4] == ["sampling 0 of 2 tokens", "layer 1 of 2", "layer 2 of 2", "sampling 0 of 2 tokens"]


def test_small_passes_say_nothing():
    heard = []
    with activity.listening(lambda *said: heard.append(said)):
        learnt(tools.model())
    assert heard == []


class Left(BaseException):
    """As a worker raises it where a step is left."""


@pytest.mark.parametrize("words", ["layer {} of {}", "backward pass, layer {} of {}"])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_pass_can_be_left_at_a_layer_and_leaves_nothing_behind(kind, words, monkeypatch):
    monkeypatch.setattr(layer_reports, "LEAST", 0)
    network = tools.model(kind)

    def leave(said, *_):
        if said == words:
            raise Left
    with activity.listening(leave), pytest.raises(Left):
        learnt(network)
    assert not any(part._forward_hooks for part in network.modules())
