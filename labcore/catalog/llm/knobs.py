"""The knobs of each loop of language models, in the order of the page. Those of single choices are declared with them,
in `labcore.catalog.families`."""

from labcore.catalog import choices
from labcore.catalog.families import preferences, process, rewards, surrogates
from labcore.catalog.knob import Knob
from labcore.catalog.llm.difficulty import DIFFICULTY
from labcore.catalog.llm.optimizer import OPTIMIZER
from labcore.catalog.llm.staleness import STALENESS

LEARNING_RATE = Knob(
    "learning_rate", "Learning rate", 1e-3, "Size of the optimizer's steps. Higher: learns faster, until an update "
    "overshoots and the policy breaks. Lower: slow and steady.", "live", 0.0, 1.0, (1e-5, 3e-3), r"\eta",
    scale="log", group="optimisation",
    reach=(1e-5, 1e-2), aliases="lr")
MAX_GRAD_NORM = Knob(
    "max_grad_norm", "Gradient clip", 1.0, "Longer gradients are scaled down to this norm. Higher: lets rare large "
    "steps through; lower: damps all steps.", "live", 1e-6, 1e6, (0.1, 10), scale="log", advanced=True,
    group="optimisation", aliases="gradient clipping")
TEMPERATURE = Knob(
    "temperature", "Temperature", 1.0, "Divisor of the logits when completions are sampled. Higher: more varied "
    "completions, more exploration, more mistakes. Lower: repeats the likeliest completions.", "next batch",
    0.05, 5.0, (0.5, 1.5), r"\tau", group="sampling", reach=(0.1, 2.0))
TOP_K = Knob(
    "top_k", "Top-k", 0, "Sample among the k likeliest tokens only; 0: all. Lower: fewer slips, less exploration.",
    "next batch", 0, 100_000, advanced=True, group="sampling")
TOP_P = Knob(
    "top_p", "Top-p", 1.0, "Sample among the likeliest tokens that hold this probability; 1: all. Lower: fewer slips, "
    "less exploration.", "next batch", 0.01, 1.0, advanced=True, group="sampling")
MAX_NEW_TOKENS = Knob(
    "max_new_tokens", "Length limit", 8, "Longest completion. Higher: nothing is cut, each step costs more. Lower: "
    "less compute; cut completions get no reward for their end.", "next batch", 1, 4096, unit="tokens", advanced=True,
    group="sampling", aliases="max_completion_length response_length")
DTYPE = Knob(
    "dtype", "Precision", "fp32", "bf16 runs matrix products in bfloat16: faster on processors and GPUs that have it, "
    "with fewer digits. fp32: exact and repeatable.", choices=("fp32", "bf16"), advanced=True,
    here="labcore.machine:bf16_said", group="memory")
SFT_TARGET = Knob(
    "sft_target", "SFT target", 0.4, "Supervised fine-tuning of the base stops at this share of right "
    "sampled completions. Higher: an easier start, less left for RL to do. 1: only the step limit stops it.",
    low=0.0, high=1.0, unit="share",
    advanced=True, group="model")
EVAL_PROMPTS = Knob(
    "eval_prompts", "Evaluation prompts", 256, "Prompts sampled at each measurement. More: a surer number, a longer "
    "wait; 256 give a standard error of 0.03, 32 one of 0.09. Fewer: quicker.", "next batch", 1, 100_000,
    advanced=True, group="evaluation")
ROLLOUTS = ("engine", "vllm")
SFT_STEPS = Knob(
    "sft_steps", "SFT steps", 400, "Most supervised steps that a built-in model gets before this run; 0: none. "
    "Higher: a better base; lower: more is left to RL.", low=0, high=1_000_000, advanced=True, group="model",
    aliases="warm-up pretraining")

LORA = (
    Knob("lora_rank", "LoRA rank", 0, "Rank of the adapters that are learnt in place of all weights, on the attention "
         "layers that are usual for the architecture. Higher: learns more, with more memory. Lower: less of both. 0: "
         "off, all weights are learnt.", low=0, high=1024, safe=(0, 64), advanced=True, group="memory"),
    Knob("lora_alpha", "LoRA alpha", 16, "The adapters are scaled by alpha / rank. Higher: learns faster. Lower: "
         "slower. Twice the rank is usual.", low=1, high=65_536, safe=(1, 128), advanced=True, group="memory"),
)
ENGINE = (
    Knob("gradient_checkpointing", "Gradient checkpointing", False, "On: an update keeps only each layer's input and "
         "recomputes the rest in the backward pass: much less memory, about a third more time. Off: it keeps all.",
         advanced=True, forkable=True, group="memory"),
    Knob("optimizer", "Optimizer", "adamw", "adamw 8bit keeps AdamW's two moments in 8 bits each, by bitsandbytes: 2 "
         "bytes per trained parameter instead of 8. Updates differ a little from "
         "those of adamw.",
         choices=("adamw", "adamw_8bit"), advanced=True, group="memory"),
    Knob("compile", "Compile", False, "On: torch.compile for the passes of an update. The first steps take tens of "
         "seconds more, later ones less: worth it in long runs of larger models on a GPU. On a processor it needs "
         "a C++ compiler. Off: nothing is compiled.", advanced=True, forkable=True, group="memory"),
)
PROMPT = (
    Knob("template", "Chat template", "auto", "How prompts are written for the model. auto: by the model's own chat "
         "template, where it has one. chatml: by ChatML. off: as plain text, unlike an instruct model's training.",
         choices=("auto", "chatml", "off"), advanced=True, before="off", group="model"),
    Knob("system_prompt", "System prompt", "", "System turn for conversations that have none. Empty: the template's "
         "own.", advanced=True, group="model"),
    Knob("thinking", "Thinking", "auto", "Whether the model thinks before it answers, if its template has such a "
         "switch. "
         "on and off: enable_thinking is true or false. auto: the template's default.",
         choices=("auto", "on", "off"), advanced=True, group="model"),
    Knob("begins_with", "Answers begin with", "", "Text that every answer begins with; the model continues it, and it "
         "gets no reward by itself. Empty: no fixed beginning.", advanced=True, group="model"),
)
SAMPLING = (TEMPERATURE, TOP_K, TOP_P, MAX_NEW_TOKENS)
# Filters that SFT lacks, because the knobs of its spec name the base of every run.
FILTERS = (
    Knob("min_p", "Min-p", 0.0, "Sample among tokens with at least this share of the likeliest token's probability; 0: "
         "all. Higher: fewer slips, less exploration.", "next batch", 0.0, 1.0, (0.0, 0.2), advanced=True,
         group="sampling", before=0.0),
    Knob("repetition_penalty", "Repetition penalty", 1.0, "For tokens that already occur in the prompt or the "
         "completion, positive logits are divided by this and negative ones multiplied. Higher: fewer repetitions. "
         "Below 1: more. 1: off.", "next batch", 0.1, 10.0, (1.0, 1.3), advanced=True, group="sampling", before=1.0),
)

MOVING_REFERENCE = (
    Knob("reference_every", "Reference follows every", 0, "Updates after which the reference model moves towards the "
         "policy. Lower: the policy may drift further from its start. Higher: it stays close to its start for longer. "
         "0: the reference model never moves.", low=0, high=1_000_000, unit="updates", advanced=True, group="kl",
         aliases="sync_ref_model ref_model_sync_steps", before=0),
    Knob("reference_mixup", "Reference mixup", 0.6, "Share of the policy's weights in the reference model when it "
         "moves. Higher: closer to the policy. Lower: it follows more slowly. 1: it becomes a copy of the policy.",
         "next batch", 0.0, 1.0, (0.1, 1.0), unit="share", advanced=True, group="kl", aliases="ref_model_mixup_alpha",
         before=0.6),
)

DEMONSTRATIONS = (
    Knob("sft_weight", "Weight of demonstrations", 0.0, "Share of the loss that imitates the right answer of each "
         "prompt of the batch; the rest of the loss learns from rewards. Higher: the policy learns the answers faster. "
         "Lower: it explores more. 0: "
         "off.", "next batch", 0.0, 1.0, (0.0, 0.5), r"\mu_S", "share", advanced=True, group="loss",
         aliases="chord_mu_peak demonstrations expert", before=0.0),
    Knob("sft_focus", "Weigh tokens by uncertainty", True, "On: a token of a demonstration has the weight p(1 − p), "
         "where p is its probability. So tokens that the policy is sure of, or finds nearly impossible, count for "
         "little. Off: all tokens have the same weight.",
         "next batch", advanced=True, group="loss", aliases="chord_enable_phi_function", before=True),
    Knob("sft_decay_steps", "Demonstrations fade over", 0, "Steps over which the weight of demonstrations falls to 0. "
         "Higher: the policy imitates for longer. Lower: rewards take over sooner. 0: the weight stays "
         "constant.", "next batch", 0,
         1_000_000, (0, 1000), unit="steps", advanced=True, group="loss", aliases="chord_mu_decay_steps", before=0),
)

ONLINE = (
    Knob("beta", "KL coefficient", 0.0, "Price in reward of one nat of KL to the reference. Higher: stays closer to "
         "the reference, learns more slowly. Lower: may drift further, break, or exploit the reward.", "live", 0.0,
         10.0, (0.0, 0.2), r"\beta", "reward/nat", group="kl", reach=(0.0, 1.0), aliases="kl_coef"),
    LEARNING_RATE.with_default(7e-4),
    surrogates.CLIP_LOW, surrogates.CLIP_HIGH,
    Knob("group_size", "Group size", 8, "Completions per prompt. Higher: better baselines, fewer zero-variance "
         "groups, more compute per step. Lower: less compute, noisier.", "next batch", 1, 1024, (4, 16), "G",
         group="sampling", reach=(2, 64), aliases="num_generations"),
    Knob("prompts_per_step", "Prompts per step", 32, "Different prompts in a batch. Higher: a steadier gradient, "
         "more compute per step. Lower: less compute, noisier.", "next batch", 1, 4096, (4, 64), "P", group="sampling",
         reach=(1, 128), aliases="batch size"),
    Knob("updates_per_batch", "Updates per batch", 2, "Passes over each batch. Higher: more learning per sample, but "
         "off-policy: ratios leave 1 and the clip takes effect. 1: always on policy.", "next batch", 1, 64,
         (1, 4), r"\mu", group="optimisation", reach=(1, 16), aliases="num_iterations ppo_epochs off-policy"),
    Knob("mini_batches", "Mini-batches", 1, "Equal parts each pass is cut into, one optimizer update per part; must "
         "divide the prompts per step (groups stay whole). Higher: more, noisier updates. Lower: fewer, steadier "
         "ones.", "next batch", 1, 4096, advanced=True, group="optimisation", aliases="ppo_mini_batch_size"),
    *SAMPLING, *FILTERS,
    Knob("entropy_coef", "Entropy bonus", 0.0, "Weight of the policy's entropy, which the loss raises. Higher: "
         "completions stay varied for longer. Lower: the policy becomes certain sooner. 0: off.",
         "live", 0.0, 1.0, (0.0, 0.02), "c_H", "reward/nat", advanced=True, group="kl",
         reach=(0.0, 0.2), aliases="entropy_coeff"),
    Knob("entropy_target", "Entropy target", 0.0, "While the entropy is below this target, the coefficient of the "
         "entropy bonus rises with every step. While the entropy is above, the coefficient falls and the loss has no "
         "bonus. Higher: the policy stays more varied. Lower: the policy may become more certain. 0: off; the "
         "coefficient is the entropy bonus "
         "above.", "next batch", 0.0, 20.0, (0.0, 1.0), unit="nats/token", advanced=True,
         group="kl", aliases="adaptive entropy control target_entropy", before=0.0),
    Knob("entropy_step", "Step of the entropy bonus", 1e-3, "Change of the entropy bonus per step. Higher: the entropy "
         "returns to its target sooner, but may oscillate. Lower: it returns more "
         "slowly.", "next batch", 0.0, 1.0, (1e-4, 1e-2),
         unit="reward/nat", advanced=True, group="kl", aliases="delta_ent_coef", before=1e-3),
    MAX_GRAD_NORM,
    Knob("reward_source", "Reward source", "verifier", "Source of the rewards: the task's verifier, a noisy or a "
         "flawed one, trained reward models, functions of your own, or a language model that judges.",
         choices=choices.REWARD.names, advanced=True, group="reward"),
    rewards.SCORER, rewards.UNCERTAINTY_WEIGHT, *rewards.OWN_FUNCTION, *rewards.JUDGE, *rewards.NAMED_WEIGHTS,
    rewards.REWARD_NOISE, *process.OF_SOURCE, *process.PUBLISHED, process.MIN_TEMPERATURE,
    Knob("shaping", "Reward shaping", "none", "Change of the reward before completions are compared: a penalty or a "
         "cost of length, or a clip of very high and very low rewards.",
         choices=choices.SHAPING.names, advanced=True, group="reward"),
    *rewards.OVERLONG, rewards.LENGTH_COST, rewards.REWARD_CLIP, *rewards.REWARD_RANGE,
    Knob("selection", "Selection", "everything", "Completions that the updates learn from.",
         choices=choices.SELECTION.names, advanced=True, group="sampling"),
    Knob("overlong_filter", "Overlong filtering", False, "On: completions cut at the length limit are left out of the "
         "loss, but stay in their group's baseline. Off: they count.", "next batch", advanced=True, group="sampling"),
    rewards.RESAMPLE_ROUNDS,
    Knob("advantage", "Advantage", "group_standardised", "Baseline that is subtracted from a completion's reward: the "
         "better it is, the less noise in the gradient.", choices=choices.ADVANTAGE.names, advanced=True,
         group="advantage", aliases="baseline scale_rewards"),
    Knob("normalisation", "Normalisation of advantages", "none", "Normalisation of the batch's advantages: over its "
         "completions, or over its tokens, where long completions weigh more.",
         choices=choices.NORMALISATION.names, advanced=True, group="advantage"),
    Knob("ratio", "Ratio", "token", "Level of the ratio of new to old policy: tokens, or the whole sequence.",
         choices=choices.RATIO.names, advanced=True, group="clip"),
    Knob("surrogate", "Surrogate", "clip", "Objective: the plain score function, or the clipped ratio that "
         "allows several updates per batch; the bounded one adds the dual and the two-sided clip.",
         choices=choices.SURROGATE.names, advanced=True, group="clip"),
    Knob("kl_estimator", "KL estimator", "k3", "Estimator of the KL that is penalised; estimators differ in their "
         "noise and their gradient.", choices=choices.KL_ESTIMATOR.names, advanced=True, group="kl"),
    Knob("kl_placement", "KL placement", "loss", "Where β × KL enters. reward: subtracted from the reward; loss: added "
         "to the loss; off: nowhere, it is only measured.", choices=choices.KL_PLACEMENTS, advanced=True, group="kl"),
    Knob("aggregation", "Aggregation", "sequence_mean_token_mean", "How the terms of tokens are averaged: decides "
         "whether long completions weigh more.", choices=choices.AGGREGATION.names, advanced=True,
         group="optimisation", aliases="loss_type loss_agg_mode length bias"),
    surrogates.DUAL_CLIP, surrogates.CLIP_DELTA,
    Knob("top_entropy_share", "Share of high-entropy tokens", 1.0, "Only this share of an update's tokens, those "
         "where the policy is least sure, has a policy gradient. Lower: only the forking tokens (highest entropy) "
         "count; 0.2 is usual. Higher: routine tokens count too. 1: off.", "live", 0.01, 1.0, (0.2, 1.0), unit="share",
         advanced=True, group="clip"),
    Knob("off_policy_threshold", "Off-policy mask", 0.0, "Completions with negative advantage that the policy has "
         "moved away from by more than this are left out of the policy gradient. Lower: leaves out more. Higher: only "
         "the most off-policy. 0: off.",
         "live", 0.0, 100.0, (0.0, 1.0), unit="nats/token", advanced=True, group="clip"),
    Knob("importance_cap", "Truncated importance sampling cap", 0.0, "Weighs tokens by trainer over sampler "
         "probability, at most this; the trainer's is computed anew. It matters if an older policy sampled, or if "
         "sampler and trainer round differently, as in bf16 or with vLLM. Higher: less bias, more noise; 2 is usual. "
         "Lower: steadier. 0: off.", "next batch", 0.0, 100.0, (0.0, 5.0), advanced=True, group="clip",
         aliases="tis vllm_importance_sampling_clip_max"),
    Knob("importance_floor", "Lower bound of importance sampling", 0.0, "Lower weights are raised to this, or set to 0 "
         "if `importance_mode` masks; IcePop uses 0.5. Higher: tokens that the trainer finds unlikely count for more, "
         "or more of them are masked. 0: no lower bound.", "next batch", 0.0, 1.0, (0.0, 0.5), advanced=True,
         group="clip", aliases="vllm_importance_sampling_clip_min", before=0.0),
    Knob("importance_mode", "Importance sampling mode", "token_truncate", "Ratio of trainer to sampler that is the "
         "weight, and treatment of ratios outside the bounds. token: one ratio per token; sequence: the product over "
         "the completion, so a long completion is seldom within the bounds. truncate: the weight is the bound; mask: "
         "the weight is 0.", "next batch",
         choices=("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"), advanced=True, group="clip",
         aliases="icepop mis vllm_importance_sampling_mode", before="token_truncate"),
    Knob("recompute_logprobs", "Recompute old log-probs", False, "On: the trainer recomputes the old log-probs, so "
         "ratios reflect only the updates; the off-policy mask still compares with the sampler. No token is weighted. "
         "It costs one more pass per batch. Off: the sampler's log-probs are used.", "next batch", advanced=True,
         group="clip", aliases="old_log_prob", before=False),
    Knob("rollouts", "Rollouts", "engine", "Sampler of the completions. engine: the lab's own sampler. vllm: vLLM, if "
         "it is installed and there is an NVIDIA GPU; it is made for large models and long completions. It takes 30 % "
         "of the GPU's memory and rounds differently from the trainer.", choices=ROLLOUTS, advanced=True,
         group="sampling"),
    *STALENESS, *DIFFICULTY,
    Knob("adaptive_kl_target", "KL target", 0.0, "β is adapted until the KL to the reference has this value. Higher: "
         "may drift further. Lower: stays closer. 0: off, β is the KL coefficient above.", "next batch", 0.0, 100.0,
         (0.0, 0.5), unit="nats/token", advanced=True, group="kl"),
    Knob("adaptive_kl_horizon", "KL horizon", 10_000.0, "Number of completions over which β follows its target. "
         "Higher: slower. Lower: faster, but it may oscillate.",
         "next batch", 1.0, 1e9, (1000, 20_000),
         unit="completions", advanced=True, group="kl"),
    *MOVING_REFERENCE,
    Knob("stop_kl", "Stop at this KL", 0.0, "The run ends after the step whose KL to the reference exceeds this. "
         "Higher: may drift further. Lower: ends sooner, nearer to the reference. 0: off.", "next batch", 0.0, 1e6,
         (0.0, 2.0), unit="nats/token", advanced=True, group="kl"),
    Knob("stop_gold_fall", "Stop when gold falls by", 0.0, "The run ends once gold, over four steps, is this "
         "much below its best: the policy exploits its proxy. Higher: waits longer. Lower: ends sooner, at times by "
         "chance. 0: off.", "next batch", 0.0, 1e6, (0.0, 0.3), unit="reward", advanced=True, group="evaluation"),
    *DEMONSTRATIONS,
    DTYPE, *LORA, *ENGINE, *OPTIMIZER, *PROMPT, SFT_TARGET, SFT_STEPS,
)

PREFERENCE = (
    Knob("beta", "Inverse temperature", 1.0, "Factor of the log-ratios in the loss. Higher: stays closer to the "
         "reference. Lower: separates the pairs more strongly and drifts further. Large models with long answers use "
         "about 0.1.", "live", 1e-4, 100.0, (0.05, 5), r"\beta", "per nat", scale="log", group="kl",
         reach=(0.01, 10.0)),
    LEARNING_RATE,
    Knob("pairs_per_step", "Pairs per step", 64, "Pairs in a batch. Higher: a steadier gradient, more compute per "
         "step. Lower: less compute, noisier.", "next batch", 1, 4096, (8, 128), "B", group="loss"),
    Knob("pair_prompts", "Prompts for pairs", 1024, "Prompts that the reference answers before training to make the "
         "pairs (unused with your own pairs). More: more varied pairs, a longer wait.", low=1, high=100_000,
         advanced=True, group="loss"),
    Knob("group_size", "Samples per prompt", 8, "Completions per prompt from which pairs are made. More: more prompts "
         "give both a right and a wrong one; a longer wait.", low=2, high=1024, symbol="G", advanced=True,
         group="sampling"),
    Knob("eval_every", "Evaluate every", 10, "Steps between two measurements by sampling. Lower: a finer curve, "
         "slower steps.", "next batch", 1, 1_000_000, unit="steps", advanced=True, group="evaluation"),
    EVAL_PROMPTS,
    *SAMPLING, *FILTERS, MAX_GRAD_NORM,
    Knob("pairs", "Source of pairs", "reference_once", "Source of the pairs: the task's own file, completions "
         "of the reference made once before training, or the policy's own completions at every step.",
         choices=choices.PAIRS.names, advanced=True, group="loss"),
    Knob("preference_loss", "Preference loss", "sigmoid", "The function of the pair's log-ratios that is minimised.",
         choices=choices.PREFERENCE_LOSS.names, advanced=True, group="loss"),
    Knob("second_loss", "Second loss", choices.NO_LOSS, "A preference loss that is added to the first; none: there is "
         "only one. SFT keeps the chosen side from falling.", choices=(choices.NO_LOSS, *choices.PREFERENCE_LOSS.names),
         advanced=True, group="loss"),
    Knob("second_weight", "Weight of the second loss", 1.0, "Factor of the second loss. Higher: it counts for more. "
         "Lower: the first loss counts for more.", "next batch", 0.0, 100.0, (0.05, 2), advanced=True, group="loss"),
    Knob("third_loss", "Third loss", choices.NO_LOSS, "A preference loss that is added to the first two; none: no "
         "third loss.", choices=(choices.NO_LOSS, *choices.PREFERENCE_LOSS.names), advanced=True, group="loss",
         before=choices.NO_LOSS),
    Knob("third_weight", "Weight of the third loss", 1.0, "Factor of the third loss. Higher: it counts for more. "
         "Lower: the other losses count for more.", "next batch", 0.0, 100.0, (0.05, 2), advanced=True, group="loss",
         before=1.0),
    Knob("first_weight", "Weight of the first loss", 1.0, "Factor of the preference loss. Higher: it counts for "
         "more. Lower: the other losses count for more. Without other losses it only scales the gradient.",
         "next batch", 0.0, 100.0, (0.05, 2), advanced=True, group="loss", aliases="loss_weights", before=1.0),
    *MOVING_REFERENCE,
    preferences.LABEL_SMOOTHING, preferences.EXO_EPSILON, preferences.DISCOPOP_TAU, preferences.TARGET_MARGIN,
    preferences.REWARD_ALPHA,
    *preferences.SIDE_WEIGHTS,
    Knob("divergence", "Divergence", "reverse_kl", "Divergence between the policy and the reference: it decides how "
         "the two sides' log-ratios are compared.", choices=choices.DIVERGENCE.names, advanced=True, group="loss"),
    preferences.DIVERGENCE_ALPHA,
    Knob("ld_alpha", "Weight of the longer side's tail", 1.0, "Weight of the tokens by which one side of a pair is "
         "longer (LD-DPO), in losses that compare both sides; the "
         "losses sft and kto and ORPO's SFT term count every "
         "token. Lower: length alone counts less. 1: all tokens "
         "count the same.",
         "next batch", 0.0, 1.0, (0.3, 1.0), advanced=True, group="loss"),
    Knob("pair_weighting", "Weight pairs by likelihood", False, "On: pairs that are unlikely under the policy count "
         "for less (WPO). Off: all pairs count the same.",
         "next batch", advanced=True, group="loss"),
    DTYPE, *LORA, *ENGINE, *OPTIMIZER, *PROMPT, SFT_TARGET, SFT_STEPS,
)

REWARD_MODEL = (
    Knob("margin", "Margin", 0.0, "Required lead of the chosen completion's score, for pairs without a margin in your "
         "file. Higher: scores are further apart. Lower: closer to the plain labels.", "live",
         0.0, 10.0, (0.0, 1.0), "m", "reward", group="loss"),
    Knob("centering", "Centering", 0.01, "Weight of (r_w + r_l)² in the loss. Higher: holds the mean score of a pair "
         "at 0. Lower: lets it drift, which preferences alone do not prevent.", "live", 0.0, 10.0, (0.0, 0.1), "c",
         group="loss"),
    LEARNING_RATE,
    *(knob for knob in PREFERENCE if knob.key in ("pairs_per_step", "pair_prompts", "group_size", "eval_every")),
    Knob("eval_pairs", "Held-out pairs", 512, "Maximum pairs per evaluation: pairs held out of your file, else at most "
         "a fifth of all pairs. More: less noise, slower evaluations. Fewer: quicker.", low=8, high=100_000,
         unit="pairs", advanced=True, group="evaluation"),
    *SAMPLING, *FILTERS, MAX_GRAD_NORM,
    *(knob for knob in PREFERENCE if knob.key == "pairs"),
    Knob("labelled_pairs", "Labelled pairs", "", "Pairs with labels of your own, or of a policy's fresh completions, "
         "learnt from beside the others: the name of an upload, as --labels FILE and the command label give it.",
         advanced=True, forkable=True, group="loss"),
    Knob("labelled_share", "Share of labelled pairs", 0.5, "Share of a batch that is drawn from the labelled pairs. "
         "Higher: follows them. Lower: keeps to the others.", "next batch", 0.0, 1.0, (0.2, 0.8), unit="share",
         advanced=True, group="loss"),
    DTYPE, *LORA, *ENGINE, *OPTIMIZER, *PROMPT, SFT_TARGET, SFT_STEPS,
)

PRM = (
    LEARNING_RATE,
    Knob("step_labels", "Source of step labels", "step_verifier", "Source that labels the steps of answers as right or "
         "wrong: your file, the task's verifier of unfinished answers, or the outcome of completions sampled from each "
         "step.",
         choices=choices.STEP_LABELS.names, group="loss"),
    process.SEPARATOR,
    Knob("last_step_only", "Last step only", False, "On: only the last step of each answer has a loss, as in an "
         "outcome reward model. Off: all steps have a "
         "loss.", "next batch", advanced=True, group="loss", aliases="train_on_last_step_only"),
    *process.ROLLOUTS,
    Knob("prompts_per_step", "Prompts per step", 16, "Prompts, or rows of your file, in a batch. Higher: a steadier "
         "gradient, more compute per step. Lower: less compute, noisier.", "next batch", 1, 4096, (4, 64), "P",
         group="sampling"),
    Knob("group_size", "Answers per prompt", 4, "Answers that the policy samples per prompt; their steps are labelled. "
         "Higher: more right and wrong steps for the same prompt. Lower: less "
         "compute.", "next batch", 1, 1024, (1, 16), "G",
         advanced=True, group="sampling"),
    *(knob for knob in PREFERENCE if knob.key == "eval_every"),
    Knob("eval_answers", "Held-out answers", 256, "Answers in each evaluation, held out from your file or sampled "
         "separately. More: less noise, but slower evaluations. Fewer: faster "
         "evaluations.", low=2, high=100_000, unit="answers", advanced=True,
         group="evaluation"),
    *SAMPLING, *FILTERS, MAX_GRAD_NORM,
    DTYPE, *LORA, *ENGINE, *OPTIMIZER, *PROMPT, SFT_TARGET, SFT_STEPS,
)

SFT = (
    LEARNING_RATE,
    Knob("sequences_per_step", "Sequences per step", 64, "Examples in a batch. Higher: steadier, more compute per "
         "step. Lower: less compute, noisier.", "next batch", 1, 4096, (8, 256), "B", group="loss"),
    SFT_TARGET,
    Knob("eval_every", "Evaluate every", 5, "Steps between two measurements by sampling. Lower: stops nearer to the "
         "target, slower.", "next batch", 1, 1_000_000, unit="steps", advanced=True, group="evaluation"),
    EVAL_PROMPTS,
    *SAMPLING, MAX_GRAD_NORM, DTYPE, *LORA, *ENGINE, *OPTIMIZER, *PROMPT,
)

# No knob of SFT itself: the base of every run is named by the hash of an SFT spec, which must stay what it is. (Those
# of LoRA, ENGINE, OPTIMIZER and PROMPT are left out of it where they are off.)
SFT_LOSS = Knob(
    "sft_loss", "SFT loss", "nll", "Loss of each token of an answer: −log π, −log π times the token's own probability, "
    "or a divergence between the policy's distribution and a teacher's.",
    choices=choices.SFT_LOSS.names, advanced=True, group="loss")
