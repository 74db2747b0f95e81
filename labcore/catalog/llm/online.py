"""The online algorithms: each is a row of choices (`labcore.catalog.choices`) with its own defaults of
the shared knobs.

A new one is a new row, plus a function where a choice does not exist yet. Left out on purpose: classes per algorithm,
inheritance between them.
"""

from labcore.catalog.llm.row import BOUNDS, CLIP, online_panels, row

ROWS = (
    row("grpo", "GRPO", "online",
        summary="Compares each completion with its own group: no critic. Ratios are clipped per token. The "
                "KL is in the loss.",
        latex=r"L = \frac1B\sum_i\frac1{T_i}\sum_t\Big[-\min\big(\rho_t\hat A_i,\ \operatorname{clip}(\rho_t, "
              r"1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_i\big) + \beta\,k_3 - c_H H_t\Big],\quad "
              r"\hat A_i = \frac{R_i-\bar R_g}{s_g+\epsilon},\quad g = 1\ldots G",
        watch="Zero-variance groups: when most groups are all right or all wrong, the gradient vanishes. The clip "
              "takes effect from the second update of a batch on: with μ = 1 and one mini-batch it has no effect.",
        paper="Shao et al. 2024, arXiv:2402.03300", defaults={"beta": 0.04},
        models=("policy", "reference"), panels=online_panels("reward", "kl", "zero_variance")),
    row("reinforce", "REINFORCE", "online",
        summary="Reward minus the batch mean, times the log-probability. One update per batch, no ratio, no clip.",
        latex=r"L = -\frac1B\sum_i\sum_t\big[\hat A_i\log\pi_\theta(y_{i,t}) + c_H H_t\big],\quad "
              r"\hat A_i = R_i-\beta\,k_{1,i}-\overline{(R-\beta k_1)}",
        watch="The batch mean is a crude baseline: easy prompts look good, hard ones bad. Compare its spread "
              "with RLOO's. No ratio, so no clip either: nothing bounds an update.",
        paper="Williams 1992, Machine Learning 8:229",
        without=(*CLIP, "updates_per_batch", "mini_batches"),
        defaults={"beta": 0.02, "advantage": "batch_mean", "ratio": "none", "surrogate": "score_function",
                  "kl_estimator": "k1", "kl_placement": "reward", "aggregation": "sequence_mean_token_sum"},
        models=("policy", "reference"),
        panels=online_panels("reward", "kl", "grad_norm")),
    row("rloo", "RLOO", "online",
        summary="The baseline of each completion is the mean reward of the others in its group: unbiased, no critic.",
        latex=r"L = -\frac1B\sum_i\Big[\min\big(\rho_i\hat A_i,\ \operatorname{clip}(\rho_i, 1-\varepsilon_{low}, "
              r"1+\varepsilon_{high})\hat A_i\big) + c_H\bar H_i\Big],\quad "
              r"\hat A_i = R'_i-\frac1{G-1}\sum_{j\ne i}R'_j,\quad R' = R-\beta\sum_t k_1",
        watch="The ratio is that of the whole sequence: with long completions it leaves the clip range after "
              "one update. Clipping follows TRL. β is 0.02; the paper uses 0.03, TRL 0.05.",
        paper="Ahmadian et al. 2024, arXiv:2402.14740",
        defaults={"beta": 0.02, "advantage": "leave_one_out", "ratio": "sequence_sum", "kl_estimator": "k1",
                  "kl_placement": "reward", "aggregation": "sequence_mean_token_mean"},
        models=("policy", "reference"), panels=online_panels("reward", "kl", "clip")),
    row("ppo", "PPO", "online",
        summary="A separate critic values every token. Several clipped passes over each batch in mini-batches.",
        latex=r"\begin{gathered}L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[\min\big(\rho_t\hat A_t,\ "
              r"\operatorname{clip}(\rho_t, 1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_t\big) + c_H H_t\Big]\\ "
              r"\hat A_t = \operatorname{whiten}\Big(\sum_l(\gamma\lambda)^l\delta_{t+l}\Big),\quad "
              r"\delta_t = r_t+\gamma V_{t+1}-V_t,\quad r_t = -\beta\,k_1+R\,1_{last}\\ "
              r"L^V = \frac1{2\sum_i T_i}\sum_{i,t}\max\big((V_t-\hat R_t)^2,\ (\operatorname{clip}(V_t, "
              r"V^{old}_t\pm\varepsilon_V)-\hat R_t)^2\big)\end{gathered}",
        watch="Explained variance: below 0 the critic misleads. Clipped tokens: above 0.3 the updates are too large. "
              "The number of tokens is random and correlated with the terms, so the token mean is a biased estimate.",
        paper="Schulman et al. 2017, arXiv:1707.06347; Ouyang et al. 2022, arXiv:2203.02155",
        without=("normalisation",),
        defaults={"beta": 0.02, "advantage": "gae", "kl_estimator": "k1", "kl_placement": "reward",
                  "aggregation": "token_mean", "updates_per_batch": 2, "mini_batches": 2, "group_size": 1,
                  "prompts_per_step": 128},
        models=("policy", "reference", "critic"),
        panels=online_panels("reward", "clip", "explained_variance", more=("critic",))),
    row("dr_grpo", "Dr. GRPO", "online",
        summary="GRPO without its two biases: no division by the group's standard deviation, none by the completion's "
                "length.",
        latex=r"L = -\frac1{B\,L_{max}}\sum_{i,t}\Big[\min\big(\rho_t\hat A_i,\ \operatorname{clip}(\rho_t, "
              r"1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_i\big) + c_H H_t\Big],\quad \hat A_i = R_i-\bar R_g,"
              r"\quad g = 1\ldots G",
        watch="Completion length: it no longer grows where answers are wrong. Each token weighs little (1/B L_max), "
              "so the gradient is shorter than GRPO's.",
        paper="Liu et al. 2025, arXiv:2503.20783",
        defaults={"advantage": "group_mean", "aggregation": "constant_length", "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "length", "zero_variance")),
    row("dapo", "DAPO", "online",
        summary="GRPO for long answers: a higher upper clip, batches refilled until groups have signal, a soft "
                "penalty near the length limit, equal weight for all tokens, no KL.",
        latex=r"L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[\min\big(\rho_t\hat A_i,\ \operatorname{clip}(\rho_t, "
              r"1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_i\big) + c_H H_t\Big],\quad "
              r"\hat A_i = \frac{R'_i-\bar R'_g}{s_g+\epsilon},\quad 0 < \#\{\text{right}\} < G",
        watch="Resampling rounds: as prompts become easy, more completions must be sampled for a full batch with "
              "signal. The reward curve counts all sampled completions, not only those that the updates learn from.",
        paper="Yu et al. 2025, arXiv:2503.14476",
        defaults={"clip_high": 0.28, "aggregation": "token_mean", "kl_placement": "off", "selection": "informative",
                  "resample_rounds": 3, "shaping": "overlong"},
        models=("policy", "reference"), panels=online_panels("reward", "selection", "entropy", more=("rounds",))),
    row("gspo", "GSPO", "online",
        summary="GRPO with one ratio per sequence, the geometric mean of its tokens' ratios: a whole answer is "
                "clipped, or none of it.",
        latex=r"L = -\frac1B\sum_i\Big[\min\big(s_i\hat A_i,\ \operatorname{clip}(s_i, 1-\varepsilon_{low}, "
              r"1+\varepsilon_{high})\hat A_i\big) + c_H\bar H_i\Big],\quad s_i = \Big(\frac{\pi_\theta(y_i)}"
              r"{\pi_{old}(y_i)}\Big)^{1/T_i},\quad g = 1\ldots G",
        watch="Its ratios stay nearer to 1 than those of tokens, so its ε is far smaller: the paper uses 3e-4 and 4e-4 "
              "for large models; small models make larger steps and need more.",
        paper="Zheng et al. 2025, arXiv:2507.18071",
        defaults={"ratio": "sequence_mean", "kl_placement": "off", "clip_low": 0.03, "clip_high": 0.04},
        models=("policy", "reference"), panels=online_panels("reward", "clip", "zero_variance")),
    row("cispo", "CISPO", "online",
        summary="No token loses its gradient: the ratio is only a fixed weight of log π, capped from above.",
        latex=r"L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[\operatorname{sg}\big(\min(\rho_t, \varepsilon_{max})\big)\hat "
              r"A_i\log\pi_\theta(y_{i,t}) + c_H H_t\Big],\quad \hat A_i = \frac{R_i-\bar R_g}{s_g+\epsilon},"
              r"\quad g = 1\ldots G",
        watch="The share of capped tokens: these still learn, with the capped weight. The loss is not near 0 on "
              "policy.",
        paper="MiniMax 2025, arXiv:2506.13585", without=CLIP,
        defaults={"surrogate": "detached_weight", "aggregation": "token_mean", "kl_placement": "off"},
        models=("policy", "reference"),
        panels=online_panels("reward", "clip", "zero_variance")),
    row("sapo", "SAPO", "online",
        summary="A smooth gate in place of the clip: a token's gradient fades as its ratio leaves 1, and never drops "
                "to zero at once.",
        latex=r"L = -\frac1B\sum_i\frac1{T_i}\sum_t\Big[\frac4{\tau}\,\sigma\big(\tau(\rho_t-1)\big)\hat A_i + c_H "
              r"H_t\Big]"
              r",\quad \tau = \tau_{+}\ \text{if}\ \hat A_i > 0\ \text{else}\ \tau_{-},\quad g = 1\ldots G",
        watch="The largest ratio: it is never cut off, because the gate only weakens its gradient. The loss is not "
              "near 0 on "
              "policy.",
        paper="Gao et al. 2025, arXiv:2511.20347", without=CLIP,
        defaults={"surrogate": "soft_gate", "kl_placement": "off"},
        models=("policy", "reference"),
        panels=online_panels("reward", "ratio", "zero_variance")),
    row("remax", "ReMax", "online",
        summary="The baseline of each completion is the reward of the greedy completion of its prompt: no critic, no "
                "group.",
        latex=r"L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[\min\big(\rho_t\hat A_i,\ \operatorname{clip}(\rho_t, "
              r"1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_i\big) + c_H H_t\Big],\quad "
              r"\hat A_i = R_i-\beta\textstyle\sum_t k_1-R(y_{greedy}),\quad i = 1\ldots P\,G",
        watch="Each batch needs one more, greedy completion per prompt. Where it is right, only mistakes have signal. "
              "Clipping follows verl; the paper does not clip.",
        paper="Li et al. 2023, arXiv:2310.10505",
        defaults={"beta": 0.02, "advantage": "greedy_baseline", "kl_estimator": "k1", "kl_placement": "reward",
                  "aggregation": "token_mean", "group_size": 1, "prompts_per_step": 128},
        models=("policy", "reference"), panels=online_panels("reward", "kl", "clip")),
    row("reinforce_pp", "REINFORCE++", "online",
        summary="PPO's clip without a critic: the advantage of a token is its return, whitened over the whole batch.",
        latex=r"\begin{gathered}L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[\min\big(\rho_t\hat A_t,\ \operatorname{clip}"
              r"(\rho_t, 1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_t\big) + c_H H_t\Big]\\ "
              r"\hat A_t = \operatorname{whiten}\Big(\sum_{s\ge t}\gamma^{s-t}r_s\Big),\quad r_t = "
              r"-\beta\,k_1+R\,1_{last},"
              r"\quad i = 1\ldots P\,G\end{gathered}",
        watch="The baseline is one number for all prompts: easy prompts look good, hard ones bad. Long answers weigh "
              "more.",
        paper="Hu et al. 2025, arXiv:2501.03262", without=("normalisation",),
        defaults={"beta": 0.01, "advantage": "reward_to_go_whitened", "kl_estimator": "k1", "kl_placement": "reward",
                  "aggregation": "token_mean", "group_size": 1, "prompts_per_step": 128},
        models=("policy", "reference"), panels=online_panels("reward", "kl", "clip")),
    row("raft", "RAFT", "online",
        summary="Samples several completions, keeps the best of each prompt, and imitates it.",
        latex=r"L = -\frac1{\sum_i T_i}\sum_{i,t}\big[\log\pi_\theta(y_{i,t}) + c_H H_t\big],\quad "
              r"y_i = \arg\max_{g = 1\ldots G}R(y_g)",
        watch="Entropy falls fast, because the policy only imitates. Where the best completion of a prompt is wrong, "
              "it imitates that too. With the KL in the reward, β times the KL is subtracted before completions are "
              "ranked.",
        paper="Dong et al. 2023, arXiv:2304.06767", without=(*CLIP, "updates_per_batch", "normalisation"),
        defaults={"advantage": "one", "ratio": "none", "surrogate": "score_function", "kl_placement": "off",
                  "aggregation": "token_mean", "selection": "best_of_group"},
        models=("policy", "reference"),
        panels=online_panels("reward", "entropy", "kl", more=("selection",))),
    row("reinforce_average", "REINFORCE, moving average", "online",
        summary="REINFORCE with the mean of all rewards of earlier steps as its baseline: no group, one completion a "
                "prompt.",
        latex=r"L = -\frac1B\sum_i\sum_t\big[\hat A_i\log\pi_\theta(y_{i,t}) + c_H H_t\big],\quad "
              r"\hat A_i = R_i-\beta\,k_{1,i}-\bar R_{past},\quad i = 1\ldots P\,G",
        watch="The baseline lags behind a policy that learns: then most completions look good. All earlier rewards "
              "weigh alike, so it lags the more the longer the run. At the first step it is 0.",
        paper="Ahmadian et al. 2024, arXiv:2402.14740; Williams 1992, Machine Learning 8:229",
        without=(*CLIP, "updates_per_batch", "mini_batches"),
        defaults={"beta": 0.02, "advantage": "moving_average", "ratio": "none", "surrogate": "score_function",
                  "kl_estimator": "k1", "kl_placement": "reward", "aggregation": "sequence_mean_token_sum",
                  "group_size": 1, "prompts_per_step": 128},
        models=("policy", "reference"),
        panels=online_panels("reward", "kl", "grad_norm")),
    row("reinforce_pp_baseline", "REINFORCE++-baseline", "online",
        summary="REINFORCE++ with groups: reward minus the group's mean, then whitened over the tokens of the whole "
                "batch; the KL is in the loss.",
        latex=r"\begin{gathered}L = \frac1{\sum_i T_i}\sum_{i,t}\Big[-\min\big(\rho_t\hat A_i,\ "
              r"\operatorname{clip}(\rho_t, 1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_i\big) + \beta\,k_2 - c_H "
              r"H_t\Big]\\ \hat A_i = \operatorname{whiten}(R_i-\bar R_g),\quad g = 1\ldots G\end{gathered}",
        watch="One spread for the whole batch: groups with little signal keep a small weight, which GRPO amplifies. "
              "normalisation sequences gives each completion the same weight in it. β is 0.01; OpenRLHF uses 1e-5.",
        paper="Hu et al. 2025, arXiv:2501.03262",
        defaults={"beta": 0.01, "advantage": "group_mean", "normalisation": "tokens", "kl_estimator": "k2",
                  "aggregation": "token_mean"},
        models=("policy", "reference"), panels=online_panels("reward", "kl", "zero_variance")),
    row("gspo_token", "GSPO-token", "online",
        summary="GSPO with the gradient of each token its own: the ratio has the sequence's value, so tokens may have "
                "advantages of their own. With one advantage per completion it is GSPO.",
        latex=r"L = -\frac1B\sum_i\frac1{T_i}\sum_t\Big[\min\big(s_{i,t}\hat A_i,\ \operatorname{clip}(s_{i,t}, "
              r"1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_i\big) + c_H H_t\Big],\quad s_{i,t} = "
              r"\operatorname{sg}(s_i)\frac{\pi_\theta(y_{i,t})}{\operatorname{sg}(\pi_\theta(y_{i,t}))},\quad "
              r"g = 1\ldots G",
        watch="Equal to GSPO up to rounding while all tokens of a completion have one advantage. ε is 0.03 and 0.04; "
              "the paper uses 3e-4 and 4e-4 for large models.",
        paper="Zheng et al. 2025, arXiv:2507.18071, section 4.3",
        defaults={"ratio": "sequence_mean_token", "kl_placement": "off", "clip_low": 0.03, "clip_high": 0.04},
        models=("policy", "reference"), panels=online_panels("reward", "clip", "zero_variance")),
    row("luspo", "LUSPO", "online",
        summary="GSPO without its length bias: each completion's loss is multiplied by its length, so that its tokens "
                "weigh alike in long and short ones.",
        latex=r"L = -\frac1B\sum_i T_i\Big[\min\big(s_i\hat A_i,\ \operatorname{clip}(s_i, 1-\varepsilon_{low}, "
              r"1+\varepsilon_{high})\hat A_i\big) + c_H\bar H_i\Big],\quad s_i = \Big(\frac{\pi_\theta(y_i)}"
              r"{\pi_{old}(y_i)}\Big)^{1/T_i},\quad g = 1\ldots G",
        watch="Completion length: under GSPO it may shrink, since short completions get the longer gradient for each "
              "token. ε is 0.03 and 0.04; the paper uses 3e-4 and 4e-4 for large models.",
        paper="Liu et al. 2026, arXiv:2602.05261",
        defaults={"ratio": "sequence_mean", "kl_placement": "off", "clip_low": 0.03, "clip_high": 0.04,
                  "aggregation": "sequence_mean_token_sum"},
        models=("policy", "reference"), panels=online_panels("reward", "length", "clip")),
    row("gmpo", "GMPO", "online",
        summary="The geometric mean of a completion's clipped token ratios in place of their arithmetic mean: one "
                "outlier moves it little.",
        latex=r"\begin{gathered}L = -\frac1B\sum_i\Big[\Big(\prod_t\rho'_t\Big)^{1/T_i}\hat A_i + c_H\bar H_i\Big]\\ "
              r"\rho'_t = \min(\rho_t, e^{\varepsilon_{high}})\ \text{if}\ \hat A_i > 0\ \text{else}\ "
              r"\max(\rho_t, e^{-\varepsilon_{low}}),\quad g = 1\ldots G\end{gathered}",
        watch="Clip bounds ε are those of the log-ratio, and larger than GRPO's: 0.4 allows ratios from 0.67 to 1.49.",
        paper="Zhao et al. 2025, arXiv:2507.20673", without=BOUNDS,
        defaults={"surrogate": "geometric_clip", "kl_placement": "off", "clip_low": 0.4, "clip_high": 0.4},
        models=("policy", "reference"),
        panels=online_panels("reward", "clip", "ratio")),
    row("vespo", "VESPO", "online",
        summary="No clip: the ratio of the whole sequence is a fixed weight of log π, reshaped so that it fades "
                "smoothly on both sides of 1.",
        latex=r"L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[\operatorname{sg}\big(w_i^{k}e^{\lambda(1-w_i)}\big)\hat A_i"
              r"\log\pi_\theta(y_{i,t}) + c_H H_t\Big],\quad w_i = \frac{\pi_\theta(y_i)}{\pi_{old}(y_i)},\quad "
              r"(k,\lambda) = (k_{+},\lambda_{+})\ \text{if}\ \hat A_i \ge 0\ \text{else}\ (k_{-},\lambda_{-}),"
              r"\quad g = 1\ldots G",
        watch="The largest ratio: a completion far from the policy that sampled it has almost no weight. The loss is "
              "not near 0 on policy. The knob ratio is that of the KL ratio_k3 alone, of tokens as in TRL.",
        paper="Shen et al. 2026, arXiv:2602.10693", without=CLIP,
        defaults={"surrogate": "gamma_weight", "aggregation": "token_mean", "kl_placement": "off"},
        models=("policy", "reference"),
        panels=online_panels("reward", "ratio", "zero_variance")),
    row("bnpo", "BNPO, Beta-normalised", "online",
        summary="Divides by a Beta density at the group's mean instead of its standard deviation: fitted anew to every "
                "batch so that the gradient has the least variance.",
        latex=r"\begin{gathered}L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[\min\big(\rho_t\hat A_i,\ "
              r"\operatorname{clip}(\rho_t, 1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_i\big) + c_H H_t\Big]\\ "
              r"\hat A_i = \frac{R_i-\bar R_g}{f_{Beta}(\bar R_g;\ 1+\tfrac a3,\ 1+\tfrac b3)},\quad "
              r"\bar R_g\sim\operatorname{Beta}(a, b),\quad g = 1\ldots G\end{gathered}",
        watch="It is made for rewards of 0 and 1. This is the paper's BNPO; TRL's bnpo is only GRPO's token mean "
              "(here: BNPO, token mean).",
        paper="Xiao et al. 2025, arXiv:2506.02864",
        defaults={"advantage": "beta_normalised", "aggregation": "token_mean", "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "zero_variance", "grad_norm")),
    row("bnpo_token_mean", "BNPO, token mean", "online",
        summary="The bnpo of TRL and ms-swift: GRPO, aggregated by the mean over the tokens of an update. "
                "The advantages are GRPO's.",
        latex=r"L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[\min\big(\rho_t\hat A_i,\ \operatorname{clip}(\rho_t, "
              r"1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_i\big) + c_H H_t\Big],\quad "
              r"\hat A_i = \frac{R_i-\bar R_g}{s_g+\epsilon},\quad g = 1\ldots G",
        watch="Long completions weigh more. In TRL the mean is over each micro-batch, so it changes with how a batch "
              "is cut; here it is over the whole update, however it is cut.",
        paper="von Werra et al. 2020, TRL, loss_type bnpo",
        defaults={"aggregation": "token_mean", "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "length", "zero_variance")),
    row("gdpo", "GDPO", "online",
        summary="For several named rewards: each is normalised within its group separately, so that a large spread of "
                "one hides no other; then they are summed by weight.",
        latex=r"\begin{gathered}L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[\min\big(\rho_t\hat A_i,\ "
              r"\operatorname{clip}(\rho_t, 1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_i\big) + c_H H_t\Big]\\ "
              r"\hat A_i = \operatorname{norm}_B\Big(\sum_k w_k\frac{R_{k,i}-\bar R_{k,g}}{s_{k,g}+\epsilon}\Big),"
              r"\quad g = 1\ldots G\end{gathered}",
        watch="The named rewards correct and format, a curve each. One that no longer varies within groups no longer "
              "contributes, whatever its weight.",
        paper="Liu et al. 2026, arXiv:2601.05242", plain=("correct_weight", "format_weight"),
        defaults={"advantage": "parts_standardised", "reward_source": "correct_and_format",
                  "aggregation": "token_mean", "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "parts", "zero_variance")),
)
