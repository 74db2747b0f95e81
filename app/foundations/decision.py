"""A language model as a decision process: tokens as actions, a completion as an episode."""

from __future__ import annotations

from app.components.foundations import DECISION
from app.foundations.section import Return, Section

SECTION = Section(
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
        "With the reward at the end, no critic and $\\lambda = 1$ drag anything: both gradients stay the same.",
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
    picture=DECISION,
)
