"""What several views show while they wait for jobs: each has elements of its own, says how far its job is, and stops.

"""

from streamlit.testing.v1 import AppTest

from labcore.runs import jobs
from tests.app.asking import Answering
from tests.app.seeding import html, ran


def views():
    import streamlit as st

    from app import jobs

    for view, prompt in st.session_state["asked"]:
        jobs.result({"job": "next_token", "model": "m", "prompt": prompt}, f"{view} waits", view)
    for view, asked in st.session_state.get("before", ()):
        jobs._waiting(view, asked, f"{view} waits")


def waiting(lab, *asked):
    Answering(lab.launcher, lambda spec: None)
    test = AppTest.from_function(views)
    test.session_state["asked"] = list(asked)
    return ran(test)


def test_two_views_wait_for_one_job_and_a_third_for_another(lab, monkeypatch):
    monkeypatch.setattr("app.jobs.AT_ONCE_SECONDS", 0.0)
    test = waiting(lab, ("one", "a"), ("two", "a"), ("three", "b"))
    assert not test.exception and [each.label for each in test.button] == ["Stop"] * 3


def test_the_fragment_of_a_job_that_is_no_longer_asked_for_runs_beside_the_new_one(lab, monkeypatch):
    """As a browser has it where its timer and a click meet: both fragments are drawn in one run."""
    monkeypatch.setattr("app.jobs.AT_ONCE_SECONDS", 0.0)
    test = waiting(lab, ("playground", "a"))
    test.session_state["before"] = [("playground", test.session_state["asked:playground"])]
    test.session_state["asked"] = [("playground", "b")]
    test = ran(test)
    assert not test.exception and "playground waits" in html(test)


def test_jobs_that_failed_in_two_views(lab, monkeypatch):
    Answering(lab.launcher, lambda spec: "it broke")
    test = AppTest.from_function(views)
    test.session_state["asked"] = [("one", "a"), ("two", "a")]
    assert not ran(test).exception and len(test.error) == 2


def test_what_the_job_does_is_said_as_text(lab, monkeypatch):
    monkeypatch.setattr("app.jobs.AT_ONCE_SECONDS", 0.0)
    test = waiting(lab, ("one", "a"))
    jobs.say(test.session_state["asked:one"].job, "sampling 3 of 8 <tokens>")
    assert "sampling 3 of 8 &lt;tokens&gt;" in html(ran(test))


def test_what_is_waited_for_is_said_as_text(lab, monkeypatch):
    """The name of a dataset or of a mix is in it."""
    monkeypatch.setattr("app.jobs.AT_ONCE_SECONDS", 0.0)
    assert "&lt;img src=x&gt; waits" in html(waiting(lab, ("<img src=x>", "a")))
