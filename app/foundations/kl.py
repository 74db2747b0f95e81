"""KL: how far a belief is from the truth, and why its order matters."""

from __future__ import annotations

from app.components.foundations import KL
from app.foundations.section import Return, Section

SECTION = Section(
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
    picture=KL,
)
