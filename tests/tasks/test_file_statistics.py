"""What the user's file holds, counted by hand."""

import json
import random

import pytest

from labcore.catalog.kinds import task
from labcore.runs.spec.run_spec import make
from labcore.tasks.file_statistics import statistics_of
from labcore.tasks.task import make_task


def looked(tmp_path, rows, task_key="prompts", **knobs):
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    spec = make(algorithm_key="sft", task_key=task_key, data=str(path), knobs=knobs)
    return statistics_of(make_task(task(task_key), spec.knobs, path))


def asked(*pairs):
    return [{"prompt": prompt, "answer": answer} for prompt, answer in pairs]


def test_lengths_repeats_and_where_the_longest_prompt_stands(tmp_path):
    found = looked(tmp_path, asked(("2+3=", "5"), ("12+30=", "42"), ("2+3=", "6"), ("2+3=", "5")))
    assert (found.lines, found.longest) == (4, 6)
    assert found.answers == (1, 1, 2) and found.lengths == (1, 2, 1, 1)
    assert (found.repeated, found.disagreeing, found.empty) == (2, 1, 0)
    assert (found.fits, found.marked) == ("numeric", 0)


@pytest.mark.parametrize("answer, marked, fits", [
    ("9 * 2 = 18\n#### 18", 1, "numeric"), ("#### $1,000", 1, "numeric"), ("####", 0, "exact"),
    ("#### none", 0, "exact"),
    ("18", 0, "numeric"), ("-1,234.5", 0, "numeric"), ("$18", 0, "numeric"), ("50%", 0, "numeric"),
    ("1 000", 0, "numeric"), ("18 eggs", 0, "exact"), ("1 2", 0, "exact"), ("a", 0, "exact"), ("A", 0, "choice"),
    ("(J)", 0, "choice"), ("K", 0, "exact"), ("3/4", 0, "math"), ("#### 3/4", 1, "math"), ("\\frac{3}{4}", 0, "math"),
    ("so \\boxed{x}", 0, "math"), ("so \\boxed{42}", 0, "numeric"), ("1,5", 0, "exact"), ("2:45", 0, "exact")])
def test_which_verifier_reads_an_answer(tmp_path, answer, marked, fits):
    found = looked(tmp_path, asked(("p", answer)))
    assert (found.marked, found.fits) == (marked, fits)


SORTS = (("18", "-3", "1,000", "$2.50", "7%", "2\n#### 9", "1 000"),
         ("3/4", "\\frac34", "\\boxed{x+1}", "2\\pi", "#### 1/2"),
         ("A", "(B)", "J"), ("2:45", "1,5", "eggs", "18 eggs", "20-5", "1/2/2024", "\\other"))


def test_what_is_proposed_reads_every_answer_of_the_file(tmp_path):
    draw, seen = random.Random(0), set()
    for _ in range(60):
        sorts = draw.sample(SORTS, draw.choice((1, 1, 1, 2)))
        rows = [answer for sort in sorts for answer in draw.choices(sort, k=3)]
        fits = looked(tmp_path, asked(*((f"p{place}", answer) for place, answer in enumerate(rows)))).fits
        path = tmp_path / "data.jsonl"
        spec = make(algorithm_key="sft", task_key="prompts", data=str(path), knobs={"verifier": fits})
        made = make_task(task("prompts"), spec.knobs, path)  # refuses an answer that it cannot read
        assert all(made.score(row, row.answer).exact for row in made.rows), (fits, rows)
        seen.add(fits)
        others = [row for row in made.rows if row.answer not in ("\\frac34", "3/4")]
        assert fits == "exact" or not any(made.score(row, "so it is 1/4").exact for row in others), (fits, rows)
    assert seen == {"numeric", "math", "choice", "exact"}


def test_lines_without_an_answer_are_counted_where_the_verifier_can_do_without(tmp_path):
    assert looked(tmp_path, asked(("a", ""), ("b", "  "), ("c", "x")), verifier="length").empty == 2


def test_of_pairs_the_chosen_side_is_the_answer_and_a_text_has_no_lines(tmp_path):
    rows = [{"prompt": "p", "chosen": "yes", "rejected": "no, never"}]
    assert looked(tmp_path, rows, "preferences").answers == (3, 3, 3)
    (tmp_path / "t.txt").write_text("x" * 500)
    spec = make(algorithm_key="sft", task_key="text", data=str(tmp_path / "t.txt"))
    assert statistics_of(make_task(task("text"), spec.knobs, spec.data)) is None
