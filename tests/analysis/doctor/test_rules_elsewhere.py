"""The rules on the metrics of another trainer, whose settings are not known."""

from math import sin

from labcore.analysis.doctor.doctor import course
from labcore.runs.store.rows import Step
from tests.analysis.doctor.tools import flat, found


def test_of_metrics_of_another_tool_it_is_said_what_they_show():
    never = flat(**{"clip_frac/region": 0.0, "loss": 0.001})
    assert set(found(None, never)) == {"clip_cannot_act", "loss_is_zero"}
    assert "clip_cannot_act" not in found(None, never, 15)
    assert found(None, flat(loss=0.001)) == {}  # some tokens are clipped: it is off policy
    ill = found(None, flat(kl=2.0, reward_std=0.0, **{"clip_frac/region": 0.9}))
    assert {"kl_runaway", "no_signal", "step_too_big"} == set(ill) and not any(each.knob for each in ill.values())


def large(at: int) -> dict[str, float]:
    """A run of GRPO of a model of billions of parameters that goes as such runs do: its answers grow longer and better,
    and its entropy falls."""
    share = 1 - 0.995 ** at
    return {"reward": 0.2 + 0.5 * share + 0.03 * sin(at), "reward_std": 0.4 - 0.2 * share, "kl": 0.06 * share,
            "entropy": 0.35 - 0.2 * share, "completions/mean_length": 320 + 500 * share, "loss": 0.004,
            "completions/truncated_frac": 0.04 + 0.08 * share, "clip_frac/region": 0.002, "grad_norm": 0.25,
            "frac_reward_zero_std": 0.2 + 0.2 * share, "sampling/logp_difference": 0.012}


def test_a_large_model_that_learns_well_has_no_finding():
    assert found(None, large, 600) == {}
    assert "step_too_big" in found(None, lambda at: large(at) | {"grad_norm": 0.25 if at < 590 else 9.0}, 600)
    assert "length_bias" in found(None, lambda at: large(at) | {"reward": 0.2}, 600)


def test_a_fall_of_the_reward_is_one_of_its_own_size():
    """Scores of a reward model may be tens: without their spread they are measured by how far they have come."""
    def scored(low: float, fall: float):
        return lambda at: {"reward": low + min(at, 100) * (85 - low) / 100 - (fall if at > 150 else 0.0)}
    assert "reward_fell" not in found(None, scored(20, 1.0), 200), "one of 65"
    assert found(None, scored(20, 30.0), 200)["reward_fell"].evidence.startswith("85 → 55")
    assert "reward_fell" in found(None, lambda at: {"reward": 0.9 if at < 150 else 0.5}, 200)


def test_the_growth_of_the_kl_is_said_in_steps_where_a_program_logs_every_tenth():
    rows = [Step(10 * at, 0, 0, float(at), {"kl": 0.1 if at < 40 else 0.1 * 1.2 ** (at - 40)}) for at in range(1, 56)]
    finding = next(each for each in course(None, rows)[0].findings if each.rule == "kl_runaway")
    assert finding.evidence.split(" in steps")[0].endswith("nats/token within 200 steps")
