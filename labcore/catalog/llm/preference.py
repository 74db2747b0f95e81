"""The algorithms that learn from pairs: each is a row of a preference loss and a source of pairs."""

from __future__ import annotations

from labcore.catalog.llm.row import LAST_PANELS, row

ROWS = (
    row("dpo", "DPO", "preference",
        summary="Learns from pairs without sampling: raises the chosen over the rejected, relative to the reference.",
        latex=r"L = -\log\sigma\Big(\beta\big[\log\tfrac{\pi_\theta(y_w)}{\pi_{ref}(y_w)}-"
              r"\log\tfrac{\pi_\theta(y_l)}{\pi_{ref}(y_l)}\big]\Big)",
        watch="Chosen and rejected log-probs often fall together; the margin is what is trained. Offline pairs take "
              "it less far than the online algorithms on verifiable tasks.",
        paper="Rafailov et al. 2023, arXiv:2305.18290",
        models=("policy", "reference"),
        panels=("exact_match", "margin", "logps", "accuracy", "kl", "entropy", "length", "truncated",
                *LAST_PANELS)),
    row("online_dpo", "Online DPO", "preference",
        summary="DPO on fresh pairs: at every step the policy answers each prompt, and the better answer is the "
                "chosen one.",
        latex=r"L = -\log\sigma\Big(\beta\big[\log\tfrac{\pi_\theta(y_w)}{\pi_{ref}(y_w)}-"
              r"\log\tfrac{\pi_\theta(y_l)}{\pi_{ref}(y_l)}\big]\Big),\quad y_w, y_l \in \{y_1 \ldots y_G\} \sim "
              r"\pi_\theta,\quad b = 1\ldots B",
        watch="Zero-variance groups: where all answers of a prompt have the same reward, the pair adds only noise.",
        paper="Guo et al. 2024, arXiv:2402.04792", verified=True,
        without=("pair_prompts", "eval_every", "eval_prompts"),
        defaults={"pairs": "policy_each_step", "beta": 0.1, "group_size": 4},
        models=("policy", "reference"),
        panels=("reward", "margin", "logps", "exact_match", "zero_variance", "accuracy", "kl", "entropy", "length",
                "truncated", *LAST_PANELS)),
)
