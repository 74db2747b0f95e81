"""The numbers that runs in mazes and in Gymnasium environments log; `metrics` has them in its table."""

from labcore.catalog.metric import Metric

# Of episodes, and of what a method does within them.
EPISODES = (
    Metric("episode_return", "Return", "reward/episode", "Mean sum of rewards, without discount, of the episodes that "
           "ended in this step.", r"G", "Rises. It includes the moves that were made at random.", digits=2,
           better="higher", now="earns {} per episode"),
    Metric("episode_length", "Episode length", "steps", "Mean length of the episodes that ended in this step.",
           digits=1),
    Metric("episodes", "Episodes", "episodes", "Episodes that ended in this step.", digits=0),
    Metric("eval_return", "Evaluation return (greedy)", "reward/episode", "Mean return of the greedy policy, in "
           "environments of its own.", r"G_{greedy}", "Rises, and stays.", digits=2, better="higher", short="mean"),
    Metric("eval_return/min", "Evaluation return (greedy), worst", "reward/episode", "Smallest return of the "
           "evaluation's episodes.", digits=2, better="higher"),
    Metric("eval_length", "Evaluation length (greedy)", "steps", "Mean length of the evaluation's episodes.", digits=1),
    Metric("moves_to_goal", "Moves to the goal", "moves", "Length of the episode where it ended in a goal.",
           healthy="Falls to the shortest way.", digits=0, better="lower"),
    Metric("kl/step", "KL of the step", "nats", "KL(old policy ‖ new policy), mean over the batch's states; exact, "
           "since actions are few.", r"\overline{KL}", "Small: 0.001 to 0.03. A jump: the step went too far.",
           scale="symlog", digits=4),
    Metric("entropy/action", "Entropy", "nats/action", "Mean entropy of the policy over its actions.", r"H[\pi]",
           "Falls gently; at 0 nothing new is tried."),
    Metric("action/std", "Std of the actions", "action", "Mean standard deviation of the Gaussian that continuous "
           "actions are drawn from.", r"\sigma", "Falls as the policy becomes certain. At 0 it tries no new actions.",
           chart="entropy"),
    Metric("policy_loss", "Policy loss", "", "The number that the policy's optimizer lowers: not a measure of "
           "progress.", r"L"),
    Metric("td_error", "TD error", "reward", "Mean |target − value| over the moves in this step of the run.",
           r"|\delta|", "Falls, but not to 0 in a noisy world.", better="lower"),
    Metric("epsilon", "Exploration", "share of actions", "Share of actions that are random.", r"\varepsilon",
           scale="rate"),
    Metric("replay_size", "Replay", "transitions", "Transitions in the replay memory.", digits=0),
    Metric("q/mean", "Mean Q", "reward", "Mean Q(s, a) over the replayed actions.", r"\bar Q",
           "Near the actual returns."),
)
# Of updates, and of the values that they have led to.
UPDATES = (
    Metric("step_norm", "Update norm", "", "Euclidean norm of the change of the policy's weights.",
           r"\lVert\Delta\theta\rVert", digits=4),
    Metric("line_search/share", "Share of the full step", "share", "Share of the trust region's step that was taken; "
           "0: none, because no share improved the surrogate within the bound of the KL.", scale="rate"),
    Metric("line_search/backtracks", "Backtracks", "tries", "Number of times that the line search shortened the step.",
           digits=0),
    Metric("gradient_variance/total_return", "Gradient variance, return", "reward²", "Trace of the covariance "
           "of the episodes' gradients with Ψ = the whole return, on this batch.", "\\Psi_1", scale="symlog", digits=0,
           better="lower"),
    Metric("gradient_variance/reward_to_go", "Gradient variance, reward-to-go", "reward²",
           "Trace of the covariance of the episodes' gradients with Ψ = the return from the action on, on this batch.",
           "\\Psi_2", scale="symlog", digits=0, better="lower"),
    Metric("gradient_variance/baseline", "Gradient variance, baseline", "reward²",
           "Trace of the covariance of the episodes' gradients with Ψ = reward-to-go − V(s), on this batch.", "\\Psi_3",
           scale="symlog", digits=0, better="lower"),
    Metric("gradient_variance/advantage", "Gradient variance, advantage", "reward²", "Trace of the covariance "
           "of the episodes' gradients with Ψ = generalised advantage estimation, on this batch.", "\\Psi_4",
           "Usually the smallest of the four.", scale="symlog", digits=0, better="lower"),
    Metric("value_error", "Error of V", "reward", "Mean |V − V*| over the states within reach; V* exact, by dynamic "
           "programming. For policy evaluation V* is the exact value of that policy.", r"|V-V^*|", "Falls to 0.",
           better="lower", short="mean", now="its values are {} off on average"),
    Metric("value_error/max", "Error of V, largest", "reward", "Largest |V − V*| over the states within reach.",
           r"\max|V-V^*|", better="lower"),
    Metric("q_error", "Error of Q", "reward", "Mean |Q − Q*| over the states within reach and their actions.",
           r"|Q-Q^*|", "Falls for actions that the agent still tries; the values of others stay wrong.",
           better="lower"),
    Metric("value_change", "Change of V", "reward", "Largest change of a value in this sweep.", r"\max|\Delta V|",
           "Falls by γ a sweep or faster.", scale="symlog", digits=6, better="lower"),
    Metric("start_value", "Value of the start", "reward", "The value of the start in the tables.", "V(s_0)",
           short="table"),
    Metric("start_value/greedy", "Value of the greedy policy", "reward", "Exact value of the start under "
           "the policy that takes the best action of the tables, by a linear solve.", r"V_{greedy}(s_0)",
           "Reaches the best possible.", better="higher", short="greedy"),
    Metric("start_value/best", "Best possible", "reward", "V* of the start, exact.", "V^*(s_0)", short="best"),
)
