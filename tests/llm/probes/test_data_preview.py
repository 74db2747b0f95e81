"""Data as a model reads it: every layout and tokenizer, with nothing of a row lost on the way."""

import json
import random

import pytest
from transformers import LlamaConfig

from labcore.errors import LabError
from labcore.llm.nets.model import load
from labcore.llm.probes.data_preview import out_of_order, pieces, reader_of
from labcore.llm.rendering import Rendering, ends_of
from labcore.llm.session import LlmSession
from labcore.runs import jobs
from labcore.runs.spec import cautions
from labcore.runs.spec.run_spec import make
from labcore.tasks import preview
from labcore.tasks.file_kinds import kinds_of
from labcore.tasks.layout_names import OTHER, described
from labcore.tasks.task import Problem, Turn
from tests.llm.chat_model import chat_folder
from tests.llm.tokenizers import CHATML, GEMMA, THINKING, Model, byte_level, sentencepiece
from tests.tasks.test_layouts import ROWS, turn
from tests.words import says

TOKENIZERS = {"chatml": byte_level(), "BOS": byte_level(None, bos=True), "gemma": byte_level(GEMMA, bos=True),
              "thinking": byte_level(THINKING), "sentencepiece": sentencepiece(CHATML)}
TALK = [turn("system", "Be brief."), turn("user", "What is 2 🙂 ü?"), turn("assistant", "5"), turn("user", "and 6?")]
# Of each layout a file, and what its preview calls it.
FILES = {
    **{name: ([row], task) for name, (row, made) in ROWS.items()
       for task in [["prompts", "preferences"][made.chosen is not None]]},
    "KTO": ([{"prompt": "a", "completion": "b", "label": 1}, {"prompt": "a", "completion": "c", "label": "false"}],
            "preferences"),
    "PRM": ([{"prompt": "Which?", "completions": ["step 1", "step 2"], "labels": [True, False]}], "prompts"),
}


def written(tmp_path, rows) -> str:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), "utf-8")
    return str(path)


@pytest.fixture
def folder(tmp_path):
    """A model's folder without weights: all that a preview needs."""
    def with_tokenizer(tokenizer, context=200):
        made = tmp_path / "model"
        tokenizer.save_pretrained(made)
        LlamaConfig(vocab_size=300, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, eos_token_id=4,
                    max_position_embeddings=context).save_pretrained(made)
        return str(made)
    return with_tokenizer


@pytest.fixture
def previewed(tmp_path):
    def of(rows, model="tiny", task="", **knobs):
        path = tmp_path / "x.jsonl"
        data = written(tmp_path, rows)
        spec = make(algorithm_key="sft", task_key=task or next(iter(kinds_of(path)), "prompts"), model=model, data=data,
                    knobs={"max_new_tokens": 8, **knobs})
        return jobs.do(preview.asked(spec))
    return of


def text_of(found) -> str:
    return "".join(text for text, _, _ in found)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_pieces_are_the_text_and_the_ids_are_the_models(name):
    rendering = Rendering.of(TOKENIZERS[name], Model(), {"template": "auto"})
    rows = [Problem("What is 2 🙂 ü?", "")]
    if rendering.template:
        talk = TALK[not rendering.takes_system:]
        rows.append(Problem("and 6?", "", 2, tuple(Turn(each["role"], each["content"]) for each in talk)))
    for row in rows:
        found = pieces(rendering, rendering.text(row), rendering.contents(row))
        assert [token for _, ids, _ in found for token in ids] == rendering.prompts([row])[0]
        said = text_of([each for each in found if each[2] == "text"])
        assert said.replace(" ", "") == "".join(rendering.contents(row)).replace(" ", "")
        special = {text for text, _, kind in found if kind == "special"}
        assert special <= {*rendering.tokenizer.all_special_tokens, *rendering.tokenizer.get_added_vocab()}
        assert bool(special) == bool(rendering.template or name == "BOS")


@pytest.mark.parametrize("name", FILES)
def test_every_layout_is_understood_and_named(previewed, name):
    rows, task = FILES[name]
    result = previewed(rows, verifier="length") if task == "prompts" else previewed(rows)
    assert result["rows"] == len(rows) and not result["left_out"]["count"]
    ((layout, count, line),) = result["layouts"]
    assert layout != OTHER and (count, line) == (len(rows), 1)
    shown = result["shown"][0]
    fields = {key.partition(".")[0] for key in shown["fields"]}
    assert fields | {*result["columns"]} == {*rows[0]} - {key for key, value in rows[0].items() if value is None}
    if not shown.get("fault"):
        assert shown["prompt"] and shown["tokens"] == sum(len(ids) for _, ids, _ in shown["prompt"])
    else:
        assert "no chat template" in shown["fault"]


@pytest.mark.parametrize("model", ["tiny", "chatml", "gemma"])
def test_any_file_of_those_rows_is_previewed_or_refused_in_words(previewed, folder, model):
    """Rows of every layout, broken ones and mixed ones, in any order: each row is shown, measured or named."""
    every = [row for row, made in ROWS.values() if made.chosen is None]
    broken = ["{", '{"answer": NaN}', "5", {"x": 1}, {"prompt": ""}, {"messages": [turn("assistant", "a")]},
              {"messages": [turn("user", "a"), turn("assistant", " ")]},
              {"prompt": [turn("user", "a"), turn("user", "b")]},
              {"prompt": [turn("assistant", "a")], "answer": "b"}, {"prompt": "9" * 400, "answer": "5"}]
    name = model if model == "tiny" else folder(TOKENIZERS[model])
    for seed in range(4):
        chance = random.Random(seed)
        rows = [*chance.choices([*every, *broken], k=12), {"prompt": "a", "answer": "b"}]
        result = previewed(rows, name, "prompts")
        assert result["rows"] + result["left_out"]["count"] == len(rows)
        long = sum(isinstance(row, dict) and row.get("prompt") == "9" * 400 for row in rows)
        assert result["long"]["count"] == (0 if model == "tiny" else long)
        assert sum(count for _, count, _ in result["layouts"]) == result["rows"]
        assert result["measured"] == result["rows"] - result["refused"]["count"]
        assert json.loads(json.dumps(result, allow_nan=False)) is not None


def test_the_lengths_are_those_of_the_run(previewed, folder):
    model = folder(TOKENIZERS["chatml"])
    rows = [{"question": f"What is {number} and 3?", "answer": "5" * number} for number in range(1, 8)]
    result = previewed(rows, model)
    tokenizer = TOKENIZERS["chatml"]
    lengths = [len(tokenizer.apply_chat_template([turn("user", row["question"])], add_generation_prompt=True,
                                                 tokenize=True, return_dict=True)["input_ids"]) for row in rows]
    wholes = [len(tokenizer.apply_chat_template([turn("user", row["question"]), turn("assistant", row["answer"])],
                                                tokenize=True, return_dict=True)["input_ids"]) for row in rows]
    for found, expected in (("prompt", lengths), ("whole", wholes)):
        summary = result["lengths"][found]
        assert (summary["quantiles"][0], summary["quantiles"][-1]) == (min(expected), max(expected))
        assert sum(summary["counts"]) == len(rows)
    assert [each["tokens"] for each in result["shown"]] == lengths[:5]


def test_the_reader_writes_as_the_session_does(tmp_path):
    data = written(tmp_path, [{"prompt": "2+3=", "answer": "5"}])
    spec = make(algorithm_key="sft", task_key="prompts", model="tiny", data=data,
                knobs={"template": "chatml", "begins_with": "So "})
    session = LlmSession.start(spec)
    reader = reader_of("tiny", session.task, spec.knobs)
    assert reader.context == session.context
    assert reader.rendering.prompts(session.task.rows) == session.rendering.prompts(session.task.rows)


def test_a_damaged_generation_config_is_none_for_the_reader_as_for_the_session(tmp_path):
    folder = chat_folder(tmp_path / "chat")
    (folder / "generation_config.json").write_text("{")
    model, tokenizer = load(folder)
    assert reader_of(str(folder), None, {}).rendering.ends == ends_of(tokenizer, model)


def test_what_a_file_holds_is_counted(previewed, folder):
    rows = [{"prompt": "a", "answer": "5"}, {"prompt": "a", "answer": "6"}, {"question": "b", "answer": "3/4"},
            {"prompt": [turn("user", "c"), turn("user", "d")], "answer": "7"}, "{",
            {"prompt": "9" * 300, "answer": "1"}]
    result = previewed(rows, folder(TOKENIZERS["chatml"]), verifier="numeric")
    assert (result["repeated"], result["disagreeing"], result["fits"]) == (1, 1, "math")
    assert (result["out_of_order"]["count"], result["out_of_order"]["lines"]) == (1, [4])
    assert says(result["out_of_order"]["why"], "turn 2", "user", "after the user")
    assert result["left_out"]["lines"] == [5] and result["long"]["lines"] == [6] and result["long"]["longest"] > 300
    assert result["unjudged"]["lines"] == [3] and "whole plain number" in result["unjudged"]["why"]
    assert [name for name, _, _ in result["layouts"]] == ["prompt and answer", "GSM8K: question and answer",
                                                          "TRL, conversational prompt"]


def test_a_file_without_a_usable_row_is_refused(previewed):
    with pytest.raises(LabError, match="no field 'prompt'"):
        previewed([{"x": 1}], task="prompts")


def test_tasks_of_the_lab_show_prompts_of_their_own(folder):
    spec = make(algorithm_key="grpo", task_key="add", model=folder(TOKENIZERS["gemma"]),
                knobs={"system_prompt": "Add the numbers."})
    result = jobs.do(preview.asked(spec))
    assert len(result["shown"]) == 5 and "rows" not in result
    assert "Add the numbers.\n\n" in text_of(result["shown"][0]["prompt"])


def test_an_answer_is_shown_with_its_end(previewed, folder):
    (answer,) = previewed([{"prompt": "a", "answer": "5"}], folder(TOKENIZERS["chatml"]))["shown"][0]["answers"]
    assert [(text, kind) for text, _, kind in answer["pieces"]] == [("5", "text"), ("<|im_end|>", "special"),
                                                                    ("\n", "template")]
    (plain,) = previewed([{"prompt": "a", "answer": "5"}])["shown"][0]["answers"]
    assert [text for text, _, _ in plain["pieces"]] == ["5", "<eos>"]


def test_a_model_without_an_end_token_is_refused(previewed, folder):
    tokenizer = byte_level()
    tokenizer.eos_token = None
    with pytest.raises(LabError, match=r"has no end-of-text token.*set eos_token"):
        previewed([{"prompt": "a", "answer": "5"}], folder(tokenizer))


@pytest.mark.parametrize("roles, said", [
    ("", ""), ("su", ""), ("uau", ""), ("uatau", ""), ("uatt", ""), ("suau", ""),
    ("uu", "turn 2 is by the user, after the user"), ("suu", "turn 3 is by the user, after the user"),
    ("au", "turn 1 is by the assistant, and the user begins a conversation"),
    ("usu", "turn 2 is by the system, after the user"), ("uaau", "turn 3 is by the assistant, after the assistant")])
def test_turns_out_of_order(roles, said):
    names = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}
    assert out_of_order(Problem("x", "", 1, tuple(Turn(names[role], "x") for role in roles))) == said


def test_fields_that_the_user_named():
    found = described({"q": "a", "level": 1}, "line 1", {"prompt": "q"}, False)
    assert (found.layout, found.fields, found.columns) == (OTHER, {"q": "prompt"}, ("level",))


# ---------------------------------------------------------------------------- a template that is off


@pytest.mark.parametrize("template, has", [(CHATML, True), (None, False)])
def test_a_model_with_a_template_and_template_off_is_a_warning(folder, tmp_path, template, has):
    model, data = folder(byte_level(template)), written(tmp_path, [{"prompt": "a", "answer": "5"}])
    assert cautions.has_template(model) is has
    for how in ("auto", "chatml", "off"):
        spec = make(algorithm_key="grpo", task_key="prompts", model=model, data=data, knobs={"template": how})
        assert ("has a chat template, but template is off" in spec.caution()) == (has and how == "off")


def test_where_a_template_may_lie(tmp_path):
    config = '{"chat_template": "{{ 1 }}"}'
    for name, content in (("chat_template.jinja", "{{ 1 }}"), ("tokenizer_config.json", config)):
        (tmp_path / name).write_text(content)
        assert cautions.has_template(str(tmp_path)) is True
        (tmp_path / name).unlink()
    assert cautions.has_template(str(tmp_path)) is False and cautions.has_template("tiny") is False
    (tmp_path / "tokenizer_config.json").write_text("{")
    assert cautions.has_template(str(tmp_path)) is False
    assert cautions.has_template("no-org/not-in-the-cache") is None
