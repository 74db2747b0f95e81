"""Over-optimisation of a reward model: without a KL penalty the proxy rises while the gold score falls to nothing.

The whole rail in small: SFT, a reward model on noisy pairs, then RLOO on its scores, with fixed seeds. A KL penalty
keeps gold from falling, and so does stopping early. What ensembles and fresh pairs do is in docs/rlhf.md.
"""

from pathlib import Path

import pytest

from labcore.llm.loops import sft
from labcore.llm.probes import view
from labcore.llm.session import LlmSession
from labcore.runs.spec.run_spec import make

pytestmark = pytest.mark.long

SFT_STEPS, PAIR_STEPS = 80, 60
LONGEST = 120  # steps: when a policy finds the hole differs from processor to processor
SMALL = {"prompts_per_step": 16, "group_size": 4, "learning_rate": 1.5e-3, "max_new_tokens": 24}


def started(algorithm: str, steps: int = LONGEST, model: str = "tiny", **knobs) -> LlmSession:
    return LlmSession.start(make(algorithm_key=algorithm, task_key="reviews", steps=steps, device="cpu", model=model,
                                 knobs=knobs))


def judged(home: Path) -> dict[str, float]:
    """Train a reward model on the base and keep it as the run `judge`. What was measured at its end."""
    judge = started("reward_model", PAIR_STEPS, str(home / "model"), pairs_per_step=32, learning_rate=2e-3,
                    eval_every=PAIR_STEPS)
    last = list(judge.run())[-1].metrics
    folder = home / "judge" / "checkpoints" / f"step-{judge.step:06d}"
    folder.mkdir(parents=True)
    judge.save(folder)
    (home / "judge" / "spec.json").write_text(judge.spec.to_json())
    return last


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
        last = judged(home)
        proxy, gold = curves(home, beta=0.0)
        yield home, last, proxy, gold


@pytest.fixture(autouse=True)
def in_that_lab(rail, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(rail[0]))


def curves(home: Path, steps: int = LONGEST, **knobs) -> tuple[list[float], list[float]]:
    """The proxy and the gold score at every step, until gold has fallen to less than half of what it began with."""
    run = started("rloo", steps, str(home / "model"), reward_source="reward_model", reward_model="judge", **SMALL,
                  **knobs)
    proxy, gold = [], []
    for record in run.run():
        if record is not None:
            proxy.append(record.metrics["reward"])
            gold.append(record.metrics["reward/gold"])
            if late(gold) < gold[0] / 2:
                break
    return proxy, gold


def late(curve: list[float]) -> float:
    return sum(curve[-4:]) / len(curve[-4:])


def test_the_reward_model_is_a_good_one_where_it_was_trained(rail):
    assert rail[1]["eval_accuracy"] > 0.75 and rail[1]["gold_correlation"] > 0.8


def test_at_beta_0_the_proxy_rises_and_gold_falls_and_at_the_recommended_beta_it_does_not(rail):
    home, _, proxy, gold = rail
    assert late(proxy) > proxy[0] + 1.5 and late(gold) < gold[0] / 2
    held_proxy, held_gold = curves(home, len(gold))  # the β that the task recommends
    assert len(held_gold) == len(gold), "gold never fell"
    assert held_proxy[0] == proxy[0] and held_gold[0] == gold[0], "the same beginning"
    assert late(held_proxy) > held_proxy[0] + 1 and late(held_gold) > gold[0] + 0.1
    assert max(held_proxy) < max(proxy), "what β costs is proxy"


def test_early_stopping_keeps_what_gold_had_risen_to(rail):
    home, _, proxy, gold = rail
    stopped_proxy, stopped_gold = curves(home, beta=0.0, stop_gold_fall=0.05)
    assert (stopped_proxy, stopped_gold) == (proxy[: len(stopped_proxy)], gold[: len(stopped_gold)])
    best = max(late(stopped_gold[:stop]) for stop in range(4, len(stopped_gold) + 1))
    assert late(stopped_gold[:-1]) > best - 0.05 > late(stopped_gold), "it stops at the first step that is so low"
    assert len(stopped_gold) < len(gold) and late(stopped_gold) > 1.5 * late(gold)
