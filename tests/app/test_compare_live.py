"""The Compare page while runs are running: polls, ticks, and views that cannot be drawn any more."""


import pytest
import streamlit as st

from app.compare import curves
from app.compare import page as compare_page
from labcore.errors import LabError
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from tests.analysis.compare import tools
from tests.app.test_compare_page import charts, views
from tests.words import says


def test_only_runs_that_go_are_polled(page, lab, pair, monkeypatch):
    every = {}
    monkeypatch.setattr(st, "fragment", lambda draw, run_every=None, key=None: every.update({key: run_every}) or draw)
    page("compare", runs=",".join(pair))
    assert every["compare"] is None
    page("compare", runs=tools.stored(lab.store, [0.5], state="running"))
    assert every["compare"] == 1.0


@pytest.fixture
def ticks(monkeypatch):
    """The first draw of the page is followed by what `ticks.between` does and a tick; `drawn` is what a view got."""
    class Ticks:
        between, drawn = None, []

        def fragment(self, draw, run_every=None, key=None):
            def twice(*args):
                draw(*args)
                if key == "compare" and self.between:
                    between, self.between = self.between, None
                    between()
                    draw(*args)
            return twice

    found = Ticks()
    found.drawn = []
    monkeypatch.setattr(st, "fragment", found.fragment)
    monkeypatch.setitem(compare_page.DRAWN, "curves", compare_page.View(
        lambda chosen, stand, full: found.drawn.append((chosen, full))))
    return found


def row(store, run, step, **metrics):
    store.append(run, Record(step, 100 * step, {"reward": 0.5, "updates": float(step), **metrics}), float(step))


def test_two_metrics_of_runs_that_begin_are_drawn_once_both_are_logged(page, lab):
    waiting = [lab.store.create(make(algorithm_key=key, task_key="sort"), mine=True) for key in ("grpo", "ppo")]
    test = page("compare", runs=",".join(waiting), view="plane")
    assert next(box for box in test.selectbox if box.label == "Horizontal axis").value == "step"
    lab.store.set_state(waiting[0], "running")
    row(lab.store, waiting[0], 1, kl=0.0)
    panel, = charts(page("compare", runs=",".join(waiting), view="plane"))["main"]["panels"]
    low, high = panel["range"]["y"]
    assert (low, high) == (45, 55), "one value is no reason for ticks of seven digits"


def test_a_browser_that_lost_its_lines_gets_them_as_they_are_now(page, lab, ticks):
    run = tools.stored(lab.store, [0.5], state="running")
    ticks.between = lambda: (row(lab.store, run, 2), curves.resync())
    page("compare", runs=run)
    assert [(chosen.traces[0].axes["step"].size, full) for chosen, full in ticks.drawn] == [(1, True), (2, True)]


def test_a_knob_that_is_moved_is_another_group_around_the_view_too(page, lab, ticks):
    runs = [tools.stored(lab.store, [0.5], seed=number, state="running") for number in range(2)]
    ticks.between = lambda: lab.store.log(runs[0], "knob", {"knob": "beta", "to": 0.2, "update": 0, "between": 1}, 1)
    test = page("compare", runs=",".join(runs))
    assert [(len(chosen.groups), full) for chosen, full in ticks.drawn] == [(1, True), (2, True)]  # a run of the page
    assert any(box.label == "Baseline" for box in test.selectbox)


def test_a_metric_that_is_logged_once_long_ago_or_late_is_offered(page, lab, ticks):
    ended = tools.stored(lab.store, [0.5], state="running")
    row(lab.store, ended, 2, exact_match=0.5)
    for step in range(3, 80):
        row(lab.store, ended, step)
    going = tools.stored(lab.store, [0.5], seed=1, state="running")
    ticks.between = lambda: row(lab.store, going, 2, kl=0.1)
    test = page("compare", runs=f"{ended},{going}")
    assert [full for _, full in ticks.drawn] == [True, True]  # the page was run again
    options = next(box for box in test.selectbox if box.label == "Metric").options
    assert all(any(label in each for each in options) for label in ("KL to the reference", "Exact match")), options


def test_what_a_view_cannot_read_any_more_is_a_sentence(page, lab, pair, monkeypatch):
    def gone(chosen, stand, full):
        raise LabError("The checkpoint [x] is gone: choose another one.")

    monkeypatch.setitem(compare_page.DRAWN, "curves", compare_page.View(gone))
    assert says(page("compare", runs=pair[0]).error[0].value, "\\[x\\]", "gone", "choose another")


def test_a_view_that_fails_leaves_the_way_to_another_one(page, lab, pair, monkeypatch):
    def broken(chosen, stand, full):
        raise ValueError("nobody thought of this")

    monkeypatch.setitem(compare_page.DRAWN, "curves", compare_page.View(broken))
    test = page("compare")
    test.query_params["runs"] = pair[0]
    test.run()
    assert [each.message for each in test.exception] == ["nobody thought of this"]
    assert test.multiselect[0].value == [pair[0]] and "Table" in views(test)
