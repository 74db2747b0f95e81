import pytest
import torch

from labcore.maths.returns import explained_variance, gae, gae_envs, reward_to_go


@pytest.fixture
def ragged(generator):
    """(token_rewards, values, completion_mask) of five completions; the mask of the last has a hole."""
    rewards = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    values = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    mask = torch.arange(6) < torch.tensor([6, 4, 1, 0, 6])[:, None]
    mask[4, 2:4] = False
    return rewards, values, mask


@pytest.fixture
def rollout(generator):
    """(rewards, values, next_values, terminated, truncated) of two environments, with ends of both kinds."""
    rewards, values, next_values = (torch.randn(7, 2, generator=generator, dtype=torch.float64) for _ in range(3))
    terminated, truncated = torch.zeros(2, 7, 2, dtype=bool)
    terminated[2, 0] = truncated[4, 1] = truncated[5, 0] = True
    next_values[:-1] = torch.where((terminated | truncated)[:-1], next_values[:-1], values[1:])
    return rewards, values, next_values, terminated, truncated


def test_by_hand(close):
    rewards, values = torch.tensor([[[1.0, 2.0, 4.0]], [[0.5, 1.0, 3.0]]], dtype=torch.float64)
    close(reward_to_go(rewards, 0.5), [[3, 4, 4]])
    # δ = (1 + ½·1 − ½, 2 + ½·3 − 1, 4 − 3) = (1, 2.5, 1); γλ = ¼.
    close(gae(rewards, values, torch.ones(1, 3, dtype=bool), 0.5, 0.5), [[1.6875, 2.75, 1]])
    # With the last token uncounted the second ends the completion: δ = (1, 2 − 1).
    close(gae(rewards, values, torch.tensor([[True, True, False]]), 0.5, 0.5), [[1.25, 1, 0]])


@pytest.mark.parametrize(("gamma", "gae_lambda"), [(1.0, 0.95), (0.9, 0.8), (0.97, 0.0), (0.97, 1.0)])
def test_loop_twin(close, ragged, gamma, gae_lambda):
    rewards, values, mask = ragged
    expected = torch.zeros(5, 6, dtype=torch.float64)
    for i in range(5):
        counted = [t for t in range(6) if mask[i, t]]
        r, v = rewards[i, counted].tolist(), [*values[i, counted].tolist(), 0.0]
        for start, t in enumerate(counted):
            expected[i, t] = sum((gamma * gae_lambda) ** l * (r[start + l] + gamma * v[start + l + 1] - v[start + l])
                                 for l in range(len(counted) - start))
    close(gae(rewards, values, mask, gamma, gae_lambda), expected)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_reward_to_go_loop_twin(close, ragged, gamma):
    rewards = ragged[0]
    expected = [[sum(gamma ** (s - t) * row[s] for s in range(t, 6)) for t in range(6)] for row in rewards.tolist()]
    close(reward_to_go(rewards, gamma), expected)


def test_lambda_0_is_the_td_error(close, ragged):
    rewards, values, mask = ragged
    following = torch.cat([values[:1, 1:], torch.zeros(1, 1)], 1)
    close(gae(rewards[:1], values[:1], mask[:1], 0.9, 0.0), rewards[:1] + 0.9 * following - values[:1])


def test_lambda_1_is_monte_carlo_minus_the_value(close, ragged):
    rewards, values, mask = ragged
    counted = torch.where(mask, rewards, 0)
    close(gae(rewards, values, mask, 1.0, 1.0)[mask], (reward_to_go(counted, 1.0) - values)[mask])


def test_an_exact_critic_has_advantage_0(close, ragged):
    rewards, _, mask = ragged
    values = reward_to_go(rewards[:1], 0.9)
    close(gae(rewards[:1], values, mask[:1], 0.9, 0.7), torch.zeros(1, 6))


def test_what_does_not_count_is_never_read(ragged):
    rewards, values, mask = ragged
    poisoned = gae(torch.where(mask, rewards, torch.nan), torch.where(mask, values, torch.nan), mask, 0.9, 0.8)
    assert torch.equal(poisoned, gae(rewards, values, mask, 0.9, 0.8))
    assert (poisoned[~mask] == 0).all()


def test_a_row_without_a_counted_token_is_0():
    rewards, values = torch.full((2, 1, 4), 3.0)
    assert (gae(rewards, values, torch.zeros(1, 4, dtype=bool), 0.9, 0.8) == 0).all()


def test_without_a_critic_gae_with_lambda_1_is_the_reward_to_go(close, ragged):
    rewards, values, mask = ragged
    counted = torch.where(mask, rewards, 0)
    for row in range(4):  # the last has a hole, over which `gae` steps and γ does not count
        close(gae(rewards, 0 * values, mask, 0.9, 1.0)[row], torch.where(mask, reward_to_go(counted, 0.9), 0)[row])


def test_envs_loop_twin(close, rollout):
    rewards, values, next_values, terminated, truncated = rollout
    expected = torch.zeros(7, 2, dtype=torch.float64)
    for e in range(2):
        for start in range(7):
            weight = 1.0
            for t in range(start, 7):
                bootstrap = 0.0 if terminated[t, e] else 0.9 * next_values[t, e]
                expected[start, e] += weight * (rewards[t, e] + bootstrap - values[t, e])
                weight *= 0.9 * 0.8
                if terminated[t, e] or truncated[t, e]:
                    break
    close(gae_envs(*rollout, 0.9, 0.8), expected)


def test_termination_cuts_the_bootstrap_and_truncation_does_not(close):
    one, no, yes = torch.ones(1, 1).double(), torch.tensor([[False]]), torch.tensor([[True]])
    for terminated, truncated, expected in ((no, no, 5.5), (yes, no, 1), (no, yes, 5.5), (yes, yes, 1)):
        close(gae_envs(2 * one, one, 5 * one, terminated, truncated, 0.9, 0.8), [[expected]])


def test_a_completion_is_an_episode(close, ragged):
    """`gae` on a full row is `gae_envs` on an episode that terminates at its last step."""
    rewards, values, mask = ragged
    terminated = torch.arange(6)[:, None] == 5
    following = torch.cat([values[:1, 1:], torch.full((1, 1), 7.0)], 1)
    by_envs = gae_envs(rewards[:1].T, values[:1].T, following.T, terminated, torch.zeros_like(terminated), 0.9, 0.8)
    close(gae(rewards[:1], values[:1], mask[:1], 0.9, 0.8), by_envs.T)


@pytest.mark.parametrize("case", range(4))
def test_matches_sb3(golden, close, case):
    case = golden("sb3_gae")["direct"][case]
    rewards, values = torch.tensor(case["rewards"]), torch.tensor(case["values"])
    next_values = torch.cat([values[1:], torch.tensor(case["last_values"])[None]])
    # SB3 records that an episode starts; its end is the step before.
    terminated = torch.cat([torch.tensor(case["episode_starts"])[1:], torch.tensor(case["last_dones"])[None]]).bool()
    advantages = gae_envs(rewards, values, next_values, terminated, torch.zeros_like(terminated), case["gamma"],
                          case["gae_lambda"])
    close(advantages, case["advantages"])
    close(advantages + values, case["returns"])


def test_matches_sb3_with_time_outs(golden, close):
    case = golden("sb3_gae")["collect_rollouts_with_timeouts"]

    def column(key):
        return torch.tensor([[step[key] for step in steps] for steps in case["raw_steps_per_env"]]).T

    advantages = gae_envs(column("reward"), torch.tensor(case["values"]), (0.37 * column("next_obs")).sin(),
                          column("terminated").bool(), column("truncated").bool(), case["gamma"], case["gae_lambda"])
    # The values are float32 sines of arguments up to 80: good to 1e-5.
    torch.testing.assert_close(advantages, torch.tensor(case["advantages"]), rtol=1e-5, atol=2e-5)


def test_explained_variance_by_hand(close):
    returns = torch.tensor([[0.0, 2.0, 4.0, 99.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False]])
    close(explained_variance(returns, returns, mask), 1)
    close(explained_variance(returns + 5, returns, mask), 1)  # a constant error leaves no variance unexplained
    close(explained_variance(torch.full_like(returns, 3.0), returns, mask), 0)
    close(explained_variance(-returns, returns, mask), -3)
    close(explained_variance(returns / 2, returns, mask), 0.75)
    assert explained_variance(returns, torch.ones_like(returns), mask).isnan()


def test_explained_variance_matches_sb3(golden, close):
    reference = golden("sb3_losses")
    values, returns = (torch.tensor(reference["inputs"][key]) for key in ("old_values", "returns"))
    for case in reference["cases"]:
        close(explained_variance(values, returns, torch.ones(24, dtype=bool)),
              case["logged"]["train/explained_variance"])
