"""Runs on instruct models, taken further: rows as the lab reads them, written by the model's own template."""

import csv
import gzip
import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from labcore.catalog.llm.tasks import TASKS
from labcore.exports.handover import conversations, openrlhf, trl, verl
from labcore.exports.handover.plan import Plan, plan_of
from labcore.exports.handover.task_code import task_code
from labcore.llm.rendering import Rendering
from labcore.runs.store.store import Store
from labcore.tasks.reward_call import columns_of
from labcore.tasks.task import make_task
from labcore.workers.worker import drive
from tests.exports.handover.conftest import plan, switched
from tests.exports.handover.test_trl import trained
from tests.llm.chat_model import PAIRS, SINGLES, TALKS, chat_folder, turns, written
from tests.llm.tokenizers import Model

ASKED = [{"prompt": talk[:-1], "answer": talk[-1]["content"], "level": 3} for talk in TALKS]
TABLE = [{"q": "1+2=", "a": "3", "level": "easy"}, {"q": "2,2 \n=", "a": "4", "level": "hard"}]
MAPPED = {"fields": "prompt=q,answer=a"}


def chat(algorithm: str, file: str, task: str = "prompts", **knobs) -> Plan:
    return replace(plan(algorithm, task, {TASKS[task].data: file}, knobs=knobs | (
        {"verifier": "contains"} if task == "prompts" else {})), chat=True)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def names(each: Plan, **given) -> dict:
    found: dict = {}
    exec(compile(task_code(each, **given), "task.py", "exec"), found)
    return found


def file(name: str, rows: list) -> str:
    """The rows as a file of the kind that its name says."""
    text, path = "".join(json.dumps(row) + "\n" for row in rows), Path(name)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    elif name.endswith((".csv", ".tsv")):
        with path.open("w", newline="") as out:
            writer = csv.DictWriter(out, rows[0], delimiter="," if name.endswith("csv") else "\t")
            writer.writeheader()
            writer.writerows(rows)
    elif name.endswith(".parquet"):
        import pandas
        pandas.DataFrame(rows).to_parquet(path)
    else:
        path.write_text(json.dumps(rows) if name.endswith(".json") else text)
    return name


@pytest.mark.parametrize("name, rows, knobs", [
    ("talks.jsonl", [{"messages": talk} for talk in TALKS], {}), ("asked.jsonl", ASKED, {}),
    ("asked.json", ASKED, {}), ("asked.jsonl.gz", ASKED, {}), ("asked.parquet", ASKED, {}),
    ("share.jsonl", [{"conversations": [{"from": "human", "value": "2+3="}, {"from": "gpt", "value": "5"}]}], {}),
    ("verl.jsonl", [{"prompt": turns("2+3="), "reward_model": {"ground_truth": "5"}, "data_source": "sums"}], {}),
    ("alpaca.jsonl", [{"instruction": "Add.", "input": "2 3", "output": "5"}], {}),
    ("math.jsonl", [{"prompt": turns("2+3="), "solution": "5", "completion": "6", "trainer_state": 1}], {}),
    ("mixed.jsonl", [{"prompt": "1+2=", "answer": "3", "level": 1}, {"question": "2+2=", "solution": "4"}], {}),
    ("sums.csv", TABLE, MAPPED), ("sums.tsv", TABLE, MAPPED), ("sums.jsonl", TABLE, MAPPED)])
def test_rows_are_those_that_the_lab_reads(name, rows, knobs):
    each = chat("grpo", file(name, rows), **knobs)
    lab = make_task(each.spec.task_row, each.spec.knobs, each.spec.data)
    found = names(each)["problems"](len(rows), seed=0)
    columns = columns_of(lab)
    assert columns or "prompt" in rows[0]
    assert {json.dumps(row, sort_keys=True) for row in found} == {json.dumps({
        **{name: row.columns.get(name) for name in columns},
        "prompt": [turn._asdict() for turn in row.turns] or row.prompt, "answer": row.answer}, sort_keys=True)
        for row in lab.rows}


@pytest.mark.parametrize("rows", [
    [{"prompt": "1+2=", "answer": "3", "solution": "so 3", "level": [1]}, {"question": "2+2=", "answer": 4}]])
def test_rows_of_a_plain_file_have_its_columns(rows):
    each = plan("grpo", "prompts", {"prompts": file("sums.jsonl", rows)}, knobs={"verifier": "exact"})
    lab = make_task(each.spec.task_row, each.spec.knobs, each.spec.data)
    assert not conversations.reads_layouts(each)
    assert sorted(names(each)["problems"](2), key=str) == sorted((
        {**{name: row.columns.get(name) for name in ("solution", "level", "question")}, "prompt": row.prompt,
         "answer": row.answer} for row in lab.rows), key=str)


def test_columns_named_as_the_sides_of_a_pair_stay_as_they_are():
    code = names(chat("grpo", file("rows.jsonl", [{"prompt": "a", "answer": "b", "chosen": "c", "rejected": None}])))
    [row] = code["conversational"](code["problems"](1))
    assert row == {"chosen": "c", "rejected": None, "prompt": turns("a"), "answer": "b"}


def test_a_plain_file_needs_no_layouts():
    assert "class Entry" not in task_code(plan("grpo", "prompts", {"prompts": file("sums.jsonl", [
        {"prompt": "1+2=", "answer": "3"}])}, knobs={"verifier": "exact"}))


@pytest.mark.parametrize("every", [True, False])
def test_sft_has_a_row_for_each_answer_where_a_tool_learns_one_of_each(every):
    each = chat("sft", file("talks.jsonl", [{"messages": talk} for talk in TALKS]))
    found = names(each, every_answer=every)["rows"]()
    assert sorted((row.answer, max(1, len(row.turns))) for row in found) == sorted(
        (turn["content"], place) for talk in TALKS for place, turn in enumerate(talk)
        if turn["role"] == "assistant" and (every or place == len(talk) - 1))


def test_the_system_prompt_stands_before_conversations_without_one():
    found = names(chat("grpo", file("asked.jsonl", ASKED), system_prompt="Be brief."))["conversational"](ASKED)
    assert [row["prompt"] for row in found] == [
        talk[:-1] if talk[0]["role"] == "system" else [{"role": "system", "content": "Be brief."}, *talk[:-1]]
        for talk in TALKS]
    assert [row["level"] for row in found] == [3] * len(TALKS)


def test_a_built_in_task_is_asked_as_a_users_turn():
    each = replace(plan("grpo", knobs={"letters": 2}), chat=True)
    code = names(each)
    [row] = code["conversational"](code["problems"](1))
    assert row["prompt"] == turns(row["prompt"][0]["content"]) and row["prompt"][0]["content"].endswith("=")


def test_whether_a_run_has_a_template_is_read_off_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "lab"))
    data = written(tmp_path / "talks.jsonl", [{"messages": TALKS[0]}])
    each = chat("sft", data, sft_target=1.0, sequences_per_step=1, eval_prompts=1)
    for template, expected in (("auto", True), ("off", False)):
        run_id = Store().create(replace(each.spec, model=str(chat_folder(tmp_path / "model")), steps=1, knobs={
            **each.spec.knobs, "template": template}, data=written(tmp_path / "talks.jsonl", [
                {"prompt": "a", "completion": "b"}])))
        assert drive(Store(), run_id) == "finished" and plan_of(Store(), run_id).chat is expected


# ---------------------------------------------------------------- each tool


@pytest.mark.parametrize("thinking", ["auto", "on", "off"])
def test_thinking_goes_to_the_template(thinking):
    given = {"enable_thinking": thinking == "on"}
    online = chat("grpo", file("asked.jsonl", ASKED), thinking=thinking)
    assert trl.settings(online).get("chat_template_kwargs") == (None if thinking == "auto" else given)
    sft = chat("sft", "asked.jsonl", thinking=thinking)
    code: dict = {}
    exec(trl.script(sft).split("def main()")[0], code)
    assert [row.get("chat_template_kwargs") for row in code["conversational"](ASKED[:1])] == [
        None if thinking == "auto" else given]


RUNS = [("grpo", "prompts", [{"messages": talk} for talk in TALKS]), ("rloo", "prompts", ASKED),
        ("sft", "prompts", [{"messages": talk} for talk in TALKS]), ("dpo", "preferences", PAIRS),
        ("kto", "preferences", SINGLES), ("reward_model", "preferences", PAIRS)]
SHORT = {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 4, "pairs_per_step": 4, "sequences_per_step": 4}


@pytest.mark.parametrize("algorithm, task, rows", RUNS, ids=[run[0] for run in RUNS])
def test_trl_trains_on_the_ids_of_the_lab(algorithm, task, rows, tmp_path, monkeypatch):
    each = switched(chat(algorithm, file("rows.jsonl", rows), task, system_prompt="Be brief."), **SHORT)
    folder = chat_folder(tmp_path / "model")
    found = trained(replace(each, spec=replace(each.spec, steps=2)), trl.script(each), folder, tmp_path, monkeypatch)
    losses = [row["loss"] for row in found.state.log_history if "loss" in row]
    assert len(losses) == 2 and all(abs(loss) < 1e4 for loss in losses)
    assert (tmp_path / "trained" / "chat_template.jinja").exists()
    rendering = Rendering.of(found.processing_class, Model(), each.spec.knobs)
    lab = make_task(each.spec.task_row, each.spec.knobs, each.spec.data)
    prompts = {tuple(ids) for ids in rendering.prompts(lab.rows)}
    taken = found.train_dataset
    if algorithm in ("grpo", "rloo"):
        asked = found.processing_class.apply_chat_template([*taken["prompt"]], add_generation_prompt=True)["input_ids"]
        assert {*map(tuple, asked)} == prompts and found.eos_token_ids == [4, 2]
    elif algorithm == "sft":
        firsts = {tuple(token for token, label in zip(row["input_ids"], row["labels"], strict=True) if label == -100)
                  for row in taken}
        assert prompts < firsts and len(firsts) == 7, "every answer of a conversation, with what comes before it"
    elif algorithm == "reward_model":
        wholes = {tuple(ids) for ids in (*taken["chosen_ids"], *taken["rejected_ids"])}
        assert wholes == {(*prompt, *answer) for row in lab.rows
                          for (prompt,), answers in [rendering.answers([row], [row.chosen, row.rejected], [True] * 2)]
                          for answer in answers}
    else:
        assert {*map(tuple, taken["prompt_ids"])} == prompts


def test_verl_gets_turns_columns_and_no_template_of_ours(tmp_path):
    import pandas

    each = chat("grpo", file("asked.jsonl", ASKED), system_prompt="Be brief.")
    assert "custom_chat_template" not in verl.script(each) and "TEMPLATE=" not in verl.script(each)
    run(verl.script(each))
    found = pandas.read_parquet("train.parquet").to_dict("records")
    assert {row["extra_info"]["level"] for row in found} == {3}
    assert {row["reward_model"]["ground_truth"] for row in found} <= {row["answer"] for row in ASKED}
    assert all(row["prompt"][0]["role"] == "system" for row in found)
    code = runpy.run_path("task.py")
    assert code["compute_score"]("task", "so 5", "5") == 1.0


def test_verl_learns_whole_conversations():
    import pandas

    run(verl.script(chat("sft", file("talks.jsonl", [{"messages": talk} for talk in TALKS]))))
    found = pandas.read_parquet("train.parquet")["messages"]
    assert {json.dumps([*row]) for row in found} == {json.dumps(talk) for talk in TALKS}


@pytest.mark.parametrize("algorithm, task, rows", [run for run in RUNS if run[0] not in ("kto", "rloo")],
                         ids=["grpo", "sft", "dpo", "reward_model"])
def test_openrlhf_gets_turns_and_the_switch_for_the_template(algorithm, task, rows):
    each = chat(algorithm, file("rows.jsonl", rows), task, system_prompt="Be brief.")
    assert openrlhf.settings(each)["--data.apply_chat_template"] is openrlhf.ON
    assert "eos_token" not in openrlhf.script(each), "the template writes the ends"
    run(openrlhf.script(each), str(chat_folder(Path("model"))))
    lines = [json.loads(line) for line in Path("train.jsonl").read_text().splitlines()]
    assert all(line["prompt"][0]["role"] == "system" and line["prompt"][-1]["role"] == "user" for line in lines)
    sides = {"grpo": (), "sft": ("answer",)}.get(algorithm, ("chosen", "rejected"))
    assert all(line[side][0]["role"] == "assistant" and len(line[side]) == 1 for line in lines for side in sides)
    assert algorithm != "grpo" or isinstance(lines[0]["answer"], str)


def run(script: str, *words: str) -> None:
    """What `python task.py` in a shell script does."""
    Path("task.py").write_text(script.split("<<'PYTHON'\n")[1].split("\nPYTHON\n")[0])
    given, sys.argv = sys.argv, ["task.py", *words]
    try:
        runpy.run_path("task.py", run_name="__main__")
    finally:
        sys.argv = given


def test_the_code_that_reads_files_has_all_that_it_names():
    each = chat("dpo", file("pairs.jsonl", PAIRS), "preferences")
    assert len(names(each)["pairs"](4)) == 4 and conversations.reads_layouts(each)
    with pytest.raises(SystemExit, match=r"Row 1 of pairs\.jsonl has no field 'rejected'"):
        file("pairs.jsonl", [{"prompt": "a", "chosen": "b"}])
        names(each)["pairs"](1)
