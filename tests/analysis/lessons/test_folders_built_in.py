"""Every built-in lesson in its short form, with fixed seeds: what it claims comes out (of most with `make test-long`),
and its first steps log all that it reads. Runs that several lessons make alike are made once. Sessions are driven
directly: no store, no files of a run."""

import re
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from labcore.analysis.lessons import course as courses
from labcore.analysis.lessons import folders, recorded
from labcore.analysis.lessons.expression import Logged
from labcore.analysis.lessons.lesson import OWN_TOPIC, parse
from labcore.analysis.lessons.verdict import judge
from labcore.classic.envs.maze_presets import corridors
from labcore.runs.files import bases
from labcore.runs.spec.run_spec import RunSpec, base_spec
from labcore.workers.worker import start_session
from tests.llm.tools import records

FILES = sorted(folders.HERE.glob("*.md"))
AT_ONCE = ("clip",)  # trains a language model; the example in the docs is a maze
# Lessons whose runs resemble the runs of other lessons: GRPO or PPO on sort.
ALIKE = ("entropy", "gae_lambda", "group_size", "kl_coefficient", "zero_variance")
LONGEST = 30  # steps of a language model's run, some 10 s on a laptop


@cache
def ran(text: str) -> tuple[Logged, int]:
    """The rows of the run of a spec, and how many updates it made."""
    spec = RunSpec.from_json(text)
    base = base_spec(spec)
    folder = bases.SHIPPED / base.hash() / "model" if base else None
    session = start_session(spec, folder, None)
    return courses.logged(records(session)), session.updates


def logged(text: str) -> Logged:
    """The rows of the run of a spec."""
    return ran(text)[0]


def of_all(*names: str) -> list:
    """All lessons; those that are not named are for `make test-long`."""
    return [pytest.param(path, id=name, marks=() if name in names else pytest.mark.long)
            for path in FILES for name in [folders.name_of(path)]]


@pytest.mark.parametrize("path", of_all(*AT_ONCE))
def test_what_a_lesson_claims_comes_out(path):
    lesson = parse(folders.name_of(path), path.read_text("utf-8"), short=True)
    runs = {setup.name: [logged(setup.at(seed).to_json()) for seed in lesson.seeds] for setup in lesson.setups}
    verdict = judge(lesson.check, runs)
    assert verdict.says == "holds", verdict
    assert all(key in run for key in lesson.charts for run in runs[lesson.setups[0].name]), "a chart without values"


FEW = {"prompts_per_step", "pairs_per_step", "eval_prompts", "eval_pairs", "eval_answers", "eval_episodes"}


def small(spec: RunSpec) -> RunSpec:
    """Two steps of a few prompts, which log the same numbers."""
    few = {key: min(4, value) for key, value in spec.knobs.items() if key in FEW}
    return replace(spec, steps=2, knobs=spec.knobs | few)


@pytest.mark.parametrize("path", of_all(*({folders.name_of(path) for path in FILES} - {*ALIKE})))
def test_its_first_steps_log_what_it_reads_and_its_runs_make_equally_many_updates(path):
    """One seed says neither yes nor no, but the check can be read. More updates would be no fair comparison."""
    lesson = parse(folders.name_of(path), path.read_text("utf-8"), short=True)
    specs = {setup.name: small(setup.at(lesson.seeds[0])) for setup in lesson.setups}
    runs = {name: [logged(spec.to_json())] for name, spec in specs.items()}
    verdict = judge(lesson.check, runs)
    assert verdict.seeds == 1 and verdict.parts
    made = {setup.name: ran(specs[setup.name].to_json())[1] * setup.spec.steps // 2 for setup in lesson.setups}
    assert len({*made.values()}) == 1, made
    if lesson.setups[0].spec.kind == "llm":
        assert made == {setup.name: setup.updates for setup in lesson.setups}  # as the page says it
    assert all(key in runs[setup.name][0] for key in lesson.picture for setup in lesson.setups), "no picture"
    assert all(key in run for key in lesson.charts for run in runs[lesson.setups[0].name]), "a chart without values"


def test_the_example_of_the_docs_is_a_lesson_and_its_claim_and_numbers_are_right():
    text = (Path(__file__).parents[3] / "docs" / "lessons.md").read_text("utf-8")
    lesson = parse("discount", text.split("```markdown\n")[1].split("```")[0])
    runs = {setup.name: [logged(setup.at(seed).to_json()) for seed in lesson.seeds] for setup in lesson.setups}
    assert judge(lesson.check, runs).says == "holds"
    maze, moves = corridors(), 0
    reached = {maze.start}
    while not any(maze.where("goal").flat[state] for state in reached):
        reached |= {int(state) for known in reached for state in maze.neighbours[known]}
        moves += 1
    assert f"{moves} moves away" in lesson.introduction and f"{0.5 ** (moves - 1):.7f}" in lesson.explanation


def test_there_are_enough_and_they_are_small():
    there, faults = folders.lessons()
    assert len(there) == len(FILES) >= 12 and faults == []
    assert sum(lesson.drawn is not None for lesson in there) >= 2
    for lesson in there:
        assert len(lesson.seeds) >= 3 and lesson.minutes <= 5 and lesson.source and lesson.sentences, lesson.name
        for setup in lesson.setups:
            assert setup.spec.kind != "llm" or setup.spec.steps <= LONGEST, lesson.name
            base = base_spec(setup.spec)
            assert base is None or bases.shipped(base.hash()), "the first run must not wait for SFT"


def test_each_has_its_topic_three_sentences_and_a_picture_of_its_own_runs():
    """Where this fails for a picture: `python -m docs.record_lessons`."""
    topics = [lesson.topic for lesson in folders.built_in()]
    assert [topic for topic, _ in groupby(topics)] == [*dict.fromkeys(topics)]  # each topic stands in one place
    assert OWN_TOPIC not in topics and 3 <= len({*topics}) <= 6
    for lesson in folders.built_in():
        assert len(re.findall(r"[.?](?=\s|$)", lesson.introduction)) == 3, lesson.name
        curves = recorded.recorded(lesson)
        assert curves is not None, f"the picture of {lesson.name} is missing or out of date"
        for key in lesson.picture:
            for setup in lesson.setups:
                values = curves[key][setup.name]
                assert len(values) == min(recorded.POINTS, len(values)) > 3, (lesson.name, key)


def test_a_picture_is_out_of_date_once_a_run_of_its_lesson_changes():
    lesson = folders.find("cliff")
    changed = replace(lesson, setups=tuple(replace(each, spec=replace(each.spec, steps=200)) for each in lesson.setups))
    assert recorded.recorded(lesson) and recorded.recorded(changed) is None
    assert recorded.recorded(replace(lesson, name="mine", own=True)) is None


def test_a_curve_is_the_mean_over_seeds_by_equal_stretches():
    lesson = replace(folders.find("cliff"), picture=("reward",))
    seeds = [{"reward": (np.arange(48.0), value + np.arange(48.0))} for value in (0.0, 2.0)]
    found = recorded.curves(lesson, {"q": seeds})["reward"]["q"]
    assert found == [2 * stretch + 1.5 for stretch in range(24)]


def test_the_first_hour_is_six_lessons_that_are_there():
    names = [lesson.name for lesson in folders.built_in()]
    assert len({*folders.FIRST_HOUR}) == 6 and {*folders.FIRST_HOUR} <= {*names}
    assert sum(lesson.minutes for lesson in folders.built_in() if lesson.name in folders.FIRST_HOUR) < 40


def test_the_lesson_to_begin_with_is_the_example_of_the_docs():
    assert folders.TEMPLATE.read_text("utf-8") in (Path(__file__).parents[3] / "docs" / "lessons.md").read_text("utf-8")


def test_right_answers_are_not_always_at_one_place():
    places = [lesson.right for lesson in folders.lessons()[0] if lesson.choices]
    assert max(places.count(place) for place in set(places)) < 0.75 * len(places)
