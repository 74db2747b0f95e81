"""KL from samples: the estimators k1, k2 and k3, as estimates and as terms of a loss."""

from __future__ import annotations

from app.components.foundations import KL_SAMPLES
from app.foundations.section import Return, Section

SECTION = Section(
    key="kl_samples",
    title="KL from samples",
    sentence="A language model has too many outcomes to add them all up, so its KL is estimated from what it samples; "
             "which estimator you take decides the bias, the noise and, in a loss, even the direction of learning.",
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
                  "sampled. Right then $\\rho$ is 1, but it moves with $\\pi$, so its gradient is not 0."),
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
    picture=KL_SAMPLES,
)
