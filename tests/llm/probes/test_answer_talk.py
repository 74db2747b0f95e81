"""The Playground's models read a conversation through their template, as they were trained on it."""

import json

import pytest
import torch
from transformers import AutoTokenizer

from labcore.errors import LabError
from labcore.llm.nets.model import load
from labcore.llm.probes.answer import answer, quiz
from labcore.runs.files import atomic
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.runs.models import chats, spec_of
from tests.every import now
from tests.llm.chat_model import TALKS, chat_folder, written
from tests.llm.runs_on_disk import saved
from tests.llm.test_session_conversations import begun, templated
from tests.llm.tools import quietly

ASKED = {"prompt": "or c?", "answer": None, "temperature": 0, "seed": 0, "count": 1, "max_new_tokens": 24}
BEFORE = TALKS[1][1:3]


@pytest.fixture(scope="module")
def home_of_chat(labs, tmp_path_factory):
    folder, home = tmp_path_factory.mktemp("chat"), next(labs)
    data = written(folder / "talks.jsonl", [{"messages": talk} for talk in TALKS])
    with pytest.MonkeyPatch.context() as patched, quietly():
        patched.setenv("RL_LAB_HOME", str(home))
        started = begun("sft", chat_folder(folder / "model"), data, steps=1, learning_rate=0.05,
                        system_prompt="Be brief.", sequences_per_step=4)
        atomic.write_text(run_folder("sft-chat") / "spec.json", started.spec.to_json())
        record = next(record for record in started.run() if record is not None)
        checkpoint.save(run_folder("sft-chat"), record.step, started.save)
    return home


@pytest.fixture
def chat(home_of_chat, monkeypatch) -> str:
    """A run on conversations with one step, far from its base."""
    monkeypatch.setenv("RL_LAB_HOME", str(home_of_chat))
    return "sft-chat"


def by_transformers(turns, system: str) -> tuple[str, int]:
    """The greedy answer of plain transformers, and how many tokens it has with its end."""
    policy = checkpoint.newest(run_folder("sft-chat"))[1] / "policy"
    model, tokenizer = load(policy)[0], AutoTokenizer.from_pretrained(policy)
    told = [{"role": "system", "content": system}] if system else []
    ids = templated(tokenizer, [*told, *turns], add_generation_prompt=True)
    found = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), do_sample=False,
                           max_new_tokens=ASKED["max_new_tokens"])[0, len(ids):]
    return tokenizer.decode(found, skip_special_tokens=True), len(found)


TALKING = [({}, TALKS[1][3:4], "Be brief."), ({"turns": BEFORE}, TALKS[1][1:4], "Be brief."),
           ({"turns": BEFORE, "system": "Speak up."}, TALKS[1][1:4], "Speak up."),
           ({"turns": BEFORE, "system": ""}, TALKS[1][1:4], ""),
           ({"turns": TALKS[1][:3]}, TALKS[1][1:4], "One word.")]


@pytest.mark.parametrize("given, turns, system", now(TALKING, TALKING[1], TALKING[3]),
                         ids=["alone", "history", "system", "none", "in the turns"])
def test_a_greedy_answer_is_that_of_transformers_on_the_rendered_turns(chat, given, turns, system):
    found = answer(ASKED | {"models": [chat]} | given)["columns"][0]
    text, length = by_transformers(turns, system)
    assert found["answers"][0]["text"] == text and len(found["answers"][0]["tokens"]) == length
    assert found["ends"] == ["<|im_end|>", "</s>"]


def test_questions_of_a_vote_have_their_conversation(chat):
    found = quiz({key: value for key, value in ASKED.items() if key not in ("prompt", "answer")} | {
        "models": [chat], "count": 4})["questions"]
    assert sorted(json.dumps(question.get("turns", [question["prompt"]])) for question in found) == sorted(
        json.dumps(talk[:-1] if len(talk) > 2 else [talk[0]["content"]]) for talk in TALKS)


def test_a_conversation_needs_a_template(chat):
    assert chats(chat, spec_of(chat))
    run = saved("sft-sort", "sft")
    assert not chats(run, spec_of(run))
    with pytest.raises(LabError, match="no chat template"):
        answer(ASKED | {"models": [run], "turns": BEFORE})
