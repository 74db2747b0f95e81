"""What a run on an instruct model leaves: folders that transformers loads without the lab, which answer as the run,
and a capsule that names the model instead of bringing it."""

import json
import zipfile

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from labcore.errors import LabError
from labcore.exports.capsules import packing
from labcore.exports.capsules.importing import import_capsule
from labcore.exports.capsules.replay import replay
from labcore.exports.folder import export_run
from labcore.llm.probes.answer import answer
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.every import now
from tests.llm.chat_model import TALKS, chat_folder, written
from tests.llm.test_session_conversations import LORA, templated
from tests.llm.tokenizers import byte_level
from tests.words import saying

ENDS = ["<|im_end|>", "</s>"]
TURNS = TALKS[1][:4]


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """ran(**knobs): the id of a run of one step on an instruct model, or on a base model without a template."""
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "lab"))
    data = written(tmp_path / "talks.jsonl", [{"messages": talk} for talk in TALKS])

    def run(tokenizer=None, **knobs) -> str:
        model = chat_folder(tmp_path / "home" / "some-model", tokenizer)
        spec = make(algorithm_key="sft", task_key="prompts", model=str(model), steps=1, device="cpu", data=data, knobs={
            "sequences_per_step": 4, "learning_rate": 0.05, "max_new_tokens": 24, "eval_prompts": 4, "sft_target": 1.0,
            "verifier": "contains", "held_out": 0.0, **knobs})
        run_id = Store().create(spec)
        assert drive(Store(), run_id) == "finished"
        return run_id
    return run


def by_the_lab(run_id: str) -> tuple[str, list[str]]:
    found = answer({"models": [run_id], "prompt": TURNS[-1]["content"], "turns": TURNS[:-1], "answer": None, "seed": 0,
                    "temperature": 0, "count": 1, "max_new_tokens": 24})["columns"][0]
    return found["answers"][0]["text"], found["ends"]


def by_transformers(folder) -> str:
    """The greedy answer of a folder, with nothing of the lab."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids = templated(tokenizer, TURNS, add_generation_prompt=True)
    found = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), do_sample=False,
                           max_new_tokens=24)[0, len(ids):]
    return tokenizer.decode(found, skip_special_tokens=True)


def ends(folder) -> list[str]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [tokenizer.decode([end]) for end in GenerationConfig.from_pretrained(folder).eos_token_id]


CHATML = {"tokenizer": byte_level(None, end="</s>"), "template": "chatml"}
KINDS = pytest.mark.parametrize("kind, expected", [({}, ENDS), (CHATML, ENDS[::-1])],
                                ids=["instruct", "ChatML on a base"])


@KINDS
def test_an_export_answers_as_the_run_does(ran, tmp_path, kind, expected):
    run_id = ran(**kind)
    export_run(Store(), run_id, tmp_path / "out")
    folder = tmp_path / "out" / "checkpoint"
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
            "chat_template.jinja"} <= {path.name for path in folder.iterdir()}
    text, known = by_the_lab(run_id)
    assert by_transformers(folder) == text and ends(folder) == known == expected
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.eos_token, tokenizer.pad_token) == (expected[0], "<pad>")


@pytest.mark.parametrize("kind, expected", [
    pytest.param({}, ENDS, marks=pytest.mark.long), (CHATML, ENDS[::-1])], ids=["instruct", "ChatML on a base"])
def test_an_adapter_and_the_merged_model_answer_as_the_run_does(ran, tmp_path, kind, expected):
    run_id = ran(**kind, **LORA)
    export_run(Store(), run_id, tmp_path / "out", merged=True)
    adapter, merged = tmp_path / "out" / "checkpoint", tmp_path / "out" / "merged"
    text, known = by_the_lab(run_id)
    assert by_transformers(merged) == by_transformers(adapter) == text
    assert ends(merged) == ends(adapter) == known == expected
    assert {path.name for path in adapter.glob("*.safetensors")} == {"adapter_model.safetensors"}


@pytest.mark.parametrize("how", now([{}, LORA], LORA), ids=["whole", "LoRA"])
def test_a_capsule_names_a_large_model_and_does_not_bring_it(ran, tmp_path, monkeypatch, how):
    monkeypatch.setattr(packing, "LARGEST_GIVEN", 1000)
    run_id = ran(**how)
    path = packing.write(Store(), run_id, tmp_path / "run.zip")
    with zipfile.ZipFile(path) as packed:
        names = packed.namelist()
        texts = {name: packed.read(name).decode() for name in names if not name.endswith(".safetensors")}
    assert json.loads(texts["spec.json"])["model"] == "some-model"
    assert not any(str(tmp_path) in text for text in texts.values()), "nor folders of this machine"
    assert not [name for name in names if name.startswith(("checkpoints/step-000000/", "checkpoints/base/"))]
    weights = "adapter_model" if how else "model"
    assert f"checkpoints/step-000001/policy/{weights}.safetensors" in names, "what it learnt"
    with pytest.raises(LabError, match=saying("'some-model'", "too large", "run.zip", "--model")):
        replay(path)
    given = tmp_path / "elsewhere"
    (tmp_path / "home" / "some-model").rename(given)
    assert replay(path, model=str(given)).matches
    other = replay(path, model=str(chat_folder(tmp_path / "other", seed=1)))
    assert not other.matches and "the model, whose weights are others" in other.causes[0]
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "lab of another"))
    brought = import_capsule(Store(), path)
    assert Store().run(brought).spec.model == "some-model" and checkpoint.newest_step(run_folder(brought)) == 1


def test_a_small_model_is_brought(ran, tmp_path):
    path = packing.write(Store(), ran(**LORA), tmp_path / "run.zip")
    (tmp_path / "home" / "some-model").rename(tmp_path / "gone")
    with zipfile.ZipFile(path) as packed:
        assert "checkpoints/base/model.safetensors" in packed.namelist()
        told = json.loads(packed.read("checkpoints/step-000000/policy/adapter_config.json"))
    assert told["base_model_name_or_path"] == "some-model", "not where it lay"
    assert replay(path).matches
