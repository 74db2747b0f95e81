"""The studies. Small on purpose: the built-in tiny model, short runs, three seeds, minutes on two cores.

A margin ("matches", "hurts little") is not in the papers: where a claim needs one it stands in the contrast's label.
"""

from __future__ import annotations

from labcore.analysis.studies.study import TEACHER, Contrast, Measure, Setting, Study
from labcore.catalog.knob import Value
from labcore.catalog.llm.tasks import SORT_SCORER

AHMADIAN = "Ahmadian et al. 2024, arXiv:2402.14740"
GROUPS: dict[str, Value] = {"prompts_per_step": 16, "group_size": 4}  # 64 completions a step
SINGLE: dict[str, Value] = {"prompts_per_step": 64, "group_size": 1, "mini_batches": 1}  # 64 completions of 64 prompts
LAST = Measure(rows=10)
TRUE = Measure(metric="reward/verifier", rows=10)


def _lambdas() -> Study:
    values = (0.0, 0.5, 0.9, 0.95, 1.0)
    names = [f"λ {value:g}" for value in values]
    others = names[:-1]
    return Study(
        "gae_lambda", "λ of GAE", "Reward is best at λ = 1: for language models the critic's bootstrapping saves too "
        "little variance to be worth its bias.", AHMADIAN,
        "PPO on sort, λ 0, 0.5, 0.9, 0.95 and 1, 64 completions and 2 updates a step, 40 steps.",
        [Setting(name, "ppo", {"gae_lambda": value, **SINGLE}) for name, value in zip(names, values, strict=True)],
        [Contrast("λ 1 − the mean of the others", {"λ 1": 1.0, **dict.fromkeys(others, -0.25)}, LAST, low=0.0),
         *(Contrast(f"λ 1 − {name}", {"λ 1": 1.0, name: -1.0}, LAST, low=0.0, decides=name == others[-1])
           for name in others)],
        winner="λ 1")


def _clipping() -> Study:
    bounds, updates = {"0.05": (0.05, 0.05), "0.2": (0.2, 0.2), "∞": (1.0, 100.0)}, (1, 2, 4)
    settings = [Setting(f"ε {epsilon}, μ {times}", "ppo", {
        "clip_low": low, "clip_high": high, "updates_per_batch": times, **SINGLE})
        for epsilon, (low, high) in bounds.items() for times in updates]

    def mean_of(epsilon: str, sign: float = 1.0) -> dict[str, float]:
        return {f"ε {epsilon}, μ {times}": sign / 2 for times in updates[1:]}

    share = Measure("mean", "clip_frac/region")
    return Study(
        "clipping", "Clipping", "Clipping is rarely active (less than 5 % of tokens), and removing it hurts little.",
        AHMADIAN, "PPO on sort, ε 0.05, 0.2 and none, each batch used μ = 1, 2 and 4 times, 64 completions a step, 20 "
        "steps. At μ = 1 every ratio is 1, so that nothing can be clipped: μ 2 and 4 decide.", settings,
        [Contrast("Share of clipped tokens at ε 0.2, mean of μ 2 and 4", mean_of("0.2"), share, high=0.05),
         Contrast("No clip − ε 0.2, mean of μ 2 and 4; small: a loss below 0.05",
                  mean_of("∞") | mean_of("0.2", -1.0), LAST, low=-0.05),
         *(Contrast(f"Share of clipped tokens at ε 0.2, μ {times}", {f"ε 0.2, μ {times}": 1.0}, share, high=0.05,
                    decides=False) for times in updates[1:]),
         *(Contrast(f"No clip − ε 0.2 at μ {times}", {f"ε ∞, μ {times}": 1.0, f"ε 0.2, μ {times}": -1.0}, LAST,
                    low=-0.05, decides=False) for times in updates[1:])],
        steps=20, winner="ε 0.2, μ 2")


def _noise() -> Study:
    flips = (0.0, 0.1, 0.2, 0.4)
    settings = [Setting(f"{name}, flipped {flip:g}", key, {
        "reward_source": "noisy_verifier", "reward_noise": flip, **GROUPS})
        for name, key in (("RLOO", "rloo"), ("RAFT", "raft")) for flip in flips]

    def lost(flip: float) -> dict[str, float]:
        return {f"RLOO, flipped {flip:g}": 1.0, "RLOO, flipped 0": -1.0,
                f"RAFT, flipped {flip:g}": -1.0, "RAFT, flipped 0": 1.0}

    return Study(
        "reward_noise", "Reward noise", "RLOO suffers less than RAFT as labels get noisy.", AHMADIAN,
        "RLOO and RAFT on sort, the verifier's reward flipped with probability 0, 0.1, 0.2 and 0.4; compared by the "
        "true reward. 16 prompts × 4 completions a step, 30 steps.", settings,
        [Contrast("Effect of flip probability 0.4: RLOO − RAFT", lost(0.4), TRUE, low=0.0),
         *(Contrast(f"Effect of flip probability {flip:g}: RLOO − RAFT", lost(flip), TRUE, low=0.0, decides=False)
           for flip in (0.1, 0.2)),
         Contrast("RLOO − RAFT at 0.4", {"RLOO, flipped 0.4": 1.0, "RAFT, flipped 0.4": -1.0}, TRUE, low=0.0,
                  decides=False)],
        steps=30, winner="RLOO, flipped 0.4")


def _beta() -> Study:
    values = (0.01, 0.1, 0.25, 0.5, 1.0)
    ranked = {"kl_placement": "reward", "kl_estimator": "k1"}
    settings = [Setting(f"{name}, β {beta:g}", key, {"beta": beta, **own, **GROUPS})
                for name, key, own in (("RLOO", "rloo", {}), ("RAFT", "raft", ranked)) for beta in values]

    def lost(beta: float) -> dict[str, float]:
        return {f"RLOO, β {beta:g}": 1.0, "RLOO, β 0.01": -1.0, f"RAFT, β {beta:g}": -1.0, "RAFT, β 0.01": 1.0}

    return Study(
        "beta", "KL coefficient β", "RLOO is less sensitive to β than RAFT.", AHMADIAN,
        "RLOO and RAFT on sort with the KL in the reward, β 0.01, 0.1, 0.25, 0.5 and 1: RLOO compares completions by "
        "reward − β KL, RAFT ranks them by it. 16 prompts × 4 completions a step, 16 steps.", settings,
        [Contrast("Effect of β 0.01 → 1: RLOO − RAFT", lost(1.0), LAST, low=0.0),
         *(Contrast(f"Effect of β 0.01 → {beta:g}: RLOO − RAFT", lost(beta), LAST, low=0.0, decides=False)
           for beta in values[1:-1])],
        steps=16, winner="RLOO, β 0.01")


def _bandit() -> Study:
    once = {"updates_per_batch": 2}
    settings = [setting for task in ("sort", "add") for setting in (
        Setting(f"RLOO on {task}", "rloo", {**GROUPS, **once}, task),
        Setting(f"PPO on {task}", "ppo", {**SINGLE, **once, "gae_lambda": 1.0}, task))]
    return Study(
        "bandit", "Bandit against MDP", "With a reward for the outcome it is enough to model the whole completion as "
        "one action.", AHMADIAN, "RLOO (a completion is one action) against PPO with λ = 1 (each token is one) on sort "
        "and add: the same 64 completions and 2 updates a step, 40 steps.", settings,
        [Contrast(f"{task}: RLOO − PPO; enough: below PPO by less than 0.05",
                  {f"RLOO on {task}": 1.0, f"PPO on {task}": -1.0}, LAST, low=-0.05) for task in ("sort", "add")],
        winner="RLOO on sort")


def _samples() -> Study:
    settings = [Setting(f"{name}, k = {size}", key, {"group_size": size, "prompts_per_step": 64 // size})
                for name, key in (("RLOO", "rloo"), ("RAFT", "raft")) for size in (2, 4)]
    return Study(
        "samples", "Sample use", "RLOO with k = 4 matches or beats RAFT with the same samples.", AHMADIAN,
        "RLOO and RAFT on sort with k = 2 and 4 completions of a prompt, 64 completions a step, 40 steps.", settings,
        [Contrast("RLOO − RAFT at k = 4; matches: below RAFT by less than 0.02",
                  {"RLOO, k = 4": 1.0, "RAFT, k = 4": -1.0}, LAST, low=-0.02),
         Contrast("RLOO with k = 2 − RAFT with k = 4", {"RLOO, k = 2": 1.0, "RAFT, k = 4": -1.0}, LAST, low=-0.02,
                  decides=False),
         Contrast("RLOO − RAFT at k = 2", {"RLOO, k = 2": 1.0, "RAFT, k = 2": -1.0}, LAST, low=-0.02,
                  decides=False)],
        winner="RLOO, k = 4")


def _action_space() -> Study:
    tasks, stages = ("sort", "add"), {"SFT": "base", "RL": ""}
    return Study(
        "action_space", "Effective action space", "After the first token most of the probability is on few tokens.",
        AHMADIAN, "GRPO on sort and add, 40 steps. The untrained model, the SFT base and the trained policy answer 256 "
        "prompts; the probability of the likeliest tokens is averaged over all positions but the first.",
        [Setting(f"GRPO on {task}", "grpo", GROUPS, task) for task in tasks],
        [*(Contrast(f"{task}, {name}: the likeliest token; most: more than half", {f"GRPO on {task}": 1.0},
                    Measure("top_mass", model=model), low=0.5) for task in tasks for name, model in stages.items()),
         *(Contrast(f"{task}, {name}: the 4 likeliest", {f"GRPO on {task}": 1.0},
                    Measure("top_mass", model=model, top=4), low=0.5, decides=False)
           for task in tasks for name, model in stages.items()),
         *(Contrast(f"{task}, untrained: the likeliest token", {f"GRPO on {task}": 1.0},
                    Measure("top_mass", model="start"), low=0.5, decides=False) for task in tasks)],
        winner="GRPO on add")


def _cost() -> Study:
    batch: dict[str, Value] = {"updates_per_batch": 1}
    settings = [Setting("PPO", "ppo", {**SINGLE, **batch}),
                Setting("GRPO", "grpo", {**GROUPS, **batch}), Setting("RLOO", "rloo", {**GROUPS, **batch}),
                Setting("REINFORCE", "reinforce", GROUPS)]
    models, pace = Measure("models"), Measure("step_seconds")
    return Study(
        "cost", "Cost", "PPO holds four models and its step takes longer; REINFORCE and RLOO hold fewer.", AHMADIAN,
        "PPO, GRPO, RLOO and REINFORCE on sort: the same 64 completions and one update a step, 20 steps. Counted with "
        "the reward model that the paper's runs hold; here the task's verifier stands in its place.", settings,
        [Contrast("Models that PPO holds", {"PPO": 1.0}, models, 3.5, 4.5),
         *(Contrast(f"Models: PPO − {name}", {"PPO": 1.0, name: -1.0}, models, low=0.0)
           for name in ("RLOO", "REINFORCE")),
         *(Contrast(f"A step: PPO − {name}", {"PPO": 1.0, name: -1.0}, pace, low=0.0)
           for name in ("RLOO", "REINFORCE")),
         Contrast("A step: PPO − GRPO", {"PPO": 1.0, "GRPO": -1.0}, pace, low=0.0, decides=False)],
        steps=20, winner="RLOO")


def _over_optimisation() -> Study:
    scored: dict[str, Value] = {"reward_source": "reward_model", "prompts_per_step": 8, "group_size": 4,
                                "learning_rate": 2e-3}
    settings = [*(Setting(f"β {beta:g}", "rloo", {**scored, "beta": beta}, members=1) for beta in (0.0, 0.02, 0.1)),
                *(Setting(f"{members} reward models, β 0", "rloo", {**scored, "beta": 0.0}, members=members)
                  for members in (3, 5))]
    gold, proxy = Measure("last", "reward/gold", 5), Measure("change", "reward", 5)
    fell = Measure("change", "reward/gold", 5)
    return Study(
        "over_optimisation", "Over-optimisation", "If a policy is optimised against a reward model, the model's "
        "score rises while the gold reward falls. A KL penalty and an ensemble reduce this.",
        "Gao et al. 2022, arXiv:2210.10760; Coste et al. 2023, arXiv:2310.02743",
        "Five reward models on film reviews, then RLOO on the score of one (always that of seed 0) with β 0, 0.02 and "
        "0.1, and on the mean of 3 and of 5 with β 0. 8 prompts × 4 completions a step, 16 steps at a learning rate of "
        "0.002.", settings,
        [Contrast("β 0: change of the reward model's score", {"β 0": 1.0}, proxy, low=0.0),
         Contrast("β 0: change of gold", {"β 0": 1.0}, fell, high=0.0),
         Contrast("Gold at the end: β 0.1 − β 0", {"β 0.1": 1.0, "β 0": -1.0}, gold, low=0.0),
         Contrast("Gold at the end: 5 reward models − one", {"5 reward models, β 0": 1.0, "β 0": -1.0}, gold,
                  low=0.0),
         Contrast("Gold at the end: β 0.02 − β 0", {"β 0.02": 1.0, "β 0": -1.0}, gold, low=0.0, decides=False),
         Contrast("Gold at the end: 3 reward models − one", {"3 reward models, β 0": 1.0, "β 0": -1.0}, gold,
                  low=0.0, decides=False)],
        task="reviews", steps=16, scorers=5, scorer_steps=20, winner="β 0.1")


def _length_bias() -> Study:
    free: dict[str, Value] = {"max_new_tokens": 32, **GROUPS, "beta": 0.0}
    long = Measure("last", "completions/mean_length", 10)
    return Study(
        "length_bias", "Length bias", "GRPO's mean over each completion's tokens favours long wrong answers: they "
        "grow, and under Dr. GRPO they do not.", "Liu et al. 2025, arXiv:2503.20783",
        "GRPO and Dr. GRPO on countdown with up to 32 tokens, β 0, 16 prompts × 4 completions a step, 40 steps.",
        [Setting("GRPO", "grpo", free), Setting("Dr. GRPO", "dr_grpo", free)],
        [Contrast("Length of wrong answers: GRPO − Dr. GRPO", {"GRPO": 1.0, "Dr. GRPO": -1.0},
                  Measure("wrong_length", rows=10), low=0.0),
         Contrast("Length of all answers: GRPO − Dr. GRPO", {"GRPO": 1.0, "Dr. GRPO": -1.0}, long, low=0.0,
                  decides=False),
         Contrast("Reward: Dr. GRPO − GRPO", {"Dr. GRPO": 1.0, "GRPO": -1.0}, LAST, low=0.0, decides=False)],
        task="countdown", winner="Dr. GRPO")


def _staleness() -> Study:
    alike: dict[str, Value] = {"prompts_per_step": 16, "beta": 0.0, "learning_rate": 1e-3}
    rows = (("GSPO", "gspo", alike | {"updates_per_batch": 1}), ("REINFORCE", "reinforce", alike))
    settings = [Setting(f"{name}, k = {age}", key, {**knobs, "staleness": age})
                for name, key, knobs in rows for age in (0, 8)]

    def lost(name: str) -> dict[str, float]:
        return {f"{name}, k = 8": 1.0, f"{name}, k = 0": -1.0}

    return Study(
        "staleness", "Stale samples", "With a ratio and a clip, learning from samples that are some steps old costs "
        "little reward. Without ratio and clip it costs much.",
        "Noukhovitch et al. 2024, arXiv:2410.18252; Fu et al. 2025, arXiv:2505.24298",
        "GSPO and REINFORCE on sort, each batch sampled k = 0 and 8 steps before its one update, β 0, 16 prompts × "
        "8 completions a step, 24 steps at a learning rate of 0.001.", settings,
        [Contrast("GSPO: k 8 − k 0; little: a loss below 0.1", lost("GSPO"), LAST, low=-0.1),
         Contrast("REINFORCE: k 8 − k 0; much: a loss above 0.1", lost("REINFORCE"), LAST, high=-0.1)],
        steps=24, winner="GSPO, k = 8")


def _distillation() -> Study:
    once: dict[str, Value] = {**GROUPS, "updates_per_batch": 1, "probes": False}
    starts = {"weak start": {"sft_target": 0.05}, "usual start": {}}
    names: dict[str, tuple[str, dict[str, Value]]] = {"Distillation": ("opd", {}), "GRPO": ("grpo", {"beta": 0.0})}
    settings = [Setting(f"{name}, {start}", key, {**once, **own, **base})
                for start, base in starts.items() for name, (key, own) in names.items()]
    return Study(
        "distillation", "Distillation against RL", "A teacher that grades every token of the policy's own samples "
        "teaches more than a reward for the whole completion, with equally many sampled tokens.",
        "Lu and Thinking Machines Lab 2025, On-Policy Distillation",
        "On-policy distillation and GRPO on sort from two base models, which sort about 5 % and 40 % of the prompts. "
        "The teacher sorts 98 %. 16 prompts × 4 completions and one update a step, 40 steps.", settings,
        [*(Contrast(f"{start}: distillation − GRPO", {f"Distillation, {start}": 1.0, f"GRPO, {start}": -1.0}, LAST,
                    low=0.0) for start in starts),
         *(Contrast(f"{start}: sampled tokens, distillation − GRPO; equal: within 1,000 of about 18,000",
                    {f"Distillation, {start}": 1.0, f"GRPO, {start}": -1.0},
                    Measure(metric="num_tokens", rows=1), low=-1000, high=1000, decides=False) for start in starts)],
        winner="Distillation, weak start")


def _larger_teacher() -> Study:
    once: dict[str, Value] = {**GROUPS, "updates_per_batch": 1, "probes": False, "sft_target": 0.05}
    settings = [Setting("Small teacher", "opd", once, members=1), Setting("Tiny teacher", "opd", once),
                Setting("GRPO", "grpo", {**once, "beta": 0.0})]

    def less_grpo(name: str) -> dict[str, float]:
        return {name: 1.0, "GRPO": -1.0}
    return Study(
        "larger_teacher", "From a small to a tiny model", "A tiny model learns more from a small model's grades of its "
        "own samples than from a reward for the whole completion, with equally many sampled tokens.",
        "Lu and Thinking Machines Lab 2025, On-Policy Distillation; Gu et al. 2023, arXiv:2306.08543",
        "SFT trains a small model (0.8 M parameters) on sort until 98 % of its answers are right. It then teaches a "
        "tiny model (0.1 M), which sorts about 5 % of the prompts, by on-policy distillation. Compared with GRPO, and "
        "with a tiny teacher of the same accuracy. 16 prompts × 4 completions and one update a step, 40 steps.",
        settings,
        [Contrast("Small teacher − GRPO", less_grpo("Small teacher"), LAST, low=0.0),
         Contrast("Tiny teacher − GRPO", less_grpo("Tiny teacher"), LAST, low=0.0, decides=False),
         Contrast("Small teacher − tiny teacher; alike: within 0.05", {"Small teacher": 1.0, "Tiny teacher": -1.0},
                  LAST, low=-0.05, high=0.05, decides=False),
         Contrast("Sampled tokens, small teacher − GRPO; equal: within 1,000 of about 18,000",
                  less_grpo("Small teacher"), Measure(metric="num_tokens", rows=1), low=-1000, high=1000,
                  decides=False)],
        scorers=1, scorer="sft", scorer_model="small", scorer_knob=TEACHER, scorer_steps=1500,
        scorer_knobs={"sft_target": 0.98}, winner="Small teacher")


def _real_distillation() -> Study:
    lora: dict[str, Value] = {"verifier": "numeric", "lora_rank": 16, "schedule": "constant", "held_out": 0.0}
    once: dict[str, Value] = {**lora, "learning_rate": 3e-4, "prompts_per_step": 4, "group_size": 8,
                              "updates_per_batch": 1, "max_new_tokens": 8, "probes": False}
    less = {"Distillation": 1.0, "GRPO": -1.0}
    return Study(
        "real_distillation", "Distillation against RL, real model", "A teacher that grades every token of the policy's "
        "own samples teaches a pretrained model more than a reward for the whole completion, with equally many sampled "
        "tokens.", "Lu and Thinking Machines Lab 2025, On-Policy Distillation",
        "The task is the 100 sums of two digits, and the model an instruct model of yours. SFT of the model on the "
        "answers trains the teacher. On-policy distillation from this teacher and GRPO both start from the untrained "
        "model: LoRA of rank 16 at a learning rate of 3e-4, 4 prompts × 8 completions of at most 8 tokens and one "
        "update a step, 16 steps.",
        [Setting("Distillation", "opd", once, members=1), Setting("GRPO", "grpo", {**once, "beta": 0.0})],
        [Contrast("Distillation − GRPO", less, Measure(rows=4), low=0.0),
         Contrast("Sampled tokens, distillation − GRPO; equal: within 200 of about 3,800", less,
                  Measure(metric="num_tokens", rows=1), low=-200, high=200, decides=False),
         Contrast("All steps: distillation − GRPO", less, Measure("mean"), low=0.0, decides=False)],
        task="prompts", steps=16, scorers=1, scorer="sft", scorer_knob=TEACHER, scorer_steps=16, asks_model=True,
        scorer_knobs={**lora, "learning_rate": 1e-3, "sequences_per_step": 8, "eval_every": 16, "eval_prompts": 8,
                      "sft_target": 1.0, "max_new_tokens": 8, "probes": False},
        data="sums.jsonl", winner="Distillation")


def _process_rewards() -> Study:
    alike: dict[str, Value] = {**GROUPS, "beta": 0.0, "probes": False}
    weak: dict[str, Value] = {**alike, "sft_target": 0.05}
    scored: dict[str, Value] = {**alike, "reward_source": "process_reward", "reward_model": SORT_SCORER}
    steps = "grpo_process"
    settings = [Setting("Outcome, weak start", "grpo", weak),
                Setting("Right steps, weak start", steps, {**weak, "reward_source": "step_verifier"}),
                Setting("Outcome", "grpo", alike), Setting("PRM, sum", steps, scored),
                Setting("PRM, lowest", steps, {**scored, "step_reward": "min_form"})]
    right, fell = Measure("last", "exact_match"), Measure("change", "exact_match")

    def less(one: str, other: str) -> dict[str, float]:
        return {one: 1.0, other: -1.0}

    labels, tokens = less("Right steps, weak start", "Outcome, weak start"), Measure(metric="num_tokens", rows=1)
    return Study(
        "process_rewards", "Process against outcome", "Where right answers are rare, rewards for right steps teach "
        "more than a reward for the whole answer, with equally many sampled tokens. A policy that maximises the sum of "
        "a learned model's scores exploits the model: the reward rises while fewer answers are right. With the lowest "
        "score more answers stay right.", "Shao et al. 2024, arXiv:2402.03300; Cheng et al. 2025, arXiv:2504.15275",
        "GRPO on sort, where each letter is a step. From a base that sorts about 5 % of the prompts: rewards by the "
        "verifier of steps against the outcome. From the usual base, which sorts about 40 %: the sum of the scores of "
        "a process reward model, and the lowest score. 16 prompts × 4 completions a step, 40 steps, β 0.", settings,
        [Contrast("Right answers, weak start: right steps − outcome", labels, right, low=0.0),
         Contrast("PRM, sum: change of the reward", {"PRM, sum": 1.0}, Measure("change"), low=0.0),
         Contrast("PRM, sum: change of the right answers", {"PRM, sum": 1.0}, fell, high=0.0),
         Contrast("Right answers: PRM, lowest − PRM, sum", less("PRM, lowest", "PRM, sum"), right, low=0.0),
         Contrast("Right answers: PRM, lowest − outcome; comparable: below it by less than 0.1",
                  less("PRM, lowest", "Outcome"), right, low=-0.1, decides=False),
         Contrast("Sampled tokens, weak start: right steps − outcome; equal: within 1,000 of about 18,000", labels,
                  tokens, low=-1000, high=1000, decides=False)],
        winner="Right steps, weak start", seeds=(3, 4, 5, 6, 7))


def _difficulty() -> Study:
    pool: dict[str, Value] = {"easiest": 2, "numbers": 4, "prompt_pool": 256, "beta": 0.0}
    names = {"Uniform": "uniform", "p (1 − p)": "learnable", "Band 0.2–0.8": "band"}
    by_rate = [*names][1:]

    def against(name: str) -> dict[str, float]:
        return {name: 1.0, "Uniform": -1.0}

    tokens = Measure(metric="num_tokens", rows=1)
    return Study(
        "difficulty", "Difficulty of prompts", "With equally many sampled tokens, more prompts are solved if prompts "
        "are drawn by their pass rate p, in proportion to p (1 − p) or from a band, than if they are drawn uniformly.",
        "Foster et al. 2025, arXiv:2502.12272; Bae et al. 2025, arXiv:2504.03380",
        "GRPO on countdown with 2, 3 and 4 numbers, a pool of 256 prompts, β 0, 32 prompts × 8 completions a step, 40 "
        "steps. The base solves most prompts with 2 numbers and hardly any with 4.",
        [Setting(name, "grpo", {**pool, "prompt_choice": choice}) for name, choice in names.items()],
        [*(Contrast(f"Right answers: {name} − uniform", against(name), Measure("solved"), low=0.0) for name in by_rate),
         *(Contrast(f"Zero-variance groups: {name} − uniform", against(name), Measure("mean", "frac_reward_zero_std"),
                    high=0.0, decides=False) for name in by_rate),
         *(Contrast(f"Sampled tokens: {name} − uniform; equal: within 5,000 of about 66,000", against(name), tokens,
                    low=-5000, high=5000, decides=False) for name in by_rate)],
        task="countdown", winner="p (1 − p)")


STUDIES: dict[str, Study] = {study.key: study for study in (
    _lambdas(), _clipping(), _noise(), _beta(), _bandit(), _samples(), _action_space(), _cost(), _over_optimisation(),
    _length_bias(), _staleness(), _distillation(), _larger_teacher(), _real_distillation(), _process_rewards(),
    _difficulty())}
