"""LoRA: what is learnt is the adapter alone, the reference is the base bit for bit, and what does not fit is said."""

import ast
import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MambaConfig, Qwen2Config

import labcore
from labcore.errors import LabError
from labcore.exports import folder as merged
from labcore.exports.capsules import packing
from labcore.exports.capsules.importing import import_capsule
from labcore.exports.capsules.replay import replay
from labcore.llm.generation import token_logprobs
from labcore.llm.loops.preference import encode
from labcore.llm.nets import lora
from labcore.llm.nets.forward import completion_outputs
from labcore.llm.nets.model import export_merged, load
from labcore.llm.nets.scorer import load_scorer, scores
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.llm.session import LlmSession
from labcore.runs.files.adapters import CONFIG, WEIGHTS
from labcore.runs.files.paths import home
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.tasks.task import Pair
from labcore.workers.worker import drive
from tests.every import now
from tests.llm.tools import HEADS, SIZE, SMALL, Letters, completion_ids, prompts, quietly, records

TOKENIZER = character_tokenizer()
IDS = {"bos_token_id": None, "eos_token_id": TOKENIZER.eos_token_id, "pad_token_id": TOKENIZER.pad_token_id}
KINDS = {"gpt2": GPT2Config(vocab_size=len(TOKENIZER), **HEADS | IDS),
         "qwen2": Qwen2Config(vocab_size=len(TOKENIZER), num_key_value_heads=1, **SIZE | IDS),
         "llama": LlamaConfig(vocab_size=len(TOKENIZER), tie_word_embeddings=True, **SIZE | IDS)}
LORA = {"lora_rank": 2, "lora_alpha": 4}
EVERY_LOOP = {"grpo": "gpt2", "ppo": "qwen2", "dpo": "llama", "sft": "gpt2", "reward_model": "qwen2"}


def made(kind, folder, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        AutoModelForCausalLM.from_config(KINDS[kind]).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return folder


@pytest.fixture
def base(tmp_path):
    return lambda kind="gpt2": made(kind, tmp_path / f"base-{kind}")


def run_spec(algorithm, folder, steps=2, **knobs):
    loop = make(algorithm_key=algorithm, task_key="sort").row.loop
    return make(algorithm_key=algorithm, task_key="sort", model=str(folder), steps=steps, device="cpu",
                knobs={**SMALL[loop], "max_new_tokens": 6, "learning_rate": 0.01, **LORA, **knobs})


def begun(spec, **resume):
    started = LlmSession.start(spec, **resume)
    started.task = Letters()
    return started


def trained(algorithm, folder, saved, steps=2):
    """A session after `steps` steps, its checkpoint in `saved`."""
    started = begun(run_spec(algorithm, folder, steps=3))
    with quietly():
        for record in started.run():
            if record is not None and record.step == steps:
                break
    saved.mkdir()
    started.save(saved)
    return started


def logits(model, seed=1):
    with torch.no_grad():
        return model(input_ids=completion_ids(3, 7, len(TOKENIZER), seed)).logits


@pytest.mark.parametrize("algorithm, kind", now(
    EVERY_LOOP.items(), *((key, EVERY_LOOP[key]) for key in ("ppo",))))
def test_a_resumed_run_is_the_uninterrupted_one(algorithm, kind, base, tmp_path):
    folder = base(kind)
    before = load(folder)[0].state_dict()
    whole = trained(algorithm, folder, tmp_path / "saved")
    expected = records(whole)
    assert all(torch.equal(before[name.replace(".base_layer", "")], value)
               for name, value in whole.policy.state_dict().items() if "lora_" not in name), "the base is as it was"
    resumed = begun(run_spec(algorithm, folder, steps=3), resume=tmp_path / "saved")
    assert [record.metrics for record in records(resumed)] == [record.metrics for record in expected]
    learnt = {name: lora.own(model) for name, model in whole.models.items() if name in whole.optimizers}
    assert all(torch.equal(value, lora.own(resumed.models[name])[key])
               for name, tensors in learnt.items() for key, value in tensors.items())
    held = sum(path.stat().st_size for path in (tmp_path / "saved").rglob("*.safetensors"))
    assert held < 200_000 and not list((tmp_path / "saved").rglob("*.bin")), "the adapters alone, and no pickle"


@pytest.mark.parametrize("kind", now(KINDS, "gpt2"))
def test_the_reference_is_the_base_bit_for_bit_and_takes_no_memory(kind, base):
    folder = base(kind)
    plain, started = begun(run_spec("grpo", folder, lora_rank=0)), begun(run_spec("grpo", folder))
    records(started)
    asked, completions = encode(plain, [Pair("abc=", "abc", "cab"), Pair("b=", "b", "c")])
    expected, found = (token_logprobs(each, each.reference, asked, completions) for each in (plain, started))
    assert torch.equal(found, expected)
    assert not torch.equal(token_logprobs(started, started.policy, asked, completions), expected), "the policy learnt"
    held = {id(weight) for weight in started.policy.parameters()}
    assert {id(weight) for weight in started.reference.parameters()} <= held


@pytest.mark.parametrize("kind", now(KINDS, "llama"))
def test_frozen_layers_that_are_computed_again_give_their_adapters_the_same_gradients(kind, base):
    folder = base(kind)
    expected, found = (records(begun(run_spec("grpo", folder, gradient_checkpointing=on))) for on in (False, True))
    for one, other in zip(expected, found, strict=True):
        assert one.metrics["grad_norm"] > 0 and other.metrics == pytest.approx(one.metrics, rel=1e-4, abs=1e-5)


def test_the_critic_shares_the_frozen_weights_and_learns_an_adapter_and_a_head(base):
    started = begun(run_spec("ppo", base("llama")))
    own = lora.own(started.critic)
    held = {id(weight) for weight in started.policy.parameters()}
    assert {id(weight) for weight in started.critic.parameters()} - held == {id(weight) for weight in own.values()}
    assert {name.split(".")[0] for name in own} == {"trunk", "head"}
    before = {name: value.detach().clone() for name, value in own.items()}
    records(started)
    assert any(not torch.equal(value, before[name]) for name, value in own.items() if "lora_B" in name)


def test_an_exported_adapter_is_peft_s_and_the_merged_model_anyone_s(base, tmp_path):
    folder = base("gpt2")
    started = trained("grpo", folder, tmp_path / "saved")
    expected = logits(started.policy)
    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), tmp_path / "saved" / "policy")
    torch.testing.assert_close(logits(theirs), expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(logits(load(folder)[0]), expected, atol=1e-3)
    export_merged(tmp_path / "saved" / "policy", tmp_path / "merged")
    alone = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(logits(alone), expected, rtol=1e-5, atol=1e-5)
    assert not lora.adapted(alone) and (tmp_path / "merged" / "tokenizer.json").exists()


def test_the_job_of_the_page_makes_a_zip_of_the_merged_model(base, tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "lab"))
    checkpoints = home() / "some-run" / "checkpoints"
    checkpoints.mkdir(parents=True)
    started = trained("sft", base("gpt2"), checkpoints / "step-000002")
    assert merged.merge({"run": "some-run", "step": 2})["bytes"] == merged.file("some-run").stat().st_size
    with zipfile.ZipFile(merged.file("some-run")) as archive:
        archive.extractall(tmp_path / "out")
    alone = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "some-run-merged")
    torch.testing.assert_close(logits(alone), logits(started.policy), rtol=1e-5, atol=1e-5)
    with pytest.raises(LabError, match="no checkpoint of step 3 any more"):
        merged.merge({"run": "some-run", "step": 3})


@pytest.mark.long
def test_a_capsule_brings_the_weights_that_the_adapter_is_on(base, tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "lab"))
    store = Store()
    run_id = store.create(run_spec("grpo", base("gpt2"), steps=1, dtype="fp32"))
    assert drive(store, run_id) == "finished"
    capsule = packing.write(store, run_id, tmp_path / "run.zip")
    shutil.rmtree(tmp_path / "base-gpt2")
    assert replay(capsule).matches
    shutil.rmtree(tmp_path / "lab")
    brought = import_capsule(Store(), capsule)
    weights = load(Store().run(brought).spec.model)[0]
    assert not lora.adapted(weights) and torch.equal(logits(weights), logits(load(made("gpt2", tmp_path / "again"))[0]))


def test_a_run_starts_from_an_adapter_and_a_fork_keeps_what_its_parent_trained(base, tmp_path):
    parent = trained("sft", base("qwen2"), tmp_path / "saved")
    onward = begun(run_spec("grpo", tmp_path / "saved" / "policy"))
    torch.testing.assert_close(logits(onward.reference), logits(parent.policy), rtol=1e-5, atol=1e-5)
    spec = replace(run_spec("grpo", parent.spec.model, steps=3), parent=("parent", 2))
    forked = parent.fork(spec)
    forked.task = Letters()
    assert torch.equal(logits(forked.reference), logits(forked.policy)), "the policy as it was"
    next(record for record in forked.run() if record is not None)
    (tmp_path / "fork").mkdir()
    forked.save(tmp_path / "fork")
    again = LlmSession.start(spec, resume=tmp_path / "fork")
    assert torch.equal(logits(again.reference), logits(forked.reference))
    assert torch.equal(logits(again.policy), logits(forked.policy))


def test_a_reward_model_that_lora_trained_gives_the_same_scores_as_a_run_s_rewards(base, tmp_path):
    judge = trained("reward_model", base("llama"), tmp_path / "judge")
    scorer = load_scorer(tmp_path / "judge", "judge")
    asked, completions = encode(judge, [Pair("abc=", "abc", "cab"), Pair("b=", "b", "c")])
    found, expected = (scores(model, asked, completions, "fp32") for model in (scorer, judge.models["reward_model"]))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert expected.abs().sum() > 0 and not lora.adapted(scorer)


def test_bf16_rounds_the_adapter_too(base):
    found = records(begun(run_spec("grpo", base("llama"), steps=1, dtype="bf16")))
    assert found[-1].metrics["grad_norm"] > 0


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapter")
    trained("sft", made("gpt2", folder / "base-gpt2"), folder / "saved", steps=1)
    return folder


def edited(folder, **changes):
    path = folder / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def lacking(policy):
    tensors = load_file(policy / WEIGHTS)
    tensors.pop(min(tensors))
    save_file(tensors, policy / WEIGHTS)


def other_shape(policy):
    tensors = load_file(policy / WEIGHTS)
    name = min(tensors)
    save_file(tensors | {name: tensors[name][:1].contiguous()}, policy / WEIGHTS)


def pickled(policy):
    (policy / WEIGHTS).rename(policy / "adapter_model.bin")


@pytest.mark.parametrize("breaks, said", [
    (lacking, r"does not fit the model .*: it lacks 1 of 4 tensors, such as base_model\.model\.\S+lora_A"),
    (other_shape, r"lora_A.* is \(1, 16\), and the model needs \(2, 16\)\. Use the model that it was trained on"),
    (lambda policy: edited(policy, base_model_name_or_path=str(policy.parents[1] / "gone")),
     r"is for the model .*gone, which cannot be loaded: There is no model"),
    (lambda policy: edited(policy, base_model_name_or_path=None), "does not say which model it is for"),
    (lambda policy: edited(policy, base_model_name_or_path=str(policy)), "names itself as its base model"),
    (lambda policy: made("gpt2", policy.parents[1] / "base-gpt2", seed=1), "trained on other weights than those"),
    (lambda policy: edited(policy, base_model_name_or_path=str(made("qwen2", policy.parents[1] / "other"))),
     "trained on other weights"),
    (lambda policy: edited(policy, target_modules=["q_proj"]), r"does not fit the model .*Target modules"),
    (lambda policy: edited(policy, peft_type="PREFIX_TUNING"), "PREFIX_TUNING, and the lab reads LoRA only"),
    (pickled, r"only pickle weights \(adapter_model\.bin\)"),
    (lambda policy: (policy / "chat_template.jinja").write_bytes(b"\xff"), "chat_template.jinja or a .* cannot be"),
    (lambda policy: (policy / "generation_config.json").write_text("{"), "generation_config.json that cannot be read"),
])
def test_an_adapter_that_does_not_fit_is_one_sentence(breaks, said, adapter, tmp_path):
    for name in ("base-gpt2", "saved"):
        shutil.copytree(adapter / name, tmp_path / name)
    edited(tmp_path / "saved" / "policy", base_model_name_or_path=str(tmp_path / "base-gpt2"))
    breaks(tmp_path / "saved" / "policy")
    with pytest.raises(LabError, match=said) as error:
        load(tmp_path / "saved" / "policy")
    assert "\n" not in str(error.value)


def test_an_adapter_that_names_no_ends_keeps_those_of_its_base(base, tmp_path):
    trained("sft", base(), tmp_path / "saved", steps=1)
    ends = load(tmp_path / "saved" / "policy")[0].generation_config.eos_token_id
    (tmp_path / "saved" / "policy" / "generation_config.json").write_text("{}")
    assert load(tmp_path / "saved" / "policy")[0].generation_config.eos_token_id == ends is not None


def test_what_cannot_have_an_adapter_says_so(tmp_path):
    with pytest.raises(LabError, match="those of 'small' would be random"):
        make(algorithm_key="sft", task_key="sort", model="small", knobs=LORA)
    AutoModelForCausalLM.from_config(MambaConfig(
        vocab_size=len(TOKENIZER), hidden_size=16, state_size=4, num_hidden_layers=1, **IDS)).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    with pytest.raises(LabError, match="no usual layers for LoRA on a model of the type mamba"):
        LlmSession.start(run_spec("grpo", tmp_path))


def test_the_hash_of_a_run_without_lora_is_what_it_was():
    plain = make(algorithm_key="sft", task_key="sort", model="small")
    older = replace(plain, knobs={key: value for key, value in plain.knobs.items() if not key.startswith("lora_")})
    assert plain.hash() == older.hash()
    assert replace(plain, knobs={**plain.knobs, "lora_rank": 4}).hash() != plain.hash()


def test_peft_is_imported_only_inside_functions():
    """It takes a second: no page, command or run without LoRA waits for it."""
    for path in Path(labcore.__file__).parent.rglob("*.py"):
        text = path.read_text("utf-8")
        top = ast.parse(text).body if "peft" in text else []
        imports = [ast.unparse(node) for node in top if isinstance(node, (ast.Import, ast.ImportFrom))]
        assert not any("peft" in line for line in imports), path


def test_prompts_are_padded_in_an_adapted_model_as_in_its_base(base):
    started = begun(run_spec("sft", base("qwen2")))
    asked, ids = prompts(), completion_ids(9, 5)
    torch.testing.assert_close(completion_outputs(started.policy, asked, ids),
                               completion_outputs(load(started.origin)[0], asked, ids), rtol=1e-5, atol=1e-5)
