"""Over-optimisation of a reward model: without a KL penalty the proxy rises while the gold score falls to nothing.

The whole rail in small: SFT, a reward model on noisy pairs, then RLOO on its scores, with fixed seeds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from labcore.llm.loops import sft
from labcore.llm.probes import view
from labcore.llm.session import LlmSession
from labcore.spec.run_spec import make

SFT_STEPS, PAIR_STEPS, STEPS = 80, 60, 24
SMALL = {"prompts_per_step": 16, "group_size": 4, "learning_rate": 1.5e-3, "max_new_tokens": 24}


def started(algorithm: str, steps: int, model: str = "tiny", **knobs) -> LlmSession:
    return LlmSession.start(make(algorithm_key=algorithm, task_key="reviews", steps=steps, device="cpu", model=model,
                                 knobs=knobs))


@pytest.fixture(scope="module")
def rail(tmp_path_factory):
    """A lab with a base that SFT made, the folder `model`, and the run `judge` that trained a reward model on it."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("lab")
        patch.setenv("RL_LAB_HOME", str(home))
        patch.setattr(view, "samples_due", lambda step: False)
        patch.setattr(view, "line_due", lambda step: False)
        base = started("sft", SFT_STEPS, sequences_per_step=32)
        for _ in range(SFT_STEPS):
            sft.update(base)
        base.export(home / "model")
        judge = started("reward_model", PAIR_STEPS, str(home / "model"), pairs_per_step=32, learning_rate=2e-3,
                        eval_every=PAIR_STEPS)
        last = list(judge.run())[-1].metrics
        folder = home / "judge" / "checkpoints" / f"step-{PAIR_STEPS:06d}"
        folder.mkdir(parents=True)
        judge.save(folder)
        yield home, last


def curves(base: Path, **knobs) -> tuple[list[float], list[float]]:
    """The proxy and the gold score at every step."""
    run = started("rloo", STEPS, str(base), reward_source="reward_model", reward_model="judge", **SMALL, **knobs)
    rows = [record.metrics for record in run.run() if record is not None]
    return [row["reward"] for row in rows], [row["reward/gold"] for row in rows]


def late(curve: list[float]) -> float:
    return sum(curve[-4:]) / 4


def test_the_reward_model_is_a_good_one_where_it_was_trained(rail):
    assert rail[1]["eval_accuracy"] > 0.75 and rail[1]["gold_correlation"] > 0.8


def test_at_beta_0_the_proxy_rises_and_gold_falls_and_at_the_recommended_beta_it_does_not(rail, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(rail[0]))
    proxy, gold = curves(rail[0] / "model", beta=0.0)
    assert late(proxy) > proxy[0] + 1.5 and late(gold) < gold[0] / 2
    held_proxy, held_gold = curves(rail[0] / "model")  # the β that the task recommends
    assert held_proxy[0] == proxy[0] and held_gold[0] == gold[0], "the same beginning"
    assert late(held_proxy) > held_proxy[0] + 1 and late(held_gold) > gold[0] + 0.1
    assert max(held_proxy) < max(proxy), "what β costs is proxy"
