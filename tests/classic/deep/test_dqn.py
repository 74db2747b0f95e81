import copy
import dataclasses

import pytest
import torch

from labcore.classic.deep.dqn import epsilon_greedy, huber, linear_epsilon, mse, n_step, polyak, target, update
from labcore.classic.deep.experience import Batch, Replay, Transitions
from labcore.classic.deep.networks import MLP, parameters
from labcore.classic.deep.rollout import collect
from tests.every import now


@pytest.fixture
def reference(golden):
    data = golden("sb3_dqn")
    return {key: torch.tensor(value) if isinstance(value, list) else value for key, value in data.items()}


def test_target_loss_and_gradient_are_those_of_the_reference(reference, close):
    q, dones = reference["q"].requires_grad_(), reference["dones"].bool()
    targets = target(reference["rewards"], dones, reference["q_target_next"], reference["gamma"])
    close(targets, reference["target_q"])
    taken = q.gather(1, reference["actions"].unsqueeze(1)).squeeze(1)
    close(taken, reference["current_q"])
    loss = huber(taken, targets)
    close(loss, reference["smooth_l1_loss"])
    loss.backward()
    close(q.grad, reference["grad_q"])


def test_double_chooses_with_one_network_and_values_with_the_other(close):
    rewards, ended = torch.tensor([1.0, 1.0]), torch.tensor([False, True])
    slow, fast = torch.tensor([[5.0, 2.0], [5.0, 2.0]]), torch.tensor([[0.0, 3.0], [0.0, 3.0]])
    close(target(rewards, ended, slow, 0.5), [3.5, 1.0])
    close(target(rewards, ended, slow, 0.5, fast), [2.0, 1.0])


def test_the_losses_agree_near_zero_and_part_beyond_one(close):
    near, far, zero = torch.tensor([0.5, -0.3]), torch.tensor([3.0]), torch.zeros(1)
    close(huber(near, torch.zeros(2)), mse(near, torch.zeros(2)))
    close(huber(far, zero), 2.5)
    close(mse(far, zero), 4.5)


def test_polyak(reference, close, generator):
    known = reference["polyak"]
    slow, fast = (torch.nn.Linear(3, 1, bias=False) for _ in range(2))
    slow.weight.data, fast.weight.data = (torch.tensor([known[name]]).float() for name in ("target", "params"))
    polyak(slow, fast, known["tau"])
    close(slow.weight, [known["result"]])
    network = MLP((3, 4, 2), generator)
    other = copy.deepcopy(network)
    polyak(other, MLP((3, 4, 2), generator), 0.0)
    assert all(map(torch.equal, other.parameters(), network.parameters()))


def test_epsilon_schedule(reference):
    known = reference["epsilon_schedule"]
    for remaining, epsilon in known["progress_remaining_to_eps"]:
        ours = linear_epsilon(1 - remaining, known["initial"], known["final"], known["exploration_fraction"])
        assert ours == pytest.approx(epsilon, abs=1e-12)
    assert linear_epsilon(0.0, 1.0, 0.1, 0.0) == pytest.approx(0.1)


def test_epsilon_greedy_explores_evenly(generator):
    q = torch.tensor([0.0, 0.0, 1.0, 0.0]).expand(40_000, 4)
    actions = epsilon_greedy(0.4)(q, torch.rand(40_000, generator=generator))
    shares = torch.bincount(actions, minlength=4) / 40_000
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.1, 0.7, 0.1]), atol=0.01, rtol=0)
    assert (epsilon_greedy(0.0)(q, torch.zeros(40_000)) == 2).all()


def batch(first, terminated, truncated):
    """Steps that are numbered from `first`, one environment; each is its own reward."""
    count = len(terminated)
    numbers = torch.arange(first, first + count).float().view(-1, 1)
    ends = [torch.tensor(flags, dtype=torch.bool).view(-1, 1) for flags in (terminated, truncated)]
    return Batch(numbers.unsqueeze(-1), numbers.long(), numbers, numbers.unsqueeze(-1) + 1, *ends,
                 torch.ones(count, 1, dtype=torch.bool))


def singly(*steps):
    return n_step(batch(*steps), 1, 0.5)


def test_n_steps_end_with_the_episode_and_with_the_rollout(close):
    """Steps 1 to 7; the second ends an episode, the fourth runs out of time."""
    made = batch(1, [False, True, *[False] * 5], [False] * 3 + [True] + [False] * 3)
    found = n_step(made, 3, 0.5)
    close(found.rewards[:, 0], [1 + 2 / 2, 2, 3 + 4 / 2, 4, 5 + 6 / 2 + 7 / 4, 6 + 7 / 2, 7])
    assert found.next_observations[:, 0, 0].tolist() == [3, 3, 5, 5, 8, 8, 8]
    assert found.terminated[:, 0].tolist() == [True, True, False, False, False, False, False]
    assert found.spans[:, 0].tolist() == [2, 1, 2, 1, 3, 2, 1]
    single = n_step(made, 1, 0.5)
    assert all(torch.equal(getattr(single, name), getattr(made, name)) for name in Transitions._fields[:-1])
    assert (single.spans == 1).all()


def test_a_time_limit_is_not_an_end(reference):
    """The buffer keeps what the reference samples: ends that are no time-outs."""
    known = reference["replay_buffer_timeouts"]
    timeouts = [bool(flag) for flag in known["TimeLimit_truncated"]]
    ends = [bool(flag) and not timeout for flag, timeout in zip(known["done_flag"], timeouts, strict=True)]
    replay = Replay(8, 1, torch.device("cpu"))
    replay.add(singly(0, ends, timeouts))
    assert replay.tensors()["terminated"].tolist() == [bool(flag) for flag in known["sampled_dones"]]


def test_states_are_kept_as_their_numbers(generator):
    """What is drawn is bit for bit what whole rows would give, also from a checkpoint that has them."""
    seen, following = torch.randint(7, (2, 6, 1), generator=generator)
    made = dataclasses.replace(batch(0, [False] * 6, [False] * 6), observations=torch.eye(7)[seen],
                               next_observations=torch.eye(7)[following])
    plain, packed, old = (Replay(5, 7, torch.device("cpu"), states) for states in (False, True, True))
    for one in (plain, packed):
        one.add(n_step(made, 1, 0.5))
    old.restore(plain.tensors())
    assert packed.tensors()["observations"].shape == (5,)
    for one in (packed, old):
        drawn = (each.sample(20, torch.Generator().manual_seed(1)) for each in (plain, one))
        assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(*drawn, strict=True))


def test_the_oldest_are_forgotten_and_the_rest_come_back(generator):
    replay = Replay(5, 1, torch.device("cpu"))
    replay.add(singly(0, [False] * 3, [False] * 3))
    assert len(replay) == 3 and set(replay.sample(50, generator).actions.tolist()) == {0, 1, 2}
    replay.add(singly(3, [False] * 4, [False] * 4))
    assert set(replay.sample(200, generator).actions.tolist()) == {2, 3, 4, 5, 6}
    drawn = replay.sample(50, generator)
    assert torch.equal(drawn.next_observations[:, 0], drawn.actions + 1.0)
    other = Replay(5, 1, torch.device("cpu"))
    other.restore(replay.tensors())
    for one in (replay, other):
        one.add(singly(7, [True], [False]))
    assert all(torch.equal(value, other.tensors()[key]) for key, value in replay.tensors().items())
    other.add(singly(20, [False] * 12, [False] * 12))  # more than fits
    assert sorted(other.tensors()["actions"].tolist()) == [27, 28, 29, 30, 31]


def test_the_first_update_moves_q_towards_its_target(start):
    """Turn the sign of the loss, and this turns too."""
    session = start("dqn", {"gradient_steps": 1, "learning_rate": 1e-3, "td_loss": "mse"})
    next(session.run())
    data = session.replay.sample(64, session.generator)
    targets = target(data.rewards, data.terminated, session.networks["target"](data.next_observations),
                     0.99**data.spans).detach()

    @torch.no_grad()
    def error():
        return float(mse(session.networks["q"](data.observations).gather(1, data.actions[:, None])[:, 0], targets))
    before = error()
    for _ in range(20):
        update(session, data)
    assert error() < 0.9 * before


@pytest.mark.parametrize(("td_loss", "expected"), [("huber", 99.5), ("mse", 5000.0)])
def test_the_kind_of_loss_is_the_one_that_the_knob_names(start, td_loss, expected):
    """Every transition is an end with reward 100 while Q is 0: δ = −100, |δ| − ½ = 99.5, ½δ² = 5000."""
    session = start("dqn", {"td_loss": td_loss})
    with torch.no_grad():
        for weight in session.networks["q"].parameters():
            weight.zero_()
    seen = torch.zeros(6, 4)
    data = Transitions(seen, torch.zeros(6, dtype=torch.long), torch.full((6,), 100.0), seen,
                       torch.ones(6, dtype=torch.bool), torch.ones(6, dtype=torch.long))
    loss, error, _, _ = update(session, data)
    assert (loss, error) == (pytest.approx(expected), 100)


@pytest.mark.parametrize(("knobs", "fixed_point"), now(
    [({}, 7.0), ({"td_loss": "mse"}, 7.0), ({"td_loss": "huber"}, 10 - 1 / 9)],
    ({}, 7.0), ({"td_loss": "huber"}, 10 - 1 / 9)))
def test_a_rare_end_counts_by_how_far_it_is_off(start, knobs, fixed_point):
    """Nine targets of 10 and one of −20 in one state. By default Q becomes their mean; with Huber's loss the one has
    the gradient of an error of 1: 9 (10 − Q) = 1.
    """
    session = start("dqn", {"learning_rate": 0.01, "anneal": False, "hidden": 16, **knobs})
    seen, rewards = torch.ones(10, 4), torch.tensor([10.0] * 9 + [-20.0])
    data = Transitions(seen, torch.zeros(10, dtype=torch.long), rewards, seen, torch.ones(10, dtype=torch.bool),
                       torch.ones(10, dtype=torch.long))
    for _ in range(300):
        _, _, q, _ = update(session, data)
    assert q == pytest.approx(fixed_point, abs=0.01)


@pytest.mark.parametrize(("double", "span", "target_of_s"), [
    (False, 1, 0.9 * 20), (True, 1, 0.9 * 10), (True, 3, 0.9**3 * 10)])
def test_an_update_learns_from_the_target_network(start, double, span, target_of_s):
    """Q = (1, 0) and Q_target = (10, 20) everywhere: plain takes Q_target's best, double the value of Q's best."""
    session = start("dqn", {"double": double, "gamma": 0.9, "td_loss": "mse", "layer_norm": False})
    for name, biases in (("q", [1.0, 0.0]), ("target", [10.0, 20.0])):
        with torch.no_grad():
            for weight in session.networks[name].parameters():
                weight.zero_()
            session.networks[name].layers[-1].bias.copy_(torch.tensor(biases))
    seen = torch.zeros(6, 4)
    data = Transitions(seen, torch.zeros(6, dtype=torch.long), torch.full((6,), 3.0), seen,
                       torch.zeros(6, dtype=torch.bool), torch.full((6,), span))
    _, error, mean, _ = update(session, data)
    assert (error, mean) == (pytest.approx(3 + target_of_s - 1), 1)


@pytest.mark.parametrize(("updates", "renewed"), [(2, False), (3, True)])
def test_the_target_network_is_renewed_every_so_many_updates(start, updates, renewed):
    session = start("dqn", {"gradient_steps": updates, "target_every": 3, "tau": 1.0, "learning_rate": 0.01})
    before = parameters(session.networks["target"])
    next(session.run())
    assert session.updates == updates
    assert torch.equal(parameters(session.networks["target"]), parameters(session.networks["q"])) is renewed
    assert torch.equal(parameters(session.networks["target"]), before) is not renewed


def test_it_learns_once_it_has_seen_enough(start):
    session = start("dqn", {"environments": 2, "learning_starts": 40}, steps=3)
    found = [(record.env_steps, session.updates) for record in session.run()]
    assert found == [(16, 0), (32, 0), (48, 4)]


def test_the_slow_copy_acts(start):
    session = start("dqn")
    with torch.no_grad():  # which now always takes action 1, while Q takes action 0
        for name, best in (("target", 1), ("q", 0)):
            session.networks[name].layers[-1].bias[best] += 1e6
    assert set(collect(session, 5, epsilon_greedy(0.0)).actions.flatten().tolist()) == {1}


def test_a_checkpoint_of_before_n_steps_has_single_ones():
    replay, other = (Replay(5, 1, torch.device("cpu")) for _ in range(2))
    replay.add(singly(0, [False] * 3, [False] * 3))
    other.restore({key: value for key, value in replay.tensors().items() if key != "spans"})
    assert all(torch.equal(value, other.tensors()[key]) for key, value in replay.tensors().items())
