"""Each prompt computed once, with padding and with gradient, gives what every row run whole and alone gives."""

import pytest
import torch

from labcore.llm.nets import forward
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.forward import completion_outputs, extend, plain, positions, prefill, shared, shares_prefixes
from tests.every import now
from tests.llm.tools import CACHED, CACHELESS, LENGTHS, alone, completion_ids, model, prompts

GROUP, LENGTH = 3, 5
EXACT = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture
def asked():
    return prompts()


@pytest.fixture
def ids():
    return completion_ids(len(LENGTHS) * GROUP, LENGTH)


def critic_of(kind: str) -> Critic:
    """A critic with a head that says something: it starts at zero."""
    critic = Critic(model(kind))
    torch.nn.init.normal_(critic.head.weight, generator=torch.Generator().manual_seed(3))
    return critic


def gradient(network, path, asked, ids):
    """The gradient of a random weighing of all outputs, as one vector."""
    network.zero_grad(set_to_none=True)
    outputs = path(network, asked, ids)
    weighing = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(2))
    (outputs * weighing).sum().backward()
    return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])


@pytest.mark.parametrize("make", [model, critic_of])
@pytest.mark.parametrize("kind", CACHED)
def test_shared_is_plain_is_alone(kind, make, asked, ids):
    network = make(kind)
    assert shares_prefixes(network)
    expected = alone(network, asked, ids)
    assert expected.std() > 0.1
    torch.testing.assert_close(plain(network, asked, ids), expected, **EXACT)
    torch.testing.assert_close(shared(network, asked, ids), expected, **EXACT)


@pytest.mark.parametrize("make, kind", now([(make, kind) for make in (model, critic_of) for kind in CACHED],
                                           (model, "gpt2"), (critic_of, "llama")))
def test_the_gradient_flows_through_the_prompt(kind, make, asked, ids):
    network = make(kind)
    expected = gradient(network, alone, asked, ids)
    for path in (shared, plain):
        assert (gradient(network, path, asked, ids) - expected).norm() < 1e-5 * expected.norm()


@pytest.mark.parametrize("kind", CACHED)
def test_what_is_masked_is_not_read(kind, asked, ids):
    network = model(kind)
    before = shared(network, asked, ids)
    asked.ids[~asked.mask] = 5
    assert torch.equal(shared(network, asked, ids), before)
    asked.mask[:] = True
    assert not torch.allclose(shared(network, asked, ids), before, **EXACT)


@pytest.mark.parametrize("group_size, length", [(1, LENGTH), (GROUP, 1), (1, 1)])
def test_the_smallest_shapes(group_size, length, asked):
    network, ids = model(), completion_ids(len(LENGTHS) * group_size, length)
    for path in (shared, plain, completion_outputs):
        torch.testing.assert_close(path(network, asked, ids), alone(network, asked, ids), **EXACT)


@pytest.mark.parametrize("kind", CACHED)
def test_token_by_token_is_the_whole(kind, asked, ids):
    """What the sampler does: a prefill, then one token at a time."""
    network = model(kind)
    with torch.no_grad():
        first, cache = prefill(network, asked, GROUP)
        mask, outputs = asked.mask.repeat_interleave(GROUP, 0), [first]
        outputs += [extend(network, ids[:, seen:seen + 1], mask, seen, cache) for seen in range(LENGTH - 1)]
    torch.testing.assert_close(torch.cat(outputs, 1), alone(network, asked, ids).detach(), **EXACT)


@pytest.mark.parametrize("kind", CACHELESS)
def test_models_without_such_a_cache_take_the_plain_path(kind, asked, ids, monkeypatch):
    networks = [model(kind), critic_of(kind)]
    assert not any(map(shares_prefixes, networks))
    monkeypatch.setattr(forward, "shared", lambda *_: pytest.fail("the cache of this model cannot be repeated"))
    unpadded = prompts([4, 4, 4])
    for network in networks:
        outputs = completion_outputs(network, unpadded, ids)
        torch.testing.assert_close(outputs, alone(network, unpadded, ids), **EXACT)


def test_models_that_can_share_do(asked, ids, monkeypatch):
    monkeypatch.setattr(forward, "plain", lambda *_: pytest.fail("the prompts were to be computed once"))
    assert completion_outputs(model(), asked, ids).shape == (len(ids), LENGTH, 11)


def test_positions():
    mask = torch.tensor([[False, False, True, True], [True, True, True, True]])
    assert positions(mask).tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]


def test_weights_are_rounded_inside_and_themselves_again_after():
    network = model()
    before = list(network.parameters())
    with forward.precision(network, "fp32"):
        assert all(one is other for one, other in zip(network.parameters(), before, strict=True))
    with pytest.raises(ZeroDivisionError), forward.precision(network, "bf16"):
        assert {weight.dtype for weight in network.parameters()} == {torch.bfloat16}
        raise ZeroDivisionError
    assert all(one is other for one, other in zip(network.parameters(), before, strict=True))
    assert {weight.dtype for weight in network.parameters()} == {torch.float32}
