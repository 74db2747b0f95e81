"""Online algorithms that give credit to the steps of a completion."""

from labcore.catalog.llm.row import online_panels, row

ROWS = (
    row("grpo_process", "GRPO, process supervision", "online",
        summary="GRPO with rewards of steps. Each step's reward is compared with all steps of its group, and the "
        "advantage of a token is the sum over its own and all later steps.",
        latex=r"\begin{gathered}L = \frac1B\sum_i\frac1{T_i}\sum_t\Big[-\min\big(\rho_t\hat A_t,\ "
              r"\operatorname{clip}(\rho_t, 1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_t\big) + \beta\,k_3 - "
              r"c_H H_t\Big]\\ \hat A_t = \sum_{k:\,end_k\ge t}\frac{r_k-\bar r_g}{s_g+\epsilon},\quad g = 1\ldots G"
              r"\end{gathered}",
        watch="Completion length: the mean reward of a step is subtracted once for each step, so completions of one "
        "group with different numbers of steps get different advantages for that alone. With a process reward model as "
        "the source, watch the gold reward too.",
        paper="Shao et al. 2024, arXiv:2402.03300, section 4.1.3",
        defaults={"advantage": "steps_standardised", "reward_source": "steps_and_outcome"},
        models=("policy", "reference"), panels=online_panels("reward", "length", "kl")),
)
