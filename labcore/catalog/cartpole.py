"""The tables of CartPole and every other Gymnasium environment: deep methods and environments.

A step of a run is one rollout in all environments, and the updates on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.families.surrogates import OBJECTIVE
from labcore.catalog.knob import Knob, Value
from labcore.catalog.task import Task

_HERE = "labcore.classic.deep"
_ADAM, _RMSPROP = f"{_HERE}.networks:adam", f"{_HERE}.networks:rmsprop"


@dataclass(frozen=True)
class DeepAlgorithm(Algorithm):
    """A row of a deep method: `method` is its loop, and the rest is what its session holds ("module:function").

    `networks` builds the networks, `acts` names the one whose outputs choose actions, `optimizers` makes the optimizer
    of each network that learns by one. `replay`: it learns from a replay buffer.
    """

    networks: str = f"{_HERE}.networks:actor_critic"
    acts: str = "policy"
    optimizers: Mapping[str, str] = field(default_factory=lambda: {"policy": _ADAM, "critic": _ADAM})
    replay: bool = False


FEW = "deep_values"  # the loop of methods that compare the values of a few actions

_ALL = {knob.key: knob for knob in (
    Knob("learning_rate", "Learning rate", 1e-3, "Higher: faster, until the policy breaks; lower: slow but steady.",
         "live", 0, 1, (1e-5, 1e-2), r"\eta", scale="log", annealed=True, group="optimisation",
         reach=(1e-5, 0.1), aliases="lr"),
    Knob("critic_learning_rate", "Critic learning rate", 1e-3, "Higher: the values follow the policy faster; lower: "
         "they are smoother.", "live", 0, 1, (1e-5, 1e-2), r"\eta_V", scale="log", annealed=True, group="advantage"),
    Knob("anneal", "Anneal to zero", True, "On: learning rates, clip range and TRPO's δ fall linearly to 0 at the last "
         "step, which keeps a good policy; off: they stay constant, so the run can be extended.", "live",
         advanced=True, group="optimisation"),
    Knob("gamma", "Discount", 0.98, "Higher: later rewards count, with more noise; lower: only the near future.",
         "next batch", 0, 1, (0.9, 1), r"\gamma", group="advantage", reach=(0, 1)),
    Knob("gae_lambda", "GAE λ", 0.8, "Higher: less bias, more noise; lower: trusts the critic.", "next batch", 0, 1,
         (0.8, 1), r"\lambda", group="advantage", reach=(0, 1)),
    Knob("environments", "Environments", 8, "Higher: more experience per second; lower: fresher experience.",
         "restart", 1, 65536, (1, 64), "E", group="sampling", aliases="n_envs"),
    Knob("rollout_steps", "Steps per rollout", 32, "Higher: better advantages and rarer updates; lower: the reverse.",
         "next batch", 1, 100_000, (5, 512), "T", group="sampling", aliases="n_steps horizon"),
    Knob("entropy_coef", "Entropy bonus", 0.0, "Higher: the policy stays random longer; lower: it commits sooner.",
         "live", 0, 1, (0, 0.02), "c_H", "reward/nat", group="kl", reach=(0, 0.5), aliases="ent_coef"),
    Knob("max_grad_norm", "Gradient clip", 0.5, "Higher: rare large gradients pass; lower: every update is small.",
         "live", 0, 1e9, (0.1, 10), advanced=True, group="optimisation"),
    Knob("normalise", "Normalise advantages", True, "On: mean 0 and standard deviation 1 in every batch, so one "
         "learning rate serves all reward scales; off: the plain estimate.", "live", advanced=True, group="advantage"),
    Knob("eval_every", "Evaluate every", 4, "Higher: less time spent on evaluation; lower: a finer curve.",
         "live", 1, 1e9, (1, 100), unit="steps", advanced=True, group="evaluation"),
    Knob("eval_episodes", "Evaluation episodes", 20, "Higher: a more precise mean; lower: quicker.", "live", 1, 1000,
         (5, 50), advanced=True, group="evaluation"),
    Knob("epochs", "Epochs", 20, "Higher: each batch is used more often, and the policy moves further from it; "
         "lower: safer.", "live", 1, 1000, (1, 20), "K", group="optimisation", reach=(1, 80), aliases="n_epochs"),
    Knob("mini_batches", "Mini-batches", 1, "Higher: more and noisier updates per epoch; lower: fewer and smoother.",
         "live", 1, 10_000, (1, 16), group="optimisation"),
    Knob("critic_epochs", "Critic's epochs", 20, "Higher: values fit the batch better; lower: less time.", "live", 1,
         1000, (1, 80), advanced=True, group="advantage"),
    Knob("objective", "Objective", "clip", "Clip: gains beyond the clip range give no gradient; KL penalty: leaving "
         "the old policy costs β per nat.", "live", choices=OBJECTIVE.names, group="clip"),
    Knob("clip_low", "Clip, low side", 0.2, "Higher: actions may become less likely faster; lower: safer.", "live", 0,
         1, (0.05, 0.4), r"\varepsilon_{low}", annealed=True, group="clip", reach=(0, 1), aliases="epsilon cliprange"),
    Knob("clip_high", "Clip, high side", 0.2, "Higher: actions may become more likely faster; lower: safer.", "live",
         0, 10, (0.05, 0.4), r"\varepsilon_{high}", annealed=True, group="clip",
         reach=(0, 5), aliases="epsilon cliprange"),
    Knob("beta", "KL coefficient", 1.0, "Higher: smaller updates; lower: larger ones. With a KL target it is scaled "
         "by the adaptive factor.", "live", 0, 1e6, (0, 10), r"\beta", "reward/nat", group="kl"),
    Knob("kl_target", "KL target", 0.01, "Higher: the adaptive β allows larger updates; lower: smaller ones; 0 "
         "keeps β constant.", "live", 0, 10, (0, 0.1), r"d_{targ}", "nats", group="kl"),
    Knob("clip_values", "Clip values", False, "On: a value moves at most ε_V per batch; off: freely.",
         "live", advanced=True, group="advantage"),
    Knob("value_clip", "Value clip", 0.2, "Higher: values may move further in one batch; lower: less.", "live",
         0, 1e6, (0.1, 10), r"\varepsilon_V", "reward", advanced=True, group="advantage"),
    Knob("delta", "Trust region", 0.01, "Higher: larger updates, until the quadratic model of the KL no longer "
         "holds; lower: slower learning.", "live", 0, 10, (0.001, 0.05), r"\delta", "nats", annealed=True,
         group="clip", reach=(0.001, 1)),
    Knob("cg_iterations", "CG iterations", 10, "Higher: a direction nearer to the natural gradient; lower: quicker.",
         "live", 1, 1000, (5, 20), advanced=True, group="clip"),
    Knob("damping", "Damping", 0.1, "Higher: safer where the Fisher matrix is nearly singular, nearer the plain "
         "gradient; lower: nearer the natural one.", "live", 0, 100, (0.01, 0.2), advanced=True, group="clip"),
    Knob("backtrack", "Backtrack factor", 0.8, "Higher: a finer line search; lower: a quicker one.", "live", 0.01,
         0.99, (0.5, 0.9), advanced=True, group="clip"),
    Knob("backtracks", "Backtracks", 10, "Higher: tries smaller steps before it gives up; lower: fewer.", "live", 1,
         100, (5, 20), advanced=True, group="clip"),
    Knob("psi", "Weight", "advantage", "Weight of log π. Total return: the return of the whole episode; "
         "reward to go: the return from the action on; baseline: reward to go minus V(s); advantage: GAE. Each has "
         "less variance than the one before.", "live",
         choices=("total_return", "reward_to_go", "baseline", "advantage"), symbol=r"\Psi_t", group="advantage"),
    Knob("variance_every", "Measure gradient variance every", 10, "Higher: less time; lower: a finer curve.", "live",
         1, 1e9, (1, 100), unit="steps", advanced=True, group="advantage"),
    Knob("rollouts_per_step", "Updates per step", 10, "Higher: fewer points on the chart; lower: more.", "live", 1,
         10_000, (1, 50), advanced=True, group="sampling"),
    Knob("batch_size", "Batch size", 64, "Higher: smoother updates; lower: quicker ones.", "live", 1, 1e6, (32, 256),
         group="optimisation"),
    Knob("n_steps", "Steps per target", 1, "Higher: rewards reach earlier states faster and errors of Q add up less; "
         "lower: targets depend less on actions of older policies.", "next batch", 1, 100_000, (1, 32), "n", before=1,
         group="advantage"),
    Knob("buffer_size", "Replay size", 100_000, "Higher: remembers longer; lower: forgets old policies sooner.",
         "restart", 1, 1e7, (1e4, 1e6), advanced=True, group="sampling"),
    Knob("learning_starts", "Steps before learning", 1000, "Higher: a more varied first batch; lower: an earlier "
         "start.", "live", 0, 1e9, (100, 10_000), unit="environment steps", advanced=True, group="sampling"),
    Knob("gradient_steps", "Updates per rollout", 32, "Higher: more learning per environment step, until it "
         "overfits the replayed transitions; lower: quicker.", "live", 1, 1e6, (1, 256), group="optimisation"),
    Knob("target_every", "Target update every", 64, "Higher: steadier targets; lower: fresher ones. The "
         "target network also acts.", "live", 1, 1e9,
         (1, 1000), unit="updates", group="advantage"),
    Knob("tau", "Target update share", 1.0, "1: copies the network; lower: moves the target by that share of the "
         "distance.",
         "live", 0, 1, (0.005, 1), r"\tau", advanced=True, group="advantage"),
    Knob("double", "Double DQN", True, "On: the network chooses the next action and the target network values it, "
         "which reduces overestimation; off: the target network does both.", "live", group="advantage"),
    Knob("td_loss", "Loss", "huber", "mse: every error counts by its square; huber: errors beyond 1 count "
         "linearly, so rare episode ends, with targets far from nearby values, count little.", "live",
         choices=("huber", "mse"), advanced=True, group="advantage"),
    Knob("epsilon_start", "Exploration at the start", 1.0, "Higher: more random actions at first.", "live", 0, 1,
         (0.5, 1), r"\varepsilon", advanced=True, group="sampling"),
    Knob("epsilon_end", "Exploration at the end", 0.04, "Higher: keeps exploring; lower: higher returns during "
                                                        "training.",
         "live", 0, 1, (0.01, 0.1), r"\varepsilon_{end}", group="sampling"),
    Knob("exploration_frac", "Exploration share", 0.2, "Higher: explores for longer; lower: exploits sooner.",
         "live", 0, 1, (0.05, 1), unit="share of the run", advanced=True, group="sampling"),
    Knob("normalise_observations", "Normalise observations", False, "On: each observed number is scaled to mean 0 and "
         "standard deviation 1 over all observations so far, for worlds whose numbers differ in size; off: it is only "
         "divided by its "
         "bounds.", "restart", advanced=True, before=False, group="model", aliases="normalize norm_obs VecNormalize"),
    Knob("normalise_rewards", "Normalise rewards", False, "On: the rewards that the update uses are divided by the "
         "standard deviation of the returns, so one learning rate suits more worlds; off: they stay as they "
         "are.", "restart",
         advanced=True, before=False, group="advantage", aliases="normalize norm_reward VecNormalize"),
    Knob("log_std", "Initial log σ of actions", 0.0, "Continuous actions only. Higher: more varied actions at first; "
         "lower: actions near the mean. Training then changes σ.", "restart", -20, 5, (-3, 1), r"\log\sigma_0",
         before=0.0, group="sampling", aliases="log_std_init", advanced=True),
    Knob("hidden", "Units per layer", 64, "Higher: can represent more, takes more compute per step; lower: quicker.",
         "restart", 1, 4096, (16, 256), advanced=True, group="model"),
    Knob("layers", "Hidden layers", 2, "Higher: can represent more, harder to train; lower: simpler functions.",
         "restart", 1, 8, (1, 3), advanced=True, group="model"),
    Knob("layer_norm", "Layer normalisation", True, "On: the inputs of the last hidden units are normalised, so that "
         "all units stay active and Q keeps improving. Off: up to half of these units end at 0 for every state.",
         "restart", advanced=True, before=False, group="model"),
)}

_COMMON = "learning_rate gamma environments anneal max_grad_norm eval_every eval_episodes hidden layers " \
          "normalise_observations normalise_rewards"
_CRITIC = "critic_learning_rate gae_lambda normalise log_std"
_TRUST = "rollout_steps critic_epochs delta cg_iterations damping backtrack backtracks"

_LAST = ("grad_norm", "policy_loss", "episode_length", "env_speed", "memory")


def _row(key: str, label: str, method: str, knobs: str, *, defaults: dict[str, Value], extra: tuple[Knob, ...] = (),
         loop: str = "deep", **rest: Any) -> DeepAlgorithm:
    """A row with the knobs of these keys, in this order, with `defaults` of its own, and `extra` ones after them."""
    found = tuple(_ALL[name].with_default(defaults.get(name, _ALL[name].default)) for name in knobs.split())
    return DeepAlgorithm(key, label, loop, knobs=(*found, *extra), method=f"{_HERE}.{method}", **rest)


_ROWS = (
    _row("ppo", "PPO", "ppo:run", f"{_COMMON} rollout_steps epochs mini_batches objective clip_low clip_high beta "
         f"kl_target entropy_coef {_CRITIC} clip_values value_clip",
         summary="Several clipped passes over each rollout, with advantages from a critic.",
         latex=r"\begin{gathered}L=-\frac1N\sum_t\min\big(\rho_t\hat A_t,\ \operatorname{clip}(\rho_t,"
               r"1-\varepsilon_{low},1+\varepsilon_{high})\hat A_t\big)-c_H H,\quad \hat A_t=\sum_l(\gamma\lambda)^l"
               r"\delta_{t+l}\\ \text{or}\quad L=-\frac1N\sum_t\big[\rho_t\hat A_t-\beta\,KL(\pi_{old}\Vert"
               r"\pi_\theta)\big]-c_H H\end{gathered}",
         watch="More epochs learn faster until the ratios leave the clip range: then watch the KL of the step.",
         paper="Schulman et al. 2017, arXiv:1707.06347", models=("policy", "critic"), steps=120,
         panels=("episode_return", "clip", "explained_variance", "eval_return", "step_kl", "action_entropy",
                 "surrogate_clip", "critic", "td_error", "kl_coefficient", *_LAST),
         source=(f"{_HERE}.ppo:policy_loss", f"{_HERE}.ppo:adapt"),
         defaults={"gamma": 0.99, "gae_lambda": 0.95, "rollout_steps": 64, "epochs": 6, "mini_batches": 2,
                   "learning_rate": 2e-3, "critic_learning_rate": 2e-3}),
    _row("a2c", "A2C", "policy_gradient:a2c", f"{_COMMON} rollout_steps rollouts_per_step entropy_coef {_CRITIC}",
         summary="Actor and critic learn once from every short rollout; log π is weighted by the advantage.",
         latex=r"L=-\frac1N\sum_t\hat A_t\log\pi_\theta(a_t\mid s_t)-c_H H,\quad "
               r"\hat A_t=\sum_l(\gamma\lambda)^l\delta_{t+l}",
         watch="One batch can ruin the policy: nothing bounds the update. Compare its KL with TRPO's.",
         paper="Mnih et al. 2016, arXiv:1602.01783", models=("policy", "critic"), steps=150,
         panels=("episode_return", "step_kl", "explained_variance", "eval_return", "action_entropy", "critic",
                 "td_error", *_LAST), source=(f"{_HERE}.policy_gradient:policy_update",),
         defaults={"gae_lambda": 1.0, "environments": 16, "rollout_steps": 5, "learning_rate": 2e-3,
                   "critic_learning_rate": 2e-3, "normalise": False, "entropy_coef": 0.01},
         optimizers={"policy": _RMSPROP, "critic": _RMSPROP}),
    _row("reinforce", "REINFORCE", "policy_gradient:reinforce",
         f"{_COMMON} psi entropy_coef {_CRITIC} critic_epochs variance_every",
         summary="One update per batch of whole episodes, log π weighted by Ψ. The choice of Ψ sets the variance.",
         latex=r"L=-\frac1N\sum_t\Psi_t\log\pi_\theta(a_t\mid s_t)-c_H H",
         watch="Gradient variance: the four choices of Ψ are measured on the same batch.",
         paper="Williams 1992; Schulman et al. 2016, arXiv:1506.02438, eq. 1", models=("policy", "critic"), steps=40,
         panels=("episode_return", "gradient_variance", "action_entropy", "eval_return", "step_kl", "critic",
                 "explained_variance", "td_error", *_LAST),
         source=(f"{_HERE}.policy_gradient:policy_update", f"{_HERE}.policy_gradient:gradient_variance"),
         defaults={"gamma": 0.99, "gae_lambda": 0.97, "learning_rate": 1e-2, "critic_learning_rate": 1e-2,
                   "environments": 16, "anneal": False}),
    _row("trpo", "TRPO", "trpo:run", f"{_COMMON.replace('learning_rate ', '', 1)} {_TRUST} {_CRITIC}",
         summary="The natural gradient, as large a step as the KL allows: conjugate gradients, then a line search.",
         latex=r"\max_\theta\ \mathbb E\big[\rho_t\hat A_t\big]\ \text{with}\ "
               r"\overline{KL}(\pi_{old}\Vert\pi_\theta)\le\delta,\quad "
               r"\Delta\theta=\sqrt{\tfrac{2\delta}{g^\top F^{-1}g}}\;F^{-1}g",
         watch="The KL of the step stays just under δ; a share of 0 means that the line search found no step.",
         paper="Schulman et al. 2015, arXiv:1502.05477", models=("policy", "critic"), steps=100,
         panels=("episode_return", "step_kl", "line_search", "eval_return", "action_entropy", "surrogate_clip",
                 "step_norm", "critic", "explained_variance", "td_error", "grad_norm", "episode_length", "env_speed",
                 "memory"),
         source=(f"{_HERE}.trpo:step", f"{_HERE}.trpo:conjugate_gradient", f"{_HERE}.trpo:line_search"),
         defaults={"gamma": 0.99, "delta": 0.02, "rollout_steps": 64, "anneal": False}, optimizers={"critic": _ADAM}),
    _row("dqn", "DQN", "dqn:run", f"{_COMMON} rollout_steps batch_size gradient_steps target_every tau double n_steps "
         "td_loss epsilon_start epsilon_end exploration_frac buffer_size learning_starts layer_norm",
         summary="Learns Q from replayed transitions towards targets made by a slower copy of the network, which also "
                 "acts.",
         latex=r"\begin{gathered}y=\sum_{k<n}\gamma^k r_{t+k}+\gamma^n(1-\text{end})\,Q_{target}(s_{t+n},a^*),\\ "
               r"a^*=\arg\max_a Q(s_{t+n},a),\quad L=\tfrac12\big(Q(s,a)-y\big)^2\ \text{or Huber}\\ "
               r"\phi_{target}\leftarrow(1-\tau)\,\phi_{target}+\tau\,\phi\end{gathered}",
         watch="Mean Q: when it grows far above the returns, the network bootstraps from its own errors.",
         paper="Mnih et al. 2015, Nature 518; van Hasselt et al. 2016, arXiv:1509.06461; Hessel et al. 2018, "
               "arXiv:1710.02298", models=("Q", "target"),
         steps=60, panels=("episode_return", "q_mean", "td_error", "eval_return", "loss", "epsilon", "grad_norm",
                           "replay", "episode_length", "env_speed", "memory"),
         source=(f"{_HERE}.dqn:n_step", f"{_HERE}.dqn:target", f"{_HERE}.dqn:update", f"{_HERE}.dqn:polyak"),
         defaults={"gamma": 0.99, "learning_rate": 2e-3, "max_grad_norm": 10.0, "environments": 64, "rollout_steps": 32,
                   "batch_size": 512, "target_every": 1, "tau": 0.05, "n_steps": 16, "td_loss": "mse",
                   "buffer_size": 20_000, "epsilon_end": 0.05, "exploration_frac": 0.15},
         networks=f"{_HERE}.networks:q_and_target", acts="target", optimizers={"q": _ADAM}, replay=True,
         loop=FEW, check="labcore.classic.envs.gym_world:check_few_actions"),
)

ALGORITHMS: dict[str, Algorithm] = {row.key: row for row in _ROWS}

_WORLDS = (
    ("CartPole-v1", "CartPole", "Push the cart so that the pole stays up: +1 per step, at most 500.",
     "sees the positions and speeds of the cart and the pole, pushes the cart left or right, and earns 1 per step "
     "while the pole stays up"),
    ("Acrobot-v1", "Acrobot", "Swing the lower link over the line: −1 per step until it is there.",
     "sees the angles and speeds of two links, turns the joint between them, and earns −1 per step until the lower end "
     "is over the line"),
    ("MountainCar-v0", "Mountain car", "Swing up the hill: −1 per step, and no hint of the goal until it is reached.",
     "sees the position and speed of a car, pushes it left, right or not at all, and earns −1 per step until it "
     "reaches the goal on the hill"),
    ("FrozenLake-v1", "Frozen lake", "Walk over slippery ice to the goal: reward 1 there, 0 elsewhere.",
     "sees the cell that it is in, walks in one of four directions and may slip, and earns 1 at the goal and 0 per "
     "step before"),
    ("CliffWalking-v1", "Cliff walking", "−1 per step, −100 over the edge.",
     "sees the cell that it is in, walks in one of four directions to the goal, and earns −1 per step and −100 over "
     "the edge"),
    ("Taxi-v4", "Taxi", "Pick up a passenger and drop them off at their destination.",
     "sees the taxi, a passenger and a destination, drives, picks up and drops off, and earns 20 for a passenger who "
     "arrives, −10 for an illegal pick-up or drop-off, and −1 per other step"),
    ("Pendulum-v1", "Pendulum", "Swing a pendulum up and hold it there with a continuous torque of at most 2 N m.",
     "sees the angle θ and speed ω of a pendulum, turns it with a torque u of −2 to 2 N m, and earns −(θ² + 0.1 ω² + "
     "0.001 u²) per step, which is 0 when it rests upright"),
    ("MountainCarContinuous-v0", "Mountain car, continuous", "Swing up the hill with a continuous force; the reward is "
     "100 at the goal, minus a cost of the "
     "force.", "sees the position and speed of a car, pushes it with a force of −1 to 1, and earns 100 at the goal on "
     "the hill, minus 0.1 times the squared force of each step"),
)

_CONTINUOUS = ("Pendulum-v1", "MountainCarContinuous-v0", "LunarLanderContinuous-v3")

# Offered where their packages are installed: Gymnasium imports pygame with them.
_BOX2D = all(map(find_spec, ("Box2D", "pygame")))
_OF_BOX2D = (
    ("LunarLander-v3", "Lunar lander", "Land between the flags with three engines.",
     "sees the position, speed and angle of a lander, fires one of three engines or none, and earns reward for landing "
     "softly between the flags"),
    ("LunarLanderContinuous-v3", "Lunar lander, continuous", "Land between the flags with two throttles.",
     "sees the position, speed and angle of a lander, sets two throttles, and earns reward for "
     "landing softly between the flags"),
)

ENV_ARGS = Knob("env_args", "Arguments of the world", "", "Arguments of the environment, as NAME=VALUE separated by "
                "spaces, such as is_slippery=false map_name=8x8. Empty: its own defaults.", "restart", before="",
                group="task", aliases="env_kwargs environment arguments", advanced=True)

# Methods that learn a world badly, as measured with its defaults (docs/environments.md).
_CAUTIONS = {
    "Pendulum-v1": {
        "reinforce": "REINFORCE does not learn this world in a run of the usual length: it makes one update per 3,200 "
                     "steps of the environment. Choose PPO or TRPO.",
        "a2c": "A2C learns this world slowly, and fails with some seeds. Choose PPO or TRPO."},
}

# Where a world needs other values than the rows.
_LANDER: dict[str, Value] = {
    "gamma": 0.999, "gae_lambda": 0.98, "environments": 16, "rollout_steps": 256, "mini_batches": 8,
    "learning_rate": 1e-3, "critic_learning_rate": 2e-3}
_SPARSE: dict[str, Value] = {"log_std": 1.0, "normalise_observations": True, "normalise_rewards": True}
_OWN: dict[str, dict[str, dict[str, Value]]] = {
    "Pendulum-v1": {
        "ppo": {"gamma": 0.95, "environments": 16, "rollout_steps": 128, "epochs": 10, "mini_batches": 4,
                "learning_rate": 3e-3, "critic_learning_rate": 3e-3},
        "a2c": {"gamma": 0.95, "gae_lambda": 0.95, "environments": 64, "rollout_steps": 16, "normalise": True,
                "entropy_coef": 0.0, "learning_rate": 3e-3, "critic_learning_rate": 5e-3},
        "trpo": {"gamma": 0.95, "gae_lambda": 0.95, "environments": 16, "rollout_steps": 128,
                 "critic_learning_rate": 3e-3, "anneal": True},
        "reinforce": {"gamma": 0.95, "gae_lambda": 0.95, "learning_rate": 5e-3, "critic_epochs": 40},
    },
    # Random actions reach the goal only where they are far beyond the force's bounds: a log σ of 1 at first.
    "MountainCarContinuous-v0": {
        "ppo": {"rollout_steps": 256, "epochs": 10, "mini_batches": 4, "learning_rate": 1e-3, "gae_lambda": 0.98,
                **_SPARSE},
        "a2c": {"gamma": 0.99, "gae_lambda": 0.98, "rollout_steps": 64, "normalise": True, "entropy_coef": 0.0,
                **_SPARSE},
        "trpo": {"rollout_steps": 256, "gae_lambda": 0.98, **_SPARSE},
        "reinforce": {"gae_lambda": 0.98, **_SPARSE},
    },
    "LunarLander-v3": {"ppo": {**_LANDER, "entropy_coef": 0.005}},
    "LunarLanderContinuous-v3": {"ppo": _LANDER},
}

TASKS: dict[str, Task] = {
    key: Task(key, label, help, "", ("deep",) if key in _CONTINUOUS else ("deep", FEW), (ENV_ARGS,), verifiable=False,
              goal={"": goal}, of_algorithm=_OWN.get(key, {}), cautions=_CAUTIONS.get(key, {}))
    for key, label, help, goal in (*_WORLDS, *(_OF_BOX2D if _BOX2D else ()))}
