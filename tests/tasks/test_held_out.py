"""What is held out of a user's file: by the prompts alone, never on both sides, and said where there is none."""

import json
import random

import pytest

from labcore.catalog.kinds import task
from labcore.errors import LabError
from labcore.runs.files import uploads
from labcore.runs.spec.run_spec import RunSpec, base_spec, make
from labcore.tasks.task import Epochs, make_task
from tests.words import says

SUMS = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(10) for b in range(10)]
PAIRS = [{"prompt": row["prompt"], "chosen": row["answer"], "rejected": "99"} for row in SUMS]


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def prompts(rows):
    return [row.prompt for row in rows]


def made(path, key="prompts", **knobs):
    defaults = {knob.key: knob.default for knob in task(key).knobs}
    return make_task(task(key), defaults | knobs, path)


@pytest.mark.parametrize(("key", "rows"), [("prompts", SUMS), ("preferences", PAIRS)])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
def test_a_share_is_held_out_and_never_drawn(tmp_path, key, rows, share):
    found = made(write(tmp_path / "rows.jsonl", rows), key, held_out=share)
    assert len(found.held) == share * len(rows) and found.size == len(found.rows) == len(rows) - len(found.held)
    assert sorted(prompts(found.rows) + prompts(found.held)) == sorted(row["prompt"] for row in rows)
    drawn = prompts(found.problems(3 * len(rows), Epochs((0,))))
    assert set(drawn) == set(prompts(found.rows)) and not found.said


def test_the_same_rows_are_held_out_whatever_their_order_and_what_is_beside_them(tmp_path):
    first = made(write(tmp_path / "a.jsonl", SUMS)).held
    turned = random.Random(1).sample(SUMS, len(SUMS))
    assert prompts(made(write(tmp_path / "b.jsonl", turned)).held) == prompts(first)
    more = [*SUMS, *({"prompt": f"{a}*{a}=", "answer": str(a * a)} for a in range(200))]
    grown = set(prompts(made(write(tmp_path / "c.jsonl", more)).held))
    assert len(grown) == 30 and prompts(first) != sorted(prompts(first))  # no block of the file


def test_a_repeated_prompt_is_on_one_side_whatever_its_spaces(tmp_path):
    rows = [{**row, "prompt": row["prompt"].replace("+", plus)} for row in SUMS for plus in (" + ", "  + ", " +\n")]
    found = made(write(tmp_path / "rows.jsonl", [{**row, "prompt": f"What is {row['prompt']}"} for row in rows]))
    train, held = ({"".join(each.split()) for each in prompts(side)} for side in (found.rows, found.held))
    assert not train & held and len(found.held) == 30


@pytest.mark.parametrize(("rows", "said"), [
    (SUMS[:19], "rows.jsonl has 19 rows, fewer than 20, so none is held out"),
    ([{"prompt": "a=", "answer": str(n % 2)} for n in range(30)], "Every prompt of rows.jsonl is repeated so often")])
def test_where_none_can_be_held_out_it_is_said(tmp_path, rows, said):
    found = made(write(tmp_path / "rows.jsonl", rows))
    assert not found.held and len(found.rows) == len(rows) and said in found.said
    assert not made(tmp_path / "rows.jsonl", held_out=0).said


def test_a_second_file_is_held_out_and_its_prompts_are_not_trained_on(tmp_path):
    second = uploads.keep("test.jsonl", "\n".join(map(json.dumps, SUMS[90:])).encode())
    first = write(tmp_path / "rows.jsonl", SUMS[:95])
    found = made(first, held_out_file=second.parent.name)
    assert sorted(prompts(found.held)) == sorted(row["prompt"] for row in SUMS[90:])
    assert prompts(found.rows) == [row["prompt"] for row in SUMS[:90]]
    assert says(found.said, "5 rows of rows.jsonl", "not trained on", "test.jsonl")
    with pytest.raises(LabError, match=r"Every prompt of rows.jsonl is in test.jsonl too"):
        made(write(first, SUMS[90:]), held_out_file=second.parent.name)
    with pytest.raises(LabError, match="There is no held-out file"):
        made(first, held_out_file="0" * 16)


def test_a_line_of_the_second_file_is_named(tmp_path):
    second = uploads.keep("test.jsonl", b'{"prompt": "1+1="}\n')
    with pytest.raises(LabError, match=r"Line 1 of test.jsonl has no field 'answer'"):
        made(write(tmp_path / "rows.jsonl", SUMS), held_out_file=second.parent.name)


def test_the_end_of_a_text_is_held_out_and_an_epoch_covers_the_rest_once(tmp_path):
    path = tmp_path / "text.txt"
    text = "".join(chr(0x4E00 + place) for place in range(1000))  # each character once, so places can be read off
    path.write_text(text, encoding="utf-8")
    found = made(path, "text", piece_length=40, prompt_length=10)
    held = "".join(sorted(each.prompt + each.answer for each in found.held))
    assert held == text[900:980] and found.size == 900 - 40 + 1
    epochs = Epochs((0,))
    for _ in range(3):
        cells = sorted(each.prompt + each.answer for each in found.problems(900 // 40, epochs))
        assert "".join(cells) in text[:900] and len("".join(cells)) == 880
    assert epochs.epoch == 2
    starts = {made(path, "text", piece_length=40, prompt_length=10).problems(1, Epochs((0,), epoch))[0].prompt[0]
              for epoch in range(40)}
    assert len({text.index(start) % 40 for start in starts}) > 5  # not always cut at the same places
    short = made(path, "text", piece_length=400, prompt_length=10)
    assert not short.held and "too few to hold out 0.1 of them" in short.said


def test_labels_that_are_all_held_out_are_named(tmp_path):
    rows = [{"prompt": row["prompt"], "completion": row["answer"], "label": True} for row in SUMS]
    one = made(write(tmp_path / "rows.jsonl", [*rows[:-1], {**rows[-1], "label": False}]), "preferences", held_out=0,
               preference_loss="kto", second_loss="none")
    place = next(at for at, row in enumerate(SUMS) if row["prompt"] == made(
        write(tmp_path / "pairs.jsonl", PAIRS), "preferences").held[0].prompt)
    rows[place] |= {"label": False}
    with pytest.raises(LabError, match=r"Every label in rows.jsonl that is not held out is true"):
        made(write(tmp_path / "rows.jsonl", rows), "preferences", preference_loss="kto", second_loss="none")
    assert len(one.rows) == 100


def test_runs_of_before_keep_all_rows_in_their_order_and_their_base(tmp_path):
    data = str(write(tmp_path / "rows.jsonl", SUMS))
    spec = make(algorithm_key="grpo", task_key="prompts", data=data)
    fields = json.loads(spec.to_json())
    new = {"held_out", "held_out_file", "held_out_every", "held_out_prompts", "held_out_samples", "order"}
    fields["knobs"] = {key: value for key, value in fields["knobs"].items() if key not in new}
    old = RunSpec.from_json(json.dumps(fields))
    assert (old.knobs["held_out"], old.knobs["order"]) == (0, "random")
    assert (spec.knobs["held_out"], spec.knobs["order"]) == (0.1, "shuffled")
    assert base_spec(old).hash() != base_spec(spec).hash()  # which is not taught the held-out rows
    named = base_spec(old)
    assert named.hash() == RunSpec.from_json(json.dumps(json.loads(named.to_json()) | {"knobs": {
        key: value for key, value in named.knobs.items() if key not in new}})).hash()
    measured = make(algorithm_key="grpo", task_key="prompts", data=data, knobs={"held_out_samples": 9})
    assert base_spec(measured).hash() == base_spec(spec).hash()


def test_generated_tasks_have_no_such_knobs():
    assert not {"held_out", "order"} & make(algorithm_key="grpo", task_key="sort").knobs.keys()
