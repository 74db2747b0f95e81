"""The sizes of a run are those of its session and its texts; what follows from them is near what a process takes. The
speed of products by a layer's weights, measured here.
"""

import json
import subprocess
import sys
from unittest.mock import patch

import pytest
from transformers import AutoModelForCausalLM

from labcore.catalog.llm.models import MODELS
from labcore.catalog.llm.tasks import SORT_SCORER
from labcore.llm import measured_cost, sizes
from labcore.llm.session import LlmSession
from labcore.llm.sizing import memory, passes
from labcore.runs import jobs
from labcore.runs.files.paths import home
from labcore.runs.spec import activity
from labcore.runs.spec.run_spec import make
from tests.llm.chat_model import TALKS, chat_folder, written
from tests.llm.tools import CONFIGS, TINIER, spec
from tests.words import says

WITHIN = 1 / 3  # of the estimate: what the page says of it


@pytest.mark.parametrize("key, asked", [
    ("teacher", make(algorithm_key="opd", task_key="sort")),
    ("reward_model", make(algorithm_key="grpo_process", task_key="sort", knobs={
        "reward_source": "process_reward", "reward_model": SORT_SCORER}))], ids=["teacher", "reward_model"])
def test_a_model_that_comes_with_the_lab_is_read_and_not_copied(key, asked):
    assert " " in str(asked.knobs[key]), "a name such as PRM HASH"
    found = sizes.of(asked)
    assert {"teacher": "teacher", "reward_model": "scorer"}[key] in [each["name"] for each in found.held]
    assert not [*home().rglob("*.safetensors")]


def test_they_are_those_of_the_session_s_model_and_of_the_longest_texts():
    with patch.dict(MODELS, {"tiny": TINIER}):
        found, session = sizes.of(spec("sft", letters=5)), LlmSession.start(spec("sft", letters=5))
    config = session.policy.config
    assert (found.layers, found.heads, found.hidden, found.inner) == (1, 2, 32, 48)
    assert found.queries == found.keys == 32 and found.context == 64 and found.packs and found.shares
    assert (found.vocabulary, found.prompt, found.answer) == (config.vocab_size, 6, 6), "an answer and its end"
    assert found.parameters("policy") == sum(weight.numel() for weight in session.policy.parameters())


def test_prompts_are_measured_as_the_run_writes_them(tmp_path):
    """With the turns before them, the system prompt and what the template adds."""
    data = written(tmp_path / "talks.jsonl", [{"messages": talk} for talk in TALKS])
    run = make(algorithm_key="sft", task_key="prompts", model=str(chat_folder(tmp_path / "model")), data=data,
               knobs={"verifier": "contains", "system_prompt": "Be brief.", "sft_target": 1.0,
                      "held_out": 0.0, "max_new_tokens": 8})
    found, session = sizes.of(run), LlmSession.start(run)
    rows = session.task.rows
    made = [session.rendering.answers([row], [row.answer], [True]) for row in rows]
    assert found.prompt == max(len(prompt) for (prompt,), _ in made) > 60
    assert found.answer == max(len(answer) for _, (answer,) in made)


@pytest.mark.parametrize(("kind", "keys", "inner"), [("qwen2", 8, 24), ("gpt2", 16, 64), ("gpt_neox", 16, 24)])
def test_other_architectures_have_the_same_sizes_under_other_names(kind, keys, inner):
    with patch.object(measured_cost, "_policy", lambda spec: AutoModelForCausalLM.from_config(CONFIGS[kind](11))):
        found = sizes.of(spec("grpo"))
    assert (found.hidden, found.queries, found.keys, found.inner, found.layers) == (16, 16, keys, inner, 2)


def test_a_model_without_attention_is_a_sentence_beside_the_others():
    with patch.object(measured_cost, "_policy", lambda spec: AutoModelForCausalLM.from_config(CONFIGS["mamba"](11))):
        [found] = sizes.sizes({"specs": [spec("grpo").to_json()]})["sizes"]
    assert says(found, "mamba", "cannot be estimated", "attention")


# Each run is in a fork of a process that has loaded only what a run needs, like a worker. A process that has run other
# tests already has much memory, so a run in it would grow less.
MEASURE = """
import gc, json, multiprocessing, sys
gc.disable()
from labcore.llm import measured_cost as cost
from labcore.llm.loops import online
gc.freeze(), gc.enable()
cost.STEPS = cost.WARM_UP = 1
context, measured = multiprocessing.get_context("fork"), []
for spec in json.load(sys.stdin):
    answer = context.SimpleQueue()
    process = context.Process(target=lambda: answer.put(cost.measure({"spec": spec})))
    process.start()
    measured.append(answer.get())
    process.join()
print(json.dumps(measured))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the process has to be a fork")
@pytest.mark.long
@pytest.mark.parametrize("model, prompts", [("small", 8), ("medium", 12)])
def test_processes_take_about_as_much_as_is_estimated(model, prompts):
    wanted = [make(algorithm_key="grpo", task_key="sort", model=model, device="cpu",
                   knobs={"prompts_per_step": prompts, "sft_steps": 0, "updates_per_batch": 1,
                          "gradient_checkpointing": again})
              for again in (False, True)]
    ran = subprocess.run([sys.executable, "-c", MEASURE], input=json.dumps([each.to_json() for each in wanted]),
                         capture_output=True, text=True, check=True)
    for each, measured in zip(wanted, json.loads(ran.stdout), strict=True):
        found = sizes.of(each)
        done = memory.batch(each, found)
        kept = passes.activations(found, done, passes.Mode()) + 4 * done.rows * done.length * found.vocabulary
        if not each.knobs["gradient_checkpointing"]:  # else autograd is asked layer by layer
            assert 0.7 * kept < measured["activations"] < 1.08 * kept, each.model  # what ends early keeps less
        estimated = memory.peak(memory.parts(each, found))
        assert measured["peak"] == pytest.approx(estimated, rel=WITHIN), each.model


def test_more_rows_and_a_larger_head_take_longer(monkeypatch):
    monkeypatch.setattr(sizes, "CACHES", 2**20)
    monkeypatch.setattr(sizes, "SECONDS", 0.002)
    asked = {"job": "speed", "hidden": 128, "queries": 128, "keys": 64, "inner": 256, "vocabulary": 8192, "threads": 1,
             "device": "cpu", "dtype": "fp32", "host": "here", "made": ""}
    said = list[str]()
    with activity.listening(lambda words, done, total: said.append(words)):
        found = jobs.do(asked)
    assert found["rows"] == list(sizes.ROWS) and len(found["layer"]) == len(found["head"]) == len(sizes.ROWS)
    assert said[0].startswith("measuring the speed of this machine with 1 row")
    assert all(seconds > 0 for seconds in (*found["layer"], *found["head"]))
    assert found["head"][-1] > found["head"][0], "256 rows take longer than one"
    assert found["head"][-1] > found["layer"][-1], "1 M weights take longer than 0.2 M"
