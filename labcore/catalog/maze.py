"""The tables of the maze: dynamic programming, learning from steps, tabular policy gradients, and the mazes.

A step of a run is what one looks at: a sweep over all states, an episode, or the episodes of one policy update.
"""

from __future__ import annotations

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.knob import Knob, Value
from labcore.catalog.task import Task

_GAMMA = Knob("gamma", "Discount", 0.9, "Higher: far rewards count, values spread further. Lower: only the near future "
              "counts.", "live", 0.0, 1.0, (0.5, 1.0), r"\gamma")
_PACE = Knob("pace", "Pace", 20.0, "Higher: sooner done. Lower: slow enough to watch it learn. 0: as fast as the "
             "machine can.",
             "live", 0.0, 1000.0, (0.0, 60.0), unit="steps/s")
_ALPHA = Knob("alpha", "Step size", 0.5, "Higher: learns from every step at once, and forgets as fast. Lower: averages "
              "over more steps, slowly.", "live", 0.0, 100.0, (0.0, 1.0), r"\alpha")
_STEP_LIMIT = Knob("step_limit", "Longest episode", 1000, "Higher: an agent that is lost gets more time. Lower: it "
                   "begins again sooner.", "next batch", 1, 100_000, unit="moves", advanced=True)
_RANDOM_START = Knob("random_start", "Start anywhere", False, "On: episodes begin in any free cell, so every state is "
                     "tried. Off: at the start, so only what lies on the way is learnt.", advanced=True)
_WALKING = (_STEP_LIMIT, _RANDOM_START)

_PLANNING = (
    _GAMMA,
    Knob("tolerance", "Tolerance", 1e-4, "The sweeps end when no value changes by more. Lower: more digits, more "
         "sweeps. Higher: sooner done, less exact.", "live", 1e-12, 1.0, (1e-9, 1e-1), r"\theta", "reward",
         scale="log"),
    _PACE.with_default(8.0),
)

_LEARNING = (
    _ALPHA, _GAMMA,
    Knob("epsilon", "Exploration", 0.3, "Share of random moves. Higher: finds more, earns less meanwhile. Lower: "
         "sticks to the first way that works.", "live", 0.0, 1.0, (0.0, 1.0), r"\varepsilon"),
    Knob("epsilon_end", "Exploration at the end", 0.05, "What the share of random moves falls to. Higher: keeps "
         "exploring. Lower: earns more in the end.", "live", 0.0, 1.0, (0.0, 0.5), r"\varepsilon_{end}"),
    Knob("epsilon_steps", "Exploration falls over", 2000, "Moves until the exploration has fallen to its end; 0: it "
         "stays. Higher: explores for longer. Lower: commits sooner.", "live", 0, 10_000_000, (0, 20_000),
         unit="moves"),
    Knob("alpha_decay", "Step size decay", 0.0, "The step size is α/n^ω after n visits of a cell. Higher: settles in "
         "a noisy maze. 0: stays able to change.", "live", 0.0, 1.0, (0.0, 1.0), r"\omega", advanced=True),
    _PACE, *_WALKING,
)

_TRACES = Knob("lambda", "Trace decay", 0.8, "Higher: a reward is credited far back along the way at once. Lower: one "
               "cell at a time.", "live", 0.0, 1.0, (0.0, 1.0), r"\lambda")

_GRADIENT = (
    _ALPHA, _GAMMA,
    Knob("entropy_coef", "Entropy bonus", 0.02, "Higher: stays random for longer. Lower: commits sooner, perhaps too "
         "soon.", "live", 0.0, 10.0, (0.0, 0.2), "c_H", "reward/nat"),
    Knob("value_alpha", "Step size of V", 0.2, "Higher: V follows the policy at once, noisily. Lower: smooth and late.",
         "live", 0.0, 1.0, (0.01, 1.0), r"\alpha_V"),
    _PACE,
    Knob("discount_states", "Discount the states", False, "On: late states count γ^t in the gradient, as the theorem "
         "says. Off: all states count alike, as practice has it.", "live", advanced=True),
    *_WALKING,
)
_EPISODES = Knob("episodes_per_update", "Episodes per update", 4, "Higher: a steadier gradient, rarer updates. Lower: "
                 "noisy and often.", "next batch", 1, 10_000, (1, 32), "N")

_KNOBS = {"planning": _PLANNING, "temporal_difference": _LEARNING, "tabular_policy_gradient": _GRADIENT}
_PANELS = {
    "planning": ("value_error", "value_change", "start_value"),
    "temporal_difference": ("episode_return", "moves", "value_error", "q_error", "start_value", "td_error", "epsilon"),
    "tabular_policy_gradient": ("episode_return", "moves", "value_error", "start_value", "td_error", "action_entropy"),
}
_STEPS = {"planning": 2000, "temporal_difference": 300, "tabular_policy_gradient": 300}
_MODELS = {"planning": ("V",), "temporal_difference": ("Q",), "tabular_policy_gradient": ("policy", "V")}


def _row(key: str, label: str, loop: str, *, extra: tuple[Knob, ...] = (), without: tuple[str, ...] = (),
         defaults: dict[str, Value] | None = None, **rest) -> Algorithm:
    """A row of a loop's knobs (and `extra` ones after the first two), less `without`, with `defaults` of its own."""
    shared = _KNOBS[loop]
    knobs = tuple(knob.with_default((defaults or {}).get(knob.key, knob.default))
                  for knob in (*shared[:2], *extra, *shared[2:]) if knob.key not in without)
    return Algorithm(key, label, loop, knobs=knobs, models=_MODELS[loop], panels=_PANELS[loop], steps=_STEPS[loop],
                     **rest)


_DP, _TD, _PG = (f"labcore.tabular.{name}" for name in (
    "dynamic_programming", "temporal_difference", "policy_gradient"))

_ROWS = (
    _row("value_iteration", "Value iteration", "planning",
         summary="Knows the maze: every state takes the value of its best action, sweep by sweep, until none changes.",
         latex=r"V(s)\leftarrow\max_a\Big[R(s,a)+\gamma\sum_{s'}P(s'\mid s,a)\,V(s')\Big]\quad"
               r"\text{until}\ \max_s|\Delta V(s)|\le\theta",
         watch="Value flows backwards from the goal, one cell a sweep. With γ = 1 it may flow in circles.",
         paper="Bellman 1957; Sutton and Barto 2018, eq. 4.10", source=(f"{_DP}:value_iteration",)),
    _row("policy_iteration", "Policy iteration", "planning",
         summary="Knows the maze: evaluates the policy, makes it greedy, and again until it is greedy already.",
         latex=r"V\leftarrow R_\pi+\gamma P_\pi V\ \text{until}\ \max|\Delta V|\le\theta,\qquad "
               r"\pi(s)\leftarrow\arg\max_a Q_\pi(s,a)",
         watch="Few improvements, each after many sweeps: the policy is right long before its values are.",
         paper="Howard 1960; Sutton and Barto 2018, section 4.3", source=(f"{_DP}:policy_iteration", f"{_DP}:improve")),
    _row("policy_evaluation", "Policy evaluation", "planning",
         summary="Knows the maze: the values of walking at random, sweep by sweep. Nothing is improved.",
         latex=r"V(s)\leftarrow\sum_a\pi(a\mid s)\Big[R(s,a)+\gamma\sum_{s'}P(s'\mid s,a)\,V(s')\Big]\quad"
               r"\text{until}\ \max_s|\Delta V(s)|\le\theta",
         watch="The error is against the exact values of the random walk, not of the best policy.",
         paper="Sutton and Barto 2018, eq. 4.5", source=(f"{_DP}:policy_evaluation", f"{_DP}:exact_values")),
    _row("q_learning", "Q-learning", "temporal_difference",
         summary="Learns the best action values while it explores: off-policy, one step at a time.",
         latex=r"Q(s,a)\leftarrow Q(s,a)+\alpha\big[r+\gamma\max_{a'}Q(s',a')-Q(s,a)\big]",
         watch="It learns the greedy way though it walks at random: beside a cliff it falls more often than SARSA.",
         paper="Watkins 1989; Sutton and Barto 2018, eq. 6.8", source=(f"{_TD}:q_learning",)),
    _row("sarsa", "SARSA", "temporal_difference",
         summary="Learns the values of what it really does, exploration included: on-policy.",
         latex=r"Q(s,a)\leftarrow Q(s,a)+\alpha\big[r+\gamma\,Q(s',a')-Q(s,a)\big]",
         watch="Its values include its own random moves: the error to Q* stays until ε falls.",
         paper="Rummery and Niranjan 1994; Sutton and Barto 2018, eq. 6.7", source=(f"{_TD}:sarsa",)),
    _row("expected_sarsa", "Expected SARSA", "temporal_difference",
         summary="SARSA with the mean over the next action in place of the one that was drawn: less noise.",
         latex=r"Q(s,a)\leftarrow Q(s,a)+\alpha\Big[r+\gamma\sum_{a'}\pi(a'\mid s')\,Q(s',a')-Q(s,a)\Big]",
         watch="In a maze without slip a step size of 1 works: nothing is left to average.",
         paper="van Seijen et al. 2009; Sutton and Barto 2018, eq. 6.9", source=(f"{_TD}:expected_sarsa",)),
    _row("double_q_learning", "Double Q-learning", "temporal_difference",
         summary="Two tables: one picks the next action, the other values it, so that luck is not taken for skill.",
         latex=r"Q_1(s,a)\leftarrow Q_1(s,a)+\alpha\big[r+\gamma\,Q_2(s',\arg\max_{a'}Q_1(s',a'))-Q_1(s,a)\big]",
         watch="Slower at first, since each table sees half of the steps; better where rewards are noisy.",
         paper="van Hasselt 2010", source=(f"{_TD}:double_q_learning",)),
    _row("monte_carlo", "Monte Carlo control", "temporal_difference",
         summary="Waits for the end of the episode and credits all of its moves with what followed: no bootstrapping.",
         latex=r"Q(s,a)\leftarrow Q(s,a)+\alpha\big[G_t-Q(s,a)\big],\qquad G_t=r_{t+1}+\gamma\,G_{t+1}",
         watch="Nothing is learnt before the first end, and the returns of long walks are noisy.",
         paper="Sutton and Barto 2018, section 5.4", defaults={"alpha": 0.1}, source=(f"{_TD}:monte_carlo",)),
    _row("sarsa_lambda", "SARSA(λ)", "temporal_difference", extra=(_TRACES,),
         summary="SARSA whose every step also corrects the cells that led there, less the longer ago.",
         latex=r"\delta=r+\gamma Q(s',a')-Q(s,a),\quad e(s,a)\leftarrow1,\quad Q\leftarrow Q+\alpha\,\delta\,e,\quad "
               r"e\leftarrow\gamma\lambda\,e",
         watch="With λ = 0 it is SARSA, with 1 nearly Monte Carlo: in corridors a high λ learns the way at once.",
         paper="Singh and Sutton 1996; Sutton and Barto 2018, section 12.7", defaults={"alpha": 0.3},
         source=(f"{_TD}:sarsa_lambda",)),
    _row("q_lambda", "Q(λ)", "temporal_difference", extra=(_TRACES,),
         summary="Q-learning with traces, which are cut at every move that is not greedy.",
         latex=r"\delta=r+\gamma\max_{a'}Q(s',a')-Q(s,a),\quad e(s,a)\leftarrow1,\quad Q\leftarrow Q+\alpha\,"
               r"\delta\,e,\quad e\leftarrow\gamma\lambda\,e\ \text{or}\ 0",
         watch="With much exploration the traces are cut before they reach far: lower ε to see λ work.",
         paper="Watkins 1989; Sutton and Barto 2018, section 12.10", defaults={"alpha": 0.3},
         source=(f"{_TD}:q_lambda",)),
    _row("reinforce", "REINFORCE", "tabular_policy_gradient",
         extra=(_EPISODES, Knob(
             "psi", "What log π is weighed with", "baseline", "total_return: everything the episode earned; "
             "reward_to_go: what came after the move; baseline: that less V(s). Each has less variance than the one "
             "before.", "next batch", choices=("total_return", "reward_to_go", "baseline"), symbol=r"\Psi_t")),
         summary="Makes moves that were followed by much reward likelier: the score function, episode by episode.",
         latex=r"\begin{gathered}\theta\leftarrow\theta+\frac{\alpha}{N}\sum_t\big[\Psi_t\,\nabla_\theta\log\pi_\theta"
               r"(a_t\mid s_t)+c_H\nabla_\theta H\big]\\ \Psi_t=G_t-V(s_t),\quad G_t=r_{t+1}+\gamma\,G_{t+1},\quad "
               r"V(s)\leftarrow V(s)+\alpha_V\big[\bar G(s)-V(s)\big]\end{gathered}",
         watch="With total_return every move of a good walk is praised, the bad ones too.",
         paper="Williams 1992, Machine Learning 8:229", defaults={"alpha": 0.5}, source=(
             f"{_PG}:reinforce", f"{_PG}:with_baseline")),
    _row("actor_critic", "Actor-critic", "tabular_policy_gradient",
         summary="The policy moves with the surprise δ of the critic at every step: no waiting for the end.",
         latex=r"\delta=r+\gamma V(s')-V(s),\quad V(s)\leftarrow V(s)+\alpha_V\delta,\quad "
               r"\theta\leftarrow\theta+\alpha\big[\delta\,\nabla_\theta\log\pi_\theta(a\mid s)+"
               r"c_H\nabla_\theta H\big]",
         watch="While V is wrong, δ is: a fast critic under a slow actor is steadier.",
         paper="Sutton and Barto 2018, section 13.5", defaults={"alpha": 0.2}, source=(f"{_PG}:actor_critic",)),
    _row("ppo", "PPO", "tabular_policy_gradient",
         extra=(_EPISODES,
                Knob("gae_lambda", "GAE λ", 0.95, "Higher: less bias, more noise. Lower: trusts V.", "next batch", 0.0,
                     1.0, (0.8, 1.0), r"\lambda"),
                Knob("clip_range", "Clip range", 0.2, "Higher: a move's chance may change more per batch. Lower: "
                     "safer.", "next batch", 0.0, 10.0, (0.05, 0.4), r"\varepsilon"),
                Knob("epochs", "Epochs", 10, "Higher: more is taken from a batch, until the clip stops it. Lower: "
                     "slower, safer.", "next batch", 1, 1000, (1, 20), "K"),
                Knob("standardise", "Standardise advantages", True, "On: their root mean square is 1 in every batch, "
                     "so the step does not depend on the reward's size. Off: it does.", "next batch", advanced=True)),
         summary="Several clipped passes over each batch of episodes, with advantages from V.",
         latex=r"\begin{gathered}\theta\leftarrow\theta+\alpha\nabla_\theta\operatorname{mean}_t\Big[\min\big("
               r"\rho_tA_t,\ \operatorname{clip}(\rho_t,1-\varepsilon,1+\varepsilon)A_t\big)+c_H H\Big],\quad "
               r"\rho=\pi_\theta/\pi_{old}\\ A_t=\sum_l(\gamma\lambda)^l\delta_{t+l},\quad V(s)\leftarrow V(s)+"
               r"\alpha_V\big[\overline{A+V_{old}}(s)-V(s)\big]\end{gathered}",
         watch="With 1 epoch the clip does nothing: the ratio is 1 where the gradient is taken.",
         paper="Schulman et al. 2017, arXiv:1707.06347", defaults={"alpha": 4.0}, source=(
             f"{_PG}:ppo", f"{_PG}:clipped_score", f"{_PG}:gae")),
)

ALGORITHMS: dict[str, Algorithm] = {row.key: row for row in _ROWS}
LOOPS = tuple(_KNOBS)

_PRESETS = "labcore.envs.maze_presets"


def _preset(key: str, label: str, help: str, **defaults: Value) -> Task:
    """A maze that the function `key` of the presets builds, with the method's knobs that suit it."""
    return Task(key, label, help, f"{_PRESETS}:{key}", LOOPS, defaults=defaults)


TASKS: dict[str, Task] = {task.key: task for task in (
    _preset("textbook", "Textbook 2 × 3", "+10 at the goal, −10 in the trap beside it: small enough to compute by "
            "hand.", gamma=0.9),
    _preset("slippery", "Slippery 4 × 4", "A move may slip sideways: the short way along the traps is not the best.",
            gamma=0.95, alpha_decay=0.6, random_start=True),
    _preset("corridors", "Corridors 8 × 8", "A long way with dead ends: credit must travel far.", gamma=0.97),
    _preset("cliff", "Cliff 4 × 12", "−100 over the edge: SARSA learns the safe way, Q-learning the short one.",
            gamma=1.0),
    _preset("two_goals", "Two goals", "A small goal near, a large one far: γ decides, if exploration finds both.",
            gamma=0.9, random_start=True),
    Task("random", "Random maze", "Walls and traps at random; a way to the goal is left.", f"{_PRESETS}:random_maze",
         LOOPS, (
             Knob("maze_seed", "Maze number", 0, "Another number: another maze.", low=0, high=2**31 - 1),
             Knob("height", "Rows", 10, "More: a longer way, more to learn.", low=2, high=30, safe=(4, 30)),
             Knob("width", "Columns", 10, "More: a longer way, more to learn.", low=2, high=30, safe=(4, 30)),
             Knob("wall_frac", "Walls", 0.3, "Share of cells that are walls. Higher: narrower ways. Lower: open.",
                  low=0.0, high=0.9, safe=(0.0, 0.5), unit="share"),
             Knob("trap_frac", "Traps", 0.03, "Share of cells that are traps. Higher: more dangerous. Lower: safer.",
                  low=0.0, high=0.9, safe=(0.0, 0.2), unit="share"),
         ), defaults={"gamma": 0.98}),
    Task("own", "Your own maze", "A maze that you painted, or read from a file.", f"{_PRESETS}:own", LOOPS, (
        Knob("maze", "Maze", "S2.~.TG_-10~10_0_0_0.9", "The maze as a short text, as the address of the page holds "
             "it.", advanced=True),)),
)}
