"""Lessons on the command line: the list, one run to its verdict, and a broken file in one sentence."""

import json

from labcore.analysis.lessons.folders import VARIABLE
from labcore.cli.main import main
from labcore.runs.store.store import Store
from tests.analysis.lessons.lesson_text import TEXT
from tests.words import says


def test_a_lesson_is_listed_and_run_to_its_verdict(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "both.md").write_text(TEXT, "utf-8")
    (tmp_path / "bad.md").write_text("nothing", "utf-8")
    assert main(["lessons"]) == 0
    said = capsys.readouterr()
    assert "both                 not done" in said.out and "bad.md is left out" in said.err
    assert main(["lesson", "both", "--short", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["seeds"], len(Store().runs("finished"))) == ("holds", 3, 6)
    assert {run.spec.steps for run in Store().runs()} == {2}
    made = (tmp_path / "both.md").read_text("utf-8").replace(
        'last(q, "start_value/best") == last(sarsa, "start_value/best")',
        'log(last(q, "start_value/best")) > log(0.5 * last(sarsa, "start_value/best"))')
    (tmp_path / "both.md").write_text(made, "utf-8")
    assert main(["lesson", "both", "--short"]) == 0
    assert "\n    margin, 95 % interval: × 2 (all seeds agree)\n" in capsys.readouterr().out
    assert main(["lesson", "bath"]) == 1
    assert "did you mean 'both'" in capsys.readouterr().err


def test_a_teachers_file_says_nothing_to_the_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "escape.md").write_text(TEXT.replace("Both learn", r"Both\u001b[2J learn"), "utf-8")
    (tmp_path / "choice.md").write_text(TEXT.replace('"None of them"', r'"None\u009b of them"'), "utf-8")
    (tmp_path / "two\nlines.md").write_text("nothing", "utf-8")
    (tmp_path / "wide.md").write_text(TEXT.replace('"Both learn"', '"""Both\nlearn"""'), "utf-8")
    assert main(["lessons"]) == 0
    said = capsys.readouterr()
    assert says(said.err, "escape.md is left out", "line 2", "title", r"'\x1b'", "remove it")
    assert says(said.err, "choice.md is left out", "line 11", "question.choices", r"'\x9b'")
    assert r"two\nlines.md is left out" in said.err and said.err.count("\n") == 3
    assert said.out.endswith("Both learn\n")
