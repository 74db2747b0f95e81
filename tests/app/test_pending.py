"""A run that was asked to stop or to pause says so at once, wherever it is seen, until its step ends."""

import re

import pytest

from app.runs.state import PICKED
from labcore.analysis.lessons import folders, progress
from labcore.analysis.lessons.course import start
from labcore.analysis.studies import plan
from labcore.analysis.studies.rows import STUDIES
from labcore.runs import sweep
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import GOING
from tests.app.seeding import html, ran, seed
from tests.app.test_sweep_view import go, queued
from tests.every import now


def text(test) -> str:
    """All words of a page."""
    return re.sub(r"<[^>]+>", "", " ".join([html(test), *(each.value for each in test.markdown)]))


@pytest.mark.parametrize("state", now(GOING, "starting", "running"))
@pytest.mark.parametrize("button, word", [("Stop", "Stopping"), ("Pause", "Pausing")])
def test_the_page_of_a_run_says_so_after_the_click(page, lab, state, button, word):
    run_id = seed(lab.store, state)
    test = page("llm", run=run_id)
    found = next((each for each in test.button if each.label == button and not each.disabled), None)
    if found is None:  # a paused run is not paused again, and one that starts not before its first step
        assert button == "Pause" and state != "running"
        return
    found.click()
    told = text(ran(test))
    assert f"{word} {'before its first step' if state == 'starting' else 'after this step'}" in told
    assert next(each for each in test.button if each.label == button).disabled
    assert not next(each for each in test.button if each.label == "Stop").disabled or button == "Stop"
    if state == "running":
        lab.store.settle(lab.store.asked(run_id)[0].id, 6)
        lab.store.set_state(run_id, "stopped" if button == "Stop" else "paused")
        assert word not in text(ran(test))


def test_while_its_base_is_made_the_first_stage_says_so(page, lab):
    run_id = lab.store.create(make(algorithm_key="grpo", task_key="sort"), mine=True)
    base = seed(lab.store, "running", algorithm="sft")
    lab.store.set_base(run_id, base, cached=False)
    lab.store.ask(run_id, "stop")
    told = text(page("llm", run=run_id))
    assert "Stage 1 of 2: SFT, then GRPO" in told and "Stopping after this step" in told


def test_the_lists_say_so(page, lab):
    run_id = seed(lab.store, "running")
    test = page("runs")
    test.session_state[PICKED] = [run_id]
    next(each for each in ran(test).button if each.label == "Stop").click()
    test = ran(test)
    assert test.dataframe[0].value["state"].tolist() == [["Stopping"]]
    assert "1 run stops after its current step." in " ".join(each.value for each in (*test.success, *test.info,
                                                                                     *test.markdown, *test.caption))
    assert next(each for each in test.button if each.label == "Stop").disabled
    assert "stopping" in text(page("home"))
    assert any("stopping" in option for option in page("llm", run=run_id).selectbox[0].options)


@pytest.mark.parametrize("view", now(["sweep", "table"], "table"))
def test_a_sweep_says_so(page, lab, view):
    sweep_id = queued(lab.store, {"beta": [0.0, 0.1]}, seeds=(0, 1))
    for run in lab.store.sweep_runs(sweep_id)[:2]:
        go(lab.store, run, 0.5, state="running")
    test = page("compare", sweep=sweep_id, view=view)
    next(each for each in test.button if each.label == "Cancel 4").click()
    told = text(ran(test))
    assert "2 stopping" in told and "2 stopped" in told
    found = next(each for each in test.button if each.label.startswith(("Cancel", "Stopping")))
    assert found.label == "Stopping 2" and found.disabled


def test_a_study_says_so(page, lab):
    key, study = next((key, study) for key, study in STUDIES.items() if not study.scorers)
    plan.queue(lab.store, plan.missing(study, plan.found(study, []))[:2])
    go(lab.store, lab.store.sweep_runs()[0], 0.5, state="running")
    test = page("studies", study=key)
    test.button(key="study:stop").click()
    assert "1 stopping" in text(ran(test)) and test.button(key="study:stop").disabled


def test_a_lesson_says_so(page, lab):
    lesson = folders.find("cliff")
    progress.predict("cliff", 0)
    progress.begin("cliff", start(lab.store, lesson))
    runs = sweep.sweep(lab.store, progress.newest("cliff").sweep).runs
    go(lab.store, runs[0], 0.5, state="running")
    lab.store.ask(runs[0].id, "stop")
    told = text(page("lessons", lesson="cliff"))
    assert f"0 of {len(runs)} runs finished, {len(runs) - 1} waiting, 1 stopping" in told
