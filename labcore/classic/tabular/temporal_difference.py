"""Learning action values from steps: Monte Carlo control, SARSA, Q-learning and their kin, with ε-greedy choices.

A method is one function of (tables, step, knobs, rng) that reads like its update; a row of the catalog names it, and
`td_learner.TDLearner` calls it after every step.

Where an episode terminated, what follows is worth 0; where time was up (`truncated`) it is worth what the table says.

Left out: n-step methods (traces take their place), accumulating traces (these are replacing ones), off-policy Monte
Carlo.
"""

from __future__ import annotations

import numpy as np

from labcore.classic.envs.mdp import Array
from labcore.classic.tabular.td_learner import Tables, Update, epsilon, epsilon_greedy, epsilon_greedy_policy
from labcore.classic.tabular.walks import Knobs, Step


def _update(tables: Tables, table: Array, step: Step, next_value: float, knobs: Knobs) -> Update:
    """Q(s,a) ← Q(s,a) + α δ, δ = r + γ v' − Q(s,a), v' = `next_value` the estimate of the rest."""
    state, action, gamma = step.state, step.action, knobs["gamma"]
    tables.visits[state, action] += 1
    alpha, before = tables.rate(step, knobs), float(table[state, action])
    target = step.reward + gamma * next_value
    delta = target - before
    after = before + alpha * delta
    table[state, action] = after
    tables.last[state] = Update(state, action, step.reward, gamma, next_value, target, before, delta, alpha, after)
    tables.made.append(tables.last[state])
    return tables.last[state]


def _expected(tables: Tables, state: int, knobs: Knobs) -> float:
    """Σ_a π(a|s) Q(s,a), π the ε-greedy policy."""
    row = tables.q[state]
    return float(epsilon_greedy_policy(row, epsilon(knobs, tables.steps)) @ row)


def sarsa(tables: Tables, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
    """Q(s,a) ← Q(s,a) + α (r + γ Q(s',a') − Q(s,a)), a' the action taken next.

    Source: Rummery and Niranjan 1994; Sutton and Barto 2018, Reinforcement Learning, eq. 6.7.
    """
    next_value = 0.0
    if not step.terminated:
        next_value = float(tables.q[step.next_state, tables.commit(step.next_state, knobs, rng)])
    _update(tables, tables.q, step, next_value, knobs)


def expected_sarsa(tables: Tables, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
    """Q(s,a) ← Q(s,a) + α (r + γ Σ_a' π(a'|s') Q(s',a') − Q(s,a)), π the ε-greedy policy.

    Source: van Seijen et al. 2009, ADPRL; Sutton and Barto 2018, eq. 6.9.
    """
    next_value = 0.0 if step.terminated else _expected(tables, step.next_state, knobs)
    _update(tables, tables.q, step, next_value, knobs)


def q_learning(tables: Tables, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
    """Q(s,a) ← Q(s,a) + α (r + γ max_a' Q(s',a') − Q(s,a)).

    Source: Watkins 1989, Learning from Delayed Rewards; Sutton and Barto 2018, eq. 6.8.
    """
    next_value = 0.0 if step.terminated else float(tables.q[step.next_state].max())
    _update(tables, tables.q, step, next_value, knobs)


def double_q_learning(tables: Tables, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
    """Q_1(s,a) ← Q_1(s,a) + α (r + γ Q_2(s', argmax_a' Q_1(s',a')) − Q_1(s,a)), or with 1 and 2 exchanged.

    A coin decides which. What it acts on and shows is their mean.

    Source: van Hasselt 2010, "Double Q-learning", NeurIPS, algorithm 1.
    """
    heads = int(rng.random() < 0.5)
    learns, other = tables.pair[heads], tables.pair[1 - heads]
    next_value = 0.0
    if not step.terminated:
        best = epsilon_greedy(learns[step.next_state], 0.0, rng)
        next_value = float(other[step.next_state, best])
    update = _update(tables, learns, step, next_value, knobs)
    mean = float(tables.pair[:, step.state, step.action].mean())
    tables.q[step.state, step.action] = mean
    tables.made[-1] = tables.last[step.state] = update._replace(head=heads + 1, mean=mean)


def monte_carlo(tables: Tables, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
    """At the end of the episode, from its last step to its first: Q(s,a) ← Q(s,a) + α (G − Q(s,a)), G ← r + γ G.

    Every visit counts. Where time was up, G begins with Σ_a π(a|s_T) Q(s_T,a), the table's estimate of the rest.

    Source: Sutton and Barto 2018, Reinforcement Learning, section 5.4 and eq. 6.1.
    """
    tables.episode.append(step)
    if not step.ended:
        return
    following = 0.0 if step.terminated else _expected(tables, step.next_state, knobs)
    for passed in reversed(tables.episode):
        following = _update(tables, tables.q, passed, following, knobs).target
    tables.made.reverse()


def _update_traces(tables: Tables, step: Step, next_value: float, knobs: Knobs) -> None:
    """e(s,a) ← 1; Q ← Q + α δ e; e ← γ λ e. The recorded update is that of the step's own cell, whose trace is 1."""
    q, traces = tables.q, tables.traces
    traces[step.state, step.action] = 0.0
    update = _update(tables, q, step, next_value, knobs)
    q += update.alpha * update.delta * traces
    traces[step.state, step.action] = 1.0
    traces *= update.gamma * knobs["lambda"]


def sarsa_lambda(tables: Tables, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
    """Q ← Q + α δ e, δ = r + γ Q(s',a') − Q(s,a), with replacing traces e; λ = 0 is SARSA, λ = 1 Monte Carlo.

    Source: Singh and Sutton 1996 (replacing traces); Sutton and Barto 2018, section 12.7.
    """
    next_value = 0.0
    if not step.terminated:
        next_value = float(tables.q[step.next_state, tables.commit(step.next_state, knobs, rng)])
    _update_traces(tables, step, next_value, knobs)


def q_lambda(tables: Tables, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
    """Q ← Q + α δ e, δ = r + γ max_a' Q(s',a') − Q(s,a); the traces end where an action is not greedy.

    λ = 0 is Q-learning.

    Source: Watkins 1989; Sutton and Barto 2018, section 12.10.
    """
    next_value, greedy = 0.0, True
    if not step.terminated:
        row = tables.q[step.next_state]
        next_value = float(row.max())
        greedy = bool(row[tables.commit(step.next_state, knobs, rng)] == next_value)
    _update_traces(tables, step, next_value, knobs)
    if not greedy:
        tables.traces[:] = 0
