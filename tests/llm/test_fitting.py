"""Which rows of a file fit the model: what is refused, left out or cut, and that each row is named."""

import json
import random
from dataclasses import replace

import pytest

from labcore.errors import LabError
from labcore.llm.fitting import NO_SYSTEM_TURN, fitted, misfits
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.llm.rendering import Rendering
from labcore.runs.files import uploads
from labcore.tasks.task import Problem, Turn
from tests.llm.tokenizers import GEMMA, THINKING, Model, byte_level, sentencepiece
from tests.llm.tools import session
from tests.words import says

STRICT = ("{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
          "{{ raise_exception('roles must alternate') }}{% endif %}{{ '<s>' + m['content'] }}{% endfor %}")
TOKENIZERS = {"chatml": byte_level(), "BOS": byte_level(None, bos=True), "gemma": byte_level(GEMMA, bos=True),
              "thinking": byte_level(THINKING), "sentencepiece": sentencepiece(), "strict": byte_level(STRICT),
              "characters": character_tokenizer()}
WORDS = ["What", "is", "2", "🙂", "ü", "\n", "<|im_end|>", "and", "x" * 40, " "]


def rendering(name: str, **knobs) -> Rendering:
    return Rendering.of(TOKENIZERS[name], Model(), knobs)


def rows_by(seed: int, count: int = 60) -> list[Problem]:
    """Prompts and conversations of any roles and lengths."""
    chance, found = random.Random(seed), []
    for line in range(1, count + 1):
        turns = tuple(Turn(role, text(chance)) for role in chance.choices(("system", "user", "assistant"),
                                                                          k=chance.choice((0, 0, 2, 3))))
        found.append(Problem(turns[-1].content if turns else text(chance), "", line, turns))
    return found


def text(chance: random.Random) -> str:
    return "".join(chance.choices(WORDS, k=chance.choice((1, 2, 8, 30))))


@pytest.mark.parametrize("name", TOKENIZERS)
def test_no_row_that_does_not_fit_is_overlooked(name):
    """Few rows are rendered and fewer tokenised; the outcome is that of rendering and tokenising all of them."""
    found = rendering(name, begins_with="<think>", system_prompt="Be brief." if name == "chatml" else "")
    for seed, room in ((0, 40), (1, 90), (2, 400)):
        rows, expected = rows_by(seed), []
        for row in rows:
            try:
                length = len(found.whole_prompts([row])[0])
            except LabError as error:
                expected.append((row.line, 0, str(error)))
            else:
                expected += [(row.line, length, "")] if length > room else []
        assert [(each.row.line, each.tokens, each.fault) for each in misfits(found, rows, room)] == expected
        assert seed == 2 or expected


def test_a_large_file_of_short_prompts_is_hardly_rendered(monkeypatch):
    found, calls = rendering("chatml"), []
    monkeypatch.setattr(Rendering, "text", lambda self, row, real=Rendering.text: calls.append(row) or real(self, row))
    rows = [Problem("What is 2?", "", line) for line in range(1000)] + [Problem("x" * 500, "", 1000)]
    assert [each.row.line for each in misfits(found, rows, 400)] == [1000]
    assert len(calls) < 5


@pytest.mark.parametrize("knobs, words", [
    ({}, ["2 prompts (lines 3, 4)", "up to 9 tokens", "room for 5", "long_prompts"]),
    ({"unusable_rows": "skip"}, ["2 prompts (lines 3, 4)"])])
def test_prompts_that_are_too_long_are_counted_and_named(knobs, words):
    rows = [Problem("abc", "", 2), Problem("a" * 9, "", 3), Problem("a" * 6, "", 4)]
    with pytest.raises(LabError) as error:
        fitted(rendering("characters"), rows, 5, knobs)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize("how, left, said", [("skip", [2], "were left out: lines 3, 4."),
                                             ("cut", [2, 3, 4], "were cut at the beginning: lines 3, 4.")])
def test_prompts_that_are_too_long_are_left_out_or_cut(how, left, said):
    rows = [Problem("abc", "", 2), Problem("a" * 9, "", 3), Problem("a" * 6, "", 4)]
    found = fitted(rendering("characters"), rows, 5, {"long_prompts": how})
    assert [row.line for row in found.usable(rows)] == left
    assert found.notes({}) == [f"2 prompts of more than 5 tokens {said}"]


def test_rows_that_the_template_refuses_are_named_or_left_out():
    odd = (Turn("assistant", "5"), Turn("user", "x"))
    rows = [Problem("a", "", 2), Problem("x", "", 3, odd), Problem("x", "", 7, odd)]
    with pytest.raises(LabError, match=r"\(line 3\).*roles must alternate.*applies to line 7.*`unusable_rows=skip`"):
        fitted(rendering("strict"), rows, 50, {})
    found = fitted(rendering("strict"), rows, 50, {"unusable_rows": "skip"})
    assert found.usable(rows) == rows[:1]
    assert found.notes({"": [(5, "Line 5 is not JSON.")]}) == ["Left out: lines 3, 5, 7. " + found.left_out[0].fault]
    with pytest.raises(LabError, match=r"No row of the file can be used\. .*roles must alternate"):
        fitted(rendering("strict"), rows[1:], 50, {"unusable_rows": "skip"})


def test_a_system_text_that_is_folded_is_said():
    told = Problem("a", "", 1, (Turn("system", "Be brief."), Turn("user", "a")))
    assert fitted(rendering("gemma"), [told], 200, {}).notes({}) == [NO_SYSTEM_TURN]
    brief = rendering("gemma", system_prompt="Be brief.")
    assert fitted(brief, [Problem("a", "")], 200, {}).notes({}) == [NO_SYSTEM_TURN]
    for name, row in (("gemma", Problem("a", "")), ("chatml", told)):
        assert fitted(rendering(name), [row], 200, {}).notes({}) == []


# ---------------------------------------------------------------------------- in a run, with a context of 64 tokens

SHORT = [{"prompt": f"{number}+1=", "answer": str(number + 1)} for number in range(6)]
LONG = {"prompt": "7" + "9" * 58, "answer": "1"}


@pytest.fixture
def started(tmp_path):
    def start(rows, algorithm="grpo", **knobs):
        path = tmp_path / "x.jsonl"
        path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
        task = "preferences" if "chosen" in rows[0] else "prompts"
        given = {"max_new_tokens": 8, "held_out": 0, **knobs}
        return session(algorithm, letters=False, task=task, data=str(path), **given)
    return start


def first(run):
    return next(record for record in run.run() if record)


def test_a_run_refuses_a_long_prompt_or_does_without_it(started):
    rows = [*SHORT[:2], LONG, *SHORT[2:]]
    with pytest.raises(LabError, match=r"1 prompt \(line 3\) has 59 tokens"):
        started(rows)
    skipping = started(rows, long_prompts="skip")
    assert [row.line for row in skipping.task.rows] == [1, 2, 4, 5, 6, 7] and skipping.task.size == 6
    assert says(first(skipping).notes[0], "1 prompt", "56 tokens", "left out", "line 3")


@pytest.mark.parametrize("algorithm", ["grpo", "sft"])
def test_a_run_cuts_a_long_prompt_on_the_left(started, algorithm):
    cutting = started([LONG], algorithm, long_prompts="cut")
    (ids,) = cutting.rendering.prompts(cutting.task.rows)
    assert cutting.tokenizer.decode(ids) == "9" * 56
    record = first(cutting)
    assert says(record.notes[0], "1 prompt", "56 tokens", "cut at the beginning", "line 1")
    assert record.metrics["num_tokens"] > 0


def test_held_out_rows_are_judged_as_the_others_are(started):
    rows = [*SHORT, *({"prompt": f"{number}+2=", "answer": "1"} for number in range(20)),
            *({"prompt": f"{number}" + "9" * 58, "answer": "1"} for number in range(10, 30))]
    run = started(rows, long_prompts="skip", held_out=0.5)
    assert run.task.held and all(row.line <= 26 for row in (*run.task.rows, *run.task.held))
    assert len(run.task.rows) + len(run.task.held) == 26
    with pytest.raises(LabError, match="20 prompts"):
        started(rows, held_out=0.5)


def test_each_sentence_names_the_file_that_its_rows_stand_in(started):
    """Both files have the same name, as uploads of two folders may."""
    def second(*rows):
        text = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
        return {"held_out_file": uploads.keep("x.jsonl", text.encode()).parent.name}
    longer = {"prompt": "8" * 59, "answer": "1"}
    with pytest.raises(LabError, match=r"^In the held-out file x\.jsonl: Line 2 of x\.jsonl is not JSON"):
        started(SHORT, **second({"prompt": "a", "answer": "b"}, "{"))
    with pytest.raises(LabError, match=r"2 prompts \(line 7, and line 2 of the held-out file x\.jsonl\) have"):
        started([*SHORT, LONG], **second({"prompt": "a", "answer": "b"}, longer))
    run = started([*SHORT, "{", LONG], unusable_rows="skip", long_prompts="skip",
                  **second({"prompt": "a", "answer": "b"}, longer, "{", "["))
    one, two, three, *_ = first(run).notes
    assert one.startswith("Left out: line 7. Line 7 of x.jsonl is not JSON")
    assert says(two, "Left out", "held-out file x.jsonl", "lines 3, 4", "Line 3 of x.jsonl is not JSON")
    assert says(three, "left out", "line 8", "line 2 of the held-out file x.jsonl")


def test_a_fork_judges_all_rows_of_the_file_again(started):
    run = started([*SHORT, LONG], long_prompts="skip")
    assert run.task.size == 6
    assert run.fork(replace(run.spec, knobs={**run.spec.knobs, "max_new_tokens": 5})).task.size == 7


def test_rows_that_cannot_be_read_are_left_out_and_an_event_names_them(started):
    rows = [*SHORT[:2], "{", {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " "}]},
            *SHORT[2:]]
    with pytest.raises(LabError, match=r"2 of 8 lines of x\.jsonl cannot be used.*`unusable_rows=skip`"):
        started(rows)
    run = started(rows, unusable_rows="skip")
    assert first(run).notes[0].startswith("Left out: lines 3, 4. Line 3 of x.jsonl is not JSON") and run.task.size == 6


def test_pairs_are_left_out_too(started):
    rows = [{"prompt": f"{n}?", "chosen": "yes", "rejected": "no"} for n in range(4)]
    run = started([*rows, {**rows[0], "prompt": "9" * 60}, {**rows[0], "rejected": "yes"}], "dpo",
                  long_prompts="skip", unusable_rows="skip")
    assert [pair.line for pair in run.task.rows] == [1, 2, 3, 4]
    assert {pair.line for pair in run.task.pairs(4, run.rng)} == {1, 2, 3, 4}
    assert [note.partition(":")[2][:8] for note in first(run).notes[:2]] == [" line 6.", " line 5."]
