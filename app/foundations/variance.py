"""Variance reduction: the same samples, less noise."""

from __future__ import annotations

from app.components.foundations import VARIANCE
from app.foundations.section import Return, Section

SECTION = Section(
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
    picture=VARIANCE,
)
