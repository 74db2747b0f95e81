"""The whole way with a real instruct model: ids, answers, SFT, a reward model, GRPO, and what an export answers.

Steps are as small as they can be: this is no claim about learning.
"""

import json
import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from labcore.exports.capsules import packing
from labcore.exports.folder import export_run
from labcore.llm.probes.answer import answer
from labcore.runs.files.sizes import size
from labcore.runs.spec.model_names import model_of_name
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.llm.chat_model import turns, written
from tests.llm.test_rendering_trl_ids import compare, made_by_the_lab, of, read
from tests.words import says

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
GOLDEN = json.loads(Path(__file__).with_name("trl_ids_smollm2.json").read_text("utf-8"))
CASES = {(kind, name): made for kind, rows in GOLDEN["ids"]["own"].items() for name, made in rows.items()}
SUMS = [turns(f"What is {a} + {b}? Answer with a number.", str(a + b), "And one more?", str(a + b + 1))
        for a in (2, 3) for b in (4, 5)]
PAIRS = [{"prompt": talk[:-1], "chosen": talk[-1:], "rejected": [{"role": "assistant", "content": "No idea."}]}
         for talk in SUMS]
LORA = {"lora_rank": 8, "lora_alpha": 16, "learning_rate": 1e-4}
FRANCE = "What is the capital of France?"


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("kind, name", [case for case, made in CASES.items() if "refused" not in made])
def test_ids_are_those_of_trl(folder, tokenizer, tmp_path, kind, name):
    compare(of(tokenizer, name), kind, read(tmp_path, kind, GOLDEN["rows"][kind][name]), CASES[kind, name])


def test_all_answers_of_a_conversation_are_learnt_though_trl_does_not_know_the_template(tokenizer, tmp_path):
    row = read(tmp_path, "messages", GOLDEN["rows"]["messages"]["several"])
    found = made_by_the_lab(of(tokenizer, "several"), "messages", row)
    said = [token for token, learnt in zip(found["ids"], found["learnt"], strict=True) if learnt]
    assert tokenizer.decode(said) == "5<|im_end|>\n11. Yes<|im_end|>\n"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A lab of its own for the runs below."""
    home = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_LAB_HOME", str(home / "lab"))
        yield home


def ran(lab: Path, algorithm: str, model: str, rows: list, task: str = "prompts", **knobs) -> str:
    """The id of a run of one step."""
    data = written(lab / f"{algorithm}.jsonl", rows)
    run_id = Store().create(make(algorithm_key=algorithm, task_key=task, model=model, steps=1, device="cpu", data=data,
                                 knobs=({"verifier": "contains"} if task == "prompts" else {}) | LORA | {
                                     "held_out": 0.0} | knobs))
    assert drive(Store(), run_id) == "finished", Store().run(run_id).message
    [step] = Store().steps_after(run_id)
    assert all(math.isfinite(value) for value in step.metrics.values())
    return run_id


@pytest.fixture(scope="module")
def chain(folder, lab) -> dict[str, str]:
    """SFT on conversations, a reward model on pairs of them, and GRPO on its scores, each from the one before."""
    sft = ran(lab, "sft", str(folder), [{"messages": talk} for talk in SUMS], sequences_per_step=2, eval_prompts=1,
              max_new_tokens=4, sft_target=1.0)
    judge = ran(lab, "reward_model", model_of_name(sft), PAIRS, "preferences", pairs="dataset", pairs_per_step=2,
                eval_pairs=8, max_new_tokens=4)
    grpo = ran(lab, "grpo", model_of_name(sft), [{"messages": talk} for talk in SUMS], reward_source="reward_model",
               reward_model=judge, prompts_per_step=2, group_size=2, mini_batches=1, max_new_tokens=6,
               system_prompt="Be brief.")
    return {"sft": sft, "reward_model": judge, "grpo": grpo}


@pytest.fixture
def at(chain, lab, monkeypatch) -> dict[str, str]:
    """The runs of the chain, in the lab that has them."""
    monkeypatch.setenv("RL_LAB_HOME", str(lab / "lab"))
    return chain


def playground(run: str, prompt: str, *before: dict[str, str], **given) -> dict:
    found = answer({"models": [run], "prompt": prompt, "turns": [*before], "answer": None, "temperature": 0, "seed": 0,
                    "count": 1, "max_new_tokens": 24, **given})
    return found["columns"][0]["answers"][0]


def test_it_knows_the_capital_of_france_in_the_playground(at):
    """Of the model as it was given, and with what was said before."""
    first = playground(f"base:{at['sft']}", FRANCE, system="")
    assert says(first["text"], "Paris") and not first["truncated"]
    assert first["tokens"][-1] == "<|im_end|>"
    again = playground(f"base:{at['sft']}", "Which city did you name?", *turns(FRANCE, first["text"]))
    assert "Paris" in again["text"]


def test_the_chain_ends_in_a_policy_that_moved(at):
    metrics = {name: Store().steps_after(run)[0].metrics for name, run in at.items()}
    assert metrics["sft"]["loss"] > 0 and metrics["reward_model"]["loss"] == pytest.approx(math.log(2), abs=0.2)
    assert {"reward", "reward/gold"} <= metrics["grpo"].keys() and metrics["grpo"]["kl"] == pytest.approx(0, abs=1e-4)


def test_an_export_answers_as_the_playground_does(at, tmp_path):
    export_run(Store(), at["sft"], tmp_path / "out", merged=True)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "merged")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "merged")
    ids = tokenizer.apply_chat_template(turns(FRANCE), add_generation_prompt=True, return_dict=True)["input_ids"]
    found = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), do_sample=False,
                           max_new_tokens=24)[0, len(ids):]
    assert tokenizer.decode(found, skip_special_tokens=True) == playground(at["sft"], FRANCE)["text"]


def test_its_capsule_names_the_model(at, folder, tmp_path):
    path = packing.write(Store(), at["sft"], tmp_path / "run.zip")
    assert size(path) < 30e6 and size(folder) > 500e6
