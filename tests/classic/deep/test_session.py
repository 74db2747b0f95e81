import dataclasses
import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from labcore.catalog.cartpole import ALGORITHMS
from labcore.classic.deep import session as sessions
from labcore.classic.deep.distributions import Categorical
from labcore.classic.deep.evaluation import evaluate, load, play
from labcore.classic.deep.networks import MLP, parameters
from labcore.classic.deep.rollout import collect
from labcore.classic.deep.session import DeepSession
from labcore.classic.envs.cartpole import TorchCartPole
from labcore.errors import Diverged, LabError
from labcore.runs.spec.run_spec import make
from tests.every import now
from tests.words import says


@pytest.mark.parametrize("method", ALGORITHMS)
def test_a_run_again_and_its_resumption(start, tmp_path, method):
    """The same records bit for bit: started again, and saved at step 2 and loaded, whatever the global random state."""
    torch.manual_seed(0)
    session = start(method, steps=3)
    records = []
    for record in session.run():
        records.append(record)
        if record.step == 2:
            session.save(tmp_path)
    assert [record.step for record in records] == [1, 2, 3]
    assert "3 steps" in session.finished_because
    json.dumps([dataclasses.asdict(dataclasses.replace(record, look=None)) for record in records], allow_nan=False)
    torch.manual_seed(1)
    twin = start(method, steps=3)
    assert list(twin.run()) == records
    resumed = start(method, steps=3, resume=tmp_path)
    assert list(resumed.run()) == records[2:]
    same = session.tensors()
    for other in (twin, resumed):
        assert all(torch.equal(value, same[key]) for key, value in other.tensors().items())
        assert other.values() == session.values()
    assert next(start(method, seed=2).run()) != records[0]


@pytest.mark.parametrize("method", ["ppo", "dqn"])
def test_a_resumed_world_that_is_stepped_singly(start, tmp_path, method):
    session = start(method, task="FrozenLake-v1")
    records = session.run()
    next(records)
    session.save(tmp_path)
    assert list(start(method, task="FrozenLake-v1", resume=tmp_path).run()) == list(records)


@pytest.mark.parametrize("task", now(["Acrobot-v1", "MountainCar-v0", "CliffWalking-v1", "Taxi-v4"],
                                     "Acrobot-v1", "Taxi-v4"))
def test_other_environments_run(start, task):
    for method in ("ppo", "dqn"):
        record = next(start(method, {"rollout_steps": 4, "environments": 1}, task=task, steps=1).run())
        assert math.isfinite(record.metrics["eval_return"])


def test_a_broken_checkpoint_is_said(start, tmp_path):
    session = start("ppo")
    session.save(tmp_path)
    with pytest.raises(LabError, match="cannot be read"):
        start("ppo", {"hidden": 8}, resume=tmp_path)
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(LabError, match="cannot be read"):
        start("ppo", resume=tmp_path)


@pytest.mark.parametrize("method", ["ppo", "dqn"])
def test_a_checkpoint_of_another_kind_of_device_is_gone_on_with(start, tmp_path, method):
    """A GPU has other generators, and a CartPole with another state: random numbers begin anew, and it is said."""
    session = start(method, steps=2)
    list(session.run())
    session.save(tmp_path)
    tensors = load_file(tmp_path / "tensors.safetensors")
    save_file(tensors | {"generator": tensors["generator"][:16].clone()}, tmp_path / "tensors.safetensors")
    state = json.loads((tmp_path / "state.json").read_text())
    del state["environments"]["rng"]
    state["environments"]["generator"] = [0] * 16
    (tmp_path / "state.json").write_text(json.dumps(state))
    one, two = (start(method, resume=tmp_path) for _ in range(2))
    assert one.step == 2 and one.environments.state() == two.environments.state()
    assert one.environments.state()["state"] == session.environments.state()["state"]  # the episodes are played on
    assert one.environments.state()["rng"] not in (start(method).environments.state()["rng"],
                                                   session.environments.state()["rng"])
    records = list(one.run())
    assert records == list(two.run()) and [record.step for record in records] == [3, 4]
    assert says(records[0].notes, "another kind of device", "random numbers restart") and records[1].notes == ()


@pytest.mark.parametrize("onto_gpu", [True, False], ids=["onto a GPU", "off a GPU"])
def test_the_episodes_of_one_kind_of_cartpole_are_played_on_by_the_other(start, tmp_path, monkeypatch, onto_gpu):
    """On a GPU CartPole is computed in torch, elsewhere by Gymnasium."""
    def of_a_gpu(spec, device, seed):
        return TorchCartPole(int(spec.knobs["environments"]), seed, device)

    def started(on_gpu, **given):
        with monkeypatch.context() as patched:
            if on_gpu:
                patched.setattr(sessions, "_environments", of_a_gpu)
            return start("ppo", **given)
    saved = started(not onto_gpu, steps=2)
    list(saved.run())
    saved.save(tmp_path)
    tensors = load_file(tmp_path / "tensors.safetensors")
    save_file(tensors | {"generator": tensors["generator"][:16].clone()}, tmp_path / "tensors.safetensors")
    resumed = started(onto_gpu, resume=tmp_path)
    assert isinstance(resumed.environments, TorchCartPole) is onto_gpu
    torch.testing.assert_close(torch.as_tensor(resumed.environments.observations),
                               torch.as_tensor(saved.environments.observations))
    assert [record.step for record in resumed.run()] == [3, 4]


@pytest.mark.parametrize(("method", "knobs", "words"), [
    ("pppo", {}, "did you mean 'ppo'"), ("ppo", {"clip_hihg": 1}, "did you mean 'clip_high'"),
    ("ppo", {"gamma": 2}, "outside its bounds"), ("dqn", {"td_loss": "l1"}, "choose one of")])
def test_bad_settings_are_said(method, knobs, words):
    with pytest.raises(LabError, match=words):
        make(kind="cartpole", algorithm_key=method, task_key="CartPole-v1", knobs=knobs)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device_is_said(start):
    with pytest.raises(LabError, match="no cuda"):
        start("ppo", device="cuda")


@pytest.mark.parametrize("method", ALGORITHMS)
def test_a_divergence_is_reported_and_nothing_is_lost(start, method):
    session = start(method)
    records = session.run()
    next(records)
    before = {name: parameters(network) for name, network in session.networks.items()}
    learns, broken = ("q", "target") if method == "dqn" else ("policy", "critic")
    with torch.no_grad():
        next(session.networks[broken].parameters()).fill_(math.nan)
    with pytest.raises(Diverged, match="at step 2"):
        next(records)
    assert torch.equal(parameters(session.networks[learns]), before[learns])
    assert session.step == 1


def test_actions_have_the_policy_s_chances(generator):
    logits = torch.tensor([0.5, 0.2, 0.3]).log().expand(50_000, 3)
    shares = torch.bincount(Categorical.sample(logits, torch.rand(50_000, generator=generator))) / 50_000
    torch.testing.assert_close(shares, torch.tensor([0.5, 0.2, 0.3]), atol=0.01, rtol=0)


def test_whole_episodes_and_raw_returns(start):
    session = start("reinforce")
    batch = collect(session, 500, whole_episodes=True)
    ended = session.episodes.take()
    assert sorted(episode["length"] for episode in ended) == sorted(batch.mask.sum(0).tolist())
    assert all(episode["return"] == episode["length"] for episode in ended)
    assert session.env_steps == int(batch.mask.sum())
    last = batch.mask.sum(0) - 1
    ends = (batch.terminated | batch.truncated)[last, torch.arange(3)]
    assert ends.all() and not (batch.terminated[:-1] & batch.mask[1:]).any()


def test_next_observations_follow_within_an_episode(start):
    batch = collect(start("ppo"), 60)
    ended = batch.terminated | batch.truncated
    same = (batch.next_observations[:-1] == batch.observations[1:]).all(-1)
    assert ended.any() and torch.equal(same, ~ended[:-1])


def test_initial_weights_are_orthogonal_with_their_gains(generator):
    network = MLP((4, 64, 64, 2), generator, gain=0.01)
    first, middle, last = (layer.weight for layer in network.layers)
    torch.testing.assert_close(first.T @ first, 2 * torch.eye(4))
    torch.testing.assert_close(middle @ middle.T, 2 * torch.eye(64), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(last @ last.T, 1e-4 * torch.eye(2))
    again = MLP((4, 64, 64, 2), torch.Generator().manual_seed(0), gain=0.01)
    assert torch.equal(parameters(network), parameters(again))


def greedy_return(session, needed, steps):
    """The best greedy evaluation within `steps` steps, looked at until one is `needed`."""
    best = -math.inf
    for record in session.run():
        best = max(best, record.metrics.get("eval_return", -math.inf))
        if best >= needed or record.step == steps:
            break
    return best


@pytest.mark.parametrize(("method", "steps"), [
    ("ppo", 60), ("dqn", 80), *(pytest.param(*each, marks=pytest.mark.long) for each in (
        ("a2c", 40), ("trpo", 60), ("reinforce", 20)))])
def test_it_learns(method, steps):
    """To 195 and more in a few seconds, with the knobs as they are."""
    session = DeepSession.start(make(kind="cartpole", algorithm_key=method, task_key="CartPole-v1", seed=2,
                                     steps=100, knobs={"eval_every": 4}))
    assert greedy_return(session, 195, steps) >= 195
    assert play(session.acting, "CartPole-v1", 20, seed=12345).mean >= 150  # in environments that no choice was made in
    assert session.best_return >= 195


@pytest.mark.long
@pytest.mark.parametrize("seed", [1176966785, 1961004206, 1410397, 854050139])
def test_dqn_solves_cartpole_and_holds_it(seed):
    """The last eight greedy evaluations are near 500. The last two seeds failed while units of Q could go dead."""
    session = DeepSession.start(make(kind="cartpole", algorithm_key="dqn", task_key="CartPole-v1", seed=seed))
    returns = [record.metrics["eval_return"] for record in session.run() if "eval_return" in record.metrics]
    assert sum(returns[-8:]) / 8 >= 475, returns
    assert play(session.acting, "CartPole-v1", 20, seed=12345).mean >= 450  # in environments that no choice was made in


def test_networks_see_bounded_numbers_stretched_and_q_wide_ones_shrunk(start):
    session = start("dqn")
    for name in ("q", "target"):
        assert session.networks[name].scale.tolist() == pytest.approx([1 / 4, 1, 1 / 0.418879, 1], rel=1e-6)
    for network in start("ppo").networks.values():
        assert network.scale.tolist() == pytest.approx([1, 1, 1 / 0.418879, 1], rel=1e-6)
    assert start("dqn", task="Acrobot-v1").networks["q"].scale.tolist() == [1, 1, 1, 1, 0.25, 0.25]
    assert start("ppo", task="Acrobot-v1").policy.scale.tolist() == [1.0] * 6
    assert start("dqn", task="FrozenLake-v1").networks["q"].scale.tolist() == [1.0] * 16


def test_a_network_scales_what_it_is_given(generator):
    scale = (0.5, 1.0, 4.0)
    plain, scaled = (MLP((3, 8, 2), torch.Generator().manual_seed(0), None, "relu", c) for c in ((), scale))
    x = torch.randn(5, 3, generator=generator)
    assert torch.equal(scaled(x), plain(x * torch.tensor(scale)))
    plain.load_state_dict(scaled.state_dict())  # the factors are kept with the weights
    assert torch.equal(plain(x), scaled(x))
    assert "scale" not in dict(scaled.named_parameters())


def test_the_path_of_an_evaluation_is_its_first_episode(start):
    evaluation = evaluate(start("ppo"))
    assert len(evaluation.path) == evaluation.lengths[0] + 1 and len(evaluation.path[0]) == 4


def test_uniform_weights_have_biases(generator):
    first = MLP((4, 64, 2), generator, gain=None).layers[0]
    assert first.bias.abs().max() <= 0.5 and float(first.bias.detach().std()) == pytest.approx(0.29, abs=0.06)


def test_an_untrained_policy_does_not_balance(start):
    assert play(start("ppo").acting, "CartPole-v1", 20, seed=0).mean < 100


def test_a_network_counts_in_its_unit():
    plain, tens = (MLP((3, 8, 1), torch.Generator().manual_seed(0), unit=unit) for unit in (1.0, 10.0))
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(tens(x), plain(x))  # it begins with the same outputs, from last weights of a tenth
    assert torch.allclose(10 * tens.layers[-1].weight, plain.layers[-1].weight)
    with torch.no_grad():
        for network in (plain, tens):
            network.layers[-1].bias += 1
    assert torch.allclose(tens(x), plain(x) + 9)
    assert "unit" not in dict(tens.named_parameters())
    plain.load_state_dict(tens.state_dict())  # the unit is kept with the weights
    assert torch.equal(plain(x), tens(x))


def test_weights_of_before_the_unit_count_in_ones():
    plain, tens = (MLP((3, 8, 1), torch.Generator().manual_seed(0), unit=unit) for unit in (1.0, 10.0))
    tens.load_state_dict({key: value for key, value in plain.state_dict().items() if key != "unit"})
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(tens(x), plain(x))


def test_a_critic_counts_in_tens_and_a_policy_in_ones(start):
    networks = start("ppo").networks
    assert (float(networks["critic"].unit), float(networks["policy"].unit)) == (10, 1)


def test_a_policy_begins_nearly_uniform(start, generator):
    chances = start("ppo").policy(torch.randn(100, 4, generator=generator)).softmax(-1)
    assert float((chances - 0.5).abs().max()) < 0.02


def test_a_gradient_beyond_the_bound_is_scaled_to_it(start):
    session = start("ppo", {"max_grad_norm": 0.01})
    weights = list(session.policy.parameters())
    norm = session.optimise("policy", 1e-3, sum((weight ** 2).sum() for weight in weights))
    assert norm > 1  # what is returned is the norm before the clip
    assert math.hypot(*(float(weight.grad.norm()) for weight in weights)) == pytest.approx(0.01, rel=1e-4)


def test_the_best_weights_are_in_the_checkpoint(start, tmp_path):
    session = start("ppo")
    list(session.run())
    session.save(tmp_path)
    resumed = start("ppo", resume=tmp_path)
    assert session.best and session.best.keys() == resumed.best.keys()
    assert all(torch.equal(value, resumed.best[key]) for key, value in session.best.items())


@pytest.mark.parametrize("method", now(ALGORITHMS, "ppo", "dqn"))
def test_looking_at_a_step_that_was_not_due_changes_nothing(start, method):
    """An evaluation and a line are drawn of any step, as they would be were they due, and the run stays as it was."""
    expected, session, looked = list(start(method).run()), start(method), 0
    for record, whole in zip(session.run(), expected, strict=True):
        before = session.tensors()
        if record.look is not None:
            samples, line = record.look()
            looked += 1
            assert samples["step"] == record.step and samples["evaluation"]["path"]
            assert line is None or line["step"] == record.step
            assert (record.samples or {}).items() <= samples.items()
        assert record == whole and all(torch.equal(value, before[key]) for key, value in session.tensors().items())
    assert looked


def test_a_normed_network_normalises_the_inputs_of_its_last_hidden_units(generator):
    normed = MLP((3, 8, 8, 2), torch.Generator().manual_seed(0), None, "relu", unit=10.0, normed=True)
    x = 30 * torch.randn(5, 3, generator=generator)
    first, second, last = normed.layers
    z = (x @ first.weight.T + first.bias).clamp(min=0) @ second.weight.T + second.bias
    z = (z - z.mean(1, keepdim=True)) / (z.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    assert torch.allclose(normed(x), 10 * (z.clamp(min=0) @ last.weight.T + last.bias), atol=1e-5)
    assert len(list(normed.parameters())) == 8  # a gain and a shift for each of the last hidden units


@pytest.mark.parametrize("normed", [True, False])
def test_a_policys_folder_says_whether_it_is_normed(start, tmp_path, normed):
    session = start("dqn", {"layer_norm": normed})
    session.save(tmp_path)
    network, config = load(tmp_path / "policy")
    x = torch.randn(5, 4)
    assert config["normed"] == normed and torch.equal(network(x), session.acting(x))
    assert float(session.acting.unit) == (10 if normed else 1)
