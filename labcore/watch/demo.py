"""A demo of a watched run: a policy gradient on four bandits, in plain Python.

`python -m labcore.watch.demo` trains for 15 seconds and sends its run as your own trainer would. Each prompt is a
bandit whose arms are answers, and each answer wins with its own probability. The loop samples a group of answers to
each prompt and ascends Σ A ∇log π, where A = reward − mean reward of the group and π is a softmax.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from labcore.watch import Watch

NAME, TOOL = "four bandits", "plain Python"
GROUP, STEPS, PAUSE = 8, 150, 0.1
RATE, LATE_RATE, LATE = 0.6, 0.2, 100  # learning rates, and the step from which the second one applies
# prompt -> the probability with which each answer wins
BANDITS: Mapping[str, Mapping[str, float]] = {
    "Which door has the prize?": {"left": 0.1, "middle": 0.3, "right": 0.8},
    "Which coin lands on heads?": {"copper": 0.5, "silver": 0.4, "gold": 0.7},
    "Which well has water?": {"north": 0.9, "east": 0.2, "south": 0.3},
    "Which key opens the lock?": {"brass": 0.2, "iron": 0.25, "steel": 0.6},
}
Chances = dict[str, dict[str, float]]  # prompt -> answer -> its probability


@dataclass
class Batch:
    """The samples of a step, one item per completion, and the norms of the gradients, one per prompt."""

    prompts: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)

    def logs(self, chances: Chances) -> list[list[float]]:
        """Return the log-prob of each answer in nats; an answer is one token."""
        return [[math.log(chances[prompt][answer])] for prompt, answer in zip(self.prompts, self.answers, strict=True)]


def softmax(logits: Mapping[str, float]) -> dict[str, float]:
    """Return the probabilities of answers from their logits."""
    top = max(logits.values())
    parts = {answer: math.exp(logit - top) for answer, logit in logits.items()}
    return {answer: part / sum(parts.values()) for answer, part in parts.items()}


def climb(logits: dict[str, float], sampled: Sequence[tuple[str, float]], rate: float) -> float:
    """One step of the policy gradient on (answer, advantage) pairs; the logits change. Returns the gradient's norm."""
    chances = softmax(logits)
    slope = {answer: sum(advantage * ((answer == chosen) - chances[answer]) for chosen, advantage in sampled)
             / len(sampled) for answer in logits}
    for answer, each in slope.items():
        logits[answer] += rate * each
    return math.sqrt(sum(each * each for each in slope.values()))


def main(steps: int = STEPS, pause: float = PAUSE, seed: int = 0) -> None:
    """Train and send every step."""
    rng = random.Random(seed)
    policy = {prompt: dict.fromkeys(answers, 0.0) for prompt, answers in BANDITS.items()}
    start = {prompt: softmax(logits) for prompt, logits in policy.items()}
    config = {"algorithm": "reinforce", "learning_rate": RATE, "num_generations": GROUP, "max_steps": steps}
    with Watch(NAME, tool=TOOL, config=config) as run:
        for step in range(1, steps + 1):
            if step == LATE:
                run.config({"learning_rate": LATE_RATE}, step)
            before = {prompt: softmax(logits) for prompt, logits in policy.items()}
            batch = learn(policy, before, LATE_RATE if step >= LATE else RATE, rng)
            after = {prompt: softmax(logits) for prompt, logits in policy.items()}
            run.log(step, numbers(batch, after), tokens=step * len(batch.answers))
            run.rollouts(step, batch.prompts, batch.answers, {"won": batch.rewards}, batch.advantages,
                         [[each] for each in batch.answers], batch.logs(after), batch.logs(before), batch.logs(start),
                         group=GROUP)
            time.sleep(pause)


def learn(policy: dict[str, dict[str, float]], chances: Chances, rate: float, rng: random.Random) -> Batch:
    """Sample a group of answers to each prompt and update the policy on it."""
    batch = Batch()
    for prompt, logits in policy.items():
        chosen = rng.choices(list(logits), list(chances[prompt].values()), k=GROUP)
        won = [float(rng.random() < BANDITS[prompt][answer]) for answer in chosen]
        above = [each - sum(won) / GROUP for each in won]
        batch.prompts += [prompt] * GROUP
        batch.answers += chosen
        batch.rewards += won
        batch.advantages += above
        batch.norms.append(climb(logits, [*zip(chosen, above, strict=True)], rate))
    return batch


def numbers(batch: Batch, chances: Chances) -> dict[str, float]:
    """Return the metrics of a step under common names; the last one is the demo's own."""
    groups = [batch.rewards[at:at + GROUP] for at in range(0, len(batch.rewards), GROUP)]
    entropies = [-sum(each * math.log(each) for each in of.values()) for of in chances.values()]
    best = [chances[prompt][max(wins, key=wins.__getitem__)] for prompt, wins in BANDITS.items()]
    return {"reward": sum(batch.rewards) / len(batch.rewards), "entropy": sum(entropies) / len(entropies),
            "frac_reward_zero_std": sum(len({*group}) == 1 for group in groups) / len(groups),
            "grad_norm": sum(batch.norms) / len(batch.norms), "share of the best answer": sum(best) / len(best)}


if __name__ == "__main__":
    main()
