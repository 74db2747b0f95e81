"""Online algorithms that change how the policy is kept close to the policy that sampled."""

from labcore.catalog.llm.row import CLIP, online_panels, row

_GRPO = r"\hat A_i = \frac{R_i-\bar R_g}{s_g+\epsilon},\quad g = 1\ldots G"
_WEIGHED = (r"L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[m_t\operatorname{sg}\big(\min(\rho_t, \varepsilon_{max})\big)"
            r"\hat A_i\log\pi_\theta(y_{i,t}) + c_H H_t\Big]")
_SIDE = (r"\delta_{\pm} = \delta_{high},\ \pi_\theta>\pi_{old}\ \text{if}\ \hat A_i > 0\ \text{else}\ \delta_{low},\ "
         r"\pi_\theta<\pi_{old}")
_COV = (r"cov_{i,t} = (\hat A_i-\bar A)\big(\log\pi_\theta(y_{i,t})-\overline{\log\pi_\theta}\big),\quad ")

ROWS = (
    row("dppo", "DPPO", "online",
        summary="Masks a token when its probability, not its ratio, has moved too far: the probability of unlikely "
                "tokens may grow by large factors, that of likely tokens only slightly.",
        latex=r"\begin{gathered}" + _WEIGHED +
        r"\\ m_t = 1 - 1[|\pi_\theta(y_{i,t})-\pi_{old}(y_{i,t})| > \delta_{\pm}],\quad "
              + _SIDE + r"\\ " + _GRPO + r"\end{gathered}",
        watch="The share of masked tokens: with one update per batch it is 0. A clip of ratios acts on unlikely tokens "
              "first; this mask acts on tokens near ½ first.",
        paper="Qi et al. 2026, arXiv:2602.04879", without=CLIP,
        defaults={"surrogate": "tv_mask", "ratio_cap": 20.0, "aggregation": "token_mean", "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "clip", "zero_variance")),
    row("dppo_kl", "DPPO, binary KL", "online",
        summary="DPPO with the KL of a single token instead of its change of probability.",
        latex=r"\begin{gathered}" + _WEIGHED + r"\\ m_t = 1 - 1[q\log\tfrac qp+(1-q)\log\tfrac{1-q}{1-p} > "
              r"\delta_{\pm}],\quad q = \pi_{old}(y_{i,t}),\quad p = \pi_\theta(y_{i,t})\\ " + _SIDE
              + r",\quad " + _GRPO
              + r"\end{gathered}",
        watch="The share of masked tokens. The bound is in nats: 0.05 lets a token of probability ½ move to 0.65.",
        paper="Qi et al. 2026, arXiv:2602.04879", without=CLIP,
        defaults={"surrogate": "kl_mask", "ratio_cap": 20.0, "divergence_low": 0.05, "divergence_high": 0.05,
                  "aggregation": "token_mean", "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "clip", "zero_variance")),
    row("dro", "DRO, by tokens", "online",
        summary="No clip and no ratio as a factor of the gradient: the squared log-ratio pulls each token back to the "
                "policy that sampled the batch.",
        latex=r"L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[\hat A_i\log\pi_\theta(y_{i,t}) - "
              r"\tfrac12\beta_{old}\log^2\rho_t + c_H H_t\Big],\quad \hat A_i = R_i-\bar R_g,\quad g = 1\ldots G",
        watch="The largest ratio: no token is cut off; it stops at log-ratio = advantage / pull. The paper learns a "
              "value of each prompt; here the group's mean replaces it.",
        paper="Richemond et al. 2024, arXiv:2405.19107", without=CLIP,
        defaults={"surrogate": "quadratic", "advantage": "group_mean", "aggregation": "token_mean",
                  "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "ratio", "zero_variance")),
    row("fipo", "FIPO", "online",
        summary="GRPO that weights each token by the change of the rest of its completion: tokens before a part that "
                "became likelier count for more.",
        latex=r"\begin{gathered}L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[f_{i,t}\min\big(\rho_t\hat A_i,\ "
              r"\operatorname{clip}(\rho_t, 1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_i\big) + c_H H_t\Big]\\ "
              r"f_{i,t} = \operatorname{sg}\,\operatorname{clip}\big({\textstyle\prod_{s\ge t}}\rho_s^{2^{-(s-t)/h}}, "
              r"1, 1+r\big),\quad " + _GRPO + r"\end{gathered}",
        watch="The largest ratio and completion length: weights differ from 1 only from the second update of a batch "
              "on, and they matter in completions longer than the half-life.",
        paper="arXiv:2603.19835, 2026",
        defaults={"surrogate": "future_kl_clip", "aggregation": "token_mean", "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "length", "clip")),
    row("icepop", "IcePop", "online",
        summary="GRPO for a sampler whose probabilities differ from the trainer's: tokens are weighted by the ratio of "
                "both probabilities, and masked if it is below ½ or above 5.",
        latex=r"\begin{gathered}L = -\frac1B\sum_i\frac1{T_i}\sum_t\Big[m_t\min\big(\rho_t\hat A_i,\ "
              r"\operatorname{clip}(\rho_t, 1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_i\big) + c_H H_t\Big]\\ "
              r"m_t = k_t\,1[c\le k_t\le C],\quad k_t = \tfrac{\pi_{old}(y_{i,t})}{\pi_{sampler}(y_{i,t})},\quad "
              + _GRPO + r"\end{gathered}",
        watch="The token weight: it is 1 if sampler and trainer agree, as they do here in fp32, and it matters in "
              "bf16 and with vLLM. Old log-probs are the trainer's, so each batch costs one more pass.",
        paper="Ling Team 2025, arXiv:2510.18855",
        defaults={"importance_cap": 5.0, "importance_floor": 0.5, "importance_mode": "token_mask",
                  "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "token_weight", "clip")),
    row("clip_cov", "Clip-Cov", "online",
        summary="GRPO that keeps its entropy for longer: a few of the tokens with a high covariance of advantage and "
        "log-prob get no gradient.",
        latex=r"\begin{gathered}L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[\min\big(\rho_t\hat A_i,\ "
              r"\operatorname{clip}(\rho_t, 1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_i\big)\,1[t\notin I] + "
              r"c_H H_t\Big]\\ I = r_{cov}\ \text{of the tokens with}\ \omega_{low}<cov_t<\omega_{high}\\ " + _COV
              + _GRPO + r"\end{gathered}",
        watch="Entropy compared with GRPO. A likely token with a high advantage, or an unlikely token with a low one, "
        "has a high covariance. The paper holds back 0.02 % of the tokens of large batches. Batches here have far "
        "fewer tokens, so the default share is larger.",
        paper="Cui et al. 2025, arXiv:2505.22617",
        defaults={"surrogate": "clip_cov", "aggregation": "token_mean", "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "entropy", "clip")),
    row("kl_cov", "KL-Cov", "online",
        summary="Pulls only the tokens of highest covariance of advantage and log-prob back to the policy that sampled "
        "the batch. Nothing is clipped.",
        latex=r"\begin{gathered}L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[\rho_t\hat A_i - \kappa\,|\log\rho_t|\,"
              r"1[t\in I] + c_H H_t\Big]\\ I = r_{cov}\ \text{of the tokens with the highest}\ cov_t\\ " + _COV + _GRPO
              + r"\end{gathered}",
        watch="Entropy compared with GRPO, and the largest ratio: no clip bounds the other tokens. With one update per "
              "batch it has no effect, because the pull begins once a token has moved.",
        paper="Cui et al. 2025, arXiv:2505.22617", without=CLIP,
        defaults={"surrogate": "kl_cov", "aggregation": "token_mean", "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "entropy", "ratio")),
    row("gvpo", "GVPO", "online",
        summary="Fits log-ratios to rewards by least squares, both centred in their group. It needs no clip, and its "
        "optimum does not depend on the policy that sampled.",
        latex=r"L = \frac1B\sum_i\Big[\tfrac{1}{2}\tfrac{G}{G-1}\big(\beta_R(s_i-\bar s_g) - (R_i-\bar R_g)\big)^2 - "
              r"c_H\bar H_i\Big],\quad s_i = \log\frac{\pi_\theta(y_i)}{\pi_{old}(y_i)},\quad g = 1\ldots G",
        watch="The largest ratio: the temperature decides how far a batch can move the policy, because the fit is "
        "perfect at log-ratio = reward / temperature. The gradient is proportional to the temperature, so it is small.",
        paper="Zhang et al. 2025, arXiv:2504.19599", without=(*CLIP, "normalisation"),
        defaults={"surrogate": "centred_regression", "advantage": "group_mean", "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "ratio", "zero_variance")),
    row("real", "REAL", "online",
        summary="Uses rewards as labels: it classifies the completions of a group as right or wrong by how much more "
        "likely the policy has made each.",
        latex=r"L = \frac1P\sum_g\Big[\log\Big(1+\sum_{i\in G_+}e^{-\bar s_i/\tau_R}\Big)+\log\Big(1+\sum_{i\in G_-}"
              r"e^{\bar s_i/\tau_R}\Big)\Big] - c_H\bar H,\quad \bar s_i = \tfrac1{T_i}\sum_t\log\rho_t,\quad G_+ = "
              r"\{i: R_i > \bar R_g\},\quad g = 1\ldots G",
        watch="The largest ratio and entropy: no completion weighs more than 1 / temperature. A wrong completion "
        "weighs less once the policy has made it less likely, and a right one weighs more while it has. The size of "
        "rewards does not matter.",
        paper="Zhai et al. 2026, arXiv:2602.05630", without=(*CLIP, "normalisation"),
        defaults={"surrogate": "classifier", "advantage": "group_mean", "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "entropy", "ratio")),
    row("chord", "CHORD", "online",
        summary="GRPO and SFT at once: a share of the loss imitates the right answer of each prompt, most strongly at "
        "tokens where the policy is unsure.",
        latex=r"\begin{gathered}L = (1-\mu_S)\,\frac1B\sum_i\frac1{T_i}\sum_t\Big[-\min\big(\rho_t\hat A_i,\ "
              r"\operatorname{clip}(\rho_t, 1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_i\big) - c_H H_t\Big] - "
              r"\mu_S\,\overline{\varphi_t\log\pi_\theta(y^*_t)}\\ \varphi_t = \operatorname{sg}\big(p_t(1-p_t)\big),"
              r"\quad p_t = \pi_\theta(y^*_t),\quad " + _GRPO + r"\end{gathered}",
        watch="The loss of the demonstrations, and zero-variance groups: prompts that the policy never solves still "
        "have a gradient. The paper takes demonstrations from a stronger model; here they are the task's answers.",
        paper="Zhang et al. 2025, arXiv:2508.11408", plain=("sft_weight",),
        defaults={"sft_weight": 0.1, "kl_placement": "off"},
        models=("policy", "reference"), panels=online_panels("reward", "demonstration_loss", "zero_variance")),
)
