"""Estimates of the KL to the reference, and how terms of tokens become one number."""

from labcore.catalog.choice import KL, Aggregation, Caution, Family, There
from labcore.catalog.conditions import kl_in, updates
from labcore.catalog.worked import Worked

_GRPO, _AGGREGATED, _OPENRLHF, _OPENRLHF_AGGREGATED = (
    "use_bias_correction_kl", "actor_rollout_ref.actor.loss_agg_mode", "--algo.kl.estimator", "--actor.loss_agg_mode")

KL_ESTIMATOR = Family("kl_estimator", "KL estimator", "labcore.maths.kl", ("logprobs", "ref_logprobs", "ratio"), (
    KL("k1", "k1: log-ratio", r"\log\tfrac{\pi}{\pi_{ref}}", sign="k_1", in_reward=True,
       worked=lambda of: Worked("log π − log π_ref", "{logprobs} − {ref_logprobs:b}"),
       bias="Direction: k1 in the loss has no gradient on average at the first update on a batch, so β does nothing "
            "there.",
       later="Direction: from the second update on k1 in the loss makes every sampled token less likely: its mean "
             "gradient is −∇KL(π_old‖π).",
       cautions=(
        Caution("k1 in the loss has no gradient on average: it adds noise and does not hold the policy near the "
                "reference. Use k2 or `ratio_k3`, or place it in the reward.",
                lambda v: kl_in(v, "loss") and updates(v) == 1),
        Caution("k1 in the loss does not hold the policy near the reference: from the second update on a batch it "
                "makes every sampled token less likely, those of right answers too. Use k2 or `ratio_k3`, or place it "
                "in the reward.", lambda v: kl_in(v, "loss") and updates(v) > 1)),
       elsewhere=(
        There("GRPOTrainer", {_GRPO: True}, "k3 × ratio in the loss: the gradient of each token's KL with its prefix "
              "held fixed; k1 in the reward has that of the KL of whole completions, which is the same only for "
              "completions of one token"),
        There("RLOOTrainer ms-swift/reward"), There("verl", name="kl"), There("OpenRLHF", {_OPENRLHF: "k1"}))),
    KL("k2", "k2: half the squared log-ratio", r"\tfrac12\log^2\tfrac{\pi}{\pi_{ref}}", sign="k_2",
       worked=lambda of: Worked("½ (log π − log π_ref)²", "½ × {apart:b}²", also={
           "apart": of["logprobs"] - of["ref_logprobs"]}),
       bias="Direction: k2 in the loss gives the KL of single tokens with their prefixes held fixed, not that of whole "
            "completions.",
       elsewhere=(
        There("GRPOTrainer", {_GRPO: True}, "k3 × ratio, which on policy has the same expected gradient"),
        There("verl", name="mse"), There("OpenRLHF", {_OPENRLHF: "k2"}))),
    KL("k3", "k3: never negative", r"\tfrac{\pi_{ref}}{\pi} - 1 - \log\tfrac{\pi_{ref}}{\pi}", sign="k_3",
       worked=lambda of: Worked("π_ref/π − 1 − log(π_ref/π)", "exp({back}) − 1 − {back:b}", also={
           "back": of["ref_logprobs"] - of["logprobs"]}),
       bias="Direction: k3 in the loss has the gradient of KL(π_ref‖π), not of KL(π‖π_ref).",
       cautions=(
        Caution("k3 in the loss has the gradient of KL(π_ref ‖ π), not of KL(π ‖ π_ref): use k2 or `ratio_k3` for the "
                "latter.", lambda v: kl_in(v, "loss")),),
       elsewhere=(There("GRPOTrainer", {_GRPO: False}), There("GMPOTrainer ms-swift/loss"),
                  There("verl", name="low_var_kl"),
                  There("OpenRLHF", {_OPENRLHF: "k3"}))),
    KL("ratio_k3", "ratio × k3: its gradient is that of each token's KL",
       r"\rho\big(\tfrac{\pi_{ref}}{\pi} - 1 - \log\tfrac{\pi_{ref}}{\pi}\big)", sign="k_3", by_ratio=True,
       bias="Direction: ratio × k3 gives the KL of single tokens with their prefixes held fixed, unless the ratio is "
            "that of the whole sequence and tokens are summed.",
       elsewhere=(
        There("GRPOTrainer", {_GRPO: True}),
        There("verl", note="the value of k3 with the gradient of the KL", name="k3+"),
        There("OpenRLHF", {_OPENRLHF: "k3", "--algo.kl.unbiased_gradient": True}))),
))

# The ratio of a whole sequence has its whole gradient at every token.
_TIMES_T = ("Direction: the ratio of the whole sequence has its whole gradient at every token, so a completion of T "
            "tokens counts T times.")
_RANDOM = "Direction: the number of tokens is random and correlated with the terms that it divides."

AGGREGATION = Family("aggregation", "aggregation", "labcore.maths.aggregation",
                     ("token_losses", "completion_mask", "total_rows", "total_tokens", "max_new_tokens"), (
    Aggregation("sequence_mean_token_mean", "mean over sequences of token means",
                r"\tfrac1B\sum_i\tfrac1{T_i}\sum_t", own_length=True,
                bias="Direction: divided by its own length, so each token of a long completion counts less.",
                elsewhere=(There("GRPOTrainer ms-swift", {"loss_type": "grpo"}), There("GMPOTrainer"),
                           There("verl", {_AGGREGATED: "seq-mean-token-mean"}),
                           There("OpenRLHF", {_OPENRLHF_AGGREGATED: "seq-mean-token-mean"}))),
    Aggregation("token_mean", "mean over all tokens of the update", r"\tfrac1{\sum_i T_i}\sum_i\sum_t",
                bias=_RANDOM, of_product=_RANDOM,
                elsewhere=(There("GRPOTrainer ms-swift", {"loss_type": "dapo"}),
                           There("verl", {_AGGREGATED: "token-mean"}),
                           There("OpenRLHF", {_OPENRLHF_AGGREGATED: "token-mean"}))),
    Aggregation("constant_length", "sum over tokens, divided by B × the length limit",
                r"\tfrac1{B\,L_{max}}\sum_i\sum_t", bias="Scale: divided by the length limit.", of_product=_TIMES_T,
                elsewhere=(There("GRPOTrainer ms-swift", {"loss_type": "dr_grpo"}),
                           There("verl", {_AGGREGATED: "seq-mean-token-sum-norm"}),
                           There("OpenRLHF", {_OPENRLHF_AGGREGATED: "token-mean"},
                                 "divided by the actual number of tokens, not by a constant"))),
    Aggregation("sequence_mean_token_sum", "mean over sequences of token sums", r"\tfrac1B\sum_i\sum_t",
                sums=True, of_product=_TIMES_T,
                elsewhere=(There("GRPOTrainer", {"loss_type": "luspo"}), There("verl", {
                               _AGGREGATED: "seq-mean-token-sum"}),
                           There("OpenRLHF", {_OPENRLHF_AGGREGATED: "token-mean"},
                                 "smaller by the mean length, which hardly matters with Adam"),
                           There("ms-swift", {"loss_type": "dr_grpo"},
                                 "smaller by the length limit, which hardly matters with Adam"))),
))
