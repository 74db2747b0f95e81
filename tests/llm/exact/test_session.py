"""The kind exact: every row beside its truth, the same run bit for bit, and DPO and RLHF on the way to one optimum."""

import json
import math
from dataclasses import replace

import pytest
import torch

from labcore.catalog.exact import ALGORITHMS, BETA, TASKS
from labcore.catalog.llm.algorithms import ALGORITHMS as OF_LANGUAGE_MODELS
from labcore.catalog.llm.difficulty import DIFFICULTY
from labcore.catalog.llm.knobs import PROMPT
from labcore.catalog.llm.optimizer import OPTIMIZER
from labcore.catalog.llm.upkeep import EVERY as UPKEEP
from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import PANELS
from labcore.errors import LabError
from labcore.llm.exact.session import ExactSession
from labcore.llm.exact.world import World
from labcore.runs.spec.run_spec import make
from tests.every import now
from tests.llm.tools import SOMETIMES, one_of_each_sort, records, shake
from tests.words import saying

SMALL = {"vocabulary": 2, "prompt_count": 2, "max_new_tokens": 2, "prompts_per_step": 4, "group_size": 4,
         "pairs_per_step": 4, "eval_every": 1, "eval_prompts": 4, "updates_per_batch": 1, "pair_prompts": 8}
# Where there is nothing to measure: no gradient, no penalty, no group.
AT_TIMES = {*(key for key in SOMETIMES if not key.startswith("exact/")), "exact/gradient_cosine", "exact/distance",
            "frac_reward_zero_std", "explained_variance"}


def spec_of(row="rloo", task="sorted", model="table", steps=2, seed=0, parent=None, **knobs):
    known = {knob.key for knob in ALGORITHMS[row].knobs} | {knob.key for knob in TASKS[task].knobs}
    return make(kind="exact", algorithm_key=row, task_key=task, model=model, steps=steps, seed=seed, parent=parent,
                knobs={key: value for key, value in (SMALL | knobs).items() if key in known})


def test_every_online_and_every_preference_row_is_there_with_its_own_choices():
    rows = {key: row for key, row in OF_LANGUAGE_MODELS.items() if row.loop in ("online", "preference")}
    assert set(ALGORITHMS) == set(rows)
    for key, row in ALGORITHMS.items():
        usual = {knob.key: knob.default for knob in rows[key].knobs}
        changed = {knob.key for knob in row.knobs if usual[knob.key] != knob.default}
        assert changed <= {"beta", "pairs", "reward_source", "teacher", "teacher_context"}
        assert usual.keys() - {knob.key for knob in row.knobs} == {
            "sft_steps", "sft_target", "lora_rank", "lora_alpha", "gradient_checkpointing", "optimizer", "compile",
            *(knob.key for knob in (*OPTIMIZER, *PROMPT, *UPKEEP)),
            *({"rollouts", "context_share", *(knob.key for knob in DIFFICULTY)} & usual.keys())}
        assert row.models == rows[key].models and set(rows[key].panels) <= set(row.panels)


@pytest.mark.parametrize("key", one_of_each_sort(ALGORITHMS))
def test_every_row_runs_beside_its_truth(key):
    session = ExactSession.start(spec_of(key))
    drawn = {name for panel in ALGORITHMS[key].panels for name in PANELS[panel].metrics
             if METRICS[name].about == "training"} - AT_TIMES
    if "reference" not in ALGORITHMS[key].models:
        drawn -= {"kl", "kl/k1", "kl/k2"}  # not estimated, but known
    for record in records(session):
        assert drawn <= record.metrics.keys() <= set(METRICS)
        assert all(math.isfinite(value) for value in record.metrics.values())
        assert 0 <= record.metrics["exact/reward"] <= record.metrics["exact/best"] + record.metrics["exact/kl"] * 10
    assert len(session.enumerated.texts) == 7


@pytest.mark.parametrize("task, model", list(zip(TASKS, ["table", "tiny"] * 2, strict=True)))
def test_the_estimate_is_of_the_truth(task, model):
    """The first batch of many completions has the mean reward that is exact for the policy which wrote it."""
    session = ExactSession.start(spec_of(task=task, model=model, steps=1, vocabulary=3, prompts_per_step=64,
                                         group_size=16, max_new_tokens=3))
    metrics = records(session)[0].metrics
    error = metrics["reward_std"] / math.sqrt(1024)
    assert abs(metrics["reward"] - metrics["exact/reward"]) < 5 * error + 1e-9
    assert [metrics["exact/kl"], metrics["exact/kl_reverse"]] == pytest.approx([0, 0], abs=1e-6)
    assert abs(metrics["entropy"] - metrics["exact/entropy"]) < 0.05
    shown = session.measured.truth
    missing = (shown.best - shown.objective).item()
    assert missing == pytest.approx(BETA * shown.distance.item())


def away(row="rloo", by=0.4, **knobs):
    """A session whose policy has left its reference, and writes completions of another length."""
    session = ExactSession.start(spec_of(row, vocabulary=3, max_new_tokens=3, **knobs))
    shake(session.policy, by=by)
    return session


def measured(session):
    """What is true of its policy, beside a gradient of ones."""
    for parameter in session.policy.parameters():
        parameter.grad = torch.ones_like(parameter)
    session.optimise("policy", 0.0, 0.0)
    return session.measured


def test_what_is_said_of_a_token_is_divided_by_the_mean_length_of_who_wrote_it():
    """A loop over all completions, at the temperature of the run: KL(π_ref‖π) by the reference's mean length."""
    session = away(temperature=0.7, beta=0.5)
    found = measured(session)
    sums = dict.fromkeys(("kl", "kl_reverse", "entropy", "length", "ref_length"), 0.0)
    for prompt in range(2):
        for completion, length in enumerate(session.enumerated.space.lengths.tolist()):
            logp, ref = found.logp[prompt, completion].item(), found.ref_logp[prompt, completion].item()
            p, q = math.exp(logp), math.exp(ref)
            for name, value in (("kl", p * (logp - ref)), ("kl_reverse", q * (ref - logp)), ("entropy", -p * logp),
                                ("length", p * length), ("ref_length", q * length)):
                sums[name] += value / 2
    assert abs(sums["length"] - sums["ref_length"]) > 0.05
    assert {name: found.metrics[f"exact/{name}"] for name in ("kl", "kl_reverse", "entropy")} == pytest.approx({
        "kl": sums["kl"] / sums["length"], "kl_reverse": sums["kl_reverse"] / sums["ref_length"],
        "entropy": sums["entropy"] / sums["length"]})
    logits = session.policy(input_ids=session.enumerated.prompts.ids).logits[:, -1] / 0.7
    assert found.logp[:, 0].tolist() == pytest.approx(logits.log_softmax(-1)[:, 0].tolist(), rel=1e-5), "ends at once"


def test_the_cosine_is_that_of_the_step_down_the_loss_and_the_way_up():
    """−∇L beside ∇J of World: 1 where they are one, −1 where they are opposed, 1/√2 halfway to a right angle."""
    session = away(beta=0.5)
    up = World.of(session).gradient(session)
    across = torch.ones_like(up) - up * (up.sum() / (up @ up))
    across *= up.norm() / across.norm()
    for descent, cosine in ((3 * up, 1), (-up, -1), (up + across, 0.5**0.5), (across - up, -(0.5**0.5))):
        parameters = list(session.policy.parameters())
        for parameter, part in zip(parameters, descent.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = -part.view_as(parameter).float()
        session.measured = None
        session.optimise("policy", 0.0, 0.0)
        assert session.measured.metrics["exact/gradient_cosine"] == pytest.approx(cosine, abs=1e-5)


def test_the_price_of_the_kl_is_the_one_in_force_and_none_where_it_is_off():
    off = measured(away("grpo", beta=0.5, kl_placement="off"))
    assert off.beta == 0 and off.metrics["exact/objective"] == off.metrics["exact/reward"]
    assert "exact/distance" not in off.metrics and off.metrics["exact/kl"] > 0.01
    moved = away("grpo", beta=0.5, adaptive_kl_target=0.1)
    moved.kl_factor, moved.kl_beta = 3.0, 0.5
    for session, beta in ((moved, 1.5), (away("grpo", beta=0.5), 0.5), (away("dpo", beta=0.5), 0.5)):
        found = measured(session)
        kl = float(found.truth.kl.detach())
        assert found.beta == beta
        assert found.metrics["exact/objective"] == pytest.approx(found.metrics["exact/reward"] - beta * kl)


def test_flipped_rewards_have_their_mean():
    plain, noisy = (ExactSession.start(spec_of(steps=1, **given)) for given in (
        {}, {"reward_source": "noisy_verifier", "reward_noise": 0.25}))
    records(plain), records(noisy)
    flipped = 0.75 * plain.enumerated.rewards + 0.25 * (1 - plain.enumerated.rewards)
    torch.testing.assert_close(noisy.enumerated.rewards, flipped)


def test_a_reward_that_is_moved_during_the_run_moves_its_truth():
    session, found = ExactSession.start(spec_of(reward_source="noisy_verifier", reward_noise=0.0)), []
    for record in session.run():
        if record is not None:
            found.append(record.metrics["exact/reward"])
            session.knobs["reward_noise"] = 0.5  # then every completion earns ½ on average
    assert found[0] != pytest.approx(0.5, abs=1e-3) and found[1] == pytest.approx(0.5)


def test_a_row_without_a_reference_has_no_optimum_to_be_far_from():
    """SimPO's β is no price of a KL, so J alone is its objective."""
    session = ExactSession.start(spec_of("simpo"))
    for record in records(session):
        assert "exact/distance" not in record.metrics
        assert record.metrics["exact/objective"] == record.metrics["exact/reward"]
    assert all(("exact_distance" in row.panels) <= ("reference" in row.models) for row in ALGORITHMS.values())


@pytest.mark.parametrize("row", now(["rloo", "dpo"], "dpo"))
def test_dpo_and_rlhf_come_to_the_same_optimum(row):
    session = ExactSession.start(spec_of(row, steps=20, prompts_per_step=32, group_size=8, pairs_per_step=128,
                                         learning_rate=2e-2, eval_every=100, beta=0.5))
    found = [record.metrics["exact/distance"] for record in records(session)]
    assert found[-1] < 0.2 * found[0], found


def test_all_seeds_have_one_reference_and_one_optimum():
    first, second = (ExactSession.start(spec_of(steps=1, seed=seed)) for seed in (0, 7))
    records(first), records(second)
    assert torch.equal(first.measured.truth.optimum, second.measured.truth.optimum)


@pytest.mark.parametrize("row, model", now([("ppo", "table"), ("simpo", "tiny")], ("ppo", "table")))
def test_a_resumed_run_and_a_twin_go_on_bit_for_bit(row, model, tmp_path):
    session, found = ExactSession.start(spec_of(row, model=model, steps=4)), []
    for record in (each for each in session.run() if each is not None):
        found.append(record.metrics)
        if record.step == 2:
            (tmp_path / "two").mkdir()
            session.save(tmp_path / "two")
    again = ExactSession.start(spec_of(row, model=model, steps=4), None, tmp_path / "two")
    assert [record.metrics for record in records(again)] == found[2:]
    twin = replace(spec_of(row, model=model, steps=4), parent=("parent", 2))
    forked = ExactSession.start(spec_of(row, model=model, steps=4), None, tmp_path / "two").fork(twin)
    metrics = []
    for record in (each for each in forked.run() if each is not None):
        metrics.append(record.metrics)
        if record.step == 3:  # a fork's checkpoint holds what its parent held
            (tmp_path / "three").mkdir()
            forked.save(tmp_path / "three")
    assert metrics == found[2:]
    assert records(ExactSession.start(twin, None, tmp_path / "three"))[0].metrics == found[3]


def test_the_picture_has_the_likeliest_and_all_others_together():
    session = ExactSession.start(spec_of(steps=1, vocabulary=3, max_new_tokens=3))
    record = records(session, pictures=True)[0]
    for samples in (record.samples, record.look()[0] or record.samples):
        shown = json.loads(json.dumps(samples))["exact"]
        assert shown["completions"] == 40 and [each["prompt"] for each in shown["prompts"]] == ["a", "b"]
        for each in shown["prompts"]:
            assert len(each["rows"]) == 24 and each["rest"]["count"] == 16
            for column in ("policy", "reference", "optimum"):
                assert sum(row[column] for row in each["rows"]) + each["rest"][column] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("given, words", [
    ({"vocabulary": 6, "max_new_tokens": 6}, "make 55,987 completions, and at most 10,000"),
    ({"vocabulary": 2, "prompt_count": 3}, r"3 prompts \(`prompt_count`\) are too many for 2 letters"),
    ({"reward_source": "order_only"}, "is not known with the reward source `order_only`"),
    ({"max_new_tokens": 7}, "`max_new_tokens` is 7, outside its bounds")])
def test_what_cannot_be_enumerated_is_refused_before_it_starts(given, words):
    with pytest.raises(LabError, match=words):
        spec_of(**given)


def test_a_model_of_other_letters_is_refused(tmp_path):
    session = ExactSession.start(spec_of())
    session.export(tmp_path)
    spec = replace(spec_of(vocabulary=3), model=str(tmp_path))
    with pytest.raises(LabError, match=saying("3 tokens", "letters a, b, c")):
        ExactSession.start(spec)
