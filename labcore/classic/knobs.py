"""The settings of the deep classic methods, as data. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from labcore.catalog.knob import Knob, Value, suggestion
from labcore.errors import LabError

_ALL = {knob.key: knob for knob in (
    Knob("learning_rate", "Learning rate", 1e-3, "Higher: faster, until the policy breaks; lower: slow but steady.",
         "live", 0, 1, (1e-5, 1e-2), r"\eta", scale="log"),
    Knob("critic_learning_rate", "Critic's learning rate", 1e-3, "Higher: the values follow the policy faster; lower: "
         "they are smoother.", "live", 0, 1, (1e-5, 1e-2), r"\eta_V", scale="log"),
    Knob("anneal", "Anneal to zero", True, "On: learning rates and clip range fall in a line to 0 at the last step, "
         "and a good policy is kept; off: they stay, and the run can be prolonged.", "live"),
    Knob("gamma", "Discount", 0.98, "Higher: later rewards count, with more noise; lower: only the near future.",
         "next batch", 0, 1, (0.9, 1), r"\gamma"),
    Knob("gae_lambda", "GAE λ", 0.8, "Higher: less bias, more noise; lower: trusts the critic.", "next batch", 0, 1,
         (0.8, 1), r"\lambda"),
    Knob("environments", "Environments", 8, "Higher: more experience per second; lower: fresher experience.",
         "restart", 1, 65536, (1, 64), "E"),
    Knob("rollout_steps", "Steps per rollout", 32, "Higher: better advantages and rarer updates; lower: the reverse.",
         "next batch", 1, 100_000, (5, 512), "T"),
    Knob("entropy_coef", "Entropy bonus", 0.0, "Higher: the policy stays random longer; lower: it commits sooner.",
         "live", 0, 1, (0, 0.02), "c_H", "reward/nat"),
    Knob("max_grad_norm", "Gradient clip", 0.5, "Higher: rare large gradients pass; lower: every step is short.",
         "live", 0, 1e9, (0.1, 10)),
    Knob("normalise", "Normalise advantages", True, "On: mean 0 and spread 1 in every batch, so one learning rate "
         "serves all reward scales; off: the plain estimate.", "live"),
    Knob("eval_every", "Evaluate every", 4, "Higher: less time spent on greedy evaluation; lower: a finer curve.",
         "live", 1, 1e9, (1, 100), unit="steps"),
    Knob("eval_episodes", "Evaluation episodes", 20, "Higher: a surer mean; lower: quicker.", "live", 1, 1000, (5, 50)),
    Knob("epochs", "Epochs", 20, "Higher: more is taken from a batch, and the policy moves further from it; lower: "
         "safer.", "live", 1, 1000, (1, 20), "K"),
    Knob("mini_batches", "Mini-batches", 1, "Higher: more and noisier updates per epoch; lower: fewer and smoother.",
         "live", 1, 10_000, (1, 16)),
    Knob("critic_epochs", "Critic's epochs", 20, "Higher: values fit the batch better; lower: less time.", "live", 1,
         1000, (1, 80)),
    Knob("objective", "Objective", "clip", "clip: gains beyond the clip range give no gradient; kl_penalty: leaving "
         "the old policy costs β per nat.", "live", choices=("clip", "kl_penalty")),
    Knob("clip_low", "Clip below", 0.2, "Higher: actions may become less likely faster; lower: safer.", "live", 0, 1,
         (0.05, 0.4), r"\varepsilon_{low}"),
    Knob("clip_high", "Clip above", 0.2, "Higher: actions may become more likely faster; lower: safer.", "live", 0, 10,
         (0.05, 0.4), r"\varepsilon_{high}"),
    Knob("beta", "KL price", 1.0, "Higher: shorter steps; lower: longer ones. With a KL target it is scaled by the "
         "adaptive factor.", "live", 0, 1e6, (0, 10), r"\beta", "reward/nat"),
    Knob("kl_target", "KL target", 0.01, "Higher: the adaptive price allows longer steps; lower: shorter; 0 keeps "
         "β as it is.", "live", 0, 10, (0, 0.1), r"d_{targ}", "nats"),
    Knob("clip_values", "Clip values", False, "On: a value moves at most `value_clip` per batch; off: freely.",
         "live"),
    Knob("value_clip", "Value clip range", 0.2, "Higher: values may move further in one batch; lower: less.", "live",
         0, 1e6, (0.1, 10), r"\varepsilon_V", "reward"),
    Knob("delta", "Trust region", 0.01, "Higher: longer steps, at some point beyond what the quadratic model of the "
         "KL is good for; lower: slow.", "live", 0, 10, (0.001, 0.05), r"\delta", "nats"),
    Knob("cg_iterations", "CG iterations", 10, "Higher: a direction nearer to the natural gradient; lower: quicker.",
         "live", 1, 1000, (5, 20)),
    Knob("damping", "Damping", 0.1, "Higher: safer where the Fisher matrix is nearly singular, nearer the plain "
         "gradient; lower: nearer the natural one.", "live", 0, 100, (0.01, 0.2)),
    Knob("backtrack", "Backtrack factor", 0.8, "Higher: a finer line search; lower: a quicker one.", "live", 0.01,
         0.99, (0.5, 0.9)),
    Knob("backtracks", "Backtracks", 10, "Higher: gives up later; lower: sooner.", "live", 1, 100, (5, 20)),
    Knob("psi", "What log π is weighed with", "advantage", "total_return: everything the episode earned; reward_to_go: "
         "what came after the action; baseline: that less V(s); advantage: GAE. Each has less variance than the one "
         "before.", "live", choices=("total_return", "reward_to_go", "baseline", "advantage"), symbol=r"\Psi_t"),
    Knob("variance_every", "Measure gradient variance every", 10, "Higher: less time; lower: a finer curve.", "live",
         1, 1e9, (1, 100), unit="steps"),
    Knob("rollouts_per_step", "Updates per step", 10, "Higher: fewer points on the chart; lower: more.", "live", 1,
         10_000, (1, 50)),
    Knob("batch_size", "Batch size", 64, "Higher: smoother updates; lower: quicker ones.", "live", 1, 1e6, (32, 256)),
    Knob("buffer_size", "Replay size", 100_000, "Higher: remembers longer; lower: forgets old policies sooner.",
         "restart", 1, 1e7, (1e4, 1e6)),
    Knob("learning_starts", "Steps before learning", 1000, "Higher: a more varied first batch; lower: an earlier "
         "start.", "live", 0, 1e9, (100, 10_000), unit="environment steps"),
    Knob("gradient_steps", "Updates per rollout", 32, "Higher: more is learnt per step of the world, at some point "
         "too much from too little; lower: quicker.", "live", 1, 1e6, (1, 256)),
    Knob("target_every", "Target update every", 64, "Higher: steadier targets; lower: fresher ones.", "live", 1, 1e9,
         (1, 1000), unit="updates"),
    Knob("tau", "Target update share", 1.0, "1 copies the network; lower: moves the target that share of the way.",
         "live", 0, 1, (0.005, 1), r"\tau"),
    Knob("double", "Double DQN", True, "On: the network chooses the next action and the target network values it, so "
         "errors are not picked for being large; off: the target network does both.", "live"),
    Knob("td_loss", "Loss", "huber", "huber: errors beyond 1 count linearly; mse: squared throughout.", "live",
         choices=("huber", "mse")),
    Knob("epsilon_start", "Exploration at the start", 1.0, "Higher: more random actions at first.", "live", 0, 1,
         (0.5, 1), r"\varepsilon"),
    Knob("epsilon_end", "Exploration at the end", 0.04, "Higher: keeps exploring; lower: earns more while it learns.",
         "live", 0, 1, (0.01, 0.1)),
    Knob("exploration_frac", "Exploration share", 0.2, "Higher: explores for longer; lower: exploits sooner.",
         "live", 0, 1, (0.05, 0.5), unit="share of the run"),
)}

_COMMON = "learning_rate anneal gamma environments max_grad_norm eval_every eval_episodes"
_CRITIC = _COMMON + " critic_learning_rate gae_lambda normalise"
_TRUST = _CRITIC + " rollout_steps critic_epochs delta cg_iterations damping backtrack backtracks"


def _rows(keys: str, **defaults: Value) -> tuple[Knob, ...]:
    return tuple(replace(_ALL[key], default=defaults.get(key, _ALL[key].default)) for key in keys.split())


KNOBS: dict[str, tuple[Knob, ...]] = {
    "dqn": _rows(_COMMON + " rollout_steps batch_size buffer_size learning_starts gradient_steps target_every tau "
                 "double td_loss epsilon_start epsilon_end exploration_frac", learning_rate=2e-3, max_grad_norm=10.0,
                 environments=16, rollout_steps=8, eval_every=8),
    "reinforce": _rows(_CRITIC + " entropy_coef critic_epochs psi variance_every", gamma=0.99, gae_lambda=0.97,
                       learning_rate=1e-2, critic_learning_rate=1e-2, environments=16, anneal=False),
    "a2c": _rows(_CRITIC + " entropy_coef rollout_steps rollouts_per_step", gamma=0.99, gae_lambda=1.0,
                 rollout_steps=5, learning_rate=2e-3, critic_learning_rate=2e-3, normalise=False),
    "trpo": _rows(_TRUST.replace("learning_rate ", "", 1), delta=0.02, rollout_steps=64, anneal=False),
    "ppo": _rows(_CRITIC + " entropy_coef rollout_steps epochs mini_batches objective clip_low clip_high beta "
                 "kl_target clip_values value_clip", gae_lambda=0.95, rollout_steps=64, epochs=10, mini_batches=2,
                 learning_rate=2e-3, critic_learning_rate=2e-3),
}


def checked(method: str, given: Mapping[str, Any] | None = None) -> dict[str, Value]:
    """All knobs of `method`: those given, checked, and the defaults of the others.

    Raises:
        LabError: the method or a knob is unknown, or a value is out of its bounds.
    """
    if method not in KNOBS:
        raise LabError(f"There is no method {method!r}: {suggestion(method, list(KNOBS))}")
    rows = {knob.key: knob for knob in KNOBS[method]}
    for key in given or {}:
        if key not in rows:
            raise LabError(f"{method} has no knob {key!r}: {suggestion(key, list(rows))}")
    return {key: knob.check((given or {}).get(key, knob.default)) for key, knob in rows.items()}
