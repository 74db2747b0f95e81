"""A lesson's file: what it becomes, and one sentence with its line for each way to get it wrong."""

import os
import tracemalloc

import pytest

from labcore.analysis.lessons import folders
from labcore.analysis.lessons.lesson import OWN_TOPIC, parse
from labcore.catalog.presets import preset
from labcore.errors import LabError
from tests.analysis.lessons.lesson_text import TEXT
from tests.every import every
from tests.words import says


def test_what_a_file_becomes():
    lesson = parse("both", TEXT)
    assert (lesson.name, lesson.choices[lesson.right], lesson.seeds) == ("both", "None of them", (0, 1, 2))
    assert [setup.name for setup in lesson.setups] == ["q", "sarsa"] and lesson.charts == ("start_value/best",)
    spec = lesson.setups[1].at(7)
    assert (spec.seed, spec.steps, spec.knobs["alpha"], spec.knobs["pace"]) == (7, 4, 0.4, 0.0)
    assert lesson.explanation.startswith("The best possible") and not lesson.own
    assert parse("both", TEXT, short=True).setups[0].spec.steps == 2
    assert (lesson.topic, lesson.introduction, lesson.picture, lesson.completions) == (OWN_TOPIC, "", lesson.charts, "")


def test_the_short_form_keeps_the_runs_at_equally_many_updates():
    text = TEXT.replace("steps = 4", "steps = 12", 1)
    assert [setup.spec.steps for setup in parse("it", text, short=True).setups] == [2, 1]
    assert [setup.spec.steps for setup in parse("it", text).setups] == [12, 4]


WRITER = '''
[[runs]]
name = "free"
label = "no clip"
preset = "no_clip"
steps = 3
knobs = { beta = 0.5 }
'''


def test_a_run_of_a_preset_says_only_what_is_different():
    text = TEXT.replace("[short]", f"{WRITER}[short]").replace("check = '", "check = 'max(free, \"kl\") > 0 and ")
    run, of = parse("it", text.replace("minutes", 'completions = "free"\nminutes')).setups[-1].spec, preset("no_clip")
    assert (run.kind, run.algorithm, run.task, run.steps) == (of.kind, of.algorithm, of.task, 3)
    assert {key: run.knobs[key] for key in of.knobs} == {**of.knobs, "beta": 0.5} != of.knobs
    with pytest.raises(LabError, match=r"there is no preset.*did you mean"):
        parse("it", text.replace("no_clip", "no_clips"))


DRAW = '[question]\ntext = "Draw it"\ndraw = { run = "q", metric = "episode_return", range = [-10, 10] }\n'
ASKED = TEXT[TEXT.index("[question]"):TEXT.index("\n[[runs]]")]


def test_a_question_may_be_a_curve():
    lesson = parse("both", TEXT.replace(ASKED, DRAW))
    assert lesson.drawn is not None and (lesson.drawn.low, lesson.drawn.high) == (-10, 10) and lesson.choices == ()
    assert lesson.charts[0] == "episode_return"


@every("old, new, said", [
    ("+++\ntitle", "title", r"does not begin with settings"), ('"Both learn"', '"Both', r"not TOML .*line 2"),
    ("minutes = 1", "minutes = 1\nminutes = 2", r"not TOML"), ("title =", "titel =", r"line 2: .*did you mean 'title'"),
    ('source = "None: a test"\n', "", r"source is missing"), ('kind = "maze"\n', "", r"runs\.kind is missing"),
    ("minutes = 1", 'picture = ["rewart"]\nminutes = 1', r"line 5: .*did you mean 'reward'"),
    ("minutes = 1", 'completions = "q"\nminutes = 1', r"line 5: completions is .*of the kind llm"),
    ("minutes = 1", 'introduction = 3\nminutes = 1', r"line 5: introduction must be a text"),
    ("minutes = 1", 'minutes = "one"', r"line 5: minutes must"),
    ("minutes = 1", "minutes = 900", r"line 5: .*1 to 60"), ('"Both learn"', '""', r"line 2: title is empty"),
    ("[0, 1, 2]", "[0]", r"line 6: .*one seed is not enough"), ("[0, 1, 2]", "[0, 0]", r"line 6: seeds"),
    ("[0, 1, 2]", '[0, "b"]', r"line 6: seeds"), ("== last(sarsa", "== last(saras", r"line 7: saras is not a run"),
    ("last(sarsa, \"start_value/best\")", "1", r"does not use the run sarsa"),
    ("right = 2", "right = 3", r"line 12: question.right"), ("right = 2", "", r"question.right"),
    ('"Q-learning", "None of them"', '"Q-learning"', r"line 11: question.choices"),
    ('"None of them"', '"Q-learning"', r"twice"), ('"maze"', '"mase"', r"the run q is not valid"),
    ('"q_learning"', '"grpo"', r"the run q is not valid"), ('"textbook"', '"prompts"', r"the run q is not valid"),
    ("alpha = 0.4", "alfa = 0.4", r"the run sarsa is not valid: .*no knob 'alfa'"),
    ("steps = 4", "steps = 0", r"steps must"),
    ('name = "sarsa"', 'name = "q"', r"two runs are called 'q'"), ('name = "q"', 'name = "last"', r"cannot be called"),
    ('name = "q"', 'name = "q-1"', r"cannot be called"), ("steps = 2\n", "steps = 2\nlessons = 1\n", ""),
    ('task = "textbook"\nsteps', 'task = "textbook"\nmodel = "/etc"\nsteps', r"not the model '/etc'"),
    ("The best possible value is a matter of the maze.", "", r"no explanation"), (ASKED, "[question]\n", r"question"),
    (ASKED, DRAW.replace('"q"', '"p"'), r"draw.run is 'p'"), (ASKED, DRAW.replace("[-10, 10]", "[1]"), r"range"),
    (ASKED, DRAW + 'choices = ["a", "b"]\n', r"either choices or a curve"),
    ("minutes = 1", 'minutes = 1\nsentences = ["Both are equal", "More"]', r"line 6: sentences must be 1 text: one"),
    ("minutes = 1", "minutes = 1\nsentences = [1]", r"line 6: sentences must be"),
    ("minutes = 1", 'minutes = 1\ncharts = ["rewards"]', r"no metric 'rewards'"),
    ("minutes = 1", 'minutes = 1\ncharts = [["reward"]]', r"line 6: there is no metric"),
    ("[0, 1, 2]", "[0, 5000000000]", r"line 6: seeds must be .* from 0 to 2147483647"),
    ("minutes = 1", "minutes = 0x" + "F" * 5000, r"line 5: minutes has a number that is not finite"),
    ("minutes = 1", "minutes = " + "9" * 5000, r"are not TOML"),
    ("[0, 1, 2]", "[" * 3000 + "]" * 3000, r"are not TOML"),
    ("alpha = 0.4", "alpha = " + "9" * 400, r"alpha has a number that is not finite"),
    (ASKED, DRAW.replace("[-10, 10]", "[0, inf]"), r"range has a number that is not finite")])
def test_each_fault_is_one_sentence(old, new, said):
    assert old in TEXT
    if not said:  # only the tests read the table `short`
        parse("both", TEXT.replace(old, new))
        return
    with pytest.raises(LabError, match=said) as found:
        parse("both", TEXT.replace(old, new))
    assert "\n" not in str(found.value) and len(str(found.value)) < 400


def test_runs_that_are_the_same_are_refused():
    text = TEXT.replace('algorithm = "sarsa"', 'algorithm = "q_learning"').replace("knobs = { alpha = 0.4 }", "")
    with pytest.raises(LabError, match="q and sarsa are the same"):
        parse("both", text)


def test_a_teachers_folder_adds_lessons_and_a_bad_file_hides_no_other(tmp_path, monkeypatch):
    ours = {lesson.name for lesson in folders.lessons()[0]}
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path))
    (tmp_path / "1-mine.md").write_text(TEXT, "utf-8")
    (tmp_path / "bad.md").write_text(TEXT.replace("right = 2", "right = 7"), "utf-8")
    (tmp_path / "9_worse.md").write_text(TEXT.replace("right = 2", "right = 8"), "utf-8")
    (tmp_path / "bytes.md").write_bytes(b"+++\xff")
    (tmp_path / "cliff.md").write_text(TEXT, "utf-8")
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "README.md").write_text("no lesson", "utf-8")
    there, faults = folders.lessons()
    assert {lesson.name for lesson in there} - ours == {"mine"} and folders.find("mine").own
    names = ("9_worse.md", "bad.md", "bytes.md", "cliff.md", "pipe.md")
    assert [says(fault, name, "left out") for fault, name in zip(faults, names, strict=True)] == [True] * 5
    assert "is a device or a pipe" in faults[4] and "line 12" in faults[1] and "UTF-8" in faults[2]
    assert "rename" in faults[3]
    for name in ("bad", "worse"):
        with pytest.raises(LabError, match="line 12"):
            folders.find(name)
    with pytest.raises(LabError, match="no lesson 'mein': did you mean 'mine'"):
        folders.find("mein")
    (tmp_path / "bad.md").write_text(TEXT, "utf-8")  # mended: seen without a restart
    assert folders.find("bad").right == 1


@pytest.mark.parametrize("line, words", [
    ("a" + ".a" * 1_000 + " = 1", "more than 100 dots"), ("a" + ".a" * 20_000 + " = 1", "more than 100 dots"),
    ("a" + '."="' * 1_000 + " = 1", "more than 100 dots"), ("[a" + ".a" * 1_000 + "]", "more than 100 dots"),
    ("b = {a" + ".a" * 1_000 + " = 1}", "more than 100 dots"),
    ("[" + "a." * 90 + "a]\n" + "b." * 90 + "b = 1", "too deep"), ("b = " + "[" * 20_000, "too deep"),
    ("b = " + "{a = " * 5_000, "too deep"), ("b = " + "[" * 150 + "]" * 150, "deep"),
    ("b = " + "9" * 5_000, "not TOML"), ("b = 0x" + "f" * 50_000, "too large"), ("check = '" + "(" * 500 + "'", "")])
def test_a_lesson_that_nests_without_end_is_left_out_alone_and_at_once(line, words, tmp_path, monkeypatch):
    ours = [lesson.name for lesson in folders.lessons()[0]]
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path))
    (tmp_path / "deep.md").write_text(TEXT.replace("minutes = 1", f"minutes = 1\n{line}"), "utf-8")
    (tmp_path / "mine.md").write_text(TEXT, "utf-8")
    tracemalloc.start()
    try:
        there, [fault] = folders.lessons()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [lesson.name for lesson in there] == [*ours, "mine"]
    assert fault.startswith("The lesson deep.md is left out: ") and words in fault and peak < 2**24


def test_a_folder_that_is_not_there_is_said(tmp_path, monkeypatch):
    for place in (str(tmp_path / "none"), "~nobody-of-this-name/lessons"):
        monkeypatch.setenv(folders.VARIABLE, place)
        there, faults = folders.lessons()
        assert len(there) >= 12 and "is not a folder" in faults[0]


def test_the_documentation_has_a_lesson_that_works(tmp_path, monkeypatch):
    from tests.imports import ROOT

    text = (ROOT / "docs" / "lessons.md").read_text("utf-8")
    example = text.partition("```markdown\n")[2].partition("\n```")[0]
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path))
    (tmp_path / "discount.md").write_text(example, "utf-8")
    there, faults = folders.lessons()
    assert faults == [] and there[-1].name == "discount" and there[-1].own
