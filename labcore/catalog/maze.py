"""The tables of the maze: dynamic programming, learning from steps, tabular policy gradients, and the mazes.

A step of a run is a sweep over all states, an episode, or the episodes of one policy update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.knob import Knob, Value
from labcore.catalog.task import Task

_DP, _TD, _PG, _MATHS = (f"labcore.classic.tabular.{name}" for name in (
    "dynamic_programming", "temporal_difference", "policy_gradient", "policy_maths"))


@dataclass(frozen=True)
class TabularAlgorithm(Algorithm):
    """A row of a tabular method: `method` is its sweep or update, `learner` ("module:class") holds the tables that it
    updates and walks with them; empty where the maze is known and nobody walks.
    """

    learner: str = ""


_GAMMA = Knob("gamma", "Discount", 0.9, "Higher: far rewards count, values spread further. Lower: only the near future "
              "counts.", "live", 0.0, 1.0, (0.5, 1.0), r"\gamma", group="advantage", reach=(0.0, 1.0))
_PACE = Knob("pace", "Pace", 20.0, "Higher: finishes sooner. Lower: slow enough to watch it learn. 0: as fast as the "
             "machine can.",
             "live", 0.0, 1000.0, (0.0, 60.0), unit="steps/s", group="sampling")
_ALPHA = Knob("alpha", "Step size", 0.5, "Higher: learns more from each step, and forgets faster. Lower: averages "
              "over more steps, slowly.", "live", 0.0, 100.0, (0.0, 1.0), r"\alpha", group="optimisation",
              reach=(0.0, 2.0), aliases="learning rate lr")
_STEP_LIMIT = Knob("step_limit", "Longest episode", 1000, "Higher: a lost agent gets more time. Lower: it starts "
                   "again sooner.", "next batch", 1, 100_000, unit="moves", advanced=True, group="task")
_RANDOM_START = Knob("random_start", "Start anywhere", False, "On: episodes begin in any free cell, so every state is "
                     "visited. Off: at the start, so only the states on the way are learnt.", advanced=True,
                     group="task")
_WALKING = (_STEP_LIMIT, _RANDOM_START)

_PLANNING = (
    _GAMMA,
    Knob("tolerance", "Tolerance", 1e-4, "The sweeps end when no value changes by more than this. Lower: more exact, "
         "more sweeps. Higher: fewer sweeps, less exact.", "live", 1e-12, 1.0, (1e-9, 1e-1), r"\theta", "reward",
         scale="log", group="optimisation"),
    _PACE.with_default(8.0),
)

_LEARNING = (
    _ALPHA, _GAMMA,
    Knob("epsilon", "Exploration", 0.3, "Share of random moves. Higher: finds more, with lower returns during "
         "training. Lower: keeps to the first path that works.", "live", 0.0, 1.0, (0.0, 1.0), r"\varepsilon",
         group="sampling"),
    Knob("epsilon_end", "Exploration at the end", 0.05, "Final share of random moves. Higher: keeps "
         "exploring. Lower: higher returns in the end.", "live", 0.0, 1.0, (0.0, 0.5), r"\varepsilon_{end}",
         group="sampling"),
    Knob("epsilon_steps", "Moves until ε_end", 2000, "Moves until the share of random moves reaches ε_end; 0: it stays "
         "constant. Higher: explores for longer. Lower: commits sooner.",
         "live", 0, 10_000_000, (0, 20_000),
         unit="moves", group="sampling"),
    Knob("alpha_decay", "Step size decay", 0.0, "The step size is α/n^ω after n visits of a cell. Higher: converges "
         "in a noisy maze. 0: constant.", "live", 0.0, 1.0, (0.0, 1.0), r"\omega", advanced=True, group="optimisation"),
    _PACE, *_WALKING,
)

_TRACES = Knob("lambda", "Trace decay", 0.8, "Higher: a reward is credited far back along the path at once. Lower: one "
               "cell at a time.", "live", 0.0, 1.0, (0.0, 1.0), r"\lambda", group="advantage")

_GRADIENT = (
    _ALPHA, _GAMMA,
    Knob("entropy_coef", "Entropy bonus", 0.02, "Higher: stays random for longer. Lower: commits sooner, perhaps too "
         "early.", "live", 0.0, 10.0, (0.0, 0.2), "c_H", "reward/nat", group="kl", reach=(0.0, 2.0)),
    Knob("value_alpha", "Step size of V", 0.2, "Higher: V follows the policy quickly, with noise. Lower: smoothly and "
         "late.",
         "live", 0.0, 1.0, (0.01, 1.0), r"\alpha_V", group="advantage"),
    _PACE,
    Knob("discount_states", "Discount the states", False, "On: a state at time t is weighted by γ^t, as the policy "
         "gradient theorem says. Off: all states count equally, as in most code.", "live", advanced=True,
         group="advantage"),
    *_WALKING,
)
_EPISODES = Knob("episodes_per_update", "Episodes per update", 4, "Higher: a steadier gradient, fewer updates. Lower: "
                 "noisier and more often.", "next batch", 1, 10_000, (1, 32), "N", group="sampling")

_KNOBS = {"planning": _PLANNING, "temporal_difference": _LEARNING, "tabular_policy_gradient": _GRADIENT}
_PANELS = {
    "planning": ("value_error", "value_change", "start_value"),
    "temporal_difference": ("episode_return", "start_value", "q_error", "moves", "value_error", "td_error", "epsilon"),
    "tabular_policy_gradient": ("episode_return", "start_value", "action_entropy", "moves", "value_error", "td_error"),
}
_STEPS = {"planning": 2000, "temporal_difference": 300, "tabular_policy_gradient": 300}
_MODELS = {"planning": ("V",), "temporal_difference": ("Q",), "tabular_policy_gradient": ("policy", "V")}
_LEARNERS = {"planning": "", "temporal_difference": "labcore.classic.tabular.td_learner:TDLearner",
             "tabular_policy_gradient": "labcore.classic.tabular.policy_learner:PolicyLearner"}


def _row(key: str, label: str, loop: str, method: str, *, extra: tuple[Knob, ...] = (),
         defaults: dict[str, Value] | None = None, source: tuple[str, ...] = (), **rest: Any) -> TabularAlgorithm:
    """A row of a loop's knobs (and `extra` ones after the first two), with `defaults` of its own."""
    shared = _KNOBS[loop]
    knobs = tuple(knob.with_default((defaults or {}).get(knob.key, knob.default))
                  for knob in (*shared[:2], *extra, *shared[2:]))
    return TabularAlgorithm(key, label, loop, knobs=knobs, models=_MODELS[loop], panels=_PANELS[loop],
                            steps=_STEPS[loop], source=(method, *source), method=method, learner=_LEARNERS[loop],
                            **rest)


_ROWS = (
    _row("value_iteration", "Value iteration", "planning", f"{_DP}:value_iteration",
         summary="Knows the maze: every state takes the value of its best action, sweep by sweep, until none changes.",
         latex=r"V(s)\leftarrow\max_a\Big[R(s,a)+\gamma\sum_{s'}P(s'\mid s,a)\,V(s')\Big]\quad"
               r"\text{until}\ \max_s|\Delta V(s)|\le\theta",
         watch="Value spreads backwards from the goal, one cell per sweep. With γ = 1 it may never converge.",
         paper="Bellman 1957; Sutton and Barto 2018, eq. 4.10"),
    _row("policy_iteration", "Policy iteration", "planning", f"{_DP}:policy_iteration",
         summary="Knows the maze: evaluates the policy, makes it greedy, and repeats until nothing changes.",
         latex=r"V\leftarrow R_\pi+\gamma P_\pi V\ \text{until}\ \max|\Delta V|\le\theta,\qquad "
               r"\pi(s)\leftarrow\arg\max_a Q_\pi(s,a)",
         watch="Few improvements, each after many sweeps: the policy is optimal long before its values are.",
         paper="Howard 1960; Sutton and Barto 2018, section 4.3", source=(f"{_DP}:improve",)),
    _row("policy_evaluation", "Policy evaluation", "planning", f"{_DP}:policy_evaluation",
         summary="Knows the maze: the values of the uniform random policy, sweep by sweep. Nothing is improved.",
         latex=r"V(s)\leftarrow\sum_a\pi(a\mid s)\Big[R(s,a)+\gamma\sum_{s'}P(s'\mid s,a)\,V(s')\Big]\quad"
               r"\text{until}\ \max_s|\Delta V(s)|\le\theta",
         watch="The error is measured against the exact values of the random policy, not of the best one.",
         paper="Sutton and Barto 2018, eq. 4.5", source=(f"{_DP}:exact_values",)),
    _row("q_learning", "Q-learning", "temporal_difference", f"{_TD}:q_learning",
         summary="Learns the best action values while it explores: off-policy, one step at a time.",
         latex=r"Q(s,a)\leftarrow Q(s,a)+\alpha\big[r+\gamma\max_{a'}Q(s',a')-Q(s,a)\big]",
         watch="It learns the greedy path while it explores: beside a cliff it falls more often than SARSA.",
         paper="Watkins 1989; Sutton and Barto 2018, eq. 6.8"),
    _row("sarsa", "SARSA", "temporal_difference", f"{_TD}:sarsa",
         summary="Learns the values of the policy it follows, exploration included: on-policy.",
         latex=r"Q(s,a)\leftarrow Q(s,a)+\alpha\big[r+\gamma\,Q(s',a')-Q(s,a)\big]",
         watch="Its values include its random moves: the error against Q* stays until ε falls.",
         paper="Rummery and Niranjan 1994; Sutton and Barto 2018, eq. 6.7"),
    _row("expected_sarsa", "Expected SARSA", "temporal_difference", f"{_TD}:expected_sarsa",
         summary="SARSA with the expectation over the next action instead of a sample: less variance.",
         latex=r"Q(s,a)\leftarrow Q(s,a)+\alpha\Big[r+\gamma\sum_{a'}\pi(a'\mid s')\,Q(s',a')-Q(s,a)\Big]",
         watch="In a maze without slip a step size of 1 works: there is no noise to average.",
         paper="van Seijen et al. 2009; Sutton and Barto 2018, eq. 6.9"),
    _row("double_q_learning", "Double Q-learning", "temporal_difference", f"{_TD}:double_q_learning",
         summary="Two tables: one picks the next action, the other values it, which removes the overestimation.",
         latex=r"Q_1(s,a)\leftarrow Q_1(s,a)+\alpha\big[r+\gamma\,Q_2(s',\arg\max_{a'}Q_1(s',a'))-Q_1(s,a)\big]",
         watch="Slower at first, since each table learns from half of the steps; better where rewards are noisy.",
         paper="van Hasselt 2010"),
    _row("monte_carlo", "Monte Carlo control", "temporal_difference", f"{_TD}:monte_carlo",
         summary="Waits for the end of the episode and credits each move with the return after it: no bootstrapping.",
         latex=r"Q(s,a)\leftarrow Q(s,a)+\alpha\big[G_t-Q(s,a)\big],\qquad G_t=r_{t+1}+\gamma\,G_{t+1}",
         watch="Nothing is learnt before the first episode ends, and the returns of long episodes are noisy.",
         paper="Sutton and Barto 2018, section 5.4", defaults={"alpha": 0.1}),
    _row("sarsa_lambda", "SARSA(λ)", "temporal_difference", f"{_TD}:sarsa_lambda", extra=(_TRACES,),
         summary="SARSA in which every step also updates the earlier cells of the episode, less the longer ago.",
         latex=r"\delta=r+\gamma Q(s',a')-Q(s,a),\quad e(s,a)\leftarrow1,\quad Q\leftarrow Q+\alpha\,\delta\,e,\quad "
               r"e\leftarrow\gamma\lambda\,e",
         watch="With λ = 0 it is SARSA, with 1 nearly Monte Carlo: in corridors a high λ learns the path at once.",
         paper="Singh and Sutton 1996; Sutton and Barto 2018, section 12.7", defaults={"alpha": 0.3}),
    _row("q_lambda", "Q(λ)", "temporal_difference", f"{_TD}:q_lambda", extra=(_TRACES,),
         summary="Q-learning with traces, which are cut at every move that is not greedy.",
         latex=r"\delta=r+\gamma\max_{a'}Q(s',a')-Q(s,a),\quad e(s,a)\leftarrow1,\quad Q\leftarrow Q+\alpha\,"
               r"\delta\,e,\quad e\leftarrow\gamma\lambda\,e\ \text{or}\ 0",
         watch="With much exploration the traces are cut before they reach far: lower ε to see λ work.",
         paper="Watkins 1989; Sutton and Barto 2018, section 12.10", defaults={"alpha": 0.3}),
    _row("reinforce", "REINFORCE", "tabular_policy_gradient", f"{_PG}:reinforce",
         extra=(_EPISODES, Knob(
             "psi", "Weight", "baseline", "Weight of log π. Total return: the return of the whole episode; "
             "reward to go: the return from the move on; baseline: reward to go minus V(s). Each has less variance "
             "than the one before.", "next batch", choices=("total_return", "reward_to_go", "baseline"),
             symbol=r"\Psi_t", group="advantage")),
         summary="Makes moves that were followed by a high return more likely: the score function, by whole episodes.",
         latex=r"\begin{gathered}\theta\leftarrow\theta+\frac{\alpha}{N}\sum_t\big[\Psi_t\,\nabla_\theta\log\pi_\theta"
               r"(a_t\mid s_t)+c_H\nabla_\theta H\big]\\ \Psi_t=G_t-V(s_t),\quad G_t=r_{t+1}+\gamma\,G_{t+1},\quad "
               r"V(s)\leftarrow V(s)+\alpha_V\big[\bar G(s)-V(s)\big]\end{gathered}",
         watch="With total_return every move of a good episode becomes more likely, the bad ones too.",
         paper="Williams 1992, Machine Learning 8:229", defaults={"alpha": 0.5}, source=(
             f"{_MATHS}:with_baseline",)),
    _row("actor_critic", "Actor-critic", "tabular_policy_gradient", f"{_PG}:actor_critic",
         summary="Policy and critic learn at every step from the TD error δ: no waiting for the end of the episode.",
         latex=r"\delta=r+\gamma V(s')-V(s),\quad V(s)\leftarrow V(s)+\alpha_V\delta,\quad "
               r"\theta\leftarrow\theta+\alpha\big[\delta\,\nabla_\theta\log\pi_\theta(a\mid s)+"
               r"c_H\nabla_\theta H\big]",
         watch="While V is wrong, δ is too: a fast critic with a slow actor is more stable.",
         paper="Sutton and Barto 2018, section 13.5", defaults={"alpha": 0.2}),
    _row("ppo", "PPO", "tabular_policy_gradient", f"{_PG}:ppo",
         extra=(_EPISODES,
                Knob("gae_lambda", "GAE λ", 0.95, "Higher: less bias, more noise. Lower: trusts V.", "next batch", 0.0,
                     1.0, (0.8, 1.0), r"\lambda", group="advantage", reach=(0.0, 1.0)),
                Knob("clip_range", "Clip range", 0.2, "Higher: a move's probability may change more per batch. "
                     "Lower: safer.", "next batch", 0.0, 10.0, (0.05, 0.4), r"\varepsilon", group="clip",
                     reach=(0.0, 2.0)),
                Knob("epochs", "Epochs", 10, "Higher: each batch is used more often, until the clip stops it. Lower: "
                     "slower, safer.", "next batch", 1, 1000, (1, 20), "K", group="optimisation", reach=(1, 60)),
                Knob("standardise", "Standardise advantages", True, "On: their root mean square is 1 in every batch, "
                     "so the update does not depend on the reward's scale. Off: it does.", "next batch",
                     advanced=True, group="advantage")),
         summary="Several clipped epochs on each batch of episodes, with advantages from V.",
         latex=r"\begin{gathered}\theta\leftarrow\theta+\alpha\nabla_\theta\operatorname{mean}_t\Big[\min\big("
               r"\rho_tA_t,\ \operatorname{clip}(\rho_t,1-\varepsilon,1+\varepsilon)A_t\big)+c_H H\Big],\quad "
               r"\rho=\pi_\theta/\pi_{old}\\ A_t=\sum_l(\gamma\lambda)^l\delta_{t+l},\quad V(s)\leftarrow V(s)+"
               r"\alpha_V\big[\overline{A+V_{old}}(s)-V(s)\big]\end{gathered}",
         watch="With 1 epoch the clip does nothing: the ratio is 1 when the gradient is taken.",
         paper="Schulman et al. 2017, arXiv:1707.06347", defaults={"alpha": 4.0}, source=(
             f"{_MATHS}:clipped_score", f"{_MATHS}:gae")),
)

ALGORITHMS: dict[str, Algorithm] = {row.key: row for row in _ROWS}
LOOPS = tuple(_KNOBS)

_PRESETS = "labcore.classic.envs.maze_presets"


def _preset(key: str, label: str, help: str, **defaults: Value) -> Task:
    """A maze that the function `key` of the presets builds, with the method's knobs that suit it."""
    return Task(key, label, help, f"{_PRESETS}:{key}", LOOPS, defaults=defaults)


TASKS: dict[str, Task] = {task.key: task for task in (
    _preset("textbook", "Textbook 2 × 3", "+10 at the goal, −10 in the trap beside it: small enough to compute by "
            "hand.", gamma=0.9),
    _preset("slippery", "Slippery 4 × 4", "A move may slip sideways: the short path along the traps is not the best.",
            gamma=0.95, alpha_decay=0.6, random_start=True),
    _preset("corridors", "Corridors 8 × 8", "A long path with dead ends: credit must travel far.", gamma=0.97),
    _preset("cliff", "Cliff 4 × 12", "−100 over the edge: SARSA learns the safe path, Q-learning the short one.",
            gamma=1.0),
    _preset("two_goals", "Two goals", "A small goal near, a large one far: γ decides, if exploration finds both.",
            gamma=0.9, random_start=True),
    Task("random", "Random maze", "Walls and traps at random; the goal stays within reach.", f"{_PRESETS}:random_maze",
         LOOPS, (
             Knob("maze_seed", "Maze number", 0, "Another number: another maze.", low=0, high=2**31 - 1, group="task"),
             Knob("height", "Rows", 10, "More: a longer way, more to learn.", low=2, high=30, safe=(4, 30),
                  group="task"),
             Knob("width", "Columns", 10, "More: a longer way, more to learn.", low=2, high=30, safe=(4, 30),
                  group="task"),
             Knob("wall_frac", "Walls", 0.3, "Share of cells that are walls. Higher: narrower paths. Lower: open.",
                  low=0.0, high=0.9, safe=(0.0, 0.5), unit="share", group="task"),
             Knob("trap_frac", "Traps", 0.03, "Share of cells that are traps. Higher: more dangerous. Lower: safer.",
                  low=0.0, high=0.9, safe=(0.0, 0.2), unit="share", group="task"),
         ), defaults={"gamma": 0.98}),
    Task("own", "Your own maze", "A maze that you draw, or load from a file.", f"{_PRESETS}:own", LOOPS, (
        Knob("maze", "Maze", "S2.~.TG_-10~10_0_0_0.9", "The maze as a short text, as in the page's address.",
             advanced=True, group="task"),)),
)}

SHARED = frozenset(key for task in TASKS.values() for key in task.defaults)
