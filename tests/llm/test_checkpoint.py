"""A checkpoint is gone on with bit for bit; what is written is plain; what is broken is told in words."""

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file, save_file

from labcore.catalog.llm.algorithms import ALGORITHMS as TABLE
from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.llm.session import LlmSession
from tests.every import now
from tests.llm.tools import TINIER, Letters, quietly, records, session, spec, unlike, weights
from tests.words import says

ALGORITHMS = unlike(TABLE.values())
# Of each loop the row with most to save; the others by `make test-long`.
MOST = {TABLE[key].loop: key for key in sorted(ALGORITHMS, key=lambda key: len(TABLE[key].models))}.values()
OF_LOOPS = now(ALGORITHMS, *MOST)
STEPS, SAVED_AT = 5, 4  # step 5 uses every random generator; the surrogate's line is computed at step 1


def given(algorithm):
    wanted = {"mini_batches": 2, "eval_every": 2, "sft_target": 1.0}
    return {key: value for key, value in wanted.items() if key in {knob.key for knob in TABLE[algorithm].knobs}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """whole(algorithm): the checkpoint of SAVED_AT, the session after all its steps, and the records since."""
    @cache
    def ran(algorithm):
        folder = tmp_path_factory.mktemp("checkpoint")
        started = session(algorithm, steps=STEPS, **given(algorithm))
        run = (record for record in started.run() if record is not None)
        next(record for record in run if record.step == SAVED_AT)
        started.save(folder)
        return folder, started, list(run)
    return ran


@pytest.fixture
def saved(whole, tmp_path):
    """saved(algorithm): a copy of that checkpoint, to be changed."""
    return lambda algorithm: Path(shutil.copytree(whole(algorithm)[0], tmp_path / "checkpoint"))


def assert_alike(resumed, whole, expected):
    """Resumed it gives the records, and ends with the weights and the generators, of the run that went on."""
    assert (resumed.step, resumed.updates > 0, resumed.tokens > 0) == (SAVED_AT, True, True)
    got = records(resumed, pictures=True)
    assert [r.metrics for r in got] == [r.metrics for r in expected]
    assert [r.samples for r in got] == [r.samples for r in expected]
    for name, network in whole.models.items():
        assert torch.equal(weights(resumed.models[name]), weights(network)), name
    assert torch.equal(resumed.generator.get_state(), whole.generator.get_state())
    assert resumed.rng.bit_generator.state == whole.rng.bit_generator.state


@pytest.mark.parametrize("algorithm", now(ALGORITHMS, *MOST, "online_dpo"))
def test_a_resumed_run_is_the_uninterrupted_one(algorithm, whole):
    folder, started, expected = whole(algorithm)
    assert_alike(session(algorithm, steps=STEPS, resume=folder, **given(algorithm)), started, expected)


MOVING = {"reference_every": 1, "reference_mixup": 0.5, "learning_rate": 0.02, "beta": 0.1}
SMALL_GROUPS = {"letters": False, "prompts_per_step": 4, "group_size": 2}
# Rows and knobs by which a run carries along more than networks and optimizers, and what of it there is to save.
CARRIED = [
    ("grpo", {"reward_source": "noisy_verifier", "reward_noise": 0.3}, ""),
    ("dapo", {"resample_rounds": 2, "prompts_per_step": 8, "group_size": 2, "max_new_tokens": 1}, ""),
    ("grpo", MOVING, ""), ("dpo", MOVING, ""),
    ("grpo", {"entropy_target": 20.0, "entropy_step": 0.25}, "entropy_bonus"),
    ("grpo", {"adaptive_kl_target": 0.01, "adaptive_kl_horizon": 50.0, "learning_rate": 0.02}, "kl_factor"),
    ("reinforce_average", {"prompts_per_step": 16, "learning_rate": 0.02}, "past_count"),
    ("spo", {}, "of_prompts"), ("a_star_po", {}, "of_prompts"),
    ("grpo", {"prompt_pool": 12, "prompt_choice": "easy_first", "curriculum_steps": 8, "max_new_tokens": 3,
              **SMALL_GROUPS}, "pass_rates"),
    ("grpo", {"staleness": 2, "staleness_order": "mixed", "replay_share": 0.25, **SMALL_GROUPS}, "queue"),
    ("grpo", {"staleness": 1, "importance_cap": 2.0, "sampler_dtype": "int8", **SMALL_GROUPS}, "queue")]


@pytest.mark.parametrize("algorithm, further, carried", now(
    CARRIED, ("grpo", MOVING, ""), *(each for each in CARRIED if each[2] and each[0] != "a_star_po")))
def test_a_resumed_run_goes_on_with_all_that_it_carries(algorithm, further, carried, tmp_path):
    """And so it ends with the same checkpoint, file by file."""
    def begun(**resume):
        return session(algorithm, steps=2, **{**given(algorithm), **further}, **resume)
    whole, saved = begun(), {name: tmp_path / name for name in ("half", "whole", "resumed")}
    for folder in saved.values():
        folder.mkdir()
    with quietly():
        run = (record for record in whole.run() if record is not None)
        next(run)
        whole.save(saved["half"])
        assert not carried or getattr(whole, carried) != getattr(begun(), carried), "there is nothing to go on with"
        expected = list(run)
    assert "resample_rounds" not in further or any(each.metrics["selection/rounds"] > 1 for each in expected)
    resumed = begun(resume=saved["half"])
    assert [record.metrics for record in records(resumed)] == [record.metrics for record in expected]
    whole.save(saved["whole"])
    resumed.save(saved["resumed"])
    one, other = ({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
                  for folder in (saved["whole"], saved["resumed"]))
    assert one.keys() == other.keys() and [name for name in one if one[name] != other[name]] == []


@pytest.mark.parametrize("algorithm", now(ALGORITHMS, "ppo"))
def test_a_fork_goes_on_from_its_parent_and_then_from_its_own_checkpoint(algorithm, whole, tmp_path):
    folder, _, expected = whole(algorithm)
    parent = session(algorithm, steps=STEPS, resume=folder, **given(algorithm))
    twin = replace(parent.spec, parent=("parent", SAVED_AT))
    child = parent.fork(twin)
    child.save(tmp_path)
    assert records(child, pictures=True) == expected
    with patch.dict(MODELS, {"tiny": TINIER}):
        again = LlmSession.start(replace(twin, seed=99), resume=tmp_path)  # the seed says nothing else
    again.task = child.task
    assert records(again, pictures=True) == expected
    fresh = session(algorithm, steps=STEPS, resume=folder, **given(algorithm)).fork(replace(twin, twin=False, seed=99))
    assert next(record for record in fresh.run() if record is not None).metrics != expected[0].metrics


@pytest.mark.parametrize("algorithm", now(ALGORITHMS, "ppo"))
def test_saving_changes_nothing(algorithm, tmp_path):
    plain, saving = (session(algorithm, **given(algorithm)) for _ in range(2))
    expected, got = records(plain), []
    for record in saving.run():
        if record is not None:
            got.append(record)
            (tmp_path / str(record.step)).mkdir()
            saving.save(tmp_path / str(record.step))
    assert [r.metrics for r in got] == [r.metrics for r in expected]


@pytest.mark.parametrize("algorithm", ["grpo", "dpo"])
def test_saved_before_the_first_step_it_starts_the_same(algorithm, tmp_path):
    fresh = session(algorithm)
    fresh.save(tmp_path)
    resumed = session(algorithm, resume=tmp_path)
    assert [r.metrics for r in records(resumed)] == [r.metrics for r in records(fresh)]


def test_changed_knobs_are_kept(tmp_path):
    started = session("grpo")
    started.knobs |= {"beta": 0.7, "group_size": 3}
    started.save(tmp_path)
    resumed = session("grpo", resume=tmp_path)
    assert resumed.knobs == started.knobs and resumed.spec.knobs["beta"] == 0.04


@pytest.mark.parametrize("algorithm", OF_LOOPS)
def test_a_checkpoint_is_safetensors_and_json(algorithm, whole):
    folder, *_ = whole(algorithm)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".safetensors", ".json"}
    for path in files:
        if path.suffix == ".json":
            json.loads(path.read_text("utf-8"))
        assert path.read_bytes()[:2] not in (b"PK", b"\x80\x02", b"\x80\x04")  # archives and pickles


def test_a_run_starts_from_a_folder(whole):
    """As RL starts from its SFT base, and a user from a model of their own."""
    folder = whole("sft")[0]
    taught = session("sft", steps=STEPS, resume=folder, **given("sft"))
    by_base = LlmSession.start(spec("ppo"), base_folder=folder / "policy")
    assert torch.equal(weights(by_base.policy), weights(taught.policy))
    assert torch.equal(weights(by_base.reference), weights(taught.policy))
    assert torch.equal(weights(by_base.critic.trunk), weights(taught.policy.base_model))
    assert (by_base.step, by_base.updates) == (0, 0)
    by_base.task = Letters()
    assert len(records(by_base)) == 2


def broken_state(folder):
    (folder / "state.json").write_text('{"step": 3}')


def no_json(folder):
    (folder / "state.json").write_text('{"step": 3')


def other_weights(folder):
    shutil.copy(folder / "generator.safetensors", folder / "policy" / "model.safetensors")


def cut(name):
    def fault(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])
    return fault


def removed(name):
    return lambda folder: (folder / name).unlink()


def test_a_reference_with_another_vocabulary_than_the_policy_is_said_so(tmp_path):
    begun = session("grpo")
    next(record for record in begun.run() if record is not None)
    forked = begun.fork(replace(begun.spec, parent=("parent", 1)))
    forked.save(tmp_path / "checkpoint")
    file = tmp_path / "checkpoint" / "reference.safetensors"
    tensors = load_file(file)
    key = "model.embed_tokens.weight"
    rows, width = tensors[key].shape
    save_file(tensors | {key: torch.zeros(rows + 7, width)}, file)
    with patch.dict(MODELS, {"tiny": TINIER}), pytest.raises(
            LabError, match=rf"the reference has {key} of {rows + 7} × {width}, and for this policy's vocabulary"):
        LlmSession.start(forked.spec, resume=tmp_path / "checkpoint")


FILES = ["state.json", "policy/model.safetensors", "critic.safetensors", "optimizer_policy.safetensors",
         "optimizer_critic.safetensors", "generator.safetensors"]
FAULTS = {"broken state": broken_state, "no JSON": no_json, "other weights": other_weights,
          **{f"{name} cut": cut(name) for name in FILES}, **{f"{name} gone": removed(name) for name in FILES}}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_checkpoint_is_told_in_words(fault, saved):
    folder = saved("ppo")
    FAULTS[fault](folder)
    with pytest.raises(LabError, match=r"checkpoint .* cannot be read .*resume from an earlier one"):
        session("ppo", resume=folder)


def test_a_checkpoint_of_another_kind_of_device_is_gone_on_with(saved):
    """A GPU's generator has a state of 16 bytes, a processor's one of thousands: numbers begin anew, and it is said."""
    folder = saved("grpo")
    there = load_file(folder / "generator.safetensors")["generator"]
    save_file({"generator": there[:16].clone()}, folder / "generator.safetensors")
    one, two = (session("grpo", resume=folder, steps=SAVED_AT + 1, **given("grpo")) for _ in range(2))
    assert one.step == SAVED_AT and not torch.equal(one.generator.get_state(), there)
    found = records(one)
    assert [record.metrics for record in found] == [record.metrics for record in records(two)]
    assert says(found[0].notes, "another kind of device", "random numbers restart") and len(found[0].notes) == 1
