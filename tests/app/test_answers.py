"""The same questions for all runs that are compared."""

import pytest

from app.compare.answers import COUNT, SHOWN, share, table
from labcore.runs import jobs
from labcore.runs.files.paths import home, run_folder
from labcore.runs.models import source
from labcore.runs.spec.model_names import BASE, Model
from labcore.runs.spec.run_spec import base_spec
from tests.app.asking import answers, trained
from tests.app.seeding import html, ran
from tests.app.test_pages import labels
from tests.app.test_playground import said, seed_maze


def test_all_runs_answer_the_same_questions_beside_their_base(page, lab, asked):
    runs = [trained(lab.store), trained(lab.store, "ppo", seed=3)]
    (home() / "base" / base_spec(lab.store.run(runs[0]).spec).hash() / "model").mkdir(parents=True)
    assert source(Model(runs[0], BASE)).weights == source(Model(runs[1], BASE)).weights
    test = page("compare", runs=",".join(runs), view="answers")
    spec, = asked.asked
    assert spec["models"] == [f"base:{runs[0]}", *(f"{run}@6" for run in runs)]
    assert (spec["job"], spec["count"], spec["seed"]) == ("quiz", COUNT, 0)
    written = html(test)
    assert written.count("cba") == SHOWN and "64 of 64" in written and "0 of 64" in written
    assert "GRPO sort #1" in written and "step 6 · seed 3" in written and "Base, by SFT" in written
    assert "does not cover" in said(test) and "other training seeds" in said(test)
    ran(test)
    assert len(asked.asked) == 1


def test_runs_of_one_algorithm_are_told_apart_by_their_knobs(page, lab, asked):
    runs = [trained(lab.store), trained(lab.store, knobs={"beta": 0.2})]
    written = html(page("compare", runs=",".join(runs), view="answers"))
    assert "GRPO sort #1<" in written and "GRPO sort #2<" in written and "β 0.2 · seed 0" in written


def checkpoint(run: str, step: int) -> None:
    (run_folder(run) / "checkpoints" / f"step-{step:06d}" / "policy").mkdir(parents=True)


def test_newer_checkpoints_wait_until_the_answers_under_way_are_there_and_are_asked_for(page, lab, asked):
    run = trained(lab.store, state="running")
    asked.reply = lambda spec: None
    test = page("compare", runs=run, view="answers")
    first = asked.asked[0]
    for step in (7, 8):
        checkpoint(run, step)
        ran(test)
    assert all(spec == first for spec in asked.asked) and not asked.cancelled  # it is not starved
    jobs._keep(jobs.job_id(first), answers(first))
    assert "step 6 · seed 0" in html(ran(test))
    asked.reply = answers
    next(button for button in test.button if button.label == "Update with newer checkpoints").click()
    assert "step 8 · seed 0" in html(ran(test)) and "Update with newer checkpoints" not in labels(test)


def test_what_is_asked_in_place_of_answers_under_way_stops_them(page, lab, asked):
    run = trained(lab.store, state="running")
    asked.reply = lambda spec: None
    test = page("compare", runs=run, view="answers")
    checkpoint(run, 7)
    ran(test)
    next(button for button in test.button if button.label == "Update with newer checkpoints").click()
    ran(test)
    assert asked.cancelled == [jobs.job_id(asked.asked[0])]
    assert asked.asked[-1]["models"] == [f"base:{run}", f"{run}@7"], "its base comes with the lab"


def test_when_no_run_goes_the_newest_checkpoints_are_asked_unasked(page, lab, asked):
    run = trained(lab.store)
    test = page("compare", runs=run, view="answers")
    checkpoint(run, 7)
    assert "step 7 · seed 0" in html(ran(test))


def test_a_base_that_is_gone_or_differs_is_no_column(page, lab, asked):
    runs = [trained(lab.store), trained(lab.store, "ppo", knobs={"sft_steps": 0})]
    for _ in range(2):
        page("compare", runs=",".join(runs), view="answers")
        assert asked.asked[-1]["models"] == [f"{run}@6" for run in runs]
        (home() / "base" / base_spec(lab.store.run(runs[0]).spec).hash() / "model").mkdir(parents=True, exist_ok=True)


def test_runs_of_different_tasks_get_one_sentence(page, lab, asked):
    runs = [trained(lab.store), trained(lab.store, knobs={"letters": 8})]
    assert "learnt different tasks" in said(page("compare", runs=",".join(runs), view="answers"))
    assert not asked.asked


def test_a_maze_has_no_such_view(page, lab, asked):
    test = page("compare", runs=seed_maze(lab.store), view="answers")
    assert not test.exception and not asked.asked
    views = next(each for each in test.segmented_control if each.label == "View")
    assert not {"Answers", "One batch"} & {option.content for option in views.proto.options}


def test_marks_escapes_and_shares():
    found = answers({"models": ["base:a", "a@6"], "count": 4})
    found["columns"][1]["answers"][0].update(truncated=True, text="<i>")
    found["columns"][1]["answers"][1].update(exact=None)

    def titled(name):
        return f"({name})"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.naming.model_title", titled)
        written = table(found, {"a": ("GRPO sort #1", "seed 5")}, {"a": "#112233"}, "correct number")
    assert written.count("check: correct number") == 7 and "right (correct number)" in written
    assert "&lt;i&gt;" in written and "<i>" not in written.replace("<i style", "") and "(cut)" in written
    assert written.count("✓") == 3 and written.count("✗") == 4 and "seed 5" in written and "#112233" in written
    assert "3 of 3" in share(found["columns"][1], "#112233") and "100 %" in share(found["columns"][1], "#112233")
    for answer in found["columns"][1]["answers"]:
        answer["exact"] = None
    assert "no verifier" in share(found["columns"][1], "#112233")
