"""Online algorithms that change the advantage: its baseline and its divisor."""

from labcore.catalog.llm.row import CLIP, online_panels, row

_CLIPPED = (r"\Big[\min\big(\rho_t\hat A_i,\ \operatorname{clip}(\rho_t, 1-\varepsilon_{low}, "
            r"1+\varepsilon_{high})\hat A_i\big) + c_H H_t\Big],\quad ")
_TOKENS, _GROUP = r"L = -\frac1{\sum_i T_i}\sum_{i,t}", r",\quad g = 1\ldots G"

ROWS = (
    row("maxrl", "MaxRL", "online",
        summary="Divides by the group's mean reward instead of its standard deviation. The gradient approximates that "
                "of the log-likelihood of a right completion, so hard prompts count for more.",
        latex=_TOKENS + _CLIPPED + r"\hat A_i = \frac{R_i-\bar R_g}{\bar R_g}" + _GROUP,
        watch="Entropy and pass@k: hard prompts count for more than in GRPO, and easy ones hardly at all. A group "
              "without a right completion still has no signal. Larger groups approximate the likelihood better.",
        paper="Tajwar et al. 2026, arXiv:2602.02710",
        defaults={"advantage": "mean_scaled", "aggregation": "token_mean", "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "zero_variance", "entropy")),
    row("passk", "Pass@k", "online",
        summary="Maximises the best reward of a group instead of its mean: only the best completion has an advantage, "
                "its lead over the second best.",
        latex=_TOKENS + _CLIPPED + r"\hat A_i = \max_g R - \max_{j\ne i}R_j" + _GROUP,
        watch="Zero-variance groups: with rewards of 0 and 1 a group has signal only if exactly one of its completions "
              "is right. So the mean reward rises slowly once prompts are solved occasionally.",
        paper="Tang et al. 2025, arXiv:2503.19595",
        defaults={"advantage": "best_over_rest", "aggregation": "token_mean", "kl_placement": "off",
                  "group_size": 4, "prompts_per_step": 64},
        models=("policy", "reference"), panels=online_panels("reward", "entropy", "zero_variance")),
    row("passk_training", "Pass@k training", "online",
        summary="Maximises the best reward among k of a group's G completions. So right completions of hard prompts "
        "count most, and wrong completions are penalised less.",
        latex=r"\begin{gathered}" + _TOKENS + _CLIPPED.removesuffix(r",\quad ") + r"\\ \hat A_i = "
              r"\frac{E[M\mid i\in S]-E[M]}{s_M+\epsilon},\quad M = \max_{j\in S}R_j,\quad S\subset\{1\ldots G\},\quad "
              r"|S| = k" + _GROUP + r"\end{gathered}",
        watch="Held-out pass@k and entropy compared with GRPO. Prompts that are solved in more than about half of all "
        "completions hardly count, because the best of k is usually right already.",
        paper="Chen et al. 2025, arXiv:2508.10751",
        defaults={"advantage": "best_of_subsets", "aggregation": "token_mean", "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "entropy", "zero_variance")),
    row("opo", "OPO", "online",
        summary="On policy, with the baseline of least variance: the mean of the group's rewards weighted by length. "
                "No clip, no KL.",
        latex=r"L = -\frac1{\sum_i T_i}\sum_{i,t}\big[\hat A_i\log\pi_\theta(y_{i,t}) + c_H H_t\big],\quad "
              r"\hat A_i = R_i-\frac{\sum_g T_g R_g}{\sum_g T_g}" + _GROUP,
        watch="If all completions have the same length, it equals REINFORCE with the group's mean. It makes one "
              "update per batch, because nothing would correct the gradient of further ones.",
        paper="Hao et al. 2025, arXiv:2505.23585", without=(*CLIP, "updates_per_batch", "mini_batches"),
        defaults={"advantage": "length_weighted", "ratio": "none", "surrogate": "score_function",
                  "kl_placement": "off", "aggregation": "token_mean"},
        models=("policy", "reference"), panels=online_panels("reward", "entropy", "grad_norm")),
    row("gpg", "GPG", "online",
        summary="The plain policy gradient with the group's mean as its baseline, scaled up to compensate for groups "
                "without signal. No ratio, no clip, no KL.",
        latex=r"\begin{gathered}L = -\frac1{\sum_i T_i}\sum_{i,t}\big[\hat A_i\log\pi_\theta(y_{i,t}) + "
              r"c_H H_t\big]\\ \hat A_i = \frac{R_i-\bar R_g}{\operatorname{mean}_g 1[\max_g R > \min_g R]}"
              + _GROUP + r"\end{gathered}",
        watch="Zero-variance groups: the fewer groups have signal, the more each of them counts, so the gradient "
              "becomes noisy instead of small. The paper resamples if too few groups have signal, as the selection "
              "informative does.",
        paper="Chu et al. 2025, arXiv:2504.02546", without=(*CLIP, "updates_per_batch", "mini_batches"),
        defaults={"advantage": "group_mean_active", "ratio": "none", "surrogate": "score_function",
                  "kl_placement": "off", "aggregation": "token_mean"},
        models=("policy", "reference"), panels=online_panels("reward", "zero_variance", "grad_norm")),
    row("otb", "OTB", "online",
        summary="Uses a baseline for each token instead of one for the whole completion: the mean of the group's "
        "returns, weighted by the squared gradient of all tokens so far, which gives the least variance.",
        latex=r"\begin{gathered}" + _TOKENS + r"\Big[\min\big(\rho_t\hat A_t,\ \operatorname{clip}(\rho_t, "
              r"1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_t\big) + c_H H_t\Big]\\ \hat A_t = G_t-\frac{\sum_g "
              r"G_tW_t}{\sum_g W_t},\quad W_t = \sum_{s\le t}\big(1-2\pi_s+\textstyle\sum_v\pi_v^2\big),\quad G_t = "
              r"\sum_{s\ge t}r_s" + _GROUP + r"\end{gathered}",
        watch="The gradient norm compared with GRPO's. The last tokens of the longest completion have no baseline, so "
        "these tokens are raised if the completion earns anything. Each batch costs one more forward pass.",
        paper="Li et al. 2026, arXiv:2602.07078", without=("normalisation",),
        defaults={"advantage": "optimal_token_baseline", "aggregation": "token_mean", "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "grad_norm", "zero_variance")),
    row("a_star_po", "A*-PO", "online",
        summary="Fits the log-ratio of policy to reference to the reward minus V*, the value of the best policy, by "
        "least squares. It needs no group and no clip: one completion per prompt.",
        latex=r"\begin{gathered}L = \frac1B\sum_i\Big[\Big(\beta_R\log\frac{\pi_\theta(y_i)}{\pi_{ref}(y_i)} - "
              r"\hat A_i\Big)^2 - c_H\bar H_i\Big]\\ \hat A_i = R_i-\beta_1\log\tfrac1N\textstyle\sum_n "
              r"e^{R(y_n)/\beta_1},\quad y_n\sim\pi_{ref},\quad i = 1\ldots P\,G\end{gathered}",
        watch="The KL to the reference, which the fit limits by itself. The reference answers each new prompt N times. "
        "The run keeps V* for prompts that are drawn again, so A*-PO suits tasks with few prompts. TRL's default is "
        "β_R = 0.001.",
        paper="Brantley et al. 2025, arXiv:2505.20686",
        without=(*CLIP, "updates_per_batch", "mini_batches", "normalisation"),
        defaults={"advantage": "optimal_value", "ratio": "none", "surrogate": "regression", "kl_placement": "off",
                  "aggregation": "sequence_mean_token_mean", "group_size": 1, "prompts_per_step": 128},
        models=("policy", "reference"), panels=online_panels("reward", "kl", "grad_norm")),
    row("nash_md", "Nash-MD", "online",
        summary="Learns to beat an opponent: each completion is compared with one from a geometric mixture of policy "
        "and reference. The advantage is the probability of winning, less ½.",
        latex=r"\begin{gathered}L = -\frac1B\sum_i\sum_t\big[\hat A_i\log\pi_\theta(y_{i,t}) - \beta\,k_2 + c_H "
              r"H_t\big]\\ \hat A_i = \sigma(R_i-R(y'_i))-\tfrac12,\quad y'_i\sim\pi_{mix}\propto"
              r"\pi_\theta^{1-\alpha_m}\pi_{ref}^{\alpha_m},\quad i = 1\ldots P\,G\end{gathered}",
        watch="The win rate against the opponent: it settles above ½, because the mixture follows the policy. Rewards "
              "between 0 and 1 give win probabilities between 0.27 and 0.73, so the gradient is small. The opponents' "
              "completions count as sampled tokens.",
        paper="Munos et al. 2023, arXiv:2312.00886",
        without=(*CLIP, "updates_per_batch", "mini_batches"),
        defaults={"beta": 0.1, "advantage": "win_probability", "ratio": "none", "surrogate": "score_function",
                  "kl_estimator": "k2", "kl_placement": "loss", "aggregation": "sequence_mean_token_sum",
                  "group_size": 1, "prompts_per_step": 64},
        models=("policy", "reference"), panels=online_panels("reward", "win_rate", "kl")),
    row("spo", "SPO", "online",
        summary="Single-stream policy optimisation: each prompt gets one completion, whose reward is compared with the "
        "tracked mean reward of this prompt, then normalised over the batch.",
        latex=r"\begin{gathered}L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[\min\big(\rho_t\hat A_i,\ "
              r"\operatorname{clip}(\rho_t, 1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_i\big) + c_H H_t\Big]\\ "
              r"\hat A_i = \operatorname{norm}_B(R_i-\hat v(x_i)),\quad \hat v = \tfrac Sn,\quad (S, n)\leftarrow"
              r"\rho\,(S, n)+(R_i, 1),\quad i = 1\ldots P\,G\end{gathered}",
        watch="It helps if prompts are drawn repeatedly: a new prompt is compared with the mean of all earlier "
        "rewards. There are no groups, so no zero-variance groups. The paper forgets old rewards by the policy's KL "
        "since a prompt's last visit; the lab counts updates instead. The paper's sampling of uncertain prompts is "
        "left out.",
        paper="Xu and Ding 2025, arXiv:2509.13232",
        defaults={"advantage": "tracked_value", "normalisation": "sequences", "aggregation": "token_mean",
                  "kl_placement": "off", "clip_high": 0.28, "group_size": 1, "prompts_per_step": 128},
        models=("policy", "reference"), panels=online_panels("reward", "grad_norm", "clip")),
)
