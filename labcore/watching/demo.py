"""A small program that is watched: a policy gradient on four bandits, in plain Python.

`python -m labcore.watching.demo` trains for a quarter of a minute and sends what it does, as a program of yours would.
Each prompt is a bandit whose arms are answers; an answer wins with its own probability. The loop samples a group of
answers to each prompt, and climbs Σ A ∇log π with A = reward − mean reward of the group, at a softmax over logits.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence

from labcore.watch import Watch

NAME, TOOL = "four bandits", "plain Python"
GROUP, STEPS, PAUSE = 8, 150, 0.1
RATE, SLOWER, SLOWER_FROM = 0.6, 0.2, 100
# prompt -> the probability with which each answer wins
BANDITS: Mapping[str, Mapping[str, float]] = {
    "Which door has the prize?": {"left": 0.1, "middle": 0.3, "right": 0.8},
    "Which coin lands on heads?": {"copper": 0.5, "silver": 0.4, "gold": 0.7},
    "Which well has water?": {"north": 0.9, "east": 0.2, "south": 0.3},
    "Which key opens the lock?": {"brass": 0.2, "iron": 0.25, "steel": 0.6},
}


def softmax(logits: Mapping[str, float]) -> dict[str, float]:
    """The probabilities of answers by their logits."""
    top = max(logits.values())
    parts = {answer: math.exp(logit - top) for answer, logit in logits.items()}
    return {answer: part / sum(parts.values()) for answer, part in parts.items()}


def climb(logits: dict[str, float], sampled: Sequence[tuple[str, float]], rate: float) -> float:
    """One step of the policy gradient on (answer, advantage) pairs; the logits change. Returns its norm."""
    chances = softmax(logits)
    slope = {answer: sum(advantage * ((answer == chosen) - chances[answer]) for chosen, advantage in sampled)
             / len(sampled) for answer in logits}
    for answer, each in slope.items():
        logits[answer] += rate * each
    return math.sqrt(sum(each * each for each in slope.values()))


def main(steps: int = STEPS, pause: float = PAUSE, seed: int = 0) -> None:
    """Train, and send every step."""
    rng = random.Random(seed)
    policy = {prompt: dict.fromkeys(answers, 0.0) for prompt, answers in BANDITS.items()}
    config = {"algorithm": "reinforce", "learning_rate": RATE, "num_generations": GROUP, "max_steps": steps}
    with Watch(NAME, tool=TOOL, config=config) as run:
        for step in range(1, steps + 1):
            rate = SLOWER if step >= SLOWER_FROM else RATE
            if step == SLOWER_FROM:
                run.config({"learning_rate": rate}, step)
            _step(run, step, policy, rate, rng)
            time.sleep(pause)


def _step(run: Watch, step: int, policy: dict[str, dict[str, float]], rate: float, rng: random.Random) -> None:
    prompts: list[str] = []
    answers: list[str] = []
    rewards: list[float] = []
    advantages: list[float] = []
    norms, before = [], {prompt: softmax(logits) for prompt, logits in policy.items()}
    for prompt, logits in policy.items():
        chosen = rng.choices(list(logits), list(before[prompt].values()), k=GROUP)
        won = [float(rng.random() < BANDITS[prompt][answer]) for answer in chosen]
        above = [each - sum(won) / GROUP for each in won]
        norms.append(climb(logits, list(zip(chosen, above)), rate))
        prompts, answers, rewards, advantages = prompts + [prompt] * GROUP, answers + chosen, rewards + won, advantages + above
    after = {prompt: softmax(logits) for prompt, logits in policy.items()}
    run.log(step, _numbers(rewards, after, norms), tokens=step * len(answers))
    run.rollouts(step, prompts, answers, {"won": rewards}, advantages, [[each] for each in answers], group=GROUP,
                 logprobs=_logs(after, prompts, answers), old_logprobs=_logs(before, prompts, answers),
                 ref_logprobs=[[-math.log(len(BANDITS[prompt]))] for prompt in prompts])


def _logs(chances: Mapping[str, Mapping[str, float]], prompts: Sequence[str], answers: Sequence[str]) -> list[list[float]]:
    return [[math.log(chances[prompt][answer])] for prompt, answer in zip(prompts, answers)]


def _numbers(rewards: Sequence[float], chances: Mapping[str, Mapping[str, float]], norms: Sequence[float]) -> dict[str, float]:
    """The numbers of a step, under the names that many trainers have for them; the last is this program's own."""
    groups = [rewards[at:at + GROUP] for at in range(0, len(rewards), GROUP)]
    entropy = [-sum(each * math.log(each) for each in of.values()) for of in chances.values()]
    best = [max(wins, key=wins.__getitem__) for wins in BANDITS.values()]
    return {"reward": sum(rewards) / len(rewards), "entropy": sum(entropy) / len(entropy),
            "frac_reward_zero_std": sum(len({*group}) == 1 for group in groups) / len(groups),
            "grad_norm": sum(norms) / len(norms),
            "share of the best answer": sum(of[name] for of, name in zip(chances.values(), best)) / len(best)}


if __name__ == "__main__":
    main()
