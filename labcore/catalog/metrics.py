"""Every number a run logs, declared once: the charts, the CSV header, the help and the tests read this table.

Names follow TRL where it has one. A mean ends in `/mean…`, a share in `_frac` or stands under `clip_frac/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from labcore.catalog import choices, classic_metrics
from labcore.catalog.knob import suggestion
from labcore.catalog.metric import Metric
from labcore.errors import LabError, quoted

_ALL = (
    Metric("reward", "Reward", "reward", "Mean reward of the batch's completions, before any KL penalty.", r"\bar R",
           "Rises. This curve shows whether the run learns; the loss does not.", better="higher",
           short="mean", now="earns {}"),
    Metric("reward/shaped", "Reward after shaping", "reward", "Mean reward after shaping, by which completions are "
           "compared.", r"\bar R'", better="higher", short="shaped"),
    Metric("unscored/reward", "Not scored", "share of completions", "Share of completions without a reward: no "
           "function of your own scored them, or the judge gave no number. They take no part in the "
           "updates.", scale="rate", better="lower", short="reward"),
    Metric("frac_reward_unscored", "Prompts without a reward", "share of prompts", "Share of prompts none of whose "
           "completions has a reward. They teach nothing.", scale="rate", better="lower", short="whole prompts",
           chart="clip"),
    Metric("reward/correct", "Reward: correct", "reward", "Unweighted mean of the reward's part correct; in "
           "correct_and_format this is the verifier's reward.",
           r"\bar r_{correct}", "Rises.", better="higher", short="correct"),
    Metric("reward/format", "Reward: format", "reward", "Unweighted mean of the reward's part format; in "
           "correct_and_format this is the share of completions that end with the end token and are as long as the "
           "right answer.", r"\bar r_{format}", "Rises.", better="higher", short="format"),
    Metric("reward/verifier", "Reward of the verifier", "reward", "Mean reward that the verifier "
           "gave, before any of it was flipped.", r"\bar r", "Rises: the true reward.", better="higher",
           short="verifier"),
    Metric("reward/gold", "Gold reward", "reward", "Mean of the task's own score, where the rewards are those of a "
           "proxy: a reward model, or a verifier with a hole.", r"\bar R_{gold}", "Rises with the reward. Where the "
           "reward rises and it falls, the policy exploits the proxy.", better="higher", short="gold"),
    Metric("reward/spread", "Spread of the reward models", "reward", "Mean standard deviation of a completion's scores "
           "among the reward models of an ensemble.", r"\bar s_k", "Small. Where it grows, the policy has left the "
           "texts that they were trained on.", short="spread"),
    Metric("reward/step_score", "Score of the steps", "share of steps", "Mean score of the steps of completions: the "
           "probability, by the process reward model, that a step is right. It is the share of right steps that the "
           "model expects.", r"\bar s",
           "Rises with the right steps. If it rises alone, the policy exploits the process reward model.",
           scale="rate", better="higher", short="score"),
    Metric("reward/steps_right", "Right steps", "share of steps", "Share of steps after which the completion can still "
           "become right, by the task's verifier, which gives no reward here.", healthy="Rises with the score of the "
           "steps.", scale="rate", better="higher", short="verifier"),
    Metric("reward/steps", "Reward of the steps", "reward", "Mean sum of the rewards of single tokens, on top of the "
           "reward.", better="higher", short="steps"),
    Metric("exact/reward", "Reward, exact", "reward", "E[R] under the policy that wrote the step's batch, over every "
           "completion of every prompt. The mean reward estimates it.", "J", "Rises.", better="higher",
           short="exact", kind="exact"),
    Metric("exact/objective", "Objective, exact", "reward", "E[R] − β KL(policy ‖ reference) of a completion, which a "
           "run with a KL penalty maximises.", r"J-\beta KL",
           "Rises to the largest possible.", better="higher",
           short="policy", kind="exact"),
    Metric("exact/best", "Largest objective", "reward", "The largest value that any policy can give the objective: "
           "β log E_ref[exp(R/β)], that of π*; at β = 0 the mean of the best rewards.", r"\beta\log Z",
           short="largest", kind="exact"),
    Metric("reward_std", "Reward std", "reward", "Standard deviation of the reward over the whole batch.", r"s_R",
           "Above zero. At zero every completion scores the same and nothing can be learnt.", short="std"),
    Metric("exact_match", "Accepted completions", "share of completions", "Share of sampled completions that the "
           "verifier accepts, at the sampling temperature.", healthy="Rises towards 1.", scale="rate", better="higher",
           short="training", now="correct in {}"),
    Metric("held_out/accuracy", "Held-out accuracy, sampled", "share of completions", "Share of completions of "
           "held-out prompts that the verifier accepts, at the sampling temperature, after the step; at step 1: before "
           "training.", healthy="Rises with the accepted completions of the training prompts. If only they rise, the "
           "policy memorises the training prompts.", scale="rate", better="higher", short="held out, sampled"),
    Metric("held_out/greedy", "Held-out accuracy, greedy", "share of completions", "Share of the greedy completions of "
           "held-out prompts, one of each, that the verifier accepts, after the step; at step 1: before "
           "training.", healthy="Rises.",
           scale="rate", better="higher", short="held out, greedy"),
    *(Metric(f"held_out/pass@{k}", f"Held-out pass@{k}", "share of prompts", "Share of held-out prompts for which the "
             f"verifier accepts at least one of {k} completions. Unbiased estimate: 1 − C(n − c, {k}) / C(n, {k}), c "
             "accepted of n sampled.", f"pass@{k}",
             "Rises. If it falls while the accuracy rises, the completions become less diverse.",
             scale="rate", better="higher", short=f"k = {k}") for k in (2, 4, 8, 16, 32, 64)),
    Metric("held_out/reward", "Held-out reward", "reward", "Mean reward of the completions of held-out prompts, from "
           "the run's own reward source, before shaping.", r"\bar R_{held\,out}", "Rises with the reward.",
           better="higher", short="held out"),
    Metric("held_out/mean_length", "Held-out completion length", "tokens", "Mean length of the completions of held-out "
           "prompts, the end token included.", digits=1, short="held out"),
    Metric("held_out/truncated_frac", "Held-out truncated", "share", "Share of completions of held-out prompts that "
           "were cut at the length limit.", scale="rate", better="lower", short="held out"),
    Metric("held_out/loss", "Held-out loss", "nats/token", "Mean loss over the tokens of held-out answers: "
           "−log π for SFT and DFT, the run's own loss for distillation.",
           healthy="Falls with the loss. If it rises again, the policy memorises the training rows.", better="lower",
           short="held out"),
    Metric("held_out/token_accuracy", "Held-out token accuracy", "share of tokens", "Share of the tokens of held-out "
           "answers that are the model's first choice.", scale="rate", better="higher", short="held out"),
    Metric("held_out/pair_accuracy", "Held-out pair accuracy", "share of pairs", "Share of held-out pairs whose chosen "
           "side the policy prefers more strongly than the reference does.", healthy="Rises from 0 with the pair "
           "accuracy.", scale="rate", better="higher", short="held out"),
    Metric("held_out/margin", "Held-out margin", "nats × β", "Mean implicit reward of the chosen minus that of the "
           "rejected side, on held-out pairs.", healthy="Rises with the margin.", better="higher", short="held out"),
    Metric("held_out/rows", "Held-out rows measured", "rows", "Number of held-out rows in an evaluation.",
           digits=0),
    Metric("epoch", "Epoch", "epochs", "Number of passes of training over the rows of the file.", digits=2),
    Metric("frac_reward_zero_std", "Zero-variance groups", "share of groups", "Share of prompts whose completions "
           "all have the same reward: their advantages are zero.", healthy="Below 0.5. Near 1: the prompts are too "
           "easy or too hard, or the group is too small.", scale="rate", better="lower", short="zero variance"),
    Metric("groups/solve_none_frac", "Groups without a success", "share of groups", "Share of prompts for which the "
           "verifier accepts no completion: these prompts are too hard for now, or the groups are too "
           "small.", scale="rate",
           short="solve none"),
    Metric("groups/solve_all_frac", "Groups with only successes", "share of groups", "Share of prompts for which the "
           "verifier accepts all completions: these prompts give no policy gradient.", scale="rate", short="solve all"),
    *(Metric(f"reward_at_level/{level}", f"Reward at level {level}", "reward", "Mean reward of the completions of "
             f"prompts of level {level} that the step sampled.", better="higher", short=f"level {level}")
      for level in range(21)),
    Metric("pool/drawn_frac", "Pool: prompts in reach", "share of prompts", "Share of the pool's prompts that the "
           "choice of prompts can draw after the step.", healthy="Many more prompts than a batch has.", scale="rate",
           short="in reach"),
    Metric("pool/tried_frac", "Pool: prompts tried", "share of prompts", "Share of the pool's prompts that the run has "
           "sampled at least once.", scale="rate", short="tried"),
    Metric("pool/pass_rate", "Pool: mean pass rate", "share of completions", "Mean of the known pass rates of the "
           "pool's prompts. A prompt that was not sampled lately has an old pass rate.", healthy="Rises.", scale="rate",
           better="higher", short="pass rate", chart="reward"),
    Metric("kl", "KL to the reference", "nats/token", "k3 estimate of KL(policy ‖ reference), mean over the batch's "
           "tokens. Logged at β = 0 too.", r"\widehat{KL}_{k3}", "Grows slowly. A sudden jump: the policy has left "
           "the reference; raise β or lower the learning rate.", scale="symlog", better="lower", short="k3"),
    Metric("kl/k1", "KL, k1", "nats/token", "Mean of log π − log π_ref: unbiased, noisy, can be negative.", "k_1",
           scale="symlog", better="lower"),
    Metric("kl/k2", "KL, k2", "nats/token", "Mean of (log π − log π_ref)²/2: biased, low noise.", "k_2",
           scale="symlog", better="lower"),
    Metric("kl/k3", "KL, k3", "nats/token", "Mean of π_ref/π − 1 − log(π_ref/π): unbiased and never negative.", "k_3",
           scale="symlog", better="lower"),
    Metric("teacher/reverse_kl", "Reverse KL to the teacher", "nats/token", "KL(policy ‖ teacher): large where the "
           "policy writes something that the teacher finds unlikely. GKD computes it over the whole vocabulary. Online "
           "algorithms estimate it by the mean of log π − log π_T of the sampled tokens, which can be negative by "
           "chance.", r"KL(\pi,\pi_T)",
           "Falls towards 0.", scale="symlog", better="lower", short="reverse"),
    Metric("teacher/forward_kl", "Forward KL to the teacher", "nats/token", "KL(teacher ‖ policy): large where the "
           "policy finds something unlikely that the teacher may "
           "write.", r"KL(\pi_T,\pi)", "Falls towards 0.", scale="symlog",
           better="lower", short="forward"),
    Metric("teacher/agreement", "Agreement with the teacher", "share of tokens", "Share of the batch's tokens where "
           "policy and teacher have the same most likely token.", healthy="Rises towards 1.", scale="rate",
           better="higher"),
    Metric("teacher/context_frac", "Completions with a context", "share of completions", "Share of completions for "
           "which the teacher had a context: the task's answer, or another, right completion of the group. Completions "
           "without a context teach nothing.", scale="rate", chart="reward"),
    Metric("exact/kl", "KL to the reference, exact", "nats/token", "KL(policy ‖ reference) of a completion, over every "
           "completion, divided by the policy's mean length.", r"KL(\pi,\pi_{ref})", better="lower",
           short="exact", kind="exact"),
    Metric("exact/kl_reverse", "Reverse KL, exact", "nats/token", "KL(reference ‖ policy) of a completion, divided by "
           "the reference's mean length: grows where the policy avoids completions of the reference.",
           r"KL(\pi_{ref},\pi)", better="lower", short="reverse", kind="exact"),
    Metric("exact/distance", "Distance to π*", "nats/completion", "KL(policy ‖ π*), π* ∝ π_ref exp(R/β) at the "
           "current β; there is none at β = 0.", r"KL(\pi,\pi^*)", "Falls towards 0.", scale="symlog",
           better="lower", kind="exact"),
    Metric("exact/entropy", "Entropy, exact", "nats/token", "Entropy of a completion, over every completion, divided "
           "by the policy's mean length.", r"H[\pi]", short="exact", kind="exact"),
    Metric("exact/gradient_cosine", "Cosine to the exact gradient", "cosine",
           "Cosine between the batch's first gradient step and the exact gradient of E[R] − β KL; 1: the same "
           "direction.",
           r"\cos", "Above 0. Noise lowers it, and more so with fewer samples.",
           better="higher", kind="exact"),
    Metric("entropy", "Entropy", "nats/token", "Mean entropy of the next-token distribution at the sampling "
           "temperature, over the batch's tokens.", r"H[\pi]", "Falls gently. At zero every group repeats one answer "
           "and learning stops."),
    Metric("clip_frac/region", "Clipped", "share", "Share of tokens or actions whose gradient the clip cuts off: ratio "
           "beyond the bound on the side that the advantage pushes to. CISPO caps the weight there: the "
           "gradient stays.", healthy="0 with one update per batch; 0.02 to 0.3 with more.", scale="rate", short="all"),
    Metric("clip_frac/low", "Clipped low", "share", "Ratio below 1 − ε_low with a negative advantage.", scale="rate",
           short="low"),
    Metric("clip_frac/high", "Clipped high", "share", "Ratio above 1 + ε_high with a positive advantage.",
           scale="rate", short="high"),
    Metric("clip_frac/bound", "Clipped, negative advantage", "share", "Ratio above δ or c with a negative advantage: "
           "the share that the two-sided or the dual clip cuts off.", scale="rate", short="bound"),
    Metric("clip_frac/covariance", "Held back by covariance", "share", "Share of tokens without a gradient because of "
           "a high covariance of advantage and log-prob (Clip-Cov).", healthy="At most the share of high-covariance "
           "tokens that is set; 0 if no token has a covariance within the bounds.", scale="rate", chart="clip"),
    Metric("token_weight", "Weight of a token", "share", "Mean weight of a token's policy term: below 1 where tokens "
           "are left out, by entropy or as off-policy, or weighted by truncated importance sampling.", digits=3),
    Metric("selection/kept_frac", "Kept", "share of completions", "Share of all sampled completions that the updates "
           "learnt from.", healthy="Well above 0: at 0 nothing is learnt.", scale="rate"),
    Metric("selection/rounds", "Sampling rounds", "rounds", "How often a batch was sampled until its "
           "groups had signal.",
           healthy="1 while most groups have signal; grows as prompts become too easy or too hard.", digits=1),
    Metric("ratio/max", "Largest ratio", "", "Largest π/π_old over the batch's tokens.", r"\max\rho",
           "Below about 2."),
    Metric("sampling/logp_difference", "Sampler–trainer difference", "nats/token",
           "Mean |log π of the trainer − log π of "
           "the sampler| over the batch's tokens, before an update on the batch.", healthy="0, up to rounding. Above "
           "0.05 the ratios are wrong from the start.", digits=4, better="lower"),
    Metric("sampling/kl", "KL of sampler and policy", "nats/token", "Mean k3 estimate of KL(sampler ‖ policy) over the "
           "batch's tokens, before an update on the batch. The sampler is the policy that sampled the batch: an older "
           "policy, or one with rounded "
           "weights.", r"KL(\pi_{sampler},\pi)", "Near 0. It grows with the age of the batch and with the "
           "learning rate.", digits=4, better="lower", chart="divergence"),
    Metric("sampling/effective_frac", "Effective sample size", "share of tokens", "(Σ w)² / (n Σ w²) of the weights w "
           "= π(policy)/π(sampler) of the batch's n tokens, before an update on the batch: that share of tokens would "
           "give the same noise if the policy itself had sampled them.", healthy="Near 1. Below 0.5, a few tokens have "
           "most of the weight.", scale="rate", better="higher", chart="clip"),
    Metric("sampling/outside_frac", "Outside the importance bounds", "share of tokens", "Share of tokens whose ratio "
           "of trainer to sampler is outside the bounds of importance sampling: their weight is cut to the bound, or "
           "to 0 if the mode masks.", healthy="Below 0.1.", scale="rate", chart="clip"),
    Metric("sample_age/mean", "Age of the batch", "updates", "Mean number of updates that the policy made between "
           "sampling a completion and the first update on it.", digits=1, short="mean"),
    Metric("sample_age/max", "Age of the oldest completion", "updates", "Number of updates that the policy made since "
           "the oldest completion of the batch was sampled.", digits=0, short="oldest"),
    Metric("surrogate/cpi", "Surrogate, unclipped", "advantage", "Mean of ratio × advantage: conservative policy "
           "iteration's objective.", r"L^{CPI}"),
    *(metric for family in choices.FAMILIES for member in family for metric in member.logs),
    Metric("surrogate/kl_penalised", "Surrogate, KL-penalised", "advantage", "Unclipped surrogate minus β × KL to the "
           "old policy.", r"L^{KLPEN}"),
    Metric("completions/mean_length", "Completion length", "tokens", "Mean completion length, the end token "
           "included.", digits=1),
    Metric("completions/truncated_frac", "Truncated", "share", "Share of completions cut at the length limit before "
           "they ended.", healthy="Near 0. Near 1: raise the length limit, or the reward never sees an ending.",
           scale="rate", better="lower"),
    Metric("episodes/mean_turns", "Turns per episode", "turns", "Mean turns of the model in an episode.",
           healthy="Between 1 and the turn limit. Falls if the task rewards a quick end.", digits=2, short="turns",
           chart="system"),
    Metric("episodes/reward_per_turn", "Reward per turn", "reward", "Rewards of all turns of the batch's episodes, "
           "divided by their number.", r"\bar r_k",
           "Rises. It rises faster than the reward if episodes also become shorter.", better="higher",
           short="per turn", chart="reward"),
    Metric("episodes/unended_frac", "Episodes not ended", "share", "Share of episodes that the "
           "environment had not ended at the turn limit or the length limit.", healthy="Falls. 1: the environment "
           "never ends an episode, or the limits are too low.", scale="rate", better="lower", short="not ended",
           chart="clip"),
    Metric("value_loss", "Critic loss", "reward²", "Half the mean squared error of the critic, clipped as PPO does.",
           r"L^V", better="lower"),
    Metric("explained_variance", "Explained variance", "share", "1 − Var(return − value)/Var(return): 1 is a perfect "
           "critic, 0 no better than a constant, below 0 worse. It also falls below 0 when returns hardly vary, as in "
           "a solved task: then a tiny error is a large share.", healthy="Above 0 and rising.", better="higher"),
    Metric("rewards/accuracies", "Pair accuracy", "share of pairs", "Share of pairs whose chosen side the policy "
           "prefers more strongly than the reference does.", healthy="Rises from 0 towards 1.", scale="rate",
           better="higher", now="prefers the chosen side in {} of the pairs"),
    Metric("rewards/margins", "Margin", "nats × β", "Mean implicit reward of the chosen minus that of the rejected "
           "completion.", r"\beta\Delta", "Rises.", better="higher", short="margin"),
    Metric("rewards/chosen", "Implicit reward, chosen", "nats × β", "β × log-ratio to the reference of the chosen "
           "completions; without a reference, β × their mean log-prob per token."),
    Metric("rewards/rejected", "Implicit reward, rejected", "nats × β", "β × log-ratio to the reference of the "
           "rejected completions; without a reference, β × their mean log-prob per token."),
    Metric("kl/mismatched", "KTO's reference point", "nats/sequence", "Mean log-ratio to the reference of completions "
           "under other prompts than their own, at least 0. KTO measures gains relative to it.", "z",
           "Near 0. High: the "
           "policy has moved on every text, not only on the desired ones."),
    Metric("logps/chosen", "Log-prob, chosen", "nats/sequence", "Mean summed log-probability of the chosen "
           "completions.", healthy="Often falls together with the rejected one: the margin is what is trained."),
    Metric("logps/rejected", "Log-prob, rejected", "nats/sequence", "Mean summed log-probability of the rejected "
           "completions."),
    Metric("logps/answer", "Log-prob, task's answer", "nats/sequence", "Mean summed log-probability of the tasks' own "
           "answers, where a loss learns them.", healthy="Rises.", better="higher", chart="entropy"),
    Metric("logps/opponent", "Log-prob, reference's completions", "nats/sequence", "Mean summed log-probability of the "
           "reference's completions under the policy, which XPO lowers to explore.", chart="entropy"),
    Metric("win_rate", "Win rate against the opponent", "probability", "Mean probability σ(R − R') that the policy's "
           "completion beats the opponent's, R' being the opponent's reward. The opponent is the reference (XPO) or a "
           "mixture of policy and reference (Nash-MD).", healthy="Rises above 0.5.", scale="rate", better="higher",
           now="beats the opponent with probability {}"),
    Metric("eval_accuracy", "Held-out accuracy", "share of pairs", "Share of held-out pairs whose chosen side scores "
           "higher.", healthy="Rises above 0.5. Labels with noise keep it below 1.", scale="rate", better="higher",
           short="held out", now="scores the chosen side higher in {} of the pairs"),
    Metric("accuracy", "Accuracy", "share of pairs", "Share of the batch's pairs whose chosen side scores higher, "
           "before the update.", scale="rate", better="higher", short="batch"),
    Metric("eval_margin", "Held-out margin", "reward", "Mean score of the chosen minus that of the rejected "
           "completion, on held-out pairs.", r"r_w - r_l", "Rises.", better="higher", short="held out"),
    Metric("margin", "Margin", "reward", "Mean score of the chosen minus that of the rejected completion, on the "
           "batch's pairs before the update.", better="higher", short="batch"),
    Metric("mean_reward", "Mean score", "reward", "Mean score of the batch's completions.", r"\bar r",
           "Near 0 with centering."),
    Metric("eval_step_accuracy", "Held-out step accuracy", "share of steps", "Share of held-out steps that the score "
           "classifies as their label does: above ½ right, below ½ "
           "wrong.", healthy="Rises above the share of the more common label.",
           scale="rate", better="higher", short="held out", now="judges {} of the steps correctly"),
    Metric("step_accuracy", "Step accuracy", "share of steps", "Share of the batch's steps that the score classifies "
           "correctly, before the update.",
           scale="rate", better="higher", short="batch"),
    Metric("eval_step_auc", "AUC of the steps", "share of pairs", "Probability that a right held-out step scores "
           "higher than a wrong one: the area under the ROC curve. 0.5: no better than chance.",
           healthy="Rises towards 1.", scale="rate", better="higher"),
    Metric("eval_first_error", "First errors found", "share of answers", "Share of held-out answers whose first step "
           "with a score below ½ is the first wrong step. An answer without a wrong step counts if no step scores "
           "below ½.",
           healthy="Rises.", scale="rate", better="higher"),
    Metric("eval_step_score", "Mean score of the steps", "share of steps", "Mean score of the held-out steps: the "
           "share of right steps that the model expects.", r"\bar s", "Near the share of right steps.", scale="rate",
           short="score"),
    Metric("eval_step_right", "Right steps", "share of steps", "Share of held-out steps that are labelled right.",
           scale="rate", short="labelled right"),
    Metric("eval_label_accuracy", "Accuracy of the labels", "share of steps", "Share of held-out steps whose label "
           "from rollouts agrees with the task's verifier of steps.", scale="rate", better="higher", short="labels",
           chart="reward"),
    Metric("best_of_n/sampled", "Right answers", "share of prompts", "Share of held-out prompts whose answer is right "
           "if it is chosen at random: the share of right answers.", scale="rate", better="higher", short="at random"),
    *(Metric(f"best_of_n/{name}", f"Best of n, {words}", "share of prompts", "Share of held-out prompts whose answer "
             f"with the highest {words} is right.", healthy="Above the share of right answers.", scale="rate",
             better="higher", short=words)
      for name, words in (("lowest", "lowest score"), ("product", "product of all"), ("last", "last score"))),
    Metric("best_of_n/any", "Any right answer", "share of prompts", "Share of held-out prompts with at least one right "
           "answer: the best result that choosing among the answers can "
           "give.", scale="rate", better="higher", short="any"),
    Metric("calibration_error", "Calibration error", "share of pairs", "Expected calibration error on held-out pairs: "
           "how far the predicted probability of a choice is from the share of pairs that were chosen so.",
           healthy="Near 0.", scale="rate", better="lower"),
    Metric("gold_correlation", "Correlation with gold", "", "Pearson's correlation of the scores of held-out "
           "completions with the task's own score.", r"\operatorname{corr}(r, R_{gold})", "Rises towards 1.",
           better="higher"),
    Metric("mean_token_accuracy", "Token accuracy", "share of tokens", "Share of target tokens that are the model's "
           "first choice.", healthy="Rises.", scale="rate", better="higher"),
    *classic_metrics.EPISODES,
    Metric("beta", "KL coefficient", "reward/nat", "β with its adaptive factor.", r"\beta"),
    Metric("demonstration_loss", "Loss of the demonstrations", "nats/token", "Mean −log π of the tokens of the "
           "demonstrations: right answers to the batch's prompts, which the update "
           "imitates.", healthy="Falls.", better="lower", chart="reward"),
    Metric("sft_weight", "Weight of demonstrations", "share", "Share of the loss that imitates demonstrations.",
           r"\mu_S", scale="rate"),
    Metric("entropy_coefficient", "Entropy coefficient", "reward/nat", "Coefficient of the entropy bonus, as set by "
           "adaptive entropy control. It is 0 if the entropy of the previous step was above the target.", "c_H"),
    *classic_metrics.UPDATES,
    Metric("loss", "Loss", "", "The number the optimizer lowers. In policy-gradient runs it is not a measure of "
           "progress: with centred advantages it starts near 0 while the gradient is not.", r"L", better="lower",
           now="its loss is {}"),
    Metric("grad_norm", "Gradient norm", "", "Euclidean norm of the gradient before it is clipped.",
           r"\lVert\nabla L\rVert"),
    Metric("learning_rate", "Learning rate", "", "Step size of the optimizer.", r"\eta", digits=6),
    Metric("updates", "Updates", "updates", "Optimizer updates since the start.", digits=0),
    Metric("num_tokens", "Tokens", "tokens", "Completion tokens sampled or trained on since the start.", digits=0),
    Metric("tokens_per_second", "Speed", "tokens/s", "Completion tokens per second of this step.", digits=0,
           about="machine", better="higher"),
    Metric("env_steps_per_second", "Speed", "env steps/s", "Steps of the world per second of this step.", digits=0,
           about="machine", better="higher"),
    Metric("memory", "Memory", "MB", "Resident memory of the whole worker process, Python and PyTorch included, which "
           "workers on Linux share; on a GPU the device memory that is allocated.", digits=0, about="machine",
           better="lower"),
)

# What a reward is made of is named by its source, which may be the user's own.
_PART, _UNSCORED = "reward/", "unscored/"
OWN = "own/"  # prefix of a trainer's metrics that the lab does not know


class _Metrics(Mapping[str, Metric]):
    """The declared metrics by their keys, `reward/<part>` and `unscored/<part>` for any part of a reward that is not
    declared itself, and `own/<name>` for a trainer's own metrics."""

    def __init__(self, declared: Iterable[Metric]):
        self._declared = {metric.key: metric for metric in declared}

    def __getitem__(self, key: str) -> Metric:
        part = key.removeprefix(_PART)
        if key not in self._declared and part != key and part:
            return Metric(key, f"Reward: {part}", "reward", f"Unweighted mean of the reward's part {part!r}.",
                          better="higher", short=part)
        silent = key.removeprefix(_UNSCORED)
        if key not in self._declared and silent != key and silent:
            return Metric(key, f"Not scored: {silent}", "share of completions", "Share of completions that the part "
                          f"{silent!r} of the reward did not score.", scale="rate", better="lower", short=silent)
        if key.startswith(OWN) and (name := key.removeprefix(OWN)):
            return Metric(key, name, "", "A metric of the trainer, under its own name.", short=name)
        return self._declared[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)


METRICS: Mapping[str, Metric] = _Metrics(_ALL)
NOW = tuple(metric for metric in _ALL if metric.now)  # what says how far a run is, the most telling first


def ordered(keys: Iterable[str]) -> list[str]:
    """The known ones among `keys`, in the order of the table; parts of a reward that it does not declare last."""
    known = [key for key in set(keys) if key in METRICS]
    places = {key: place for place, key in enumerate(METRICS)}
    return sorted(known, key=lambda key: (places.get(key, len(places)), key))


def metric(key: str) -> Metric:
    """The declaration of metric `key`. Raises LabError if there is no such metric."""
    if key not in METRICS:
        raise LabError(f"There is no metric {quoted(key)}: {suggestion(key, list(METRICS))}")
    return METRICS[key]
