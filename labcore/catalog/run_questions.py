"""Questions about runs rather than about what they learn: how to compare, keep and use them. Part of `questions`."""

from labcore.catalog.question import TOPICS, Question

_COMPARE, _RUNS = TOPICS[-2:]
RUN_QUESTIONS = (
    Question("one_seed", _COMPARE, "How many seeds do I need?",
             "One seed shows no spread, so it cannot rank two settings. Three show whether a difference is large "
             "compared with chance, and five to ten are needed for small ones. Compare draws the 95 % interval of the "
             "mean and says when it cannot tell. Use the same seeds on both sides, so that the luck that both share "
             "cancels in the difference.",
             findings=("one_seed",), lesson="one_seed", page="compare"),
    Question("ppo_or_grpo", _COMPARE, "PPO or GRPO: which is better?",
             "It depends on the budget that you count. PPO trains a critic beside the policy: more memory and more "
             "time per step, but no need for groups. GRPO compares completions of one prompt, which is simple and "
             "suits rewards from a verifier. Compare them at equal tokens, at equal updates and at equal seconds, "
             "each with several seeds: the winner may change with the axis.",
             metrics=("tokens_per_second",), page="compare"),
    Question("fork", _COMPARE, "How do I see what one knob did?",
             "Change the knob during the run: a marker appears on every chart at that step. Or fork the run from a "
             "checkpoint before the change, with common random numbers, and compare the fork with its parent: both see "
             "the same randomness, so any difference is due to the knob. For a claim, use a sweep with several seeds.",
             page="compare"),

    Question("teacher", _RUNS, "When is a teacher better than a reward?",
             "When you have a model that is already better at the task and has the same vocabulary. A reward grades a "
             "whole completion with one number; a teacher says how likely it finds every token, so each completion "
             "teaches more. On-policy distillation asks the teacher about the policy's own completions, GKD also about "
             "given ones. The policy imitates its teacher, so do not expect it to become better; RL has no such limit. "
             "A low agreement with the teacher and a KL that does not fall can mean that the policy samples nothing "
             "that the teacher finds likely: train it on given answers first.",
             metrics=("teacher/reverse_kl", "teacher/forward_kl", "teacher/agreement"),
             knobs=("teacher", "teacher_discount", "single_step", "jsd_beta", "on_policy_share", "answers")),
    Question("self_distillation", _RUNS, "How can a model be its own teacher?",
             "The teacher also reads a context that the policy does not see: the task's answer (SDFT), or another, "
             "right completion of the same group (SDPO). With this context it grades each token of the policy's "
             "completion, and the policy learns to answer as if it had read the context too. This works only if the "
             "model can use a context. Compare the KL to the teacher with the reward: if both stay low, the context "
             "changes nothing. If few completions have a context, few groups have a right completion: sample larger "
             "groups, use easier prompts, or let the teacher read feedback on wrong completions.",
             metrics=("teacher/context_frac",),
             knobs=("teacher_context", "context_template", "feedback_template", "context_share")),
    Question("gymnasium", _RUNS, "How do I train in my own Gymnasium environment, or with continuous actions?",
             "Type the id of a Gymnasium environment into World on the page CartPole; its arguments appear below. If "
             "the environment is in a Python module of yours, start it once on the command line: run --algorithm ppo "
             "--env module:MyEnv-v0. For continuous actions REINFORCE, A2C, TRPO and PPO learn a Gaussian: a mean that "
             "depends on the state and a standard deviation that does not. Normalise observations and rewards if their "
             "numbers are large. If the policy never reaches the goal, start with a larger standard deviation.",
             metrics=("action/std",), knobs=("log_std", "normalise_observations", "normalise_rewards"),
             page="cartpole"),
    Question("not_finite", _RUNS, "A number became NaN. Is the run lost?",
             "No: the last good checkpoint is kept. Fork from it with a third of the learning rate. If it happens "
             "again, look for rewards that are infinite or very large, and use fp32 in place of bf16. A lower gradient "
             "clip helps against single huge gradients.",
             findings=("not_finite",)),
    Question("interrupted", _RUNS, "The lab was stopped. Are my runs lost?",
             "No. Every run writes checkpoints at intervals, and Resume continues from the last one as if nothing had "
             "happened: the same numbers, bit for bit, on the same machine. Home and Runs offer it. A run that was "
             "deleted can be restored for a week on the page Runs.",
             page="runs"),
    Question("memory", _RUNS, "The run needs more memory than I have. What can I do?",
             "Before a run starts, the page says how much it will need and offers remedies. LoRA trains small "
             "adapters, so optimizer and gradients shrink. Gradient checkpointing keeps less of a forward pass and "
             "takes about a third more time. Fewer prompts per step and a shorter length limit help as well.",
             metrics=("memory",), knobs=("gradient_checkpointing", "lora_rank", "lora_alpha", "optimizer")),
    Question("own_data", _RUNS, "How do I train on my own prompts?",
             "Choose Your own prompts as the task in the LLM lab and drop a JSONL, JSON, CSV or Parquet file. Each "
             "row needs a prompt and, for a verifier, the right answer; the page shows what it reads and what each "
             "model sees. Without a right answer use a reward function of your own, a reward model or a judge. A "
             "share of the rows is held out and never trained on.",
             knobs=("verifier", "fields", "held_out_file"), page="llm"),
    Question("export", _RUNS, "How do I use the trained model elsewhere?",
             "The tab Export of a run has its checkpoints as safetensors, its curves as CSV, and the whole run as a "
             "capsule that others can replay. It also writes a script with the same settings for TRL, verl, OpenRLHF "
             "or ms-swift and lists the settings that the tool lacks. A pretrained model loads with transformers.",
             page="llm"),
)
