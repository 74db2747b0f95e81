"""Questions that arise while a run learns, with their answers.

Each names the findings, metrics and knobs that it belongs to, so that charts, knobs and the doctor can link to it.
"""

from __future__ import annotations

from functools import cache

from labcore.catalog.panels import PANELS
from labcore.catalog.question import TOPICS, Question
from labcore.catalog.run_questions import RUN_QUESTIONS

_REWARD, _GROUPS, _CLIP, _KL, _ENTROPY, _TEXT, _PAIRS, _CRITIC, _MAZE = TOPICS[:-2]

QUESTIONS = (
    Question("no_signal", _REWARD, "My reward does not move. Why?",
             "A policy gradient needs completions of one prompt that earn different rewards. Look at the charts "
             "Reward std and Zero-variance groups first: where all completions of a prompt score the same, every "
             "advantage is 0 and the step teaches nothing. If all of them are wrong, train the base longer by SFT, "
             "use easier prompts, or give partial credit. If rewards differ and the curve is still flat, the steps "
             "are too small: raise the learning rate.",
             findings=("no_signal",), metrics=("reward", "reward_std"), knobs=("reward_shape",),
             lesson="zero_variance"),
    Question("reward_fell", _REWARD, "The reward rose and then fell. What happened?",
             "The doctor names the step from which it fell and, if you turned a knob shortly before, that knob. Usual "
             "causes are steps that are too big, a KL penalty that became too weak, or a collapse of the entropy. Move "
             "the scrubber to that step and read the samples before and after it. Then fork from a checkpoint before "
             "that step, without the change or with a third of the learning rate. A policy that has moved far off "
             "seldom recovers by itself.",
             findings=("reward_fell",), metrics=("eval_return", "episode_return")),
    Question("reward_hacking", _REWARD, "The reward rises, but the completions get worse. Why?",
             "The policy has found completions that the reward likes and you do not. This is reward hacking, and every "
             "imperfect reward is hacked if it is optimised for long enough. The charts Gold reward and Accepted "
             "completions measure the real goal, which is not trained on; read the samples at the step from which "
             "these curves no longer follow the reward. Fix the reward first. Then raise β, use several reward models, "
             "or stop at the best step.",
             findings=("reward_hacking",), metrics=("reward/gold", "reward/verifier", "exact_match"),
             knobs=("reward_source", "stop_gold_fall"), lesson="reward_with_a_hole"),
    Question("unscored", _REWARD, "Some prompts have no reward. What happens to them?",
             "Your reward function or the judge returned no number for any completion of these prompts. They are left "
             "out of the baseline and get advantage 0, so they cost time and teach nothing. Return a number in every "
             "case, for example 0 for a completion that cannot be read. With a judge, look at the run's log for "
             "refused or unreadable replies.",
             findings=("unscored",), metrics=("frac_reward_unscored", "unscored/reward"),
             knobs=("reward_function", "judge_url")),
    Question("shaping", _REWARD, "What is reward shaping for?",
             "Shaping changes the reward before completions are compared: a cost for length, a penalty near the length "
             "limit, or a bound on very high and very low rewards. It steers what is learnt, so the policy will "
             "exploit a poor shaping. The chart Reward shows the reward without it, and Reward after shaping shows the "
             "reward that is trained on.",
             metrics=("reward/shaped",), knobs=("shaping", "length_cost", "reward_clip")),
    Question("overfitting", _REWARD, "Training rows get better and held-out rows do not. What now?",
             "The model memorises your rows. Held-out rows are never trained on, so their curve is the one that "
             "counts. Use the checkpoint that was best on the held-out rows; the Playground and the export offer it. "
             "For the next run, use more rows, fewer epochs or a lower learning rate.",
             findings=("overfitting",), metrics=("held_out/accuracy", "held_out/loss", "held_out/greedy", "epoch"),
             knobs=("held_out",)),
    Question("pass_at_k", _REWARD, "What does pass@k tell me?",
             "It is the share of held-out prompts for which at least one of k samples is correct. RL often raises "
             "pass@1 far more than pass@k with a large k, because it makes correct completions likelier that the base "
             "model could already write. If pass@k falls while pass@1 rises, the policy has lost variety. More samples "
             "per held-out prompt make the estimate less noisy.",
             metrics=tuple(f"held_out/pass@{k}" for k in (2, 4, 8, 16, 32, 64)), knobs=("held_out_samples",)),

    Question("zero_variance", _GROUPS, "What is a zero-variance group?",
             "All completions of one prompt earned the same reward: all are correct or all are wrong. GRPO, RLOO and "
             "their relatives subtract the mean of the group, so every advantage in it is 0 and the group gives no "
             "policy gradient; a KL penalty still acts on it. Many all-correct groups at the end of a run are a "
             "success. Many all-wrong groups mean that the prompts are too hard. Larger groups, prompts of medium "
             "difficulty, a higher temperature, or resampling rounds (DAPO) help.",
             findings=("zero_variance",), metrics=("frac_reward_zero_std", "selection/kept_frac", "selection/rounds"),
             knobs=("selection", "resample_rounds"), lesson="zero_variance"),
    Question("difficulty", _GROUPS, "Which prompts should a run learn from?",
             "Prompts that the policy solves sometimes. If all completions of a prompt are right, or none is, the "
             "prompt gives no policy gradient; the chart Zero-variance groups shows the shares of both cases. A prompt "
             "pool keeps the pass rate of each prompt, and the choice of prompts can draw only prompts within a band, "
             "for example 0.2 to 0.8. A curriculum begins with easy prompts instead. Band and curriculum change the "
             "training prompts, so compare runs by their answers to the same questions, on the page Compare, or on "
             "held-out rows. The presets Uniform prompts and Prompts by pass rate show the difference.",
             metrics=("groups/solve_none_frac", "groups/solve_all_frac", "pool/drawn_frac", "pool/tried_frac",
                      "pool/pass_rate", *PANELS["levels"].metrics),
             knobs=("prompt_pool", "prompt_choice", "band_low", "band_high", "curriculum_steps", "explore_share",
                    "easiest")),
    Question("group_size", _GROUPS, "How large should a group be?",
             "The group is the baseline: with more completions per prompt its mean is less noisy, and fewer groups "
             "have equal rewards. A larger group costs more tokens, so the same budget covers fewer prompts. 8 is a "
             "common start, and hard prompts with rare successes need 16 or more. In groups of 2, standardised "
             "advantages can only be 0, +0.7 or −0.7, whatever the rewards are.",
             knobs=("group_size", "prompts_per_step"), lesson="group_size"),
    Question("advantage", _GROUPS, "What is an advantage, and what is a baseline?",
             "The advantage says how much better a completion or an action was than expected, and the baseline is what "
             "was expected: the mean of the group, the mean of the other completions, or a critic's value. Subtracting "
             "the baseline changes the noise of the gradient but not its mean, as long as it does not depend on the "
             "completion itself. Completions with a positive advantage become likelier, those with a negative one less "
             "likely.",
             knobs=("advantage", "psi"), lesson="baseline", page="foundations"),
    Question("standard_deviation", _GROUPS, "Should advantages be divided by their standard deviation?",
             "GRPO divides by the standard deviation of the group; Dr. GRPO does not. The division makes the step "
             "independent of the scale of the reward. It also makes prompts with rare successes or rare failures count "
             "more, which is a bias towards very hard and very easy prompts. With rewards of 0 and 1 both work; with "
             "rewards on different scales, dividing is safer.",
             knobs=("normalisation", "whiten_advantages", "normalise", "standardise")),
    Question("loss_is_zero", _GROUPS, "Why is the loss near 0? Is training broken?",
             "No. With one update per batch every ratio is 1, and advantages that are centred in their group sum to 0, "
             "so the value of the loss stays near 0. Its gradient does not: look at Gradient norm. The loss of a "
             "policy gradient only serves to compute the gradient; it does not measure progress. Judge the run by its "
             "reward and by held-out rows.",
             findings=("loss_is_zero",), metrics=("loss", "policy_loss", "grad_norm"), knobs=("max_grad_norm",),
             lesson="loss_near_zero"),

    Question("why_clip", _CLIP, "Why does the clip exist?",
             "A batch is used for several updates, but its advantages hold only for the policy that sampled it. "
             "Without a clip, the updates would keep raising the probability of tokens with a positive advantage, far "
             "beyond the evidence in the samples, and the policy may collapse. The clip stops the gradient of a token "
             "once its ratio has left the range 1 − ε to 1 + ε on the side that its advantage pushes to. The clip "
             "removes the incentive but is no hard limit: the updates of other tokens can still move a ratio further.",
             metrics=("ratio/max", "surrogate/cpi"), knobs=("clip_high", "clip_low", "clip_range", "surrogate"),
             lesson="why_clip", page="surrogate"),
    Question("clip_cannot_act", _CLIP, "Why is nothing ever clipped?",
             "The clip acts on the ratio of the present policy to the policy that sampled the batch. With one update "
             "per batch the two are the same, every ratio is 1, and there is nothing to clip. Use two or more updates "
             "per batch if you want the clip to matter. With more updates a share of 2 to 30 % is usual.",
             findings=("clip_cannot_act",), metrics=("clip_frac/region", "clip_frac/high", "clip_frac/low"),
             lesson="clip"),
    Question("updates_per_batch", _CLIP, "How many updates should a batch get?",
             "One update keeps the run on policy: all ratios are 1. More updates learn more from each sample, which "
             "pays off where sampling is slow. The later updates are off policy, so they need a clip, and the gain per "
             "update shrinks. 1 to 4 is usual for language models, up to 10 for small worlds.",
             knobs=("updates_per_batch", "epochs", "mini_batches"), page="surrogate"),
    Question("tiny_updates", _CLIP, "The updates are tiny. Is that bad?",
             "Several updates were made on each batch, and yet the largest ratio stayed within 2 % of 1. You pay for "
             "the updates and the policy hardly moves. Raise the learning rate by a factor of three and watch the KL. "
             "If the reward rises well as it is, nothing is wrong.",
             findings=("tiny_updates",)),
    Question("step_too_big", _CLIP, "The steps are too big. What should I change?",
             "Lower the learning rate first, then the number of updates per batch. The signs are a large share of "
             "clipped tokens, a KL that jumps within a few steps, or a gradient norm ten times as large as before. If "
             "the reward has fallen already, fork from before the jump with a third of the learning rate.",
             findings=("step_too_big",), metrics=("kl/step",), knobs=("delta", "kl_target")),
    Question("learning_rate", _CLIP, "Which learning rate should I use?",
             "It depends on the weights more than on the algorithm. The small models of this lab learn from scratch "
             "at 1e-4 to 1e-3. Pretrained models need about 1e-6 for all weights and ten times that with LoRA; higher "
             "rates destroy what they know. If the KL jumps, it is too high; if ratios stay near 1 and the reward is "
             "flat, it is too low.",
             knobs=("learning_rate", "schedule", "warmup_steps")),
    Question("ratio_level", _CLIP, "A ratio per token or per completion?",
             "PPO and GRPO take a ratio for every token, GSPO one for the whole completion: the geometric mean over "
             "its tokens. Rewards are given to completions, so a completion's ratio matches them, and it is less "
             "noisy. Its clip range is far smaller, some 3e-4, because a mean over tokens hardly leaves 1. RLOO takes "
             "the product of all ratios, which leaves any range quickly when completions are long.",
             metrics=("token_weight",), knobs=("ratio", "ratio_cap"), page="surrogate"),
    Question("precision_mismatch", _CLIP, "Sampler and trainer disagree. What does that mean?",
             "The two give the same token different log-probabilities before the first update, so ratios differ from 1 "
             "by error alone. Causes are low precision, a separate sampler such as vLLM, or weights that are not the "
             "same on both sides. Then the clip cuts the wrong tokens and the gradient is biased. Use full precision "
             "or weigh tokens by truncated importance sampling.",
             findings=("precision_mismatch",), metrics=("sampling/logp_difference", "sampling/outside_frac"),
             knobs=("importance_cap", "dtype", "rollouts", "sampler_dtype")),
    Question("stale", _CLIP, "How old may the samples be?",
             "In asynchronous training the policy learns from completions that it sampled some updates ago. The number "
             "of steps matters less than how far the policy has moved since then: look at the charts KL of sampler and "
             "policy and Effective sample size. While the KL is a few hundredths of a nat per token, ratio and clip "
             "correct for most of the age. At a higher KL the clip removes more and more tokens, and algorithms "
             "without a ratio follow a gradient that is biased. Use a lower staleness, a lower learning rate, or weigh "
             "tokens by truncated importance sampling.",
             findings=("stale",), metrics=("sample_age/mean", "sampling/effective_frac", "sampling/kl"),
             knobs=("staleness", "staleness_order", "replay_share", "replay_steps")),

    Question("beta", _KL, "What does the KL coefficient β do?",
             "β is the price of one nat of KL to the reference model. The best policy at that price is π* ∝ π_ref "
             "exp(R/β): a small β lets it concentrate on the best completions, a large one keeps it close to the "
             "reference. Too high and the reward stays low; too low and the policy may drift or hack the reward. "
             "GRPO's paper uses 0.04, while TRL's default is 0.",
             knobs=("beta", "kl_placement"), lesson="kl_coefficient", page="exact"),
    Question("kl_runaway", _KL, "The KL runs away. What now?",
             "The policy leaves the reference faster than its reward can justify. Usual causes are a β near 0, a high "
             "learning rate, or a KL penalty whose gradient does not regularise, such as k1 in the loss. Raise β or "
             "lower the learning rate. A KL that grows slowly while the reward rises is normal, and DAPO trains "
             "without any KL penalty.",
             findings=("kl_runaway",), metrics=("kl", "exact/kl"), knobs=("stop_kl", "adaptive_kl_target"),
             lesson="kl_coefficient"),
    Question("kl_negative", _KL, "Why is the KL negative?",
             "The divergence itself is never negative, but an estimate from samples can be. k1 is the mean of log π − "
             "log π_ref of the sampled tokens: many of its terms are negative, and while the KL is near 0, the mean "
             "over a batch may be negative too. k3 is never negative for any sample. A k1 that stays clearly below 0 "
             "means that the samples do not come from the policy: its temperature, its top-p or its sampler differ "
             "from the trainer's, or the batch is old.",
             metrics=("kl/k1",), lesson="k1_in_the_loss", page="foundations"),
    Question("which_kl", _KL, "k1, k2 or k3: which estimate of the KL should I use?",
             "To watch a run, k3: it is unbiased on policy, low in variance and never negative. In the loss only the "
             "gradient counts. That of k1 has mean 0, so it does not regularise at all; that of k2 is the gradient of "
             "the reverse KL; that of k3 is the gradient of the other KL, from the reference to the policy. k1 in the "
             "reward is a sound choice as well.",
             metrics=("kl/k3", "kl/k2", "exact/kl_reverse"), knobs=("kl_estimator",), lesson="k1_in_the_loss",
             page="foundations"),
    Question("optimum", _KL, "What is π*, the exact optimum?",
             "The page Exact lists every completion of a small problem, so the best policy can be computed: π* is the "
             "reference weighted by exp(R/β). No algorithm can reach a higher reward minus β × KL. The chart Distance "
             "to π* shows how many nats the policy is away from π*, and the cosine shows how well the gradient of a "
             "batch agrees with the exact one. At β = 0 there is no single best policy, only a set of best "
             "completions.",
             metrics=("exact/distance", "exact/best", "exact/objective", "exact/gradient_cosine", "exact/reward"),
             page="exact"),

    Question("entropy_collapse", _ENTROPY, "The entropy collapsed. Can I rescue the run?",
             "The policy writes nearly the same completion every time, so groups have equal rewards and nothing more "
             "is learnt. A falling entropy with a rising reward is normal; a collapse before the task is solved is "
             "not. Fork from a checkpoint before the collapse with an entropy bonus, a higher upper clip or a higher "
             "temperature. With an entropy target the bonus adapts by itself. Clip-Cov and KL-Cov hold back only a few "
             "of the tokens that lower the entropy most. Less training on the same prompts helps too.",
             findings=("entropy_collapse",), metrics=("entropy", "entropy/action", "exact/entropy"),
             knobs=("entropy_coef", "entropy_target", "cov_share"), lesson="entropy"),
    Question("temperature", _ENTROPY, "Which temperature should I sample with?",
             "Train at 1: then the samples come from the policy that the equations assume. Higher temperatures give "
             "more varied completions and more mistakes, lower ones repeat what the policy is sure of. Top-k and top-p "
             "cut the distribution that is sampled from, so ratios and KL estimates are then slightly biased; keep "
             "them off in training. In the Playground use whatever reads best.",
             knobs=("temperature", "top_p", "top_k")),

    Question("length_bias", _TEXT, "Completions grow longer but not better. Why?",
             "Some ways to average the loss favour long completions. With the mean over each completion's own tokens "
             "(GRPO) the tokens of a long wrong completion are each penalised less, so long errors survive. A constant "
             "divisor (Dr. GRPO) takes length out of the weights, and the mean over all tokens (DAPO) makes long "
             "completions count more. Choose another aggregation or add a length cost.",
             findings=("length_bias",), metrics=("completions/mean_length", "held_out/mean_length"),
             knobs=("aggregation",)),
    Question("truncation", _TEXT, "Many completions are cut off. Does it matter?",
             "Yes: a completion that reaches the length limit mostly has no final result yet, so it earns 0 although "
             "its beginning may be right, and the policy learns to avoid that beginning. Raise the length limit. If "
             "memory forbids it, leave cut completions out of the loss (overlong filtering) or penalise the last "
             "tokens before the limit.",
             findings=("truncation",), metrics=("completions/truncated_frac", "held_out/truncated_frac"),
             knobs=("max_new_tokens", "overlong_filter", "overlong_buffer", "overlong_penalty")),
    Question("several_turns", _TEXT, "How does a model learn in several turns?",
             "An environment answers each turn of the model, and the model's next turn sees all earlier turns and "
             "answers. The model learns only from its own tokens: the environment's tokens are masked out of the loss "
             "and of every metric. With one reward for the episode, all turns share one advantage. If rewards arrive "
             "during an episode, try an advantage per turn: turn_return, or turn_gae with PPO's critic. If episodes do "
             "not end, raise the turn limit or the length limit. In the Playground you can play an episode together "
             "with the model and take over at any turn.",
             metrics=("episodes/mean_turns", "episodes/reward_per_turn", "episodes/unended_frac"),
             knobs=("max_turns", "turn_tokens", "observation_length", "observation_role")),
    Question("sft_first", _TEXT, "Why is the base trained by SFT first?",
             "RL can only strengthen completions that the policy samples. If a right one never appears, every reward "
             "is 0 and nothing is learnt. A short imitation of examples brings the first successes; RL then raises "
             "their share. Too much SFT leaves little for RL to do and makes the policy less varied.",
             metrics=("mean_token_accuracy",), knobs=("sft_steps", "sft_target", "sft_loss")),

    Question("displacement", _PAIRS, "DPO makes the chosen completions less likely too. Why?",
             "The loss of DPO sees only the difference between chosen and rejected. It can grow while both "
             "log-probabilities fall, and the probability moves to completions that are in no pair. A small fall is "
             "normal. If the completions get worse, raise β, lower the learning rate, or add an SFT term on the chosen "
             "ones.",
             findings=("displacement",), metrics=("logps/chosen", "logps/rejected"),
             knobs=("second_loss", "second_weight"), lesson="dpo"),
    Question("answers_worse", _PAIRS, "Pairs are separated better, but the completions get worse. Why?",
             "Pair accuracy asks which of two given completions the model prefers. It says nothing about what the "
             "model writes by itself. The two diverge when training moves the policy far from the reference or "
             "overfits the pairs. Stay closer to the reference, stop earlier, or sample new pairs from the present "
             "policy, as online DPO does.",
             findings=("answers_worse",), metrics=("rewards/accuracies", "rewards/margins", "margin"),
             knobs=("pairs", "preference_loss")),
    Question("implicit_reward", _PAIRS, "What is the implicit reward of DPO?",
             "A policy trained by preferences behaves as if it had been trained with RL on the reward β log(π/π_ref). "
             "The charts show it for chosen and rejected completions; their difference is the margin. It describes the "
             "policy and does not measure quality, so watch the chart Accepted completions as well.",
             metrics=("rewards/chosen", "rewards/rejected")),
    Question("reward_model", _PAIRS, "How far can I trust a reward model?",
             "As far as the texts that it was trained on. On held-out pairs look at its accuracy and calibration, and "
             "where a gold reward exists at its correlation with it. During RL the policy moves away from those texts, "
             "and the scores of several models spread: then stop, or penalise their disagreement. Collect new pairs "
             "from the present policy and train the reward model again.",
             metrics=("reward/spread", "gold_correlation", "calibration_error", "accuracy"),
             knobs=("reward_model", "uncertainty_weight")),
    Question("opponent", _PAIRS, "What does comparing with an opponent change?",
             "Online DPO compares two completions of the policy. XPO compares a completion of the policy with one of "
             "the reference, and makes the reference's completion less likely, so the policy explores. Nash-MD "
             "compares a completion of the policy with one of a mixture of policy and reference, and maximises the "
             "probability of winning, which suits preferences that no single score explains. A win rate above 0.5 "
             "means that the policy is better than its opponent.",
             metrics=("win_rate", "logps/opponent"), knobs=("mixture_share",)),
    Question("process_rewards", _PAIRS, "How do rewards of single steps change the training?",
             "They show where an answer goes wrong, so credit can be less noisy than with one reward for the whole "
             "answer. But the scores of a process reward model are estimates, and a policy that maximises them can "
             "find steps that score high and lead nowhere. Compare the chart Score of the steps with the right steps "
             "and with gold: if only the score rises, try to add the outcome (outcome_weight), to reward the "
             "differences of scores or the lowest score instead of their sum, or to raise β. A sum also rewards "
             "answers with more steps.",
             metrics=("reward/step_score", "reward/steps_right", "eval_step_auc", "eval_first_error",
                      "eval_step_accuracy", "best_of_n/lowest"),
             knobs=("step_reward", "outcome_weight", "step_labels", "step_separator")),
    Question("best_of_n", _PAIRS, "Can a reward model choose the best of several answers?",
             "Yes, and this needs no training of the policy: it samples n answers, and the one with the highest score "
             "is taken. Choose Best of n in the Playground to see the answers with the score of each step, and whether "
             "the verifier agrees with the choice. With more answers it also becomes more likely that one of them is "
             "wrong and scores too high. The reward model may also be a published one. To score steps it must be a "
             "token classifier with two labels, or a language model with a tag after each step.",
             metrics=("best_of_n/product", "best_of_n/last", "best_of_n/sampled", "best_of_n/any"),
             knobs=("step_tag", "label_tokens")),

    Question("critic_lags", _CRITIC, "The critic lags behind. What does that change?",
             "An explained variance below 0 means that the critic predicts returns worse than a constant would, so the "
             "baseline adds noise to the gradient instead of removing it. Raise the critic's learning rate or its "
             "number of passes, or lower the learning rate of the policy. In a solved task returns hardly vary and the "
             "number means little.",
             findings=("critic_lags",), metrics=("explained_variance", "value_loss"),
             knobs=("critic_learning_rate", "critic_epochs")),
    Question("gae_lambda", _CRITIC, "What does λ of GAE trade off?",
             "At λ = 1 an advantage uses all rewards up to the end: no bias from the critic, but much noise. At λ = 0 "
             "it uses one step and trusts the critic's value for the rest: little noise, and the critic's errors "
             "become bias. 0.9 to 1 is usual. With a reward only at the end of a completion and an untrained critic, "
             "stay close to 1.",
             knobs=("gae_lambda", "gamma", "n_steps"), lesson="gae_lambda"),

    Question("exploration", _MAZE, "Why does the agent never find the far goal?",
             "It takes the first reward that it finds and then follows it. Moves at random (ε) are the only way to "
             "find anything else. A higher ε, or one that falls more slowly, helps. Once the goal is found, let ε "
             "fall: random moves cost return.",
             metrics=("moves_to_goal", "start_value"), knobs=("epsilon", "epsilon_start", "epsilon_steps"),
             lesson="exploration", page="maze"),
    Question("cliff", _MAZE, "Why does SARSA take the longer way?",
             "SARSA learns the value of the policy that it follows, with its random moves. Beside a cliff such a move "
             "is expensive, so it keeps a distance. Q-learning learns the value of the greedy policy and walks along "
             "the edge, which is best once nothing is random, and worse until then.",
             metrics=("value_error", "td_error"), knobs=("alpha",), lesson="cliff", page="maze"),
    Question("traces", _MAZE, "What do traces do with λ?",
             "A reward changes the value of the state before it. With traces it changes the values of all states on "
             "the path, each by a factor γλ less than the state after it. So one success teaches many states at once, "
             "but a lucky path is also credited as a whole. At λ = 0 the information moves back by one state per "
             "visit.",
             knobs=("lambda",), lesson="traces", page="maze"),
    *RUN_QUESTIONS,
)


@cache
def _by(kind: str) -> dict[str, Question]:
    """By key the first question that belongs to it."""
    found: dict[str, Question] = {}
    for question in QUESTIONS:
        for key in getattr(question, kind):
            found.setdefault(key, question)
    return found


def of_finding(rule: str) -> Question | None:
    """The question that a finding of the doctor raises."""
    return _by("findings").get(rule)


def of_metric(key: str) -> Question | None:
    """The question that a metric's chart raises."""
    return _by("metrics").get(key)


def of_knob(key: str) -> Question | None:
    """The question that a knob raises."""
    return _by("knobs").get(key)
