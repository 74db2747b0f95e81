"""Every loop on conversations, with an instruct model: each learns what comes after the rendered turns, whole and by
LoRA. What is learnt is measured by transformers alone, on ids of the template."""

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from labcore.llm import generation
from labcore.llm.loops.reward_model import split
from labcore.llm.nets.critic import Critic
from labcore.llm.networks import REWARD_MODEL
from labcore.llm.probes.pairs_to_label import pairs_to_label
from labcore.llm.rewards import reward
from labcore.llm.session import LlmSession
from labcore.runs.files import uploads
from labcore.runs.files.paths import home
from labcore.runs.spec.run_spec import make
from labcore.tasks import labels
from labcore.tasks.preferences import labelled_pairs
from labcore.tasks.task import Turn, make_task
from tests.every import now
from tests.llm.chat_model import PAIRS, SINGLES, TALKS, chat_folder, turns, written
from tests.llm.tools import SMALL, records, shake

LORA = {"lora_rank": 4, "lora_alpha": 8}
SIZES = {**SMALL, "online": {"prompts_per_step": 2, "group_size": 4, "mini_batches": 1}}
JUDGED = {"verifier": "regex", "pattern": "[a-m]"}
HOW = ({}, LORA)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return chat_folder(tmp_path_factory.mktemp("chat"))


@pytest.fixture
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


def begun(algorithm, folder, data, task="prompts", steps=3, resume=None, **knobs) -> LlmSession:
    loop = make(algorithm_key=algorithm, task_key=task, data=data).row.loop
    knobs = (JUDGED if task == "prompts" else {}) | knobs
    return LlmSession.start(make(
        algorithm_key=algorithm, task_key=task, model=str(folder), steps=steps, device="cpu", data=data,
        knobs={**SIZES[loop], "held_out": 0.0, "max_new_tokens": 6, "learning_rate": 0.01, **knobs}), resume=resume)


def templated(tokenizer, turns, **given) -> list[int]:
    return tokenizer.apply_chat_template(turns, tokenize=True, return_dict=True, **given)["input_ids"]


@torch.no_grad()
def said(model, tokenizer, turns) -> float:
    """Log-prob of the last turn after those before it, by plain transformers."""
    asked, whole = templated(tokenizer, turns[:-1], add_generation_prompt=True), templated(tokenizer, turns)
    logits = model(input_ids=torch.tensor([whole])).logits[0].log_softmax(-1)
    return sum(float(logits[place - 1, whole[place]]) for place in range(len(asked), len(whole)))


def answers(turns):
    """The conversation up to each answer of the assistant."""
    return [turns[:place + 1] for place, turn in enumerate(turns) if turn["role"] == "assistant"]


@pytest.mark.parametrize("how, whole", now([(how, whole) for how in HOW for whole in (True, False)],
                                           ({}, True), (LORA, False)))
def test_sft_learns_every_answer_of_messages_and_the_last_one_of_a_completion(folder, tokenizer, tmp_path, how, whole):
    rows = [{"messages": talk} if whole else {"prompt": talk[:-1], "completion": talk[-1:]} for talk in TALKS[:2]]
    started = begun("sft", folder, written(tmp_path / "talks.jsonl", rows), sequences_per_step=2, sft_target=1.0, **how)
    before = [[said(started.policy, tokenizer, part) for part in answers(talk)] for talk in TALKS[:2]]
    found = records(started)
    after = [[said(started.policy, tokenizer, part) for part in answers(talk)] for talk in TALKS[:2]]
    assert found[-1].metrics["loss"] < found[0].metrics["loss"]
    learnt = sum(len(templated(tokenizer, part)) - len(templated(tokenizer, part[:-1], add_generation_prompt=True))
                 for talk in TALKS[:2] for part in answers(talk)[0 if whole else -1:])
    first = -sum(sum(talk[0 if whole else -1:]) for talk in before) / learnt
    assert found[0].metrics["loss"] == pytest.approx(first, rel=1e-4) and found[0].tokens == learnt
    assert all(new[-1] > old[-1] for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("algorithm, rows, how", now(
    [(algorithm, rows, how) for algorithm, rows in (("dpo", PAIRS), ("kto", SINGLES), ("kto", PAIRS)) for how in HOW],
    ("dpo", PAIRS, LORA), ("kto", SINGLES, {})))
def test_preferences_move_the_last_answers_apart(folder, tokenizer, tmp_path, how, algorithm, rows):
    file = written(tmp_path / "rows.jsonl", rows)
    started = begun(algorithm, folder, file, "preferences", pairs_per_step=8, pairs="dataset", eval_every=50, **how)
    before = margin(started.policy, tokenizer)
    found = records(started)
    assert margin(started.policy, tokenizer) > before + 1
    if rows is PAIRS and algorithm == "dpo":
        assert found[0].metrics["loss"] == pytest.approx(0.6931, abs=1e-3), "the reference reads the same ids"


def margin(model, tokenizer) -> float:
    return sum(said(model, tokenizer, [*pair["prompt"], *pair["chosen"]])
               - said(model, tokenizer, [*pair["prompt"], *pair["rejected"]]) for pair in PAIRS)


def score(model: Critic, ids: list[int]) -> float:
    """The reward model's head on the last hidden state, by plain transformers."""
    with torch.no_grad():
        hidden = model.trunk(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
        return float(model.head(hidden))


@pytest.mark.parametrize("how", now(HOW, LORA))
def test_a_reward_model_learns_whole_conversations(folder, tokenizer, tmp_path, how):
    file = written(tmp_path / "pairs.jsonl", PAIRS)
    started = begun("reward_model", folder, file, "preferences", steps=12, pairs="dataset", eval_every=50, **how)
    model = started.models[REWARD_MODEL]
    assert isinstance(model, Critic)
    found = records(started)
    assert found[-1].metrics["loss"] < found[0].metrics["loss"]
    scored = [[score(model, templated(tokenizer, [*pair["prompt"], *pair[side]])) for side in ("chosen", "rejected")]
              for pair in PAIRS]
    assert sum(chosen > rejected for chosen, rejected in scored) >= 3, "three are learnt from"


def test_conversations_that_end_with_the_same_question_are_several_prompts(folder, tmp_path):
    rows = [{"prompt": turns(first, "5", "and more?"), "chosen": pair["chosen"], "rejected": pair["rejected"]}
            for first, pair in zip("abcd", PAIRS, strict=True)]
    started = begun("reward_model", folder, written(tmp_path / "pairs.jsonl", rows), "preferences", pairs="dataset")
    known, held_out = split(started)
    assert len(known) == 3 and len(held_out) == 1 and held_out[0] not in known


@pytest.mark.parametrize("algorithm", now(["dpo", "reward_model"], "reward_model"))
def test_a_resumed_run_has_the_pairs_of_its_conversations(folder, tmp_path, algorithm):
    """Turns that a checkpoint holds are turns again: they are looked at by their roles, and sought by their words."""
    file = written(tmp_path / "talks.jsonl", [{"messages": talk} for talk in TALKS])
    place = uploads.keep("labels.jsonl", Path(written(tmp_path / "labels.jsonl", PAIRS)).read_bytes()).parent.name
    labels = {"labelled_pairs": place} if algorithm == "reward_model" else {}
    how = {"pairs": "reference_once", "max_new_tokens": 32, "pair_prompts": 8, "eval_every": 2, **labels}
    started = begun(algorithm, folder, file, **how)
    run = started.run()
    next(record for record in run if record is not None)
    started.save(saved := tmp_path / "checkpoint")
    expected = [record.metrics for record in run if record is not None]
    resumed = begun(algorithm, folder, file, resume=saved, **how)
    assert [record.metrics for record in records(resumed)] == expected
    assert resumed.pairs == started.pairs and resumed.labelled == started.labelled
    assert {type(turn) for pair in (*resumed.pairs, *resumed.labelled) for turn in pair.turns} == {Turn}


@pytest.mark.parametrize("algorithm, how", now(
    [(algorithm, how) for algorithm in ("grpo", "rloo", "ppo") for how in HOW], ("ppo", LORA)))
def test_online_runs_answer_the_last_turn(folder, tokenizer, tmp_path, monkeypatch, how, algorithm):
    file, asked = written(tmp_path / "talks.jsonl", [{"messages": talk} for talk in TALKS]), []
    given = generation.encode_prompts
    monkeypatch.setattr(generation, "encode_prompts", lambda *args: asked.append(given(*args)) or asked[-1])
    started = begun(algorithm, folder, file, system_prompt="Be brief.", **how)
    start = {name: value.clone() for name, value in started.policy.state_dict().items()}
    found = records(started)
    known = {tuple(templated(tokenizer, ([] if talk[0]["role"] == "system" else [
        {"role": "system", "content": "Be brief."}]) + talk[:-1], add_generation_prompt=True)) for talk in TALKS}
    seen = {tuple(row[mask].tolist()) for prompts in asked for row, mask in zip(prompts.ids, prompts.mask, strict=True)}
    assert seen <= known and len(seen) > 1
    assert all(torch.tensor(list(record.metrics.values())).isfinite().all() for record in found)
    assert any(not torch.equal(value, start[name]) for name, value in started.policy.state_dict().items())
    if how:
        assert all(torch.equal(value, start[name]) for name, value in started.policy.state_dict().items()
                   if "lora_" not in name)


def test_a_completion_ends_at_every_end_of_the_model(folder, tmp_path):
    file = written(tmp_path / "talks.jsonl", [{"messages": talk} for talk in TALKS])
    started = begun("grpo", folder, file, prompts_per_step=4, group_size=64, max_new_tokens=32)
    problems = started.task.problems(4, started.rng)
    found = generation.generate(started, started.policy, problems, 64, generation.Sampling(max_new_tokens=32))
    last = [int(ids[length - 1]) for ids, length, cut in zip(
        found.completions.ids, found.completions.lengths, found.completions.truncated, strict=True) if not cut]
    assert {*last} == {*started.rendering.ends} and len({*last}) == 2
    assert not any(end in text for text in found.texts for end in ("</s>", "<|im_end|>"))
    assert not any({*ids[:length - 1].tolist()} & {*last} for ids, length in zip(
        found.completions.ids, found.completions.lengths.tolist(), strict=True))


def test_a_reward_model_reads_completions_as_the_conversations_that_it_learnt(folder, tokenizer, tmp_path, monkeypatch):
    """The template writes a newline behind the end token, which sampling never draws."""
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "lab"))
    judge = begun("reward_model", folder, written(tmp_path / "pairs.jsonl", PAIRS), "preferences", pairs="dataset")
    shake(judge.models[REWARD_MODEL])
    saved = home() / "judge" / "checkpoints" / "step-000004"
    saved.mkdir(parents=True)
    judge.save(saved)
    (home() / "judge" / "spec.json").write_text(judge.spec.to_json())
    file = written(tmp_path / "talks.jsonl", [{"messages": talk} for talk in TALKS])
    started = begun("grpo", folder, file, reward_source="reward_model", reward_model="judge")
    problems = started.task.problems(4, started.rng)
    found = generation.generate(started, started.policy, problems, 16, generation.Sampling(max_new_tokens=16))
    cut = found.completions.truncated.tolist()
    assert True in cut and False in cut
    for row, (given, text) in enumerate(zip(reward(started, problems, found).total.tolist(), found.texts, strict=True)):
        asked = [*map(dict, (turn._asdict() for turn in problems[row // 16].turns))] or [
            {"role": "user", "content": problems[row // 16].prompt}]
        whole = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True) + text
        ids = tokenizer(whole if cut[row] else f"{whole}<|im_end|>\n")["input_ids"]
        assert given == pytest.approx(score(judge.models[REWARD_MODEL], ids), abs=1e-4)


def test_pairs_to_label_have_their_conversation(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "lab"))
    spec = begun("reward_model", folder, written(tmp_path / "pairs.jsonl", PAIRS), "preferences").spec
    found = pairs_to_label({"spec": spec.to_json(), "count": 4, "seed": 0})
    place = labels.keep(labels.preferences(found["pairs"], ["a"] * 4))
    assert {(pair.prompt, *pair.turns) for pair in labelled_pairs(place)} <= {
        (row.prompt, *row.turns) for row in make_task(spec.task_row, spec.knobs, spec.data).rows}
    assert any(pair.turns for pair in labelled_pairs(place))
