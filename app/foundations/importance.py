"""Importance sampling: what samples of one distribution tell about another."""

from __future__ import annotations

from app.components.foundations import IMPORTANCE
from app.foundations.section import Return, Section

SECTION = Section(
    key="importance",
    title="Importance sampling",
    sentence="You can learn about one distribution from samples of another if you weigh each sample by how much more "
             "likely it is under the one you ask about; the further apart they are, the fewer samples really count.",
    latex=r"\begin{gathered} \mathbb E_p[f(x)] = \mathbb E_q[w\,f(x)],\quad w = \frac{p(x)}{q(x)} \\"
          r" n_{\mathrm{eff}} = \frac{(\sum_i w_i)^2}{\sum_i w_i^2} \end{gathered}",
    symbols=(
        (r"q,\ p", "the distribution that the samples come from, and the one that you ask about. In part 1 both are "
                   "bell curves: $q$ with mean 0 and width 1, $p$ with mean $m$ and width $s$ (its standard "
                   "deviation)."),
        (r"\mathbb E_p[f(x)]", "the mean of $f(x)$ where $x$ comes from $p$. Here $f(x) = x$."),
        (r"w", "the weight of a sample. Its mean under $q$ is 1."),
        (r"n_{\mathrm{eff}}", "Kish's effective sample size: $n$ if all weights are alike, 1 if one outweighs the "
                              "rest."),
        (r"c", "a bound: weights above $c$ count as $c$. Less variance, but the estimate's mean is off: bias."),
        (r"\pi_{\mathrm{old}},\ \pi", "part 2: the policy that wrote the answers, and the policy that is being "
                                      "updated."),
        (r"\rho = \pi / \pi_{\mathrm{old}}", "the ratio of PPO (proximal policy optimisation): the weight $w$ of an "
                                             "answer. PPO takes the lower of $\\rho A$ and $\\rho A$ with $\\rho$ "
                                             "kept within $1\\pm\\varepsilon$, the clip range."),
        (r"A", "the advantage: an answer's reward less the mean reward of $\\pi_{\\mathrm{old}}$."),
        (r"\pi_{\mathrm{ref}}", "the reference: the policy before training. It belongs in the KL penalty, not in the "
                                "ratio."),
    ),
    tries=(
        "Drag $p$ away from $q$: few effective samples are left, yet the estimate stays right on average.",
        "Make $p$ wider than 1.41: the variance becomes infinite. Then drag the bound $c$ to where bias and variance "
        "are balanced.",
        "Set the step to 0: $\\rho$ is 1 and the gain 0, but $\\pi/\\pi_{\\mathrm{ref}}$ claims otherwise.",
        "Raise the step: the clip begins to act, and the clipped estimate falls short of the true gain.",
    ),
    returns=(
        Return("PPO: ratio and clip of real tokens", "llm", {"algorithm": "ppo", "tab": "Surrogate"}),
        Return("GRPO with several updates per batch", "llm", {"algorithm": "grpo", "tab": "Surrogate"}),
        Return("PPO on a balanced pole", "cartpole", {"algorithm": "ppo"}),
    ),
    picture=IMPORTANCE,
)
