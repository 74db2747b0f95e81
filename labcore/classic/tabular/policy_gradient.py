"""Learning a softmax policy with one number θ(s,a) for each action of each state: REINFORCE, actor-critic, PPO.

A method is one function of (tables, step, knobs); a row of the catalog names it, and `policy_learner.PolicyLearner`
calls it after every step. The knobs are read at every update: `alpha` (of θ), `value_alpha` (of V), `gamma`,
`entropy_coef`, `episodes_per_update` and, for PPO, `gae_lambda`, `clip_range`, `epochs` and `standardise`.

The true gradient of V(start) weighs the step at time t with γ^t. `discount_states` 1 does so; 0, as deep methods do,
leaves the weight out, which learns faster far from the start but is no gradient where γ < 1.

REINFORCE and the actor-critic climb Σ_t of an episode, PPO the mean over steps, as published: its `alpha` is larger.

Left out: mini-batches and value clipping. A table needs neither.
"""

from __future__ import annotations

import numpy as np

from labcore.classic.tabular.policy_learner import PolicyTables, PolicyUpdate
from labcore.classic.tabular.policy_maths import (
    Psi,
    clipped_score,
    entropy_gradient,
    gae,
    returns,
    reward_to_go,
    score,
    softmax,
    state_weights,
    total_return,
    with_baseline,
)
from labcore.classic.tabular.walks import Knobs, Step

PSI: dict[str, Psi] = {"total_return": total_return, "reward_to_go": reward_to_go, "baseline": with_baseline}


def reinforce(tables: PolicyTables, step: Step, knobs: Knobs) -> None:
    """θ ← θ + α 1/N Σ_t Ψ_t ∇θ log π(a_t|s_t) at the end of N episodes; V(s) moves towards the returns.

    `knobs["psi"]` names Ψ.

    V is the baseline where there is one, and what follows where time was up.

    Source: Williams 1992, Machine Learning 8:229.
    """
    steps = tables.gather(step, knobs)
    if steps is None:
        return
    gamma, values, before = knobs["gamma"], tables.values.copy(), tables.policy
    weights = PSI[str(knobs["psi"])](steps, values, gamma, state_weights(steps, knobs))
    tables.ascend(score(before, steps.states, steps.actions, weights), steps, knobs, int(steps.ended.sum()))
    tables.fit_values(steps, returns(steps, values, gamma), knobs)
    tables.note(steps, weights, gamma, values, before)


def actor_critic(tables: PolicyTables, step: Step, knobs: Knobs) -> None:
    """V(s) ← V(s) + α_V δ, θ ← θ + α w_t δ ∇θ log π(a|s), with δ = r + γ V(s') − V(s), at every step.

    Source: Sutton and Barto 2018, Reinforcement Learning, section 13.5 (one-step actor-critic).
    """
    state, action, gamma = step.state, step.action, knobs["gamma"]
    value = float(tables.values[state])
    next_value = 0.0 if step.terminated else float(tables.values[step.next_state])
    delta = step.reward + gamma * next_value - value
    weight = delta * (gamma**step.time if knobs["discount_states"] else 1.0)
    tables.values[state] += knobs["value_alpha"] * delta
    row = tables.policy[state]
    direction = weight * ((np.arange(len(row)) == action) - row) + knobs["entropy_coef"] * entropy_gradient(row)
    tables.theta[state] += knobs["alpha"] * direction
    before, tables.policy[state] = float(row[action]), softmax(tables.theta[state])
    tables.made.append(PolicyUpdate(state, action, step.reward, gamma, next_value, value, delta, weight, before,
                                    float(tables.policy[state, action])))
    tables.last[state] = tables.made[-1]


def ppo(tables: PolicyTables, step: Step, knobs: Knobs) -> None:
    """K times θ ← θ + α ∇θ mean_t min(ρ_t A_t, clip(ρ_t, 1 − ε, 1 + ε) A_t), with the A and π_old of the batch.

    A by generalised advantage estimation, divided by its root mean square where `standardise` is 1; V(s) moves
    towards A + V before that.

    Source: Schulman et al. 2017, arXiv:1707.06347, algorithm 1.
    """
    steps = tables.gather(step, knobs)
    if steps is None:
        return
    gamma, values, before = knobs["gamma"], tables.values.copy(), tables.policy
    advantages = gae(steps, values, gamma, knobs["gae_lambda"])
    weights = advantages * state_weights(steps, knobs)
    if knobs["standardise"]:
        weights = weights / (np.sqrt((weights**2).mean()) + 1e-8)  # not centred: moves that are all good stay so
    for _ in range(int(knobs["epochs"])):
        gradient = clipped_score(tables.policy, before, steps, weights, knobs["clip_range"])
        tables.ascend(gradient, steps, knobs, len(steps.states))
        tables.fit_values(steps, advantages + values[steps.states], knobs)
    tables.note(steps, weights, gamma, values, before)
