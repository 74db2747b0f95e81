"""The table of behaviour: it repeats itself, and two tables are told apart by their lines."""

from __future__ import annotations

import json

from benchmarks import behaviour
from benchmarks.behaviour import CASES


def test_a_case_gives_the_same_line_again(tmp_path):
    tables = [tmp_path / name for name in ("before.txt", "after.txt")]
    for path in tables:
        assert behaviour.main(["--only", "maze/q_learning/own$", "--out", str(path), "--keep", str(tmp_path)]) == 0
    assert len(tables[0].read_text().splitlines()) == 1
    assert behaviour.main(["--compare", *map(str, tables)]) == 0
    told = json.loads((tmp_path / "maze-q_learning-own.json").read_text())
    assert len(told["steps"]) == 20 and {"td_error", "env_steps"} <= set(told["steps"][0])
    assert not {"seconds", "memory", "env_steps_per_second"} & set(told["steps"][-1])
    assert "samples/step-000020.json" in told["seen"]


def test_lines_that_differ_are_named(tmp_path, capsys):
    for name, text in (("before.txt", "a  1\nb  2\nc  3\n"), ("after.txt", "a  1\nb  4\n")):
        (tmp_path / name).write_text(text)
    assert behaviour.main(["--compare", str(tmp_path / "before.txt"), str(tmp_path / "after.txt")]) == 1
    assert capsys.readouterr().out.splitlines() == ["- b  2", "- c  3", "+ b  4"]


def test_what_a_case_starts_from_is_run_first():
    names = [case["name"] for case in behaviour.chosen("^replay/llm/fork/grpo-to-ppo$|^llm/sft/gpt2$")]
    assert names == ["llm/sft/sort", "llm/grpo/sort", "llm/sft/gpt2", "llm/fork/grpo-to-ppo",
                     "replay/llm/fork/grpo-to-ppo"]


def test_every_algorithm_is_run_with_every_knob_given():
    runs = [case for case in CASES["cases"] if case["do"] == "run"]
    for kind, rows in CASES["defaults"].items():
        assert {case["algorithm"] for case in runs if case["kind"] == kind} == set(rows)
    for case in runs:
        assert set(CASES["defaults"][case["kind"]][case["algorithm"]]) <= set(behaviour._knobs(case))
