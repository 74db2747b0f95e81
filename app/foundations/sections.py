"""The sections of Foundations in the order in which they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.components import foundations
from app.components.foundations.picture import Picture
from app.foundations.own_models import action_space, next_token


@dataclass(frozen=True)
class Return:
    """A place of the lab that uses the idea: a page and the text of its link."""

    words: str
    page: str
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """A section: one sentence, an equation, what its letters mean, a picture to grab, and where it returns.

    `symbols` are (LaTeX, words): every letter that no earlier section has explained. `tries` are what to do with the
    picture, each a short sentence. `below` draws what needs the server, under the picture.
    """

    key: str
    title: str
    sentence: str
    latex: str
    symbols: tuple[tuple[str, str], ...]
    tries: tuple[str, ...]
    returns: tuple[Return, ...]
    picture: Picture
    data: Mapping[str, Any] = field(default_factory=dict)
    below: Callable[[], None] | None = None


ENTROPY = Section(
    key="entropy",
    title="Entropy",
    sentence="Entropy is how surprised you are on average when a random choice is made: 0 when you always know the "
             "outcome, largest when all outcomes are equally likely.",
    latex=r"H(p) = -\sum_{i=1}^{n} p_i \log p_i, \qquad 0 \le H(p) \le \log n",
    symbols=(
        (r"p_i", "the probability of outcome $i$. All of them are 0 or more and add up to 1."),
        (r"n", "the number of outcomes."),
        (r"\sum_{i=1}^{n}", "add up what follows for every outcome, from the first to the last."),
        (r"\log", "the natural logarithm. $-\\log p_i$ is the surprise of outcome $i$: 0 if it was certain, large if "
                  "it was rare. An outcome that never occurs adds nothing."),
        (r"H(p)", "the entropy. Its unit, with this logarithm, is the nat. Divided by $\\log 2 \\approx 0.693$ it is "
                  "in bits: about how many yes-or-no questions you need on average."),
        (r"T",
         "the temperature. Each $p_i$ becomes proportional to $p_i^{1/T}$: below 1 sharper, above 1 flatter."),
    ),
    tries=(
        "Drag a bar up to 1: nothing is left to chance and the entropy is 0.",
        "Press **All equal**: the entropy is $\\log n$, and no other choice of bars gets there.",
        "Move the temperature: the order of the bars stays, the entropy changes.",
        "Ask a language model: it writes token by token (a token is a letter, a word or a piece of one). Each next "
        "token is such a choice, and learning makes it more certain.",
    ),
    returns=(
        Return("Entropy of a model's choices while it learns", "llm", {"algorithm": "grpo"}),
        Return("Temperature when models answer", "playground"),
    ),
    picture=foundations.ENTROPY,
    below=next_token,
)

KL = Section(
    key="kl",
    title="KL divergence",
    sentence="The Kullback–Leibler divergence of P from Q is the extra surprise, on average, of someone who believes Q "
             "while outcomes come from P: 0 if Q is right, infinite if Q rules out something that P produces.",
    latex=r"\mathrm{KL}(P\,\|\,Q) = \sum_i p_i \log\frac{p_i}{q_i} \;\ge\; 0",
    symbols=(
        ("P, Q", "two distributions over the same outcomes."),
        ("p_i, q_i", "the probability of outcome $i$ under P and under Q."),
        (r"\log\frac{p_i}{q_i}", "how much more surprised you are by outcome $i$ if you believe Q: $-\\log q_i$ less "
         "$-\\log p_i$. It may be negative; the sum over all outcomes never is."),
        (r"\mathrm{KL}(P\,\|\,Q)", "the divergence, in nats like the entropy. $\\mathrm{KL}(P\\,\\|\\,Q)$ and "
         "$\\mathrm{KL}(Q\\,\\|\\,P)$ are two different numbers, so it is not a distance in the usual sense."),
        ("x", "in the lower picture an outcome is a place on a line. The height of a curve is the probability per unit "
         "of $x$, the area below it is 1, and the sum over outcomes becomes an area."),
    ),
    tries=(
        "Press **Q = P**: both divergences are 0. Drag any bar: both grow.",
        "Press **Q never gives A**: $\\mathrm{KL}(P\\,\\|\\,Q)$ is infinite, $\\mathrm{KL}(Q\\,\\|\\,P)$ is not.",
        "Pull the two humps apart. The *forward* divergence $\\mathrm{KL}(P\\,\\|\\,Q)$ punishes a Q that leaves out a "
        "part of P, so its best Q covers both humps. The *reverse* $\\mathrm{KL}(Q\\,\\|\\,P)$ punishes a Q that is "
        "where P is not, so its best Q seeks one hump. Then let the humps meet: both fits agree.",
    ),
    returns=(
        Return("KL to the model before training, which β penalises", "llm", {"algorithm": "grpo", "beta": "0.1"}),
        Return("Supervised fine-tuning (SFT): the forward KL, from examples", "llm", {"algorithm": "sft"}),
    ),
    picture=foundations.KL,
)

KL_SAMPLES = Section(
    key="kl_samples",
    title="KL from samples",
    sentence="A language model has too many outcomes to add them all up, so its KL is estimated from what it samples; "
             "the choice of the estimator decides the bias, the noise and, in a loss, even the direction of learning.",
    latex=r"\begin{gathered} r = \frac{q(x)}{p(x)} = \frac{\pi_{\mathrm{ref}}(x)}{\pi(x)}, \quad x \sim \pi \\"
          r" k_1 = -\log r \qquad k_2 = \tfrac12(\log r)^2 \\ k_3 = r - 1 - \log r \end{gathered}",
    symbols=(
        ("x", "an outcome drawn from P; $x \\sim \\pi$ says that it is drawn by the policy."),
        (r"\pi", "the policy: the model that learns. It is P here; $\\pi(x)$ is $p_i$ of the outcome drawn."),
        (r"\pi_{\mathrm{ref}}", "the reference: the model it started from, which stays as it is. It is Q here."),
        ("r", "the ratio, with the reference on top. Some tutorials put the policy on top: that is the row marked as "
              "wrong."),
        ("k_1, k_2, k_3", "what one sample says about $\\mathrm{KL}(\\pi\\,\\|\\,\\pi_{\\mathrm{ref}})$. An estimate "
                          "is the mean over $n$ samples."),
        (r"\text{bias}", "how far the estimates are off on average. *Spread* is their standard deviation: how far "
                         "single estimates typically are from their average."),
        (r"\text{gradient}", "how a number changes when each logit of $\\pi$ is raised a little. *Logits* are numbers "
                             "$\\theta_i$ with $\\pi(i)$ proportional to $e^{\\theta_i}$. A *loss* is the number "
                             "that training makes smaller, by steps against its gradient."),
        (r"\rho", "$\\pi(x)/\\pi_{\\mathrm{old}}(x)$, where $\\pi_{\\mathrm{old}}$ is the policy at the time when it "
                  "sampled. At that moment $\\rho$ is 1, but it moves with $\\pi$, so its gradient is not 0."),
    ),
    tries=(
        "k1 and k3 are right on average; k1 is often negative, which no KL is. k2 is biased.",
        "Press **Q close to P**: k2 and k3 spread far less than k1, and the bias of k2 nearly vanishes.",
        "Look at the gradients. In a loss, the gradient of k1 is 0 on average; that of k2 and ρ·k3 is that of the "
        "exact $\\mathrm{KL}(\\pi\\,\\|\\,\\pi_{\\mathrm{ref}})$; that of plain k3 is that of the KL with the order "
        "reversed.",
        "The row with the ratio upside down ($1/r$) is wrong, in value and in gradient.",
    ),
    returns=(
        Return("The estimator in a loss is a choice: GRPO's k3", "llm", {"algorithm": "grpo", "beta": "0.1"}),
        Return("k1, k2 and k3 of every token of a run, under Microscope", "llm"),
    ),
    picture=foundations.KL_SAMPLES,
)

MONTE_CARLO = Section(
    key="monte_carlo",
    title="Monte Carlo",
    sentence="The mean of random samples comes ever closer to the true mean, but slowly: to halve the error you need "
             "four times the samples.",
    latex=r"\begin{gathered} \bar x_n = \frac1n\sum_{i=1}^n x_i \\ \bar x_n \pm 1.96\,\frac{s}{\sqrt n} \qquad "
          r"\text{error} = \frac{\sigma}{\sqrt n} \end{gathered}",
    symbols=(
        ("x_i", "sample number $i$, drawn independently of the others."),
        (r"\bar x_n", "the mean of the first $n$ samples: an *estimate* of the true mean, the dashed line."),
        (r"\sigma", "the true standard deviation of one sample: the root of the mean squared distance from the true "
                    "mean. $\\sigma^2$ is the variance. A mean of $n$ samples is typically off by $\\sigma/\\sqrt n$."),
        ("s", "the same, estimated from the samples. In practice it is all you have."),
        (r"\pm 1.96\,s/\sqrt n", "the 95 % interval: of many such intervals about 95 in 100 hold the true mean, if $n$ "
                                 "is large enough for the samples at hand."),
        (r"\text{slope}", "on log–log axes, $1/\\sqrt n = n^{-1/2}$ is a straight line with slope "
                          "$-1/2$."),
    ),
    tries=(
        "Drag the end of the line to the right: the interval closes in on the truth.",
        "**Rare event**: with few samples the event never occurs, the mean is 0 and the interval has no width. A "
        "reward "
        "that is almost never earned looks like this to a learner.",
        "**Heavy tail**: the error does not fall as $1/\\sqrt n$, because one sample can outweigh all others.",
    ),
    returns=(
        Return("Monte Carlo in the maze: means of what whole episodes earned",
               "maze", {"algorithm": "monte_carlo"}),
        Return("How sure is a comparison? Intervals over seeds", "compare"),
    ),
    picture=foundations.MONTE_CARLO,
)

VARIANCE = Section(
    key="variance",
    title="Variance reduction",
    sentence="An estimate from the same samples becomes less noisy when you subtract something that you know: a good "
             "baseline leaves the gradient's mean as it is and removes much of its variance.",
    latex=r"\begin{gathered} \hat g = \frac1G\sum_{i=1}^{G}\,(R_i - b)\,\nabla\log\pi(y_i) \\"
          r" \mathbb E\,[\,b\,\nabla\log\pi(y)\,] = 0 \end{gathered}",
    symbols=(
        (r"f(u),\ n", "part 1: a curve at a random place $u$, and the number of samples. The plain estimate is the "
                      "mean of $n$ values $f(u)$."),
        (r"c", "the coefficient of a control variate: you subtract $c\\,(u-\\tfrac12)$, whose mean is known to be 0. "
               "The best $c$ is the slope of the straight line that fits the curve best. Antithetic samples come in "
               "pairs: each $u$ with its mirror $1-u$."),
        (r"\rho_{f,u}", "the correlation of $f(u)$ and $u$: 1 or $-1$ if one is a straight line of the other, 0 if "
                        "neither rises with the other. $\\rho_{\\text{mirror}}$ is that of $f(u)$ and $f(1-u)$."),
        (r"\pi(y)", "part 2: the policy, the probability that the model gives answer $y$. It is the softmax of one "
                    "number per answer, its logit: $\\pi(y) = e^{z_y} / \\sum_k e^{z_k}$."),
        (r"y_i,\ R_i,\ G", "the $i$-th of $G$ sampled answers, and its reward."),
        (r"b", "the baseline: what the reward is compared with. $R_i - b$ is the advantage of answer $i$."),
        (r"\nabla\log\pi(y)", "how the logits must move to make answer $y$ likelier: 1 for its own logit and 0 for the "
                              "others, less $\\pi$. $\\lVert\\ldots\\rVert^2$ is the sum of its squares."),
        (r"\hat g", "the estimated gradient (REINFORCE): the direction in which the mean reward $J = \\mathbb E\\,R$ "
                    "rises. $\\mathbb E$ is the mean over all that could be drawn."),
    ),
    tries=(
        "Press **Straight**: the control variate and the mirrored samples remove all of the variance. Press "
        "**Symmetric**: the mirror makes it worse.",
        "Drag $b$ along its parabola: the variance changes, the mean of the gradient does not.",
        "Add 2 to all rewards: without a baseline the variance grows many times over; with the other baselines it "
        "stays the same.",
        "Raise $G$: the group's mean and leave one out become the same.",
    ),
    returns=(
        Return("RLOO: leave one out in a group", "llm", {"algorithm": "rloo"}),
        Return("GRPO: the mean of the group", "llm", {"algorithm": "grpo"}),
        Return("REINFORCE with a baseline, on a balanced pole", "cartpole", {"algorithm": "reinforce"}),
    ),
    picture=foundations.VARIANCE,
)

IMPORTANCE = Section(
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
    picture=foundations.IMPORTANCE,
)

DECISION = Section(
    key="decision",
    title="LLM as a decision process",
    sentence="A language model that writes is an agent that acts: what is written so far is the state, the next token "
             "the action, and the reward often comes only when the completion is finished.",
    latex=r"\begin{gathered} \nabla J = \mathbb E\Big[\sum_{t=1}^{T} \hat A_t\,\nabla\log\pi(a_t\mid s_t)\Big] \\"
          r" \hat A_t = \sum_{k\ge0}\lambda^k\delta_{t+k} \end{gathered}",
    symbols=(
        (r"s_t", "the state: the prompt and the tokens written before position $t$."),
        (r"a_t,\ T", "the action: the token at position $t$, one of two here, and the number of tokens, 3 here."),
        (r"\pi(a_t\mid s_t)", "the probability of this token in this state."),
        (r"r_t,\ R", "the reward of token $t$, and the completion's reward: the sum of them. An outcome reward comes "
                     "with the last token alone, a process reward with each."),
        (r"V(s)", "the value of a state: the reward that is still to come, on average. $V(s_1) = J$."),
        (r"Q(s,a)", "the same once token $a$ is chosen. $Q(s,a) - V(s)$ is the exact advantage: the credit that the "
                    "token deserves."),
        (r"\delta_t", "$r_t + V(s_{t+1}) - V(s_t)$: how much better things look after token $t$ than before. The "
                      "critic is the estimate of $V$."),
        (r"\lambda", "how far a token's credit looks ahead: 0 one step, 1 to the end."),
        (r"\hat A_t", "the credit that token $t$ gets. In an MDP (Markov decision process) each token is an action of "
                      "its own. A bandit treats the whole completion as one action: every token gets $R - b$, with $b "
                      "= J$, or 0 without a critic."),
    ),
    tries=(
        "With the reward at the end, no critic and $\\lambda = 1$, both gradients stay the same whatever you drag.",
        "Choose the exact critic: credit differs from token to token, the mean stays, the variance falls.",
        "Lower $\\lambda$ without a critic: early tokens lose their credit and the mean is off.",
        "Reward each token: the MDP gives no credit for what was earned before.",
    ),
    returns=(
        Return("One action: RLOO with an outcome reward", "llm", {"algorithm": "rloo"}),
        Return("Token by token: PPO with a critic and λ", "llm", {"algorithm": "ppo"}),
        Return("States, values and credit in a maze", "maze"),
        Return("Credit of single tokens: the microscope", "llm", {"tab": "Microscope"}),
    ),
    picture=foundations.DECISION,
)

ACTION_SPACE = Section(
    key="action_space",
    title="Effective action space",
    sentence="A language model can choose among all tokens of its vocabulary, but after training nearly all "
             "probability is on a few of them, so it searches a space that is far smaller than it looks.",
    latex=r"m_k(s) = \sum_{i=1}^{k} \pi_{(i)}(s), \qquad \pi_{(1)}(s)\ge\pi_{(2)}(s)\ge\ldots",
    symbols=(
        (r"\pi_{(i)}(s)", "the probability of the $i$-th likeliest token in state $s$: the tokens sorted, the "
                          "likeliest first."),
        (r"m_k(s)", "the mass of the top $k$: the total probability of the $k$ likeliest tokens, at most 1."),
        (r"\alpha\ \text{(sharpness)}", "in this picture the $i$-th likeliest token gets a probability proportional to "
         "$1/i^{\\,\\alpha}$: 0 makes all equal, larger is sharper. A real model has a "
         "distribution of its own at each position."),
        (r"e^{H}", "with the entropy $H$ of section 1: how many equally likely tokens would be as uncertain. Of a "
                   "whole completion: $e$ to the sum of the entropies, where positions do not depend on each other."),
    ),
    tries=(
        "Press **All tokens alike**: the top 16 hold $16/n$ of $n$ tokens, and sampling could write anything.",
        "Drag the sharpness of position 1 alone: the first token decides most, as in many trained models.",
        "Make the vocabulary larger: where the choice is sharp, nothing changes.",
    ),
    returns=(
        Return("Entropy falls while a policy learns", "llm", {"algorithm": "grpo"}),
        Return("Top tokens at each position, in the Playground", "playground"),
    ),
    picture=foundations.ACTION_SPACE,
    below=action_space,
)

SECTIONS = (ENTROPY, KL, KL_SAMPLES, MONTE_CARLO, VARIANCE, IMPORTANCE, DECISION, ACTION_SPACE)
BY_KEY = {section.key: section for section in SECTIONS}
