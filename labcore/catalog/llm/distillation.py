"""Distillation: the policy learns from a teacher. On answers by the loop of SFT, with another loss; on its own samples
by the online loop too, with another advantage.
"""

from labcore.catalog.families.distillation import CONTEXT_SHARE, CONTEXT_TEMPLATE, SELF, SOURCES, TEACHER
from labcore.catalog.llm.knobs import SFT_LOSS
from labcore.catalog.llm.row import CLIP, LAST_PANELS, online_panels, row

TEACHER_PANELS = ("teacher_kl", "teacher_agreement")
_GIVEN = ("exact_match", "loss", "token_accuracy", "entropy", "length", "truncated",
          *(panel for panel in LAST_PANELS if panel != "loss"))
_REVERSE = (r"L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[\min\big(\rho_t\hat A_t,\ \operatorname{clip}(\rho_t, "
            r"1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_t\big) + c_H H_t\Big]")
_LOG_RATIO = r"\log\tfrac{\pi_T(y_{i,s})}{\pi_{old}(y_{i,s})}"

_SELF_TAUGHT = (r"\begin{gathered}L = \frac1B\sum_i\frac1{T_i}\sum_t\big[KL_t(\pi_\theta\,\|\,\pi_T) - "
                r"\hat A_t\log\pi_\theta(y_{i,t}) - c_H H_t\big],\quad \hat A_t = \textstyle\sum_{s>t}\gamma_T^{s-t}"
                + _LOG_RATIO + r"\\ ")

ROWS = (
    row("gkd", "GKD", "sft",
        summary="Generalised knowledge distillation: matches the teacher's whole next-token distribution, on given "
        "answers and on the policy's own answers.",
        latex=r"\begin{gathered}L = \frac1{\sum_i T_i}\sum_{i,t}\big[\beta_J KL(\pi_T\,\|\,m_t)+(1-\beta_J)"
              r"KL(\pi_\theta\,\|\,m_t)\big],\quad m_t = \beta_J\pi_T+(1-\beta_J)\pi_\theta\\ "
              r"y_i\sim\pi_\theta\ \text{with probability}\ \lambda_{GKD}\end{gathered}",
        watch="Both KLs to the teacher: with β_J near 0 the policy covers everything that the teacher may write; near "
        "1 it keeps to answers that the teacher finds likely. Only the policy's own answers contain its own mistakes, "
        "from which it can learn to recover.",
        paper="Agarwal et al. 2023, arXiv:2306.13649", extra_knobs=(SFT_LOSS, *SOURCES),
        defaults={"sft_loss": "generalised_jsd", "sft_target": 1.0, "learning_rate": 3e-3},
        models=("policy",), steps=200, panels=("exact_match", *TEACHER_PANELS, *_GIVEN[1:])),
    row("seqkd", "Sequence-level KD", "sft",
        summary="SFT on answers that the teacher samples. It needs only the teacher's text, but learns from one "
        "sampled token where GKD learns from the whole distribution.",
        latex=r"L = -\frac1{\sum_i T_i}\sum_{i,t}\log\pi_\theta(y_{i,t}),\quad y_i\sim\pi_T",
        watch="The loss cannot fall below the teacher's entropy. The policy also learns the teacher's mistakes, as "
        "often as the teacher makes them.",
        paper="Kim and Rush 2016, arXiv:1606.07947", extra_knobs=(SFT_LOSS, TEACHER, *SOURCES),
        defaults={"on_policy_share": 0.0, "answers": "teacher", "sft_target": 1.0,
                  "learning_rate": 3e-3}, models=("policy",), steps=200,
        panels=_GIVEN),
    row("opd", "On-policy distillation", "online",
        summary="The policy samples, and the advantage of each token is how much more likely the teacher finds it than "
        "the policy. So every token gets a grade, while a reward grades only the whole completion.",
        latex=r"\begin{gathered}" + _REVERSE + r"\\ \hat A_t = \textstyle\sum_{s\ge t}\gamma_T^{s-t}" + _LOG_RATIO +
        r",\quad i = 1\ldots P\,G\end{gathered}",
        watch="KL to the teacher: as it falls, the reward rises although no update uses it. The policy imitates its "
        "teacher, so do not expect it to become better than the teacher. If the policy samples nothing that the "
        "teacher finds likely, it learns slowly.",
        paper="Lu and Thinking Machines Lab 2025, On-Policy Distillation",
        defaults={"advantage": "teacher_log_ratio", "whiten_advantages": False, "aggregation": "token_mean",
                  "kl_placement": "off",
                  "updates_per_batch": 1, "group_size": 4, "prompts_per_step": 64},
        models=("policy", "reference"), panels=online_panels(*TEACHER_PANELS, "reward")),
    row("minillm", "MiniLLM", "online",
        summary="The reverse KL of whole completions: a token's advantage is the mean log-ratio of teacher to policy "
                "over the rest of the completion.",
        latex=r"\begin{gathered}" + _REVERSE + r"\\ \hat A_t = \operatorname{whiten}\bigg(\frac{\sum_{s\ge t}"
        r"\gamma_T^{s-t}" + _LOG_RATIO + r"}{\sum_{s\ge t}\gamma_T^{s-t}}\bigg),\quad i = 1\ldots P\,G\end{gathered}",
        watch="The gradient norm: it is noisier than in on-policy distillation, because a token's advantage includes "
        "the tokens after it. The paper's single-step term is a switch, off by default. The paper's sampling from a "
        "mixture of policy and teacher and its pretraining loss are left out.",
        paper="Gu et al. 2023, arXiv:2306.08543",
        defaults={"advantage": "teacher_mean_log_ratio", "teacher_discount": 1.0, "aggregation": "token_mean",
                  "kl_placement": "off", "group_size": 4, "prompts_per_step": 64},
        models=("policy", "reference"), panels=online_panels(*TEACHER_PANELS, "reward")),
    row("sdft", "SDFT", "online",
        summary="Self-distillation: the teacher is the run's initial model, which also reads the task's answer. The "
        "policy learns to answer as if it had read the answer too.",
        latex=_SELF_TAUGHT + r"\pi_T = \pi_{ref}(\cdot\mid x, y^*, y_{<t}),\quad y_i\sim\pi_\theta(\cdot\mid x),"
        r"\quad i = 1\ldots "
        r"P\,G\end{gathered}",
        watch="The KL to the teacher and the reward: at best the policy becomes as good as the model with the answer "
        "in its context, so a model that cannot use a context learns nothing. SFT first teaches a built-in model to "
        "use one: a share of the prompts of SFT has the answer. With reference_every the teacher follows the policy.",
        paper="Shenfeld et al. 2026, arXiv:2601.19897", extra_knobs=(CONTEXT_SHARE,),
        without=(*CLIP, "updates_per_batch", "mini_batches"),
        defaults={"advantage": "teacher_log_ratio", "teacher": SELF, "teacher_context": "demonstration",
                  "single_step": True, "whiten_advantages": False, "ratio": "none", "surrogate": "score_function",
                  "kl_placement": "off", "aggregation": "sequence_mean_token_mean", "group_size": 2,
                  "prompts_per_step": 64},
        models=("policy", "reference"), panels=online_panels(*TEACHER_PANELS, "reward")),
    row("sdpo", "SDPO", "online",
        summary="Self-distillation from success: the teacher is a moving average of the policy, which also reads "
        "another, right completion of the group. So one right completion lets it grade every token of the wrong ones.",
        latex=_SELF_TAUGHT + r"\pi_T = \pi_{\theta_T}(\cdot\mid x, y_{right}, y_{<t}),\quad "
        r"\theta_T\leftarrow(1-\alpha)\theta_T+"
        r"\alpha\,\theta,\quad i = 1\ldots P\,G\end{gathered}",
        watch="Completions with a context: a group without a right completion teaches nothing, and its completions "
        "have loss 0. On add the reward did not rise in 40 steps. Set teacher_context=success_or_feedback to let the "
        "teacher read feedback on wrong completions of such groups.",
        paper="Hübotter et al. 2026, arXiv:2601.20802", extra_knobs=(CONTEXT_SHARE,),
        without=(*CLIP, "updates_per_batch", "mini_batches"),
        defaults={"advantage": "teacher_log_ratio", "teacher": SELF, "teacher_context": "success",
                  "single_step": True, "whiten_advantages": False, "ratio": "none", "surrogate": "score_function",
                  "kl_placement": "off", "aggregation": "sequence_mean_token_mean", "reference_every": 1,
                  "reference_mixup": 0.05},
        models=("policy", "reference"), panels=online_panels("reward", *TEACHER_PANELS)),
    row("context_sft", "SFT with context", "sft",
        summary="SFT in which a share of the prompts has the answer as a context. The model learns both to answer and "
        "to use a context, which self-distillation needs.",
        latex=r"L = -\frac1{\sum_i T_i}\sum_{i,t}\log\pi_\theta(y_{i,t}\mid x_i\ \text{or}\ x_i, y^*_i)",
        watch="The accuracy is measured without a context. Answers with one are learnt first, because copying is "
        "easier, so the loss falls in two stages.",
        paper="Shenfeld et al. 2026, arXiv:2601.19897", extra_knobs=(CONTEXT_SHARE, CONTEXT_TEMPLATE),
        models=("policy",), steps=400, panels=_GIVEN),
)
