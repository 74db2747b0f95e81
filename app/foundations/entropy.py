"""Entropy: how uncertain a choice is."""

from __future__ import annotations

from app.components.foundations import ENTROPY
from app.foundations.next_token import next_token
from app.foundations.section import Return, Section

SECTION = Section(
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
        (r"T", "the temperature. Each $p_i$ becomes proportional to $p_i^{1/T}$: below 1 sharper, above 1 flatter."),
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
    picture=ENTROPY,
    below=next_token,
)
