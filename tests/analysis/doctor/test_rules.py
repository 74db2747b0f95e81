"""Each rule has a run that triggers it and one just beside it that does not; healthy runs trigger none."""

import csv
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest

from labcore.analysis.doctor.doctor import EVERY, course
from labcore.analysis.doctor.finding import SEVERITIES
from labcore.analysis.doctor.rules import READS, RULES
from labcore.catalog.metrics import METRICS
from labcore.runs.spec.run_spec import knobs_of, make
from labcore.runs.store.rows import Step
from tests.analysis.doctor.tools import (
    ONE,
    STUCK,
    TINY,
    Row,
    drops,
    flat,
    found,
    grows,
    held_out,
    measured,
    pairs,
    spec_of,
    steps,
    taught,
    well,
)
from tests.every import every
from tests.words import says

RECORDED = Path(__file__).parent / "recorded"


AGED = {"sample_age/mean": 8.0, "sampling/effective_frac": 0.9}

# rule: (algorithm, its knobs, rows that trigger it, rows beside them that do not)
PRESETS = {
    "not_finite": [
        ("grpo", {}, drops("loss", 0.02, nan, 58), lambda at: well(at) | {"loss": nan if 30 <= at < 40 else 0.02}),
        ("grpo", {}, drops("grad_norm", 0.5, inf, 60), drops("explained_variance", 0.5, nan, 40)),
        ("grpo", {}, None, lambda at: well(at) | {"loss": 0.02 if at % 2 else nan})],  # NaN for rows without a loss
    "no_signal": [("grpo", {}, flat(reward=0, exact_match=0, reward_std=0), flat(reward=0.01, reward_std=0.1)),
                  ("grpo", {}, flat(frac_reward_zero_std=0.98, **STUCK), flat(frac_reward_zero_std=0.4, **STUCK)),
                  ("reinforce", {}, flat(reward_std=0, **STUCK), flat(frac_reward_zero_std=0.98, **STUCK)),
                  ("sft", {}, flat(reward_std=0, reward=0), flat(reward_std=0, reward=0, mean_token_accuracy=0.4))],
    "reward_fell": [
        ("grpo", {}, drops("reward", 0.9, 0.6, 50), drops("reward", 0.9, 0.75, 50)),
        ("grpo", {}, drops("reward", 9, 1, 50, reward_std=4.5), drops("reward", 9, 7.5, 50, reward_std=4.5)),
        ("grpo", {}, drops("reward", 0.9, 0.2, 50),  # a small batch: rewards jump by half at every step
         lambda at: well(at) | {"reward": 0.25 + 0.5 * (at % 2) + 0.2 * (at <= 10)}),
        ("grpo", {}, drops("reward", 0.9, 0.2, 50), lambda at: pairs(at) | {"reward": 0.9 if at < 50 else 0.2}),
        ("grpo", {"prompt_pool": 64}, drops("reward", 0.9, 0.2, 50), None),
        ("grpo", {"prompt_pool": 64, "prompt_choice": "easy_first"}, None, drops("reward", 0.9, 0.2, 50)),
        ("sft", {}, None, drops("reward", 0.9, 0.2, 50, mean_token_accuracy=0.5))],
    "zero_variance": [
        ("grpo", {}, flat(frac_reward_zero_std=0.55), flat(frac_reward_zero_std=0.45)),
        ("grpo", {}, flat(frac_reward_zero_std=0.7), flat(frac_reward_zero_std=0.7, reward=0.85, exact_match=0.85)),
        ("grpo", {}, flat(frac_reward_zero_std=0.7), flat(frac_reward_zero_std=1.0, reward_std=0.0))],
    "unscored": [
        ("grpo", {}, drops("frac_reward_unscored", 0.0, 0.25, 55), drops("frac_reward_unscored", 0.25, 0.0, 40))],
    "entropy_collapse": [
        ("grpo", {"entropy_coef": 0.5}, drops("entropy", 1.0, 0.08, **STUCK), None),
        ("grpo", {}, drops("entropy", 1.0, 0.08, **STUCK), drops("entropy", 1.0, 0.15, **STUCK)),
        ("grpo", {}, drops("entropy", 1.0, 0.05, **STUCK), drops("entropy", 1.0, 0.05)),
        ("grpo", {}, drops("entropy", 1.0, 0.05, **STUCK),
         drops("entropy", 1.0, 0.05, reward=0.95, exact_match=0.95))],
    "step_too_big": [
        ("grpo", {}, flat(**{"clip_frac/region": 0.35}), flat(**{"clip_frac/region": 0.25})),
        ("gspo", {}, flat(**{"clip_frac/region": 0.55}), flat(**{"clip_frac/region": 0.45})),
        ("grpo", {}, drops("kl", 0.02, 1.2, 55), drops("kl", 0.02, 0.25, 55)),  # a leap by one step
        ("grpo", {}, drops("kl", 0.08, 0.9, 52), drops("kl", 0.6, 0.9, 52)),  # five times its median
        ("grpo", {}, drops("grad_norm", 0.3, 4.0, 50), drops("grad_norm", 0.3, 2.0, 50)),
        ("grpo", {}, drops("grad_norm", 0.3, 4.0, 50), drops("grad_norm", 0.03, 0.9, 50)),
        ("grpo", {}, flat(**{"kl/step": 0.2}), flat(**{"kl/step": 0.1}))],
    "clip_cannot_act": [("grpo", ONE, well, None), ("grpo", {}, None, well),
                        ("cispo", ONE | {"ratio_cap": 2.0}, well, None), ("reinforce", {}, None, well)],
    "reward_hacking": [
        ("grpo", {}, grows("exact_match", 0.7, -0.005), grows("exact_match", 0.7, 0.005)),
        ("grpo", {}, grows("exact_match", 0.7, -0.005), grows("exact_match", 0.7, -0.005, reward=0.5)),
        ("grpo", {}, grows("reward/verifier", 0.6, -0.01), grows("reward/verifier", 0.6, -0.0005))],
    "answers_worse": [("dpo", {}, measured(0.45, -0.003), measured(0.45, -0.001)),
                      ("dpo", {}, measured(0.45, -0.003),
                       lambda at: measured(0.45, -0.003)(at) | {"rewards/accuracies": 0.8})],
    "overfitting": [
        ("grpo", {}, held_out(0.3, 0.0), held_out(0.3, 0.005)),  # it stalls, or rises as the training rows do
        ("grpo", {}, held_out(0.3, -0.004), held_out(0.3, 0.003)),
        ("grpo", {}, held_out(0.3, 0.0), held_out(0.3, 0.0, rows=8)),  # chance
        ("grpo", {}, held_out(0.3, -0.003, flat(**STUCK)), held_out(0.3, 0.0, flat(**STUCK))),  # it falls by itself
        ("dpo", {}, held_out(0.5, 0.001, pairs, key="held_out/pair_accuracy"),
         held_out(0.5, 0.0075, pairs, key="held_out/pair_accuracy")),
        ("sft", {}, held_out(1.0, 0.01, taught, key="held_out/loss"),
         held_out(1.0, -0.005, taught, key="held_out/loss")),
        ("sft", {}, None, lambda at: held_out(0, 0, taught, key="held_out/loss")(at) | (
            {"held_out/loss": 8 / (at + 5)} if at == 1 or at % 5 == 0 else {})),  # it falls fast
        ("sft", {}, held_out(1.0, 0.01, taught, key="held_out/loss"),  # training gets worse too: not by heart
         held_out(1.0, 0.01, lambda at: taught(at) | {"loss": 1 + 0.01 * at}, key="held_out/loss"))],
    "length_bias": [
        ("grpo", {}, grows("completions/mean_length", 5, 0.1, **STUCK), grows("completions/mean_length", 5, 0.02,
                                                                              **STUCK)),
        ("grpo", {}, grows("completions/mean_length", 5, 0.1, **STUCK), grows("completions/mean_length", 5, 0.1))],
    "truncation": [("grpo", {}, flat(**{"completions/truncated_frac": 0.25}),
                    flat(**{"completions/truncated_frac": 0.15})),
                   ("sft", {}, flat(**{"completions/truncated_frac": 0.25}),
                    flat(**{"completions/truncated_frac": 0.25, "mean_token_accuracy": 0.4}))],
    "critic_lags": [("ppo", {}, flat(explained_variance=-0.1), flat(explained_variance=0.05)),
                    ("ppo", {}, flat(explained_variance=-0.1), flat(explained_variance=-3, reward=0.95,
                                                                    exact_match=0.95))],
    "displacement": [
        ("dpo", {}, grows("logps/chosen", -1, -0.05, measured(0.4, 0)), grows("logps/chosen", -1, -0.01,
                                                                              measured(0.4, 0))),
        ("dpo", {}, grows("logps/chosen", -300, -1, measured(0.4, 0)), grows("logps/chosen", -300, -0.4,
                                                                             measured(0.4, 0))),
        ("dpo", {}, grows("logps/chosen", -1, -0.05, measured(0.4, 0)), grows("logps/chosen", -1, 0.05)),
        ("dpo", {}, grows("logps/chosen", -1, -0.05, measured(0.4, 0)),
         grows("logps/chosen", -1, -0.05, measured(0.4, 0.005))),
        ("dpo", {}, grows("logps/chosen", -1, -0.05, measured(0.4, 0)),
         lambda at: grows("logps/chosen", -1, -0.05, measured(0.4, 0))(at) | {"logps/rejected": -12 + 0.1 * at})],
    "kl_runaway": [("grpo", {}, flat(kl=1.1), flat(kl=0.9)),
                   ("grpo", {}, lambda at: well(at) | {"kl": 0.01 * 1.07**at}, grows("kl", 0, 0.008))],
    "precision_mismatch": [
        ("grpo", {}, flat(**{"sampling/logp_difference": 0.06}), flat(**{"sampling/logp_difference": 0.04})),
        ("grpo", {"sampler_dtype": "int8"}, flat(**{"sampling/logp_difference": 0.06}), None),
        ("grpo", {"staleness": 1}, None, flat(**{"sampling/logp_difference": 0.06})),
        ("grpo", ONE | {"dtype": "bf16"}, flat(**{"ratio/max": 1.3}), flat(**{"ratio/max": 1.1})),
        ("grpo", ONE, flat(**{"ratio/max": 1.3}), None), ("grpo", {}, None, flat(**{"ratio/max": 1.3}))],
    "stale": [
        ("grpo", {"staleness": 4}, flat(**AGED | {"sampling/effective_frac": 0.4}), flat(**AGED)),
        ("grpo", {"replay_share": 0.5}, flat(**AGED | {"clip_frac/region": 0.4}), flat(**AGED)),
        ("gspo", {"staleness": 4}, flat(**AGED | {"sampling/effective_frac": 0.4}),
         flat(**AGED | {"clip_frac/region": 0.6})),
        ("grpo", {}, None, flat(**AGED | {"sampling/effective_frac": 0.4})),
        ("grpo", {"sampler_dtype": "int8"}, None, flat(**AGED | {"sampling/effective_frac": 0.4}))],
    "tiny_updates": [
        ("grpo", {"updates_per_batch": 2}, flat(**TINY), flat(**TINY | {"ratio/max": 1.05})),
        ("grpo", {"updates_per_batch": 2}, flat(**TINY), flat(**TINY | {"clip_frac/region": 0.001})),
        ("grpo", {"updates_per_batch": 2}, flat(**TINY), flat(**TINY, reward_std=0.0)),
        ("grpo", {"updates_per_batch": 2}, flat(**TINY), flat(**TINY, reward=0.95, exact_match=0.95)),
        ("grpo", {"updates_per_batch": 2}, flat(**TINY, **{"exact/distance": 0.1}),
         flat(**TINY, **{"exact/distance": 6e-5})),  # at the optimum
        ("grpo", ONE, None, flat(**TINY))],
    "loss_is_zero": [("grpo", ONE, flat(loss=0.001), flat(loss=0.02)),
                     ("grpo", ONE, flat(loss=0.0), flat(loss=0.0, grad_norm=0.0)),
                     ("grpo", ONE, flat(loss=0.0), None), ("grpo", {}, None, flat(loss=0.0))],
}
CASES = [(rule, *case) for rule, cases in PRESETS.items() for case in cases]


def test_every_rule_has_presets_that_trigger_it_and_presets_that_do_not():
    assert [rule.key for rule in RULES] == [*dict.fromkeys(rule.key for rule in RULES)]
    assert {rule.key for rule in RULES} == set(PRESETS)
    for cases in PRESETS.values():
        assert any(sick for _, _, sick, _ in cases) and any(fine for _, _, _, fine in cases)


@every("rule, algorithm, knobs, sick, fine", CASES)
def test_a_rule_holds_for_its_preset_and_not_beside_it(rule, algorithm, knobs, sick, fine):
    spec = spec_of(algorithm, **knobs)
    if sick:
        finding = found(spec, sick)[rule]
        assert finding.severity in SEVERITIES and finding.verdict[0].isupper() and finding.evidence and finding.fix
        if finding.knob:  # what fixes it can be set
            [knob] = [knob for knob in knobs_of(spec.row, spec.task_row) if knob.key == finding.knob]
            assert knob.check(finding.value) == finding.value != spec.knobs[knob.key]
    if fine:
        assert rule not in found(spec, fine)


@pytest.mark.parametrize("name", ["grpo", "ppo", "dpo", "sft"])
def test_a_healthy_run_at_its_defaults_triggers_nothing(name):
    """Recorded with seed 0 on sort; SFT with a target of 1."""
    with (RECORDED / f"{name}.csv").open() as file:
        rows = [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]
    recorded = [Step(int(row.pop("step")), 0, 0, 0.0, row) for row in rows]
    assert len(recorded) >= 150
    assert course(spec_of(name), recorded)[1] == course(None, recorded)[1] == []


@pytest.mark.parametrize("row", [well, pairs])
def test_what_learns_triggers_nothing(row):
    assert found(spec_of("grpo" if row is well else "dpo"), row) == {} and found(None, row) == {}


def test_the_evidence_has_the_numbers_and_their_steps():
    finding = found(spec_of(), flat(frac_reward_zero_std=0.71))["zero_variance"]
    assert says(finding.text, "no gradient", "71 %", "one reward", "steps 6 to 15")
    assert (finding.knob, finding.value, finding.severity) == ("group_size", 16, "warning")
    jump = found(spec_of(), drops("kl", 0.02, 1.2, 55))["step_too_big"]
    assert "from 0.02 to 1.2 nats/token" in jump.evidence and (jump.knob, jump.value) == ("learning_rate", 0.00023)


def test_what_is_solved_is_a_note_and_says_so():
    finding = found(spec_of(), flat(reward=1.0, exact_match=1.0, reward_std=0.0))["no_signal"]
    assert (finding.severity, finding.verdict, finding.knob) == ("note", "Nothing is left to learn", "")


def test_groups_count_only_where_the_baseline_is_the_groups():
    assert "zero_variance" not in found(spec_of("reinforce"), flat(frac_reward_zero_std=0.7))
    assert "zero_variance" in found(None, flat(frac_reward_zero_std=0.7))  # of another tool nothing is known


@pytest.mark.parametrize(("algorithm", "knobs", "fix"), [
    ("grpo", {"beta": 0.04}, ("beta", 0.12)), ("grpo", {"beta": 0.0}, ("beta", 0.05)),
    ("dapo", {"beta": 0.04}, ("kl_placement", "loss")), ("dapo", {}, ("learning_rate", 0.00023))])
def test_a_policy_that_must_stay_closer_gets_the_knob_that_acts(algorithm, knobs, fix):
    finding = found(spec_of(algorithm, **knobs), flat(kl=2.0))["kl_runaway"]
    assert (finding.knob, finding.value) == fix


def test_far_from_the_reference_is_a_warning_where_no_kl_holds_it():
    severities = {algorithm: found(spec_of(algorithm), flat(kl=2.0))["kl_runaway"].severity
                  for algorithm in ("grpo", "dapo")}
    assert severities == {"grpo": "problem", "dapo": "warning"}
    runaway = found(spec_of("dapo"), lambda at: well(at) | {"kl": 0.01 * 1.07**at})["kl_runaway"]
    assert runaway.severity == "problem"


STEP_DOWN = drops("entropy", 1.0, 0.05, **STUCK)
LONG = grows("completions/mean_length", 5, 0.1, **STUCK)
FALLS = grows("logps/chosen", -1, -0.05, measured(0.4, 0))


@every(("rule", "algorithm", "knobs", "row", "fix"), [
    ("entropy_collapse", "grpo", {}, STEP_DOWN, ("entropy_coef", 0.01)),
    ("entropy_collapse", "grpo", {"entropy_coef": 0.05}, STEP_DOWN, ("entropy_coef", 0.1)),
    ("zero_variance", "grpo", {"group_size": 64, "prompts_per_step": 4}, flat(frac_reward_zero_std=0.7),
     ("group_size", 128)),
    ("length_bias", "grpo", {}, LONG, ("aggregation", "constant_length")),
    ("length_bias", "gspo", {}, LONG, ("", None)), ("length_bias", "gmpo", {}, LONG, ("", None)),
    ("displacement", "dpo", {}, FALLS, ("beta", 3.0)),
    ("displacement", "dpo", {"second_loss": "sft"}, FALLS, ("beta", 3.0)),
    ("displacement", "simpo", {}, FALLS, ("learning_rate", None)),
    ("displacement", "orpo", {}, FALLS, ("learning_rate", None)),
    ("answers_worse", "orpo", {}, measured(0.45, -0.003), ("learning_rate", None)),
    ("no_signal", "grpo", {}, flat(reward_std=0, reward=0, exact_match=0), ("", None)),
    ("no_signal", "grpo", {}, flat(reward_std=0, **STUCK), ("group_size", 16)),
    ("no_signal", "ppo", {}, flat(reward_std=0, **STUCK), ("", None))])
def test_a_fix_is_a_knob_that_acts(rule, algorithm, knobs, row, fix):
    spec = spec_of(algorithm, **knobs)
    finding = found(spec, row)[rule]
    assert finding.knob == fix[0]
    if fix[1] is not None:
        assert finding.value == fix[1]
    elif fix[0]:
        assert finding.value < spec.knobs[fix[0]] / 2 and "reference" not in finding.fix


def test_another_tools_share_of_a_whole_batch_is_not_one_of_groups():
    def of_batch(at: int) -> Row:
        return well(at) | {"frac_reward_zero_std": float(at % 10 < 8), **STUCK}

    assert found(None, of_batch) == {} and "zero_variance" in found(spec_of(), of_batch)


def test_another_tools_flat_reward_is_not_taken_for_solved():
    stuck = flat(reward=5.0, reward_std=0.0)
    del_exact = {key: value for key, value in stuck(1).items() if key != "exact_match"}
    assert found(None, lambda at: del_exact)["no_signal"].verdict == "No learning signal"
    one = {**del_exact, "reward": 1.0}
    assert found(None, lambda at: one)["no_signal"].verdict == "No learning signal"
    assert found(None, flat(reward=1.0, reward_std=0.0, exact_match=1.0))["no_signal"].severity == "note"


@pytest.mark.parametrize(("spread", "batch", "seeds"), [
    (0.5, 16, 7), *(pytest.param(*each, 20, marks=pytest.mark.long) for each in ((0.5, 16), (2.0, 256)))])
def test_a_gold_reward_that_only_wavers_is_not_hacked(spread, batch, seeds):
    """200 steps of rewards with this standard deviation, and completions a step: noise is no fall."""
    def hacked(seed: int, gold: float) -> bool:
        rng = np.random.default_rng(seed)

        def row(at: int) -> Row:
            proxy, true = (rng.normal(by * at, spread, batch) for by in (0.01, gold))
            return {"reward": proxy.mean(), "reward_std": proxy.std(), "reward/gold": true.mean()}

        return any(change.rule == "reward_hacking" for change in course(None, steps(row, 200))[1])

    rising, level, falling = ([hacked(seed, gold) for seed in range(seeds)] for gold in (0.003, 0.0, -0.01))
    assert not any(rising) and sum(level) <= seeds // 10 and all(falling)


@pytest.mark.parametrize(("rows", "seeds"), [
    (32, 7), pytest.param(32, 20, marks=pytest.mark.long), pytest.param(256, 20, marks=pytest.mark.long)])
def test_held_out_accuracies_that_only_waver_are_no_overfitting(rows, seeds):
    """300 steps of GRPO with its usual batch, measured every 25 steps: the same success on both sides, or not."""
    def heart(seed: int, by: float) -> bool:
        rng = np.random.default_rng(seed)

        def row(at: int) -> Row:
            train = rng.binomial(256, min(0.9, 0.2 + 0.002 * at)) / 256
            held = rng.binomial(rows, min(0.9, 0.2 + by * at)) / rows
            return {"exact_match": train, "reward": train} | (
                {"held_out/accuracy": held, "held_out/rows": rows} if at == 1 or at % 25 == 0 else {})

        return any(change.rule == "overfitting" for change in course(spec_of(), steps(row, 300))[1])

    alike, apart = ([heart(seed, by) for seed in range(seeds)] for by in (0.002, 0.0))
    assert sum(alike) <= seeds // 20 and all(apart)


def test_overfitting_is_said_with_both_curves_and_the_best_step():
    finding = found(spec_of(), held_out(0.3, -0.001))["overfitting"]
    assert says(finding.evidence, "0.328 → 0.452", "training rows", "0.299 → 0.263", "held-out rows", "step 1",
                "0.0372")
    assert says(finding.fix, "best checkpoint", "held-out rows", "step 1", "more rows") and (
        finding.severity, finding.began, finding.knob) == ("warning", 1, "learning_rate")
    by_loss = found(spec_of("sft"), held_out(1.0, 0.01, taught, key="held_out/loss"))["overfitting"]
    assert "the held-out loss rose 1.01 → 1.2 nats/token since step 1" in by_loss.evidence


@pytest.mark.parametrize("first, last", [(1, 1), (21, 50), (22, 22), (43, 43)])
def test_what_is_not_finite_is_said_with_the_step_from_which_on(first, last):
    """Up to the last row of a run, on which a rule that looks at every fifth row may not look."""
    finding = found(None, drops("loss", 0.02, nan, first), last)["not_finite"]
    assert (finding.verdict, finding.began, finding.severity) == ("Loss is NaN", first, "problem")
    assert finding.evidence == f"loss NaN from step {first} on" and f"before step {first}" in finding.fix
    assert found(spec_of(), drops("loss", 0.02, nan, first), last)["not_finite"].knob == "learning_rate"


def test_what_is_not_finite_is_in_no_mean_of_another_rule():
    """A hole in the rewards changes what is said of them as little as rows that do not have them."""
    def row(at: int, hole: Row) -> Row:
        return {"reward": 0.9 if at < 50 else 0.2} if at % 3 else hole

    holes, none = (course(None, steps(lambda at, hole=hole: row(at, hole)))[0].findings
                   for hole in ({"reward": nan}, {}))
    assert {each.rule for each in none} == {"reward_fell"} and [each for each in holes if each.rule != "not_finite"
                                                                ] == none


def test_the_most_severe_comes_first():
    both = course(spec_of(**ONE), steps(flat(kl=2.0, **{"completions/truncated_frac": 0.5})))[0].findings
    assert [each.severity for each in both] == sorted((each.severity for each in both), key=SEVERITIES.index)
    assert both[0].rule == "kl_runaway" and both[-1].severity == "note"


def test_no_rule_cries_early():
    after = {rule.key: max(rule.after, EVERY) for rule in RULES}
    for rule, algorithm, knobs, sick, _ in CASES:
        if sick:
            said_of = course(spec_of(algorithm, **knobs), steps(sick, after[rule] + EVERY - 1))[1]
            assert not [change for change in said_of if change.rule == rule and change.step < after[rule]], rule


def test_the_table_names_what_it_reads():
    assert {"reward", "exact_match", "kl", "entropy", "sampling/logp_difference"} <= READS


def test_a_policy_that_nears_a_known_optimum_does_not_run_away():
    def row(at: int, by: float) -> Row:
        return well(at) | {"kl": 0.01 * 1.07**at, "exact/distance": 3 + by * at}
    spec = make(kind="exact", algorithm_key="grpo", task_key="sorted")
    assert "kl_runaway" not in found(spec, lambda at: row(at, -0.04))
    assert "kl_runaway" in found(spec, lambda at: row(at, 0.04))


def test_a_critic_that_is_barely_better_than_a_constant_is_not_yet_well():
    def row(at: int, later: float) -> Row:
        return well(at) | {"explained_variance": -0.2 if at <= 60 else later}

    assert "critic_lags" in found(spec_of("ppo"), lambda at: row(at, 0.05), 120)
    assert "critic_lags" not in found(spec_of("ppo"), lambda at: row(at, 0.2), 120)


@pytest.mark.parametrize("best, now, lags", [
    (500, 460, False), (500, 440, True), (-100, -108, False), (-100, -120, True)])
def test_a_critic_has_little_to_explain_where_episodes_go_as_well_as_ever(best: float, now: float, lags: bool):
    def row(at: int) -> Row:
        return {"explained_variance": -1.0, "episode_return": best if at <= 40 else now}

    spec = make(kind="cartpole", algorithm_key="ppo", task_key="CartPole-v1")
    assert ("critic_lags" in found(spec, row, 120)) == lags


def test_a_solved_cartpole_has_no_critic_that_lags_and_the_help_says_why():
    """Its returns are all but equal, so a tiny error of the critic is a large share of their variance."""
    def row(at: int) -> Row:
        return {"explained_variance": min(0.8, 0.02 * at) if at <= 60 else -5.0, "episode_return": min(500.0, 8.0 * at)}

    spec = make(kind="cartpole", algorithm_key="ppo", task_key="CartPole-v1")
    assert "critic_lags" not in found(spec, row, 160)
    assert says(METRICS["explained_variance"].help, "below 0", "returns hardly vary", "solved")
